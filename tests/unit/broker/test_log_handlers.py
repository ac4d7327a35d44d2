"""DeleteRecords and OffsetForLeaderEpoch, and ListOffsets and Fetch of a log that does not start at offset 0."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from kafka_sink.broker.handlers.dispatch import HANDLERS
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.schema import Struct
from kafka_sink.records.control import EndTransactionMarker
from kafka_sink.records.reader import read_batches
from tests.fakes.broker_node import BrokerNode
from tests.fakes.record_batches import make_batch, with_header

S = TypeVar("S", bound=Struct)


def versions(key: ApiKey) -> range:
    served = HANDLERS[key].versions
    return range(served.min, served.max + 1)


@pytest.fixture
def node() -> BrokerNode:
    """Node 1 of two; it leads t-0, the other one leads t-1."""
    made = BrokerNode(nodes=2)
    made.cluster.create_topic("t", assignment=[[1, 2], [2, 1]])
    return made


def write(node: BrokerNode, *values: bytes, base_timestamp: int = 1000) -> Any:
    data = (0, make_batch(values, base_timestamp=base_timestamp))
    answer = node.call(ApiKey.PRODUCE, 9, None, -1, 1000, [{"name": "t", "partition_data": [data]}])
    return answer.responses[0].partition_responses[0].log_start_offset


def fetched(node: BrokerNode, offset: int, *, committed: bool = False) -> Any:
    topics = [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]}]
    answer = node.call(ApiKey.FETCH, 12, max_wait_ms=0, min_bytes=1, isolation_level=int(committed), topics=topics)
    return answer.responses[0].partitions[0]


def listed(node: BrokerNode, timestamp: int, *, committed: bool = False) -> tuple[int, int]:
    topics = [("t", [{"partition_index": 0, "timestamp": timestamp}])]
    answer = node.call(ApiKey.LIST_OFFSETS, 8, -1, int(committed), topics)
    part = answer.topics[0].partitions[0]
    return part.offset, part.timestamp


def test_list_offsets_committed_stops_before_open_transaction(node: BrokerNode) -> None:
    write(node, b"a", b"b")
    topic = node.cluster.topic("t")
    assert topic is not None
    log = node.context.log_of(topic, 0)
    batch, header = with_header([b"open"], producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append(batch, header, 0, 0, log.begin_verification(5, 0, 0, 0))
    asked = (-1, -3, 1001)
    assert [listed(node, timestamp) for timestamp in asked] == [(3, -1), (1, 1001), (1, 1001)]
    assert [listed(node, timestamp, committed=True) for timestamp in asked] == [(2, -1), (1, 1001), (1, 1001)]
    write(node, b"later", base_timestamp=5000)
    assert [listed(node, timestamp) for timestamp in (-3, 2000)] == [(3, 5000), (3, 5000)]
    assert [listed(node, timestamp, committed=True) for timestamp in (-3, 2000)] == [(-1, -1), (-1, -1)]


@pytest.mark.behaviour(
    "Transactions in the log",
    "A fetch of committed records ends at the last stable offset and lists the aborted transactions",
)
def test_committed_fetch_ends_at_open_transaction_lists_aborted(node: BrokerNode) -> None:
    write(node, b"a")
    topic = node.cluster.topic("t")
    assert topic is not None
    log = node.context.log_of(topic, 0)
    for producer, aborts in ((5, True), (6, False)):
        batch, header = with_header(
            [b"x"], producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        log.append(batch, header, 0, 0, log.begin_verification(producer, 0, 0, 0))
        if aborts:
            log.append_marker(EndTransactionMarker(producer, 0, False, 0), 0, 0)
    seen = []
    for committed in (False, True):
        part = fetched(node, 0, committed=committed)
        assert (part.high_watermark, part.last_stable_offset) == (4, 3)
        assert isinstance(part.records, memoryview)
        offsets = [batch.last_offset for batch in read_batches(part.records)]
        aborted = part.aborted_transactions
        named = None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted]
        seen.append((offsets, named))
    assert seen == [([0, 1, 2, 3], None), ([0, 1, 2], [(5, 1)])]


def deleted(node: BrokerNode, offset: int, version: int = 2, partition: int = 0, topic: str = "t") -> tuple[int, int]:
    result = node.call(ApiKey.DELETE_RECORDS, version, [(topic, [(partition, offset)])], 1000).topics[0].partitions[0]
    return result.low_watermark, result.error_code


@pytest.mark.behaviour("Retention and DeleteRecords", "Deleted records stay deleted")
@pytest.mark.parametrize("version", versions(ApiKey.DELETE_RECORDS))
def test_what_is_deleted_can_no_longer_be_read(node: BrokerNode, version: int) -> None:
    write(node, b"a", b"b", b"c")
    write(node, b"d", b"e", base_timestamp=500)
    assert deleted(node, 1, version) == (1, 0)
    assert fetched(node, 0).error_code == 1
    # Batches are returned whole: a reader skips the records before its fetch offset.
    found = fetched(node, 1)
    assert (found.error_code, found.log_start_offset, found.high_watermark) == (0, 1, 5)
    assert [listed(node, timestamp) for timestamp in (-2, -4, 0, 1000)] == [(1, -1), (1, -1), (1, 1001), (1, 1001)]
    assert deleted(node, 0, version) == (1, 0), "a start never goes back"
    assert deleted(node, 4, version) == (4, 0)
    assert [listed(node, timestamp) for timestamp in (-3, 0, 502)] == [(4, 501), (4, 501), (-1, -1)]
    assert write(node, b"f") == 4
    assert deleted(node, -1, version) == (6, 0)
    assert (fetched(node, 5).error_code, fetched(node, 6).error_code) == (1, 0)
    assert listed(node, -3) == (-1, -1)


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_RECORDS))
def test_delete_records_refuses_bad_offsets_and_partitions(node: BrokerNode, version: int) -> None:
    assert deleted(node, 0, version) == deleted(node, -1, version) == (0, 0)
    assert deleted(node, 1, version) == (-1, 1)
    write(node, b"a")
    assert deleted(node, 2, version) == deleted(node, -2, version) == (-1, 1)
    assert deleted(node, 0, version, partition=1) == (-1, 6)
    assert deleted(node, 0, version, partition=7) == deleted(node, 0, version, topic="nowhere") == (-1, 3)


def end_of_epoch(
    node: BrokerNode, epoch: int, version: int, *, partition: int = 0, present: int = -1
) -> tuple[int, int, int]:
    asked = (partition, present, epoch)
    answer = node.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, -1, [("t", [asked])])
    part = answer.topics[0].partitions[0]
    return part.error_code, part.leader_epoch, part.end_offset


def leader_leaves_and_returns(node: BrokerNode) -> None:
    """Two epochs later, node 1 leads t-0 again; no records were written in between."""
    endpoints = node.cluster.nodes[1]
    node.cluster.node_down(1)
    node.cluster.nodes_up({1: endpoints})
    other = node.cluster.nodes[2]
    node.cluster.node_down(2)
    node.cluster.nodes_up({2: other})


@pytest.mark.behaviour("Log", "OffsetForLeaderEpoch names the end of each epoch")
@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FOR_LEADER_EPOCH))
def test_where_the_records_of_an_epoch_end(node: BrokerNode, version: int) -> None:
    assert end_of_epoch(node, 0, version) == (0, 0, 0)
    write(node, b"a", b"b", b"c")
    leader_leaves_and_returns(node)
    write(node, b"d")
    assert [end_of_epoch(node, epoch, version) for epoch in (-1, 0, 1, 2, 3)] == [
        (0, -1, -1),
        (0, 0, 3),
        (0, 0, 3),
        (0, 2, 4),
        (0, -1, -1),
    ]
    # After records were deleted, an epoch ends no earlier than the log start offset.
    deleted(node, 4)
    assert end_of_epoch(node, 0, version) == (0, 0, 4)


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FOR_LEADER_EPOCH))
def test_offset_for_leader_epoch_refuses_wrong_leader_or_epoch(node: BrokerNode, version: int) -> None:
    assert end_of_epoch(node, 0, version, partition=1) == (6, -1, -1)
    leader_leaves_and_returns(node)
    assert end_of_epoch(node, 0, version, present=1) == (74, -1, -1)
    assert end_of_epoch(node, 0, version, present=3) == (75, -1, -1)
    assert end_of_epoch(node, 0, version, present=2)[0] == 0
    assert end_of_epoch(node, 0, version, partition=9) == (3, -1, -1)
