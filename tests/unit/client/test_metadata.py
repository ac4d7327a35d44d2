from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from kafka_sink.client.metadata.cluster import NewLeader
from kafka_sink.client.metadata.metadata import Metadata
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import AuthenticationError, ErrorCode, InvalidTopicError, KafkaError, KafkaTimeoutError
from kafka_sink.common.model import Node, TopicPartition
from kafka_sink.protocol.messages.metadata import MetadataResponse
from kafka_sink.protocol.schema import ZERO_UUID
from tests.fakes.clock import FakeClock
from tests.fakes.metadata_answers import ID_A, ID_B, ONE, TWO, answer, partition, topic
from tests.support.cases import with_each

NOW = 1_000_000
BACKOFF_MS, MAX_AGE_MS, MAX_IDLE_MS = 100, 300_000, 60_000


def make(*topics: str, clock: FakeClock | None = None) -> Metadata:
    """Metadata that tracks *topics*."""
    metadata = Metadata(clock or FakeClock(NOW, shared=True), BACKOFF_MS, MAX_AGE_MS, MAX_IDLE_MS)
    metadata.bootstrap([("127.0.0.1", 9092)])
    for name in topics:
        metadata.add(name, NOW)
    return metadata


def updated() -> Metadata:
    metadata = make()
    update(metadata)
    return metadata


def update(metadata: Metadata, response: MetadataResponse | None = None, now_ms: int = NOW) -> None:
    metadata.update(response or answer(), metadata.next_request(now_ms), version=12, now_ms=now_ms)


def test_new_metadata_is_bootstrap_and_due_for_a_full_update() -> None:
    metadata = make()
    assert (metadata.fetch().is_bootstrap, metadata.update_version) == (True, 1)
    assert metadata.time_to_next_update_ms(NOW) == 0
    request = metadata.next_request(NOW)
    assert (request.topics, request.is_partial) == ((), False)


def test_after_an_update_the_next_one_is_due_when_it_is_too_old() -> None:
    metadata = updated()
    assert metadata.update_version == 2
    assert metadata.time_to_next_update_ms(NOW) == MAX_AGE_MS
    assert metadata.time_to_next_update_ms(NOW + MAX_AGE_MS) == 0
    assert not metadata.next_request(NOW + MAX_AGE_MS).is_partial


@pytest.mark.behaviour("Metadata", "An update that was asked for waits for retry.backoff.ms")
def test_an_update_that_was_asked_for_waits_for_the_backoff() -> None:
    metadata = updated()
    assert metadata.request_update() == 2
    waits = metadata.time_to_next_update_ms(NOW)
    assert 80 <= waits <= 120
    assert metadata.time_to_next_update_ms(NOW) == waits
    assert metadata.time_to_next_update_ms(NOW + waits) == 0


def test_failures_back_off_longer_and_longer_until_one_succeeds() -> None:
    metadata = make()
    for least, most in ((80, 120), (160, 240), (320, 480), (640, 960), (800, 1200), (800, 1200)):
        metadata.failed_update(NOW)
        assert least <= metadata.time_to_next_update_ms(NOW) <= most
    update(metadata)
    metadata.request_update()
    assert metadata.time_to_next_update_ms(NOW) <= 120


@pytest.mark.behaviour("Metadata", "A new topic is asked for at once and alone")
def test_a_new_topic_is_asked_for_at_once_and_alone() -> None:
    metadata = updated()
    metadata.add("t", NOW)
    assert metadata.time_to_next_update_ms(NOW) == 0
    request = metadata.next_request(NOW)
    assert (request.topics, request.is_partial) == (("t",), True)
    update(metadata, answer(topic("t", partition(0, 1))))
    assert metadata.fetch().partition_count("t") == 1
    # Only a full update resets the age of the metadata.
    assert metadata.time_to_next_update_ms(NOW + MAX_AGE_MS) == 0
    metadata.add("t", NOW)
    assert metadata.time_to_next_update_ms(NOW) == MAX_AGE_MS


@with_each("name", [5, None, b"orders", "\ud800", "x" * 32768])
def test_a_name_that_no_request_can_carry_is_refused(name: Any) -> None:
    metadata = make()
    with pytest.raises(ValueError, match="topic"):
        metadata.add(name, NOW)
    assert metadata.next_request(NOW).topics == ()


