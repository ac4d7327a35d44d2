"""The sender's loop against brokers that the test plays: retries, leaders that move, throttling, time-outs, work."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any

import pytest

from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import Node
from kafka_sink.common.threads import start_thread
from kafka_sink.protocol.messages.produce import PartitionProduceResponse
from tests.fakes.brokers import SILENCE, FakeBrokers
from tests.fakes.clock import FakeClock
from tests.fakes.producing import TOPIC, queue_of, queued, tp
from tests.fakes.sender_world import SenderWorld
from tests.support.cases import with_each

#: What a broker may say of a partition that another attempt can cure.
RETRIABLE = [
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
]
FATAL = [
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_RECORD,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
]


@pytest.mark.behaviour("Retries", "A retriable error is retried until the batch is stored")
@with_each("code", RETRIABLE)
@with_each("times", [1, 3])
def test_a_retriable_answer_is_retried_until_it_succeeds(code: ErrorCode, times: int) -> None:
    world = SenderWorld()
    world.connect()
    world.brokers.verdicts[0].extend([code] * times)
    (future,) = world.send(b"v")
    world.settle()
    assert future.get(0).offset == 0
    assert world.brokers.values() == [b"v"]
    attempts = world.brokers.produced_at()
    assert len(attempts) == times + 1
    assert all(later - earlier >= 100 for earlier, later in itertools.pairwise(attempts))
    world.assert_memory_is_back()


@pytest.mark.behaviour("Retries", "A fatal error fails its records at once, and no others")
@with_each("code", FATAL)
def test_a_final_answer_fails_the_record_at_once_and_no_other(code: ErrorCode) -> None:
    world = SenderWorld()
    world.connect()
    began = world.clock.now_ms
    world.brokers.verdicts[0].append(code)
    (refused,) = world.send(b"refused")
    world.settle()
    (fine,) = world.send(b"fine")
    world.settle()
    with pytest.raises(ApiError) as caught:
        refused.get(0)
    assert caught.value.code is code
    assert fine.get(0).offset == 0
    assert world.clock.now_ms - began < 100, "nothing was waited for"
    assert len(world.brokers.produced) == 2
    world.assert_memory_is_back()


@pytest.mark.behaviour("Retries", "A leader that an answer names (KIP-951) is sent to at once, if it is news")
def test_leader_named_by_answer_is_used_without_backoff() -> None:
    brokers = FakeBrokers(leaders=[1, 1], nodes=2)
    brokers.tells_leaders = True
    world = SenderWorld(brokers)
    world.connect()
    # Both connections are there, as in a cluster that is in use.
    world.brokers.leaders[1] = (2, 1)
    world.send(b"warm", partition=1)
    world.settle()
    asked = brokers.metadata_requests
    brokers.leaders[0] = (2, 1)
    began = world.clock.now_ms
    (future,) = world.send(b"v")
    world.settle()
    assert future.get(0).offset == 0
    assert [node for node, partition, _ in brokers.produced if partition == 0] == ["1", "2"]
    assert world.clock.now_ms == began, "no backoff was waited for"
    assert world.metadata.fetch().leader_for(tp(0)) == brokers.nodes[2]
    assert brokers.metadata_requests <= asked + 1


def test_without_named_leader_metadata_and_backoff_are_used() -> None:
    brokers = FakeBrokers(leaders=[1], nodes=2)
    world = SenderWorld(brokers)
    world.connect()
    brokers.leaders[0] = (2, 1)
    began = world.clock.now_ms
    (future,) = world.send(b"v")
    world.settle()
    assert future.get(0).offset == 0
    assert brokers.metadata_requests >= 2
    assert world.clock.now_ms > began


@pytest.mark.behaviour("Retries", "A leader that an answer names (KIP-951) is sent to at once, if it is news")
@with_each(("leader", "epoch"), [(2, 0), (7, 5), (-1, 5), (2, -1)])
def test_named_leader_that_is_not_newer_is_ignored(leader: int, epoch: int) -> None:
    brokers = FakeBrokers(leaders=[1], nodes=1)
    world = SenderWorld(brokers)
    world.connect()
    verdict = PartitionProduceResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1)
    verdict.current_leader.leader_id, verdict.current_leader.leader_epoch = leader, epoch
    brokers.verdicts[0].append(verdict)
    brokers.tells_leaders = True
    began = world.clock.now_ms
    (future,) = world.send(b"v")
    world.settle()
    assert future.get(0).offset == 0
    assert world.clock.now_ms - began >= 100, "it is the same leader, so it is given time"


@pytest.mark.behaviour(
    "Throttling and quotas",
    "A throttled producer keeps quiet for exactly the time it was told, and goes on with other brokers",
)
def test_throttled_producer_waits_exactly_the_throttle_time() -> None:
    world = SenderWorld()
    world.connect()
    world.brokers.throttle_ms = 700
    for value in (b"a", b"b", b"c"):
        world.send(value)
        world.settle()
    first, second, third = world.brokers.produced_at()
    assert second - first == 700
    assert third - second == 700


@pytest.mark.behaviour("Sender", "A broker that throttles does not hold up the others")
def test_throttling_one_broker_does_not_hold_up_the_others() -> None:
    brokers = FakeBrokers(leaders=[1, 2], nodes=2)
    world = SenderWorld(brokers)
    world.connect()
    brokers.throttle_ms = 5_000
    world.send(b"a", partition=0)
    world.settle()
    brokers.throttle_ms = 0
    began = world.clock.now_ms
    world.send(b"b", partition=1)
    world.settle()
    assert world.clock.now_ms - began < 200


@pytest.mark.behaviour("Metadata", "Partitions that a topic gains are found while records are sent")
def test_partitions_that_a_topic_gains_are_found() -> None:
    world = SenderWorld(FakeBrokers(leaders=[1]))
    world.connect()
    world.send(b"a")
    world.settle()
    world.brokers.leaders[1] = (1, 0)
    world.metadata.request_update()
    world.clock.advance(200)
    world.step(5)
    assert world.metadata.fetch().partition_count(TOPIC) == 2
    world.send(b"b", partition=1)
    world.settle()
    assert world.brokers.values(1) == [b"b"]


@pytest.mark.behaviour("Metadata", "A cluster whose brokers are all gone is looked for through the bootstrap servers")
def test_moved_cluster_is_found_again_via_bootstrap_servers() -> None:
    world = SenderWorld(FakeBrokers(leaders=[1], nodes=2))
    world.connect()
    world.send(b"a")
    world.settle()
    for number in (1, 2):
        world.network.refusals[str(number)] = ConnectionRefusedError(111, "Connection refused")
        if str(number) in world.network.connections:
            world.network.lose(str(number))
    world.brokers.nodes = {3: Node(3, "127.0.0.1", 9003)}
    world.brokers.leaders[0] = (3, 1)
    (future,) = world.send(b"b")
    world.settle()
    assert future.get(0).offset == 1
    assert [node for node, _, _ in world.brokers.produced] == ["1", "3"]


@pytest.mark.behaviour("Drain", "Work of a pass does not grow with the number of batches that wait")
def test_pass_over_idle_partitions_takes_no_lock() -> None:
    world = SenderWorld(FakeBrokers(leaders=[1] * 200))
    world.connect()
    for partition in range(200):
        queue_of(world.accumulator, partition)
    held = [queue_of(world.accumulator, partition).lock for partition in range(1, 200)]
    for lock in held:
        assert lock.acquire(blocking=False)
    (future,) = world.send(b"v")
    world.settle()
    assert future.get(0).offset == 0
    for lock in held:
        lock.release()


@pytest.mark.behaviour("Drain", "Work of a pass does not grow with the number of batches that wait")
def test_pass_looks_only_at_first_batch_of_a_partition() -> None:
    looks: list[int] = []
    for waiting in (1, 50):
        world = SenderWorld(linger_ms=1000, batch_size=200)
        world.connect()
        world.brokers.verdicts[0].append(SILENCE)
        for _ in range(waiting):
            world.send(b"x" * 100)
        count = 0

        def counting(*_: object) -> int:
            nonlocal count
            count += 1
            return 0

        # Private: how many batches are looked at shows outside as time only.
        world.drain._backoff_left_ms = counting  # type: ignore[assignment,method-assign]
        world.drain.ready(world.metadata.fetch(), world.clock.now_ms)
        looks.append(count)
        assert len(queued(world.accumulator)) == waiting
    assert looks == [1, 1]


@with_each("properties", [{"reconnect_backoff_ms": 0}, {"retry_backoff_ms": 0}])
@with_each("idempotent", [True, False])
def test_zero_backoff_does_not_spin_while_connecting(properties: dict[str, Any], idempotent: bool) -> None:
    world = SenderWorld(enable_idempotence=idempotent, **properties)
    world.network.auto_connect = False
    world.network.auto_ready = False
    for _ in range(20):
        world.sender.run_once()
    assert min(world.network.poll_timeouts[1:]) > 0


@pytest.mark.behaviour("Sender", "A pass with nothing to do ends, and does not spin")
def test_zero_backoff_without_reachable_broker_does_not_spin() -> None:
    world = SenderWorld(retry_backoff_ms=0)
    world.network.refusals["-1"] = ConnectionRefusedError()
    for _ in range(20):
        world.sender.run_once()
    assert min(world.network.poll_timeouts[1:]) > 0


class _Broken:
    """Stands for the sender's step: raises what it is given, then closes the sender."""

    def __init__(self, world: SenderWorld, *errors: Exception | None) -> None:
        self._world = world
        self._errors = deque(errors)

    def __call__(self) -> None:
        error = self._errors.popleft()
        if not self._errors:
            self._world.sender.initiate_close()
        if error is not None:
            raise error


@pytest.mark.behaviour("Sender", "The sender goes on after an error that nobody foresaw, with a pause")
def test_sender_pauses_after_unexpected_error_and_logs_it_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = SenderWorld(retry_backoff_ms=70)
    step = _Broken(world, *[ValueError("a")] * 3, None, ValueError("a"), KeyError("b"), KeyError("b"))
    monkeypatch.setattr(world.sender, "run_once", step)
    world.sender.run()
    assert world.clock.waits == [70] * 6
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ValueError, ValueError, KeyError]


def test_unexpected_error_never_spins_and_close_ends_the_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = SenderWorld(retry_backoff_ms=0)
    monkeypatch.setattr(world.sender, "run_once", _Broken(world, ValueError("a"), ValueError("a")))
    world.sender.run()
    assert world.clock.waits == [1, 1]

    world = SenderWorld(clock=FakeClock(shared=True), retry_backoff_ms=100_000)
    monkeypatch.setattr(world.sender, "run_once", _Broken(world, *[ValueError("a")] * 1000))
    thread = start_thread("sender", world.sender.run)
    world.clock.until_somebody_waits()
    world.sender.force_close()
    thread.join(60)
    assert not thread.is_alive()
