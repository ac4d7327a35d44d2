"""Malformed data that one member or client wrote into a group affects only that group, not the display of others."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from typing import Any, Final

import pytest

from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.cli.main import run
from kafka_sink.common.errors import ErrorCode
from kafka_sink.producer.kafka_producer import KafkaProducer, ProducerRecord
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.group_members import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kafka_sink.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_sink.protocol.schema import Struct
from kafka_sink.ui.cluster_view import ClusterView, cluster_metrics
from tests.support.good_client import frame
from tests.support.wire import Wire

pytestmark = pytest.mark.behaviour("Readers", "A group that cannot be read is shown as such beside the others")

PROGRESS: Final = "kafkalite2|2|{parts}|w|{decided}||"
#: Assignments of 2³¹-1 topics, one with the length -6, and of a partition that the topic does not have.
STANDS_STILL: Final = struct.pack(">hihsiihq", 0, 2**31 - 1, 1, b"t", 1, 0, -6, 0)
NOWHERE: Final = struct.pack(">hihsiii", 0, 1, 1, b"t", 1, 999_999, -1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        running.create_topic("t", 1)
        for group, metadata in (
            ("odd-age", PROGRESS.format(parts=1, decided="9" * 3000)),
            ("odd-parts", PROGRESS.format(parts=2**31 - 1, decided=0)),
            ("innocent", ""),
        ):
            commit(running, group, metadata)
        join(running, "odd-assignment", STANDS_STILL)
        join(running, "odd-partition", NOWHERE)
        yield running


def ask(cluster: EmbeddedCluster, key: ApiKey, version: int, body: Struct) -> Any:
    wire = Wire(cluster.bootstrap_servers)
    wire.send_frame(frame(key, version, body)[4:])
    return wire.receive(key, version)


def commit(cluster: EmbeddedCluster, group: str, metadata: str) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata=metadata)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    body = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
    assert ask(cluster, ApiKey.OFFSET_COMMIT, 7, body).topics[0].partitions[0].error_code == 0


def join(cluster: EmbeddedCluster, group: str, assignment: bytes) -> None:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=struct.pack(">hii", 0, 0, -1))]
    body = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )
    joined = ask(cluster, ApiKey.JOIN_GROUP, 3, body)
    assigned = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)]
    synced = SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=assigned
    )
    assert ask(cluster, ApiKey.SYNC_GROUP, 2, synced).error_code == 0


@pytest.fixture
def view(cluster: EmbeddedCluster) -> Iterator[ClusterView]:
    looking = ClusterView(cluster.bootstrap_servers, {}, 10_000)
    yield looking
    looking.close()


NAMES: Final = ["innocent", "odd-age", "odd-assignment", "odd-partition", "odd-parts"]


def test_odd_groups_are_shown_beside_the_others(view: ClusterView, cluster: EmbeddedCluster) -> None:
    _, groups = view.groups()
    assert [group["group"] for group in groups] == NAMES
    assert not any(group["problem"] or group["sinks"] for group in groups)
    assert groups[0]["partitions"][0]["lag"] == 0
    assert [each["partition"] for each in groups[3]["partitions"]] == [999_999]
    values = {(metric.name, *metric.tags): metric.value for metric in cluster_metrics(view)}
    assert [value for name, value in values.items() if name[0] == "up"] == [1]
    assert sum("innocent" in str(name) for name in values) == 2
    assert [topic["topic"] for topic in view.topics() if not topic["topic"].startswith("__")] == ["t"]


def test_odd_groups_are_described(cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["groups", "describe", *NAMES, "--bootstrap-server", cluster.bootstrap_servers]
    assert run(arguments) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in NAMES)
    with cluster.faults.on("describe_groups", nth=2, error=ErrorCode.GROUP_AUTHORIZATION_FAILED):
        assert run(arguments) == 1
    answer = capsys.readouterr()
    assert "innocent" in answer.out
    assert "odd-age" not in answer.out
    assert "the group 'odd-age' could not be described" in answer.err


def test_a_group_that_is_refused_is_a_line_of_the_page(view: ClusterView, cluster: EmbeddedCluster) -> None:
    with cluster.faults.on("describe_groups", nth=1, error=ErrorCode.GROUP_AUTHORIZATION_FAILED):
        _, groups = view.groups()
    assert [group["group"] for group in groups] == NAMES
    assert [bool(group["problem"]) for group in groups] == [True, False, False, False, False]


def test_the_transactions_of_an_odd_sink_are_shown(view: ClusterView, cluster: EmbeddedCluster) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "odd-parts/t.driver"}
    with KafkaProducer(settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(ProducerRecord("t", b"v")).result(60)
        count, transactions = view.transactions()
        assert count == 1
        assert [(each.sink, each.is_decided) for each in transactions] == [("odd-parts", False)]
        producer.abort_transaction()


def test_a_look_that_lasts_holds_up_no_other(view: ClusterView, monkeypatch: pytest.MonkeyPatch) -> None:
    """A concurrent request for the same data waits for the same response; one for other data does not wait."""
    asked, goes_on, answers = threading.Event(), threading.Event(), list[Any]()

    def lasting(*_: object) -> list[dict[str, Any]]:
        asked.set()
        assert goes_on.wait(60)
        return []

    monkeypatch.setattr("kafka_sink.ui.cluster_view.group_documents", lasting)
    looks = [threading.Thread(target=lambda: answers.append(view.groups())) for _ in range(2)]
    for look in looks:
        look.start()
    assert asked.wait(60)
    assert view.topics()
    assert not answers
    goes_on.set()
    for look in looks:
        look.join()
    assert answers[0] is answers[1]