def test_a_full_update_asks_for_every_topic() -> None:
    metadata = make("b", "a")
    request = metadata.next_request(NOW)
    assert (request.topics, request.is_partial) == (("a", "b"), False)


def test_topic_added_during_an_update_is_asked_for_next() -> None:
    metadata = updated()
    metadata.add("first", NOW)
    request = metadata.next_request(NOW)
    metadata.add("second", NOW)
    metadata.update(answer(topic("first", partition(0, 1))), request, version=12, now_ms=NOW)
    following = metadata.next_request(NOW)
    assert (following.topics, following.is_partial) == (("second",), True)
    assert metadata.time_to_next_update_ms(NOW + 120) == 0


def test_asking_for_a_topic_is_partial_until_it_was_answered() -> None:
    metadata = updated()
    metadata.add("t", NOW)
    assert metadata.request_update_for_topic("t") == 2
    assert metadata.next_request(NOW).is_partial
    update(metadata, answer(topic("t", error=ErrorCode.LEADER_NOT_AVAILABLE)))
    metadata.request_update_for_topic("t")
    assert not metadata.next_request(NOW).is_partial


def test_topic_error_in_metadata_requests_another_update() -> None:
    metadata = make("t")
    update(metadata, answer(topic("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
    assert metadata.time_to_next_update_ms(NOW) <= 120


def test_a_topic_nobody_uses_is_forgotten() -> None:
    metadata = make("t")
    update(metadata, answer(topic("t", partition(0, 1))))
    metadata.request_update()
    update(metadata, answer(topic("t", partition(0, 1))), NOW + MAX_IDLE_MS - 1)
    assert metadata.fetch().topics == ("t",)
    metadata.request_update()
    update(metadata, answer(topic("t", partition(0, 1))), NOW + MAX_IDLE_MS)
    assert metadata.fetch().topics == ()
    assert metadata.next_request(NOW + MAX_IDLE_MS).topics == ()


def test_a_topic_that_was_never_answered_is_not_forgotten() -> None:
    metadata = make("t")
    metadata.update(answer(), metadata.next_request(NOW), version=12, now_ms=NOW + MAX_IDLE_MS)
    assert metadata.next_request(NOW).topics == ("t",)


def test_topics_the_brokers_refuse_are_raised() -> None:
    metadata = make()
    for name in ("bad", "no", "fine"):
        metadata.add(name, NOW)
    update(
        metadata,
        answer(
            topic("bad", error=ErrorCode.INVALID_TOPIC_EXCEPTION),
            topic("no", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            topic("fine", partition(0, 1)),
        ),
    )
    metadata.raise_for_topic("fine")
    with pytest.raises(InvalidTopicError, match="'bad'"):
        metadata.raise_for_topic("bad")
    with pytest.raises(KafkaError, match="may not see the topic 'no'; grant DESCRIBE"):
        metadata.raise_for_topic("no")


def test_a_fatal_error_is_raised_once() -> None:
    metadata = make()
    metadata.fatal_error(AuthenticationError("no"))
    with pytest.raises(AuthenticationError):
        metadata.raise_for_topic("t")
    metadata.raise_for_topic("t")


def test_rebootstrapping_begins_again_with_the_addresses() -> None:
    metadata = updated()
    metadata.rebootstrap()
    assert metadata.fetch().is_bootstrap
    assert metadata.update_version == 3
    assert not metadata.next_request(NOW).is_partial


def test_a_leader_epoch_outlives_an_error_of_its_topic() -> None:
    metadata = make("t")
    for leader, epoch in ((2, 7), (None, 0), (1, 6)):
        told = topic("t", error=3) if leader is None else topic("t", partition(0, leader, epoch))
        update(metadata, answer(told))
    found = metadata.fetch().partition(TopicPartition("t", 0))
    assert found is not None and (found.leader, found.leader_epoch) == (TWO, 7)


def test_a_leader_epoch_outlives_a_rebootstrap() -> None:
    metadata = make("t")
    update(metadata, answer(topic("t", partition(0, 2, 7))))
    for _ in range(2):
        metadata.rebootstrap()
    update(metadata, answer(topic("t", partition(0, 1, 6))))
    found = metadata.fetch().partition(TopicPartition("t", 0))
    assert found is not None and (found.leader, found.leader_epoch) == (TWO, 7)
    update(metadata, answer(topic("t", partition(0, 1, 8))))
    found = metadata.fetch().partition(TopicPartition("t", 0))
    assert found is not None and (found.leader, found.leader_epoch) == (ONE, 8)


@pytest.mark.parametrize("topic_id", [ID_B, ZERO_UUID], ids=["another-topic", "no-ids"])
def test_possibly_recreated_topic_begins_with_its_own_epochs(topic_id: uuid.UUID) -> None:
    metadata = make("t")
    old_id = ID_A if topic_id == ID_B else ZERO_UUID
    update(metadata, answer(topic("t", partition(0, 2, 7), topic_id=old_id)))
    update(metadata, answer(topic("t", error=3, topic_id=ZERO_UUID)))
    update(metadata, answer(topic("t", partition(0, 1, 0), topic_id=topic_id)))
    found = metadata.fetch().partition(TopicPartition("t", 0))
    assert found is not None and (found.leader, found.leader_epoch) == (ONE, 0)


# -- waiting


def waiting(metadata: Metadata, timeout_ms: int = FOREVER_MS) -> tuple[threading.Thread, list[BaseException | None]]:
    outcome: list[BaseException | None] = []

    def run() -> None:
        try:
            metadata.await_update(metadata.update_version, timeout_ms)
        except Exception as error:
            outcome.append(error)
        else:
            outcome.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome


def test_await_update_returns_for_a_past_version() -> None:
    make().await_update(0, 0)


@pytest.mark.behaviour("Metadata", "An update wakes all who wait for it")
@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (update, None),
        (lambda metadata: metadata.fatal_error(AuthenticationError("no")), AuthenticationError),
        (lambda metadata: metadata.close(), KafkaError),
    ],
)
def test_waiters_are_woken(act: Callable[[Metadata], None], expected: type[Exception] | None) -> None:
    clock = FakeClock(NOW, shared=True)
    metadata = make(clock=clock)
    thread, outcome = waiting(metadata)
    clock.until_somebody_waits()
    act(metadata)
    thread.join(60)
    assert [type(error) if error else None for error in outcome] == [expected]


@pytest.mark.behaviour("Metadata", "Waiting for a topic that is unknown ends at its deadline")
def test_waiting_ends_at_its_deadline() -> None:
    clock = FakeClock(NOW, shared=True)
    thread, outcome = waiting(make(clock=clock), 500)
    clock.until_somebody_waits()
    clock.advance(500)
    thread.join(60)
    assert isinstance(outcome[0], KafkaTimeoutError)
    assert "within 500 ms" in str(outcome[0])


def test_after_close_nothing_is_taken_over_and_nobody_waits() -> None:
    metadata = make()
    request = metadata.next_request(NOW)
    metadata.close()
    metadata.update(answer(), request, version=12, now_ms=NOW)
    assert metadata.fetch().is_bootstrap
    with pytest.raises(KafkaError, match="after the client was closed"):
        metadata.await_update(1, 1000)


@with_each(("host", "port"), [("", 9092), ("two", 0), ("two", -1), ("two", 70_000)])
def test_broker_with_impossible_address_is_left_out(host: str, port: int) -> None:
    metadata = make("a")
    update(metadata, answer(topic("a", partition(0, 1), partition(1, 2)), nodes=(ONE, Node(2, host, port))))
    cluster = metadata.fetch()
    assert cluster.nodes == (ONE,)
    assert cluster.leader_for(TopicPartition("a", 0)) == ONE
    assert cluster.leader_for(TopicPartition("a", 1)) is None


def test_leaders_named_by_a_broker_count_only_with_newer_epoch() -> None:
    metadata = make("a")
    update(metadata, answer(topic("a", partition(0, 1, epoch=4), partition(1, 1, epoch=4))))
    version = metadata.update_version
    three = Node(3, "three", 9092)
    told = {TopicPartition("a", 0): NewLeader(3, 5), TopicPartition("a", 1): NewLeader(2, 4)}
    metadata.update_leaders(told, [three])
    cluster = metadata.fetch()
    assert cluster.leader_for(TopicPartition("a", 0)) == three
    assert cluster.leader_for(TopicPartition("a", 1)) == ONE, "its epoch is not news"
    assert set(cluster.nodes) == {ONE, TWO, three}
    assert cluster.partitions_for_node(3) == (TopicPartition("a", 0),)
    assert metadata.update_version == version
    metadata.update_leaders({TopicPartition("a", 1): NewLeader(9, 5), TopicPartition("b", 0): NewLeader(3, 1)}, [])
    assert metadata.fetch() is cluster
