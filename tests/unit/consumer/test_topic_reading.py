"""One pass over a topic: start and end offsets, moving leaders, failing brokers, and never a silent gap."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from itertools import islice
from typing import Any

import pytest

from kafka_sink.common import config as common_config
from kafka_sink.common.errors import (
    ApiError,
    BrokersUnreachableError,
    DisconnectError,
    ErrorCode,
    KafkaTimeoutError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from kafka_sink.consumer.config import ConsumerConfig
from kafka_sink.consumer.fetched_partition import ConsumedRecord
from kafka_sink.consumer.topic_reading import EARLIEST, LATEST, TopicReading
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.fetch import FetchRequest
from kafka_sink.protocol.messages.metadata import MetadataRequest
from tests.fakes.log_cluster import FakeLogCluster, FakePartition
from tests.support.cases import with_each


def reading(cluster: FakeLogCluster, **properties: Any) -> TopicReading:
    given = {"bootstrap.servers": "fake:9092", "default.api.timeout.ms": 5_000}
    given |= {name.replace("_", "."): value for name, value in properties.items()}
    return TopicReading(cluster, "t", common_config.parse(ConsumerConfig, given), cluster.clock)


def read(
    cluster: FakeLogCluster, partitions: Collection[int] | None = None, start: str | int = EARLIEST, **properties: Any
) -> list[ConsumedRecord]:
    return list(reading(cluster, **properties).begin(partitions, start, stop_at_end=True))


@with_each(("count", "first"), [(2, 4), (6, 0), (100, 0)])
def test_the_newest_records_of_each_partition(count: int, first: int) -> None:
    found = reading(filled(partitions=2)).begin_newest(count)
    assert sorted((record.partition, record.offset) for record in found) == [
        (partition, offset) for partition in range(2) for offset in range(first, 6)
    ]


@pytest.mark.behaviour("Log reader", "The newest records are as many as asked for, whatever offsets markers took")
def test_the_newest_records_are_found_behind_empty_offsets() -> None:
    """Partition 0 ends with markers of transactions, and partition 1 is empty."""
    cluster = filled(partitions=3)
    for _ in range(40):
        cluster.partitions[0].append(b"", is_control=True)
    cluster.partitions[1] = FakePartition(first_offset=9, end_offset=9)
    found = list(reading(cluster).begin_newest(2))
    assert sorted((each.partition, each.offset) for each in found if each.partition) == [(2, 4), (2, 5)]
    assert {4, 5} == {each.offset for each in found if not each.partition}
    fetched = [each.topics[0].partitions for each in cluster.sent(FetchRequest) if isinstance(each, FetchRequest)]
    # A partition that has returned enough records is not fetched again.
    assert sum(part.partition == 2 for parts in fetched for part in parts) == 1
    assert len(fetched) < 50


def values(records: list[ConsumedRecord]) -> list[bytes | None]:
    return [record.value for record in records]


def filled(partitions: int = 1, nodes: int = 1, batches: int = 3) -> FakeLogCluster:
    cluster = FakeLogCluster(partitions, nodes=nodes)
    for number, part in cluster.partitions.items():
        for index in range(batches):
            part.append(b"%d/%d" % (number, 2 * index), b"%d/%d" % (number, 2 * index + 1))
    return cluster


# --- start and end offsets -------------------------------------------------------------------------------------------


def test_a_partition_is_read_from_its_first_record_to_its_end() -> None:
    records = read(filled())
    assert [(record.topic, record.partition, record.offset) for record in records] == [("t", 0, n) for n in range(6)]
    assert values(records) == [b"0/0", b"0/1", b"0/2", b"0/3", b"0/4", b"0/5"]


@pytest.mark.behaviour("Log reader", "All partitions of all leaders are read, each in order")
def test_all_partitions_on_all_leaders_each_in_order() -> None:
    records = read(filled(partitions=5, nodes=2))
    for number in range(5):
        assert [record.offset for record in records if record.partition == number] == list(range(6))
    assert len(records) == 30


def test_only_the_partitions_asked_for() -> None:
    assert {record.partition for record in read(filled(partitions=4), [3, 1, 3])} == {1, 3}


def test_reading_may_start_in_the_middle_of_a_batch() -> None:
    assert [record.offset for record in read(filled(), start=3)] == [3, 4, 5]


@pytest.mark.parametrize("start", [6, 700])
def test_from_the_end_or_beyond_there_is_nothing_up_to_the_end(start: int) -> None:
    assert read(filled(), start=start) == []


def test_an_empty_topic_ends_at_once_and_without_a_fetch() -> None:
    cluster = FakeLogCluster(3)
    assert read(cluster) == []
    assert cluster.sent(FetchRequest) == []


@pytest.mark.behaviour("Log reader", "Records that arrive while reading are not part of it")
def test_records_that_arrive_while_reading_are_not_part_of_it() -> None:
    cluster = filled(batches=1)
    records = reading(cluster).begin(None, EARLIEST, stop_at_end=True)
    cluster.partitions[0].append(b"late")
    assert len(list(records)) == 2


def test_the_end_may_lie_in_the_middle_of_a_batch() -> None:
    cluster = filled(batches=1)
    cluster.partitions[0].last_stable_offset = 1
    assert [record.offset for record in read(cluster, isolation_level="read_committed")] == [0]
    assert [record.offset for record in read(cluster)] == [0, 1]


def test_latest_means_what_comes_after_the_call() -> None:
    cluster = filled()
    records = reading(cluster).begin(None, LATEST, stop_at_end=False)
    cluster.partitions[0].append(b"new")
    assert next(records).value == b"new"


def test_following_goes_on_beyond_the_end() -> None:
    cluster = filled(batches=1)
    records = reading(cluster).begin(None, EARLIEST, stop_at_end=False)
    assert [record.offset for record in islice(records, 2)] == [0, 1]
    cluster.partitions[0].append(b"new")
    assert next(records).offset == 2


@pytest.mark.parametrize("start", ["first", -1, None])
def test_invalid_start_is_refused(start: Any) -> None:
    with pytest.raises(ValueError, match="start must be"):
        read(filled(), start=start)


def test_fetch_shares_max_wait_between_leaders_and_limits_bytes() -> None:
    cluster = filled(partitions=2, nodes=2)
    read(cluster, fetch_max_wait_ms=500, fetch_max_bytes=4_000, max_partition_fetch_bytes=1_000)
    first = cluster.sent(FetchRequest)[0]
    assert isinstance(first, FetchRequest)
    assert (first.max_wait_ms, first.max_bytes) == (250, 4_000)
    assert (first.session_id, first.session_epoch) == (0, -1)
    (asked,) = first.topics[0].partitions
    assert (asked.partition_max_bytes, asked.current_leader_epoch) == (1_000, 3)


def test_first_partition_of_a_fetch_rotates() -> None:
    cluster = filled(partitions=3)
    read(cluster)
    fetches = [request for request in cluster.sent(FetchRequest) if isinstance(request, FetchRequest)]
    assert [fetch.topics[0].partitions[0].partition for fetch in fetches] == [0, 1, 2]


# --- missing topics, partitions and offsets --------------------------------------------------------------------------


def test_an_unknown_topic_is_named_at_once_and_not_made() -> None:
    cluster = filled()
    cluster.topic_error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 't' does not exist"):
        reading(cluster).begin(None, EARLIEST, stop_at_end=True)
    (request,) = cluster.sent(MetadataRequest)
    assert isinstance(request, MetadataRequest)
    assert request.allow_auto_topic_creation is False


def test_an_unknown_partition_is_named_with_those_there_are() -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="topic t has no partition 4, 9: it has 0 to 2"):
        read(filled(partitions=3), [9, 0, 4])


def test_deleted_start_offset_error_names_available_offsets() -> None:
    cluster = filled()
    cluster.partitions[0].first_offset = 4
    with pytest.raises(ApiError, match="t-0 has no offset 1: its log begins at 4 and ends before 6") as caught:
        read(cluster, start=1)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_offset_beyond_the_end_is_an_error_when_following() -> None:
    records = reading(filled()).begin(None, 700, stop_at_end=False)
    with pytest.raises(ApiError, match="t-0 has no offset 700"):
        next(records)


def test_retention_overtaking_a_reader_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    cluster = filled()
    records = reading(cluster).begin(None, EARLIEST, stop_at_end=True)
    assert [record.offset for record in islice(records, 2)] == [0, 1]
    cluster.partitions[0].first_offset = 4
    assert [record.offset for record in records] == [4, 5]
    assert "records 2 to 3 of t-0 are lost" in caplog.text


def test_topic_recreated_while_read_raises() -> None:
    cluster = filled()
    records = reading(cluster).begin(None, EARLIEST, stop_at_end=True)
    next(records)
    cluster.topic_id = uuid.UUID(int=8)
    with pytest.raises(ApiError, match="topic t was deleted and created again while it was being read"):
        list(records)


# --- failures --------------------------------------------------------------------------------------------------------


@with_each(
    "fault",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        DisconnectError("broker 1: closed by the broker"),
    ],
)
@with_each("api_key", [ApiKey.FETCH, ApiKey.LIST_OFFSETS])
def test_a_passing_failure_costs_a_refresh_and_nothing_else(fault: Any, api_key: ApiKey) -> None:
    cluster = filled()
    cluster.faults[api_key].extend([fault, fault])
    assert [record.offset for record in read(cluster)] == list(range(6))
    assert len(cluster.sent(MetadataRequest)) == 3


@pytest.mark.behaviour("Log reader", "Reading follows a leader that moves")
def test_reading_follows_a_leader_that_moves() -> None:
    cluster = filled(nodes=2)
    records = reading(cluster).begin(None, EARLIEST, stop_at_end=True)
    next(records)
    cluster.partitions[0].leader = 2
    assert [record.offset for record in records] == [1, 2, 3, 4, 5]


def test_a_partition_without_a_leader_is_waited_for() -> None:
    cluster = filled()
    cluster.partitions[0].leader = -1

    def elect() -> None:
        cluster.partitions[0].leader = 1

    cluster.on_idle = elect
    assert len(read(cluster)) == 6


def test_a_topic_that_is_still_being_made_is_waited_for() -> None:
    cluster = filled()
    cluster.faults[ApiKey.METADATA].extend([ErrorCode.LEADER_NOT_AVAILABLE] * 2)
    assert len(read(cluster)) == 6


@pytest.mark.timeout(60)
def test_a_topic_without_partitions_is_waited_for_a_while() -> None:
    cluster = FakeLogCluster(0)
    with pytest.raises(KafkaTimeoutError, match="LEADER_NOT_AVAILABLE"):
        read(cluster)


def test_partition_nobody_answers_for_times_out_with_the_cause() -> None:
    cluster = filled(partitions=2, nodes=2)
    records = reading(cluster).begin(None, EARLIEST, stop_at_end=True)
    cluster.partitions[1].leader = -1
    cluster.node_ids = (1,)
    started = cluster.clock.monotonic_ms()
    with pytest.raises(KafkaTimeoutError, match=r"no answer for t-1 within 5000 ms: LEADER_NOT_AVAILABLE"):
        list(records)
    assert 5_000 <= cluster.clock.monotonic_ms() - started < 8_000


def test_a_slow_user_does_not_use_up_the_time_for_trying_again() -> None:
    cluster = filled()
    records = reading(cluster).begin(None, EARLIEST, stop_at_end=True)
    next(records)
    cluster.clock.advance(60_000)
    cluster.faults[ApiKey.FETCH].append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert len(list(records)) == 5


def test_partition_that_waits_for_others_is_not_given_up() -> None:
    """A response is full before it has records of the last partitions, and the caller is slow."""
    cluster = filled(partitions=4)
    fetch = cluster.fetch

    def full(*asked: Any) -> Any:
        answer = fetch(*asked)
        for data in answer.responses[0].partitions[1:]:
            data.records = memoryview(b"")
        return answer

    cluster.fetch = full  # type: ignore[method-assign, assignment]
    found = []
    for record in reading(cluster).begin(None, EARLIEST, stop_at_end=True):
        cluster.clock.advance(60_000)
        found.append((record.partition, record.offset))
    assert sorted(found) == [(number, offset) for number in range(4) for offset in range(6)]


def test_reading_ends_when_leader_lacks_the_remaining_records() -> None:
    cluster = filled()
    records = reading(cluster, default_api_timeout_ms=300).begin(None, EARLIEST, stop_at_end=True)
    assert [record.offset for record in islice(records, 4)] == [0, 1, 2, 3]
    cluster.partitions[0].batches.clear()
    answer = cluster.request

    def slow(*args: Any) -> Any:
        cluster.clock.advance(100)
        assert len(cluster.requests) < 100
        return answer(*args)

    cluster.request = slow  # type: ignore[assignment,method-assign]
    with pytest.raises(
        KafkaTimeoutError, match=r"t-0 was to be read up to offset 6, but .* from offset 4 on for 300 ms"
    ):
        next(records)


def test_negative_offset_from_a_broker_is_refused() -> None:
    cluster = filled()
    cluster.partitions[0].first_offset = -1
    with pytest.raises(ProtocolError, match="returned offset -1 for t-0"):
        read(cluster)


def test_answer_without_the_partition_is_retried() -> None:
    cluster = filled()
    answer = cluster.fetch

    def leave_out(*arguments: Any) -> Any:
        cluster.fetch = answer  # type: ignore[method-assign]
        response = answer(*arguments)
        response.responses.clear()
        return response

    cluster.fetch = leave_out  # type: ignore[assignment,method-assign]
    assert len(read(cluster)) == 6


@with_each("api_key", [ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.FETCH])
@with_each(
    "fault", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, BrokersUnreachableError("no broker"), KafkaTimeoutError("too late")]
)
def test_non_retriable_error_is_raised_at_once(fault: Any, api_key: ApiKey) -> None:
    cluster = filled()
    cluster.faults[api_key].append(fault)
    with pytest.raises(ApiError) as caught:
        read(cluster)
    assert caught.value is fault or caught.value.code is fault
    assert len(cluster.sent(MetadataRequest)) == 1


def test_answer_of_another_api_is_refused() -> None:
    cluster = filled()
    cluster.offsets = lambda *_: MetadataRequest()  # type: ignore[assignment,method-assign]
    with pytest.raises(ProtocolError, match="answered LIST_OFFSETS with MetadataRequest"):
        read(cluster)
