"""The sender's loop against brokers that the test simulates: retries, moving leaders, throttling, timeouts, work."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import Node
from kafka_sink.common.threads import start_thread
from kafka_sink.producer.batching.producer_batch import ProducerBatch
from kafka_sink.protocol.messages.produce import PartitionProduceResponse
from tests.fakes.brokers import SILENCE, FakeBrokers
from tests.fakes.clock import FakeClock
from tests.fakes.producing import TOPIC, queue_of, queued, tp
from tests.fakes.sender_world import SenderWorld
from tests.support.cases import with_each

#: Error codes of a partition that another attempt may resolve, and those that it cannot.
RETRIABLE = """CORRUPT_MESSAGE UNKNOWN_TOPIC_OR_PARTITION LEADER_NOT_AVAILABLE NOT_LEADER_OR_FOLLOWER REQUEST_TIMED_OUT
    NETWORK_EXCEPTION NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND KAFKA_STORAGE_ERROR"""
FATAL = """MESSAGE_TOO_LARGE INVALID_TOPIC_EXCEPTION TOPIC_AUTHORIZATION_FAILED INVALID_PRODUCER_EPOCH INVALID_RECORD
    UNSUPPORTED_COMPRESSION_TYPE"""


def world_of(leaders: Sequence[int] = (1,), nodes: int = 1, **properties: Any) -> SenderWorld:
    """A world that is connected to *nodes* brokers."""
    world = SenderWorld(FakeBrokers(leaders, nodes), **properties)
    world.connect()
    return world


@pytest.mark.behaviour("Retries", "A retriable error is retried until the batch is stored")
@with_each("code", RETRIABLE.split())
@with_each("backoffs_ms", [[100], [100, 200, 400, 800, 1000, 1000]])
def test_a_retriable_answer_is_retried_until_it_succeeds(code: str, backoffs_ms: list[int]) -> None:
    world = world_of(retry_backoff_max_ms=1000)
    world.brokers.verdicts[0].extend([ErrorCode[code]] * len(backoffs_ms))
    (future,) = world.sent(b"v")
    assert future.result(0).offset == 0
    assert world.brokers.values() == [b"v"]
    assert [later - earlier for earlier, later in itertools.pairwise(world.brokers.produced_at())] == backoffs_ms
    assert world.figure("record-retry-total") == len(backoffs_ms)
    world.assert_memory_is_back()


@pytest.mark.behaviour("Retries", "A fatal error fails its records at once, and no others")
@with_each("code", FATAL.split())
def test_a_final_answer_fails_the_record_at_once_and_no_other(code: str) -> None:
    world = world_of()
    began = world.now
    world.brokers.verdicts[0].append(ErrorCode[code])
    (refused,), (fine,) = world.sent(b"refused"), world.sent(b"fine")
    with pytest.raises(ApiError, match=code):
        refused.result(0)
    assert fine.result(0).offset == 0
    assert world.now - began < 100, "nothing was waited for"
    assert len(world.brokers.produced) == 2
    world.assert_memory_is_back()


@pytest.mark.behaviour("Retries", "A leader that an answer names (KIP-951) is sent to at once, if it is news")
def test_leader_named_by_answer_is_used_without_backoff() -> None:
    world = world_of([1, 1], nodes=2)
    brokers = world.brokers
    brokers.tells_leaders = True
    # Both connections are open, as in a cluster that is in use.
    brokers.leaders[1] = (2, 1)
    world.sent(b"warm", partition=1)
    asked = brokers.metadata_requests
    brokers.leaders[0] = (2, 1)
    began = world.now
    (future,) = world.sent(b"v")
    assert future.result(0).offset == 0
    assert [node for node, partition, _ in brokers.produced if partition == 0] == ["1", "2"]
    assert world.now == began, "no backoff was waited for"
    assert world.metadata.fetch().leader_for(tp(0)) == brokers.nodes[2]
    assert brokers.metadata_requests <= asked + 1


def test_without_named_leader_metadata_and_backoff_are_used() -> None:
    world = world_of(nodes=2)
    began = world.now
    world.brokers.leaders[0] = (2, 1)
    (future,) = world.sent(b"v")
    assert future.result(0).offset == 0
    assert world.brokers.produced[-1][0] == "2"
    assert world.brokers.metadata_requests >= 2
    assert began < world.now < began + 1000


@pytest.mark.behaviour("Retries", "A leader that an answer names (KIP-951) is sent to at once, if it is news")
@with_each(("leader", "epoch"), [(2, 0), (7, 5), (-1, 5), (2, -1)])
def test_named_leader_that_is_not_newer_is_ignored(leader: int, epoch: int) -> None:
    world = world_of()
    verdict = PartitionProduceResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1)
    verdict.current_leader.leader_id, verdict.current_leader.leader_epoch = leader, epoch
    world.brokers.verdicts[0].append(verdict)
    world.brokers.tells_leaders = True
    began = world.now
    (future,) = world.sent(b"v")
    assert future.result(0).offset == 0
    assert world.now - began >= 100, "it is the same leader, so it is given time"


@with_each("code", ["UNKNOWN_PRODUCER_ID", "OUT_OF_ORDER_SEQUENCE_NUMBER"])
def test_a_broker_that_forgot_the_producer_loses_no_record(code: str) -> None:
    world = world_of()
    world.sent(b"a")
    forgot = PartitionProduceResponse(error_code=ErrorCode[code], base_offset=-1, log_start_offset=1)
    world.brokers.verdicts[0].append(forgot)
    (future,) = world.sent(b"b")
    assert future.result(0).offset == 1
    assert world.brokers.values() == [b"a", b"b"]
    header = world.brokers.batches[0][-1].header
    assert (header.producer_epoch, header.base_sequence) == (1, 0)


@pytest.mark.behaviour(
    "Throttling and quotas",
    "A throttled producer keeps quiet for exactly the time it was told, and goes on with other brokers",
)
def test_throttled_producer_waits_exactly_the_throttle_time() -> None:
    world = world_of()
    world.brokers.throttle_ms = 700
    for value in (b"a", b"b", b"c"):
        world.sent(value)
    first, second, third = world.brokers.produced_at()
    assert (second - first, third - second) == (700, 700)


@pytest.mark.behaviour("Sender", "A broker that throttles does not hold up the others")
def test_throttling_one_broker_does_not_hold_up_the_others() -> None:
    world = world_of([1, 2], nodes=2)
    world.brokers.throttle_ms = 5_000
    world.sent(b"a", partition=0)
    world.brokers.throttle_ms = 0
    began = world.now
    world.sent(b"b", partition=1)
    assert world.now - began < 200


@pytest.mark.behaviour("Metadata", "Partitions that a topic gains are found while records are sent")
def test_partitions_that_a_topic_gains_are_found() -> None:
    world = world_of()
    world.sent(b"a")
    world.brokers.leaders[1] = (1, 0)
    world.metadata.request_update()
    world.clock.advance(200)
    world.step(5)
    assert world.metadata.fetch().partition_count(TOPIC) == 2
    world.sent(b"b", partition=1)
    assert world.brokers.values(1) == [b"b"]


@pytest.mark.behaviour("Metadata", "A cluster whose brokers are all gone is looked for through the bootstrap servers")
def test_moved_cluster_is_found_again_via_bootstrap_servers() -> None:
    world = world_of(nodes=2)
    world.sent(b"a")
    for node in ("1", "2"):
        world.network.refusals[node] = ConnectionRefusedError(111, "Connection refused")
        if node in world.network.connections:
            world.network.lose(node)
    world.brokers.nodes = {3: Node(3, "127.0.0.1", 9003)}
    world.brokers.leaders[0] = (3, 1)
    (future,) = world.sent(b"b")
    assert future.result(0).offset == 1
    assert [node for node, _, _ in world.brokers.produced] == ["1", "3"]


@pytest.mark.behaviour("Drain", "Work of a pass does not grow with the number of batches that wait")
def test_pass_over_idle_partitions_takes_no_lock() -> None:
    world = world_of([1] * 200)
    held = [queue_of(world.accumulator, partition).lock for partition in range(1, 200)]
    with contextlib.ExitStack() as stack:
        for lock in held:
            stack.enter_context(lock)
        (future,) = world.sent(b"v")
    assert future.result(0).offset == 0


@pytest.mark.behaviour("Drain", "Work of a pass does not grow with the number of batches that wait")
def test_pass_looks_only_at_first_batch_of_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(linger_ms=1000, batch_size=200)
    world.brokers.verdicts[0].append(SILENCE)
    world.send(*[b"x" * 100] * 50)
    assert len(queued(world.accumulator)) == 50
    looks: list[ProducerBatch] = []
    # Private: from outside, the number of batches that are checked shows only as time.
    monkeypatch.setattr(world.drain, "_backoff_left_ms", lambda batch, *rest: looks.append(batch) or 0)
    world.drain.ready(world.metadata.fetch(), world.now)
    assert len(looks) == 1


@with_each("properties", [{"reconnect_backoff_ms": 0}, {"retry_backoff_ms": 0}])
@with_each("idempotent", [True, False])
def test_zero_backoff_does_not_spin_while_connecting(properties: dict[str, Any], idempotent: bool) -> None:
    world = SenderWorld(enable_idempotence=idempotent, **properties)
    world.network.auto_connect = False
    world.network.auto_ready = False
    for _ in range(20):
        world.sender.run_once()
    assert min(world.network.poll_timeouts[1:]) > 0


class _Broken:
    """Replaces the sender's step: raises the given errors, then closes the sender."""

    def __init__(self, world: SenderWorld, *errors: Exception | None) -> None:
        self._world, self._errors = world, deque(errors)

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
    logged = [record for record in caplog.records if record.exc_info]
    assert [record.exc_info and record.exc_info[0] for record in logged] == [ValueError, ValueError, KeyError]
    assert all("uncaught error in the sender thread" in record.getMessage() for record in logged)


def test_unexpected_error_never_spins_and_close_ends_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
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
