"""The effect of each API, in every version that the broker serves."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest

from kafka_sink.broker.handlers.dispatch import HANDLERS
from kafka_sink.broker.network.quotas import CLIENT
from kafka_sink.broker.network.request_channel import (
    CloseConnectionResponse,
    EndThrottlingResponse,
    NoOpResponse,
    SendResponse,
    StartThrottlingResponse,
)
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.topics import DeleteTopicState
from kafka_sink.protocol.registry import api
from kafka_sink.protocol.schema import ZERO_UUID, Struct
from kafka_sink.records.compression import CompressionType
from kafka_sink.records.reader import read_batches
from tests.fakes.broker_node import DIRECTORY, BrokerNode
from tests.fakes.record_batches import make_batch
from tests.support.messages import request_body

S = TypeVar("S", bound=Struct)


def versions(key: ApiKey) -> range:
    served = HANDLERS[key].versions
    return range(served.min, served.max + 1)


@pytest.fixture
def node() -> BrokerNode:
    """Node 1 of two; it leads t-0 and t-2, the other one leads t-1."""
    made = BrokerNode(nodes=2)
    made.cluster.create_topic("t", assignment=[[1, 2], [2, 1], [1, 2]])
    return made


def topic_id(node: BrokerNode, name: str = "t") -> UUID:
    topic = node.cluster.topic(name)
    return topic.topic_id if topic is not None else UUID(int=99)


def produce(
    node: BrokerNode, partition: int = 0, *, topic: str = "t", acks: int = -1, values: tuple[bytes, ...] = (b"v",)
) -> Any:
    parts = [(partition, make_batch(values))]
    return request_body(ApiKey.PRODUCE, None, acks, 1000, [(topic, topic_id(node, topic), parts)])


def produced(node: BrokerNode, version: int, request: Any) -> Any:
    return node.call(ApiKey.PRODUCE, version, request).responses[0].partition_responses[0]


def fetch(
    node: BrokerNode, offset: int = 0, partition: int = 0, *, topic: str = "t", epoch: int = -1, **options: Any
) -> Any:
    parts = [
        {"partition": partition, "current_leader_epoch": epoch, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    ]
    options = {"max_wait_ms": 0, "min_bytes": 1, **options}
    return request_body(ApiKey.FETCH, topics=[(topic, topic_id(node, topic), parts)], **options)


def fetched(answer: Any) -> Any:
    return answer.responses[0].partitions[0]


def values(part: Any) -> list[bytes | None]:
    assert isinstance(part.records, memoryview)
    return [record.value for batch in read_batches(part.records) for record in batch.records()]


def test_every_served_version_is_one_the_protocol_has() -> None:
    for key, handler in HANDLERS.items():
        declared = api(key).versions
        assert handler.key is key
        assert declared.min <= handler.versions.min <= handler.versions.max <= declared.max


# --- ApiVersions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.API_VERSIONS))
def test_api_versions(node: BrokerNode, version: int) -> None:
    software = ("librdkafka", "2.16.1") if version >= 3 else ("", "")
    answer = node.call(ApiKey.API_VERSIONS, version, *software)
    served = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    assert answer.error_code == 0
    ranges = {key: (handler.versions.min, handler.versions.max) for key, handler in HANDLERS.items()}
    # Listed, but not served: without these versions, older clients of librdkafka do not compress.
    assert served == {**ranges, ApiKey.PRODUCE: (0, ranges[ApiKey.PRODUCE][1])}


@pytest.mark.parametrize("name", ["", "a b", "-a", "a\n", "ä", "a-"])
def test_invalid_client_software_name_is_refused(node: BrokerNode, name: str) -> None:
    answer = node.call(ApiKey.API_VERSIONS, 3, name, "1.0")
    assert answer.error_code == 42


# --- Metadata --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata_of_everything(node: BrokerNode, version: int) -> None:
    answer = node.call(ApiKey.METADATA, version, [] if version == 0 else None)
    assert [(broker.node_id, broker.port) for broker in answer.brokers] == [(1, 9001), (2, 9002)]
    (topic,) = answer.topics
    assert (topic.name, topic.error_code, topic.topic_id) == ("t", 0, topic_id(node) if version >= 10 else ZERO_UUID)
    assert [partition.leader_id for partition in topic.partitions] == [1, 2, 1]
    assert [partition.replica_nodes for partition in topic.partitions] == [[1, 2], [2, 1], [1, 2]]


def test_authorized_operations_are_returned_only_if_requested(node: BrokerNode) -> None:
    untold = -(2**31)
    for asked, of_topic, of_cluster in ((False, untold, untold), (True, 0b1101_1111_1000, 0b1_1111_1010_0000)):
        answer = node.call(ApiKey.METADATA, 10, None, True, asked, asked)
        assert answer.topics[0].topic_authorized_operations == of_topic
        assert answer.cluster_authorized_operations == of_cluster


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata_of_a_topic_that_is_not_there(node: BrokerNode, version: int) -> None:
    # Before version 4, a client cannot disable the creation of the topic.
    (topic,) = node.call(ApiKey.METADATA, version, [{"name": "new"}], allow_auto_topic_creation=version < 4).topics
    assert (topic.name, topic.error_code, len(topic.partitions)) == (("new", 3, 0) if version >= 4 else ("new", 0, 1))


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_by_id(node: BrokerNode, version: int) -> None:
    asked = [(topic_id(node), None), (UUID(int=5), None)]
    known, unknown = node.call(ApiKey.METADATA, version, asked).topics
    assert (known.name, known.error_code) == ("t", 0)
    assert (unknown.name, unknown.error_code, unknown.topic_id) == (None, 100, UUID(int=5))


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_id_before_that_was_possible_is_refused(node: BrokerNode, version: int) -> None:
    asked = [(topic_id(node), None), (UUID(int=5), "t")]
    topics = node.call(ApiKey.METADATA, version, asked).topics
    assert [(topic.name, topic.error_code) for topic in topics] == [("", 42), ("t", 42)]


def test_metadata_of_an_empty_topic_list_is_empty(node: BrokerNode) -> None:
    assert node.call(ApiKey.METADATA, 9, []).topics == []


def test_disabled_auto_creation_creates_no_topic() -> None:
    closed = BrokerNode(auto_create_topics_enable=False)
    (topic,) = closed.call(ApiKey.METADATA, 9, [{"name": "new"}]).topics
    assert topic.error_code == 3 and closed.cluster.topics == {}


@pytest.mark.behaviour("Admin APIs", "The first client that asks for a topic which was deleted does not make it again")
def test_a_deleted_topic_is_unknown_to_the_first_who_asks(node: BrokerNode) -> None:
    def ask() -> Any:
        return node.call(ApiKey.METADATA, 9, [{"name": "t"}]).topics[0].error_code

    node.call(ApiKey.DELETE_TOPICS, 6, ["t"])
    assert [ask(), ask(), ask()] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0]
    node.call(ApiKey.DELETE_TOPICS, 6, ["t"])
    node.cluster.create_topic("t")
    node.cluster.delete_topics(["t"], lambda topic: None)
    node.cluster.create_topic("t")
    assert ask() == 0


def test_a_partition_without_a_leader(node: BrokerNode) -> None:
    node.cluster.create_topic("single", assignment=[[2]])
    node.cluster.node_down(2)
    (topic,) = node.call(ApiKey.METADATA, 9, [{"name": "single"}]).topics
    (partition,) = topic.partitions
    assert (partition.error_code, partition.leader_id, partition.isr_nodes) == (5, -1, [])
    assert partition.offline_replicas == [2]


# --- Produce ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_produce_and_fetch_back(node: BrokerNode, version: int) -> None:
    for offset in range(3):
        part = produced(node, version, produce(node, values=(b"%d" % offset,)))
        assert (part.index, part.error_code, part.base_offset) == (0, 0, offset)
        assert part.log_append_time_ms == -1
    assert values(fetched(node.call(ApiKey.FETCH, 12, fetch(node)))) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_produce_to_a_follower_names_the_leader(node: BrokerNode, version: int) -> None:
    answer = node.call(ApiKey.PRODUCE, version, produce(node, partition=1))
    part = answer.responses[0].partition_responses[0]
    assert (part.error_code, part.base_offset) == (6, -1)
    if version >= 10:
        assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (2, 0)
        assert [(endpoint.node_id, endpoint.port) for endpoint in answer.node_endpoints] == [(2, 9002)]


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_produce_to_unknown_partition_or_with_bad_acks_fails(node: BrokerNode, version: int) -> None:
    assert produced(node, version, produce(node, topic="nowhere")).error_code == (100 if version >= 13 else 3)
    assert produced(node, version, produce(node, partition=3)).error_code == 3
    assert produced(node, version, produce(node, acks=5)).error_code == 21


def test_late_produce_does_not_write_to_the_next_topic(node: BrokerNode, monkeypatch: pytest.MonkeyPatch) -> None:
    produced(node, 13, produce(node))
    request, open_log = produce(node), node.logs.get_or_create

    def open_late(*args: Any) -> Any:
        monkeypatch.undo()
        node.cluster.delete_topics(["t"], lambda topic: node.logs.delete(topic.topic_partitions()))
        node.cluster.create_topic("t", assignment=[[1]])
        produced(node, 13, produce(node))
        return open_log(*args)

    monkeypatch.setattr(node.logs, "get_or_create", open_late)
    assert produced(node, 13, request).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (log := node.logs.get(TopicPartition("t", 0))) is not None and log.end_offset == 1


def test_each_partition_is_answered_for_itself(node: BrokerNode) -> None:
    data = [(0, make_batch([b"v"])), (1, make_batch([b"x"])), (2, None), (2, make_batch([b"y"]))]
    answer = node.call(ApiKey.PRODUCE, 9, None, -1, 1000, [{"name": "t", "partition_data": data}])
    parts = answer.responses[0].partition_responses
    assert [(part.index, part.error_code, part.base_offset) for part in parts] == [
        (0, 0, 0),
        (1, 6, -1),
        (2, 87, -1),
        (2, 0, 0),
    ]


def test_acks_0_is_not_answered(node: BrokerNode) -> None:
    node.send(ApiKey.PRODUCE, 9, produce(node, acks=0))
    assert [type(response) for response in node.responses] == [NoOpResponse]
    node.responses.clear()
    assert values(fetched(node.call(ApiKey.FETCH, 12, fetch(node)))) == [b"v"]


def test_acks_0_that_fails_closes_the_connection(node: BrokerNode) -> None:
    node.send(ApiKey.PRODUCE, 9, produce(node, partition=1, acks=0))
    assert [type(response) for response in node.responses] == [CloseConnectionResponse]


def test_acks_all_needs_replicas_in_sync() -> None:
    node = BrokerNode(nodes=2, min_insync_replicas=2)
    node.cluster.create_topic("t", assignment=[[1, 2]])
    assert produced(node, 9, produce(node)).error_code == 0
    node.cluster.node_down(2)
    assert produced(node, 9, produce(node)).error_code == 19
    assert produced(node, 9, produce(node, acks=1)).error_code == 0


def test_no_more_replicas_are_needed_than_a_partition_has() -> None:
    node = BrokerNode(nodes=2, min_insync_replicas=2)
    node.cluster.create_topic("t", assignment=[[1]])
    assert produced(node, 9, produce(node)).error_code == 0


@pytest.mark.behaviour("Log", "A duplicate is answered with its old offset, and a gap is refused")
def test_a_duplicate_is_told_its_old_offset_and_a_gap_is_refused(node: BrokerNode) -> None:
    def idempotent(sequence: int) -> Any:
        batch = make_batch([b"a", b"b"], producer_id=1, producer_epoch=0, base_sequence=sequence)
        data = [{"name": "t", "partition_data": [(0, batch)]}]
        return produced(node, 9, request_body(ApiKey.PRODUCE, None, -1, 1000, data))

    assert [idempotent(sequence).base_offset for sequence in (0, 2, 4)] == [0, 2, 4]
    again = idempotent(2)
    assert (again.error_code, again.base_offset) == (0, 2)
    assert idempotent(8).error_code == 45
    assert idempotent(6).base_offset == 6


def test_the_broker_stamps_records_when_the_topic_says_so(node: BrokerNode) -> None:
    node.cluster.create_topic("stamped", 1, configs={"message.timestamp.type": "LogAppendTime"}, assignment=[[1]])
    assert produced(node, 9, produce(node, topic="stamped")).log_append_time_ms == node.clock.wall_ms()


def test_a_disk_that_fails_is_answered_with_a_code(node: BrokerNode) -> None:
    produced(node, 9, produce(node))
    node.disk.full_after_bytes = 0
    assert produced(node, 9, produce(node)).error_code == 56
    assert produced(node, 9, produce(node, partition=2)).error_code == 56


def test_producer_over_quota_is_answered_at_once_then_throttled() -> None:
    node = BrokerNode()
    node.context.producer_quota.follow({frozenset({(CLIENT, None)}): 1000})
    node.cluster.create_topic("t", 1)
    node.send(ApiKey.PRODUCE, 9, produce(node, values=(b"x" * 12_000,)))
    start, sent = node.responses
    assert isinstance(start, StartThrottlingResponse) and isinstance(sent, SendResponse)
    node.responses = [sent]
    answer = node.answer(ApiKey.PRODUCE, 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    # The whole request counts: 12,000 bytes and its fields, less the bytes that the quota allows in ten seconds.
    assert 2000 <= answer.throttle_time_ms <= 2200
    node.timer.run_due(node.clock.now_ms + answer.throttle_time_ms - 1)
    assert node.responses == []
    node.timer.run_due(node.clock.now_ms + answer.throttle_time_ms)
    assert [type(response) for response in node.responses] == [EndThrottlingResponse]


@pytest.mark.behaviour("Throttling and quotas", "A producer without acks is throttled too")
def test_a_producer_without_acks_is_throttled_too() -> None:
    node = BrokerNode()
    node.context.producer_quota.follow({frozenset({(CLIENT, None)}): 1000})
    node.cluster.create_topic("t", 1)
    node.send(ApiKey.PRODUCE, 9, produce(node, values=(b"x" * 12_000,), acks=0))
    assert [type(response) for response in node.responses] == [StartThrottlingResponse, NoOpResponse]


# --- Fetch -----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("Compaction", "A record without a key is refused by its number in its batch")
@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
def test_compacted_topics_refuse_records_without_a_key(node: BrokerNode, version: int, codec: CompressionType) -> None:
    node.cluster.create_topic("c", assignment=[[1, 2]], configs={"cleanup.policy": "compact"})

    def answer(*keys: bytes | None) -> Any:
        batch = make_batch([b"v"] * len(keys), keys=keys, compression=codec)
        parts = [(0, batch)]
        return produced(
            node, version, request_body(ApiKey.PRODUCE, None, -1, 1000, [("c", topic_id(node, "c"), parts)])
        )

    refused = answer(b"", None, *[b"k"] * 150, None)
    assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert refused.log_start_offset == (0 if version >= 5 else -1)
    if version >= 8:
        assert [each.batch_index for each in refused.record_errors] == [1, 152]
        assert "takes no record without a key" in (refused.record_errors[0].batch_index_error_message or "")
    assert answer(b"", *[b"k"] * 200).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
def test_fetch(node: BrokerNode, version: int) -> None:
    produced(node, 9, produce(node, values=(b"a", b"b")))
    answer = node.call(ApiKey.FETCH, version, fetch(node, offset=1, isolation_level=1))
    part = fetched(answer)
    assert (part.error_code, part.high_watermark, part.last_stable_offset) == (0, 2, 2)
    assert values(part) == [b"a", b"b"], "whole batches: the reader drops what it did not ask for"
    assert part.aborted_transactions == []
    assert fetched(node.call(ApiKey.FETCH, version, fetch(node))).aborted_transactions is None


@pytest.mark.behaviour("Throttling and quotas", "A reader over its quota gets an empty answer (KIP-219)")
def test_consumer_over_quota_gets_empty_answers_until_allowed() -> None:
    node = BrokerNode()
    node.context.consumer_quota.follow({frozenset({(CLIENT, None)}): 1000})
    node.cluster.create_topic("t", 1)
    for _ in range(4):
        produced(node, 9, produce(node, values=(b"x" * 4000,)))
    assert len(values(fetched(node.call(ApiKey.FETCH, 12, fetch(node))))) == 2, "what ten seconds allow"
    node.send(ApiKey.FETCH, 12, fetch(node, offset=2))
    start, sent = node.responses
    assert isinstance(start, StartThrottlingResponse)
    node.responses = [sent]
    throttled = node.answer(ApiKey.FETCH, 12)
    assert throttled.responses == [] and throttled.throttle_time_ms > 5000
    node.clock.advance(11_000)
    assert len(values(fetched(node.call(ApiKey.FETCH, 12, fetch(node, offset=2))))) == 2


@pytest.mark.behaviour(
    "Throttling and quotas", "A batch larger than the quota gets through, and its time is waited for"
)
def test_batch_larger_than_the_quota_gets_through_throttled() -> None:
    node = BrokerNode()
    node.context.consumer_quota.follow({frozenset({(CLIENT, None)}): 10})
    node.cluster.create_topic("t", 1)
    produced(node, 9, produce(node, values=(b"x" * 400,)))
    node.send(ApiKey.FETCH, 12, fetch(node))
    start, sent = node.responses
    assert isinstance(start, StartThrottlingResponse)
    node.responses = [sent]
    answer = node.answer(ApiKey.FETCH, 12)
    assert len(values(fetched(answer))) == 1 and answer.throttle_time_ms > 30_000


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
def test_fetch_errors(node: BrokerNode, version: int) -> None:
    def code(**options: Any) -> Any:
        return fetched(node.call(ApiKey.FETCH, version, fetch(node, max_wait_ms=500, **options))).error_code

    assert code(offset=1) == 1
    assert code(partition=7) == 3
    assert code(topic="nowhere") == (100 if version >= 13 else 3)
    if version >= 9:
        assert code(epoch=5) == 75
    answer = node.call(ApiKey.FETCH, version, fetch(node, partition=1))
    part = answer.responses[0].partitions[0]
    assert part.error_code == 6
    if version >= 12:
        assert part.current_leader.leader_id == 2
    if version >= 16:
        assert [(endpoint.node_id, endpoint.port) for endpoint in answer.node_endpoints] == [(2, 9002)]


def test_a_fetch_waits_for_enough_bytes_without_holding_a_thread(node: BrokerNode) -> None:
    size = len(make_batch([b"v"]))
    node.send(ApiKey.FETCH, 12, fetch(node, max_wait_ms=500, min_bytes=2 * size))
    assert node.responses == [] and node.purgatory.watched == 1
    node.send(ApiKey.PRODUCE, 9, produce(node))
    assert node.answer(ApiKey.PRODUCE, 9) and node.responses == []
    node.send(ApiKey.PRODUCE, 9, produce(node, values=(b"w",)))
    # The producer receives its response first: it does not wait for fetches that wait for its records.
    assert node.answer(ApiKey.PRODUCE, 9)
    part = fetched(node.answer(ApiKey.FETCH, 12))
    assert values(part) == [b"v", b"w"]
    assert node.purgatory.watched == 0


def test_a_fetch_counts_what_is_there_already(node: BrokerNode) -> None:
    produced(node, 9, produce(node))
    size = len(make_batch([b"v"]))
    node.send(ApiKey.FETCH, 12, fetch(node, max_wait_ms=500, min_bytes=size + 1))
    assert node.responses == []
    node.send(ApiKey.PRODUCE, 9, produce(node))
    assert node.answer(ApiKey.PRODUCE, 9)
    assert len(values(fetched(node.answer(ApiKey.FETCH, 12)))) == 2


def test_fetch_waits_for_at_most_its_max_bytes(node: BrokerNode) -> None:
    produced(node, 9, produce(node, values=(b"x" * 300,)))
    part = fetched(node.call(ApiKey.FETCH, 11, fetch(node, max_wait_ms=500, min_bytes=10_000, max_bytes=200)))
    assert len(values(part)) == 1


def test_a_fetch_from_a_closed_segment_does_not_wait(node: BrokerNode) -> None:
    size = len(make_batch([b"v"]))
    node.cluster.create_topic("small", assignment=[[1]], configs={"segment.bytes": str(size)})
    for _ in range(2):
        produced(node, 9, produce(node, topic="small"))
    earlier, newest = (fetch(node, offset, topic="small", max_wait_ms=500, min_bytes=10 * size) for offset in range(2))
    assert len(values(fetched(node.call(ApiKey.FETCH, 12, earlier)))) == 1
    node.send(ApiKey.FETCH, 12, newest)
    assert node.responses == []


def test_a_fetch_is_answered_when_its_time_is_up(node: BrokerNode) -> None:
    node.send(ApiKey.FETCH, 12, fetch(node, max_wait_ms=500))
    node.timer.run_due(node.clock.now_ms + 499)
    assert node.responses == []
    node.timer.run_due(node.clock.now_ms + 500)
    part = fetched(node.answer(ApiKey.FETCH, 12))
    assert (part.error_code, bytes(part.records or b"")) == (0, b"")


def test_fetch_wait_has_an_upper_limit(node: BrokerNode) -> None:
    node.send(ApiKey.FETCH, 12, fetch(node, max_wait_ms=2**31 - 1))
    node.timer.run_due(node.clock.now_ms + 60_000)
    assert len(node.responses) == 1


@pytest.mark.parametrize("what", ["deleted", "moved"])
def test_a_waiting_fetch_hears_that_its_topic_went_away(node: BrokerNode, what: str) -> None:
    node.cluster.create_topic("other", assignment=[[1, 2], [1, 2]])
    request = fetch(node, partition=1, topic="other", max_wait_ms=500)
    node.send(ApiKey.FETCH, 12, request)
    assert node.responses == []
    if what == "moved":
        node.cluster.node_down(1)
        node.purgatory.check(TopicPartition("other", 1))
        expected = 6
    else:
        node.send(ApiKey.DELETE_TOPICS, 5, topic_names=["other"])
        expected = 3
    assert fetched(node.answer(ApiKey.FETCH, 12)).error_code == expected


def test_waiting_fetch_of_recreated_smaller_topic_gets_an_error(node: BrokerNode) -> None:
    node.cluster.create_topic("other", assignment=[[1], [1]])
    node.send(ApiKey.FETCH, 12, fetch(node, partition=1, topic="other", max_wait_ms=500))
    node.cluster.delete_topics(["other"], lambda topic: node.logs.delete(topic.topic_partitions()))
    node.cluster.create_topic("other", assignment=[[1]])
    node.timer.run_due(node.clock.now_ms + 500)
    assert fetched(node.answer(ApiKey.FETCH, 12)).error_code == 3


def test_limits_of_a_fetch(node: BrokerNode) -> None:
    for partition in (0, 2):
        for _ in range(3):
            produced(node, 9, produce(node, partition, values=(b"x" * 1000,)))
    size = len(make_batch([b"x" * 1000]))
    # However small the limits are: the first batch is returned whole, or the reader would make no progress.
    for of_partition, of_all, lengths in ((2 * size, 3 * size, [2 * size, size]), (1, 1, [size, 0])):
        parts = [{"partition": index, "partition_max_bytes": of_partition} for index in (0, 2)]
        answer = node.call(ApiKey.FETCH, 12, max_bytes=of_all, topics=[{"topic": "t", "partitions": parts}])
        assert [len(part.records or b"") for part in answer.responses[0].partitions] == lengths


def test_unread_fetch_answers_make_later_ones_smaller(node: BrokerNode) -> None:
    node = BrokerNode(queued_max_response_bytes=2500)
    node.cluster.create_topic("t", 1)
    for _ in range(5):
        produced(node, 9, produce(node, values=(b"x" * 1000,)))
    size = len(make_batch([b"x" * 1000]))
    held = []
    for expected in (2500, size, size):
        node.send(ApiKey.FETCH, 12, fetch(node))
        held += node.responses
        part = fetched(node.answer(ApiKey.FETCH, 12))
        assert len(part.records or b"") == expected
    for response in held:
        assert isinstance(response, SendResponse)
        response.complete()
    assert node.context.response_budget.available_bytes == 2500


# --- ListOffsets -----------------------------------------------------------------------------------------------------


def listed(node: BrokerNode, version: int, timestamp: int, partition: int = 0, topic: str = "t") -> Any:
    parts = [{"partition_index": partition, "timestamp": timestamp}]
    answer = node.call(ApiKey.LIST_OFFSETS, version, -1, topics=[(topic, parts)])
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_list_offsets(node: BrokerNode, version: int) -> None:
    # Only newer versions have the largest timestamp and the earliest record that is not in remote storage.
    known = [
        timestamp
        for timestamp, first in {-1: 1, -2: 1, -3: 7, -4: 8, 0: 1, 1001: 1, 1003: 1}.items()
        if version >= first
    ]
    for timestamp in known:
        assert listed(node, version, timestamp).offset == (0 if timestamp in (-1, -2, -4) else -1)
    produced(node, 9, produce(node, values=(b"a", b"b", b"c")))
    found = {timestamp: listed(node, version, timestamp) for timestamp in known}
    expected = {-4: (0, -1), -3: (2, 1002), -2: (0, -1), -1: (3, -1), 0: (0, 1000), 1001: (1, 1001), 1003: (-1, -1)}
    places = {timestamp: (part.offset, part.timestamp) for timestamp, part in found.items()}
    assert places == {timestamp: expected[timestamp] for timestamp in known}
    # An offset that was not found has no leader epoch.
    epochs = {timestamp: part.leader_epoch for timestamp, part in found.items()}
    assert epochs == {timestamp: 0 if version >= 4 and expected[timestamp][0] >= 0 else -1 for timestamp in known}


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_list_offsets_errors(node: BrokerNode, version: int) -> None:
    assert listed(node, version, -1, partition=1).error_code == 6
    assert listed(node, version, -1, partition=-1).error_code == 3
    assert listed(node, version, -1, topic="nowhere").error_code == 3
    assert listed(node, version, -99).error_code == 35
    assert listed(node, version, -3).error_code == (35 if version < 7 else 0)
    assert listed(node, version, -4).error_code == (35 if version < 8 else 0)
    assert listed(node, version, -5).error_code == (35 if version < 9 else 0)
    assert listed(node, version, -6).error_code == (35 if version < 11 else 0)


# --- CreateTopics, DeleteTopics --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_TOPICS))
def test_create_topics(node: BrokerNode, version: int) -> None:
    results = node.call(
        ApiKey.CREATE_TOPICS,
        version,
        [
            {"name": "a", "num_partitions": 3, "replication_factor": 2, "configs": [("retention.ms", "1000")]},
            ("t", 1, 1),
            ("b", -1, -1, [(1, [2]), (0, [1])]),
            ("c", 1, -1, [(0, [1])]),
            ("d", -1, -1, [(5, [1])]),
            {"name": "e", "num_partitions": 1, "replication_factor": 1, "configs": [("cleanup.policy", None)]},
            ("f", 1, 1),
            ("f", 1, 1),
        ],
    ).topics
    assert [(result.name, result.error_code) for result in results] == [
        ("a", 0),
        ("t", 36),
        ("b", 0),
        ("c", 42),
        ("d", 39),
        ("e", 40),
        ("f", 42),
    ]
    assert sorted(node.cluster.topics) == ["a", "b", "t"]
    if version >= 5:
        assert (results[0].num_partitions, results[0].replication_factor) == (3, 2)
        assert [(config.name, config.value) for config in results[0].configs or ()] == [("retention.ms", "1000")]
    if version >= 7:
        assert results[0].topic_id == topic_id(node, "a")


def test_validate_only_creates_nothing(node: BrokerNode) -> None:
    assert node.call(ApiKey.CREATE_TOPICS, 5, [("a", 3, 1)], validate_only=True).topics[0].error_code == 0
    assert node.cluster.topic("a") is None


def test_a_topic_that_cannot_be_stored_is_not_created(node: BrokerNode) -> None:
    node.disk.full_after_bytes = 0
    assert node.call(ApiKey.CREATE_TOPICS, 5, [("a", 3, 1)]).topics[0].error_code == 56


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_TOPICS))
def test_delete_topics(node: BrokerNode, version: int) -> None:
    produced(node, 9, produce(node))
    assert [path for path in node.disk.files if "t-0" in path.parts]
    if version >= 6:
        asked = [(None, topic_id(node)), "gone", (None, UUID(int=3))]
        request, expected = request_body(ApiKey.DELETE_TOPICS, topics=asked), [("t", 0), ("gone", 3), (None, 100)]
    else:
        request, expected = request_body(ApiKey.DELETE_TOPICS, topic_names=["t", "gone"]), [("t", 0), ("gone", 3)]
    answer = node.call(ApiKey.DELETE_TOPICS, version, request)
    assert [(result.name, result.error_code) for result in answer.responses] == expected
    assert node.cluster.topic("t") is None
    assert [path for path in node.disk.files if path.suffix == ".log"] == []
    # The name can be used again, and no data of the old topic remains.
    node.cluster.create_topic("t", assignment=[[1]])
    assert produced(node, 9, produce(node)).base_offset == 0


@pytest.mark.behaviour("Log", "A topic that cannot be removed whole is still there")
@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_topic_that_cannot_be_removed_whole_is_still_there(
    node: BrokerNode, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.cluster.create_topic("three", assignment=[[1]] * 3)
    for partition in range(3):
        produced(node, 9, produce(node, partition, topic="three"))
    renames: list[Path] = []
    rename = node.disk.rename

    def fail_once(source: Path, target: Path) -> None:
        renames.append(source)
        if len(renames) == failing + 1:
            raise OSError(errno.EIO, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(node.disk, "rename", fail_once)
    request = request_body(ApiKey.DELETE_TOPICS, topic_names=["three"])
    answer = node.call(ApiKey.DELETE_TOPICS, 5, request)
    assert [result.error_code for result in answer.responses] == [ErrorCode.KAFKA_STORAGE_ERROR]
    # The partition that could not be removed is still served, the others are gone.
    assert len(renames) == 3 and node.cluster.topic("three") is not None
    logs = [node.logs.get(TopicPartition("three", partition)) for partition in range(3)]
    assert [log.end_offset if log is not None else 0 for log in logs] == [int(n == failing) for n in range(3)]
    answer = node.call(ApiKey.DELETE_TOPICS, 5, request)
    assert [result.error_code for result in answer.responses] == [ErrorCode.NONE]
    assert node.disk.list_directory(DIRECTORY / "logs") == []


def test_a_topic_to_delete_is_named_once_and_in_one_way(node: BrokerNode) -> None:
    by_both = ("t", topic_id(node))
    asked = [by_both, DeleteTopicState(), "t", "t"]
    answer = node.call(ApiKey.DELETE_TOPICS, 6, topics=asked)
    assert [(result.name, result.error_code) for result in answer.responses] == [("t", 42), (None, 42), ("t", 42)]
    assert node.cluster.topic("t") is not None


def test_write_racing_with_topic_deletion_leaves_nothing_behind(node: BrokerNode) -> None:
    stale = node.cluster.topic("t")
    assert stale is not None
    node.call(ApiKey.DELETE_TOPICS, 5, topic_names=["t"])
    with pytest.raises(ApiError) as caught:
        node.context.log_of(stale, 0)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert node.disk.list_directory(DIRECTORY / "logs") == []


# --- InitProducerId, FindCoordinator ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_init_producer_id(node: BrokerNode, version: int) -> None:
    request = request_body(ApiKey.INIT_PRODUCER_ID, None, 60000)
    given = [node.call(ApiKey.INIT_PRODUCER_ID, version, request) for _ in range(3)]
    assert [(answer.error_code, answer.producer_epoch) for answer in given] == [(0, 0)] * 3
    assert len({answer.producer_id for answer in given}) == 3
    refused = node.call(ApiKey.INIT_PRODUCER_ID, version, "", 1)
    assert (refused.error_code, refused.producer_id) == (42, -1)


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_find_coordinator(node: BrokerNode, version: int) -> None:
    for key_type in (0, 1) if version >= 1 else (0,):
        if version >= 4:
            answer = node.call(ApiKey.FIND_COORDINATOR, version, key_type=key_type, coordinator_keys=["a", "b"])
            assert [(found.key, found.error_code) for found in answer.coordinators] == [("a", 0), ("b", 0)]
            places = {(found.node_id, found.port) for found in answer.coordinators}
        else:
            answer = node.call(ApiKey.FIND_COORDINATOR, version, "a", key_type)
            assert answer.error_code == 0
            places = {(answer.node_id, answer.port)}
        assert places <= {(1, 9001), (2, 9002)}
    if version >= 1:
        answer = node.call(
            ApiKey.FIND_COORDINATOR, version, "a" if version < 4 else "", 9, ["a"] if version >= 4 else []
        )
        assert (answer.coordinators[0] if version >= 4 else answer).error_code == 42


# --- malformed requests ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", list(HANDLERS))
def test_versions_that_are_not_served_cost_the_connection(node: BrokerNode, key: ApiKey) -> None:
    if key is ApiKey.API_VERSIONS:
        return
    for version in (HANDLERS[key].versions.min - 1, HANDLERS[key].versions.max + 1):
        node.handle_frame(key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + bytes(40))
        assert [type(response) for response in node.responses] == [CloseConnectionResponse]
        node.responses.clear()


@pytest.mark.parametrize("key", [key for key in HANDLERS if key is not ApiKey.API_VERSIONS])
def test_a_body_that_is_cut_off_costs_the_connection(node: BrokerNode, key: ApiKey) -> None:
    version = HANDLERS[key].versions.max
    node.handle_frame(key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(6) + b"\0")
    assert [type(response) for response in node.responses] == [CloseConnectionResponse]
