"""The way of rows from a task to the producer."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.broker.faults.faults import set_fault
from kafka_sink.columns.record_columns import ColumnChunk
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.errors import BatchRefusedError, ErrorCode, error_for
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, TopicPartition
from kafka_sink.errors import SinkWriteError
from kafka_sink.producer.futures import Delivery
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.task import task_writer
from kafka_sink.spark.task.task_writer import DeliveryTracker, write_task
from tests.support.readback import read_topic

TOPIC = "rows"
SCHEMA = pa.schema([("value", pa.string()), ("partition", pa.int32())])


def batches(count: int, rows: int, partitions: int) -> list[pa.RecordBatch]:
    numbers = range(count * rows)
    values = pa.array([str(number) for number in numbers])
    chosen = pa.array([number % partitions for number in numbers], pa.int32())
    whole = pa.RecordBatch.from_arrays([values, chosen], schema=SCHEMA)
    return [whole.slice(start * rows, rows) for start in range(count)]


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of every batch that is passed to the producer."""
    seen: list[int] = []
    send_columns = KafkaProducer.send_columns

    def watched(producer: KafkaProducer, topic: str, chunk: ColumnChunk, *rest: Any, **further: Any) -> None:
        seen.append(chunk.num_rows)
        send_columns(producer, topic, chunk, *rest, **further)

    monkeypatch.setattr(KafkaProducer, "send_columns", watched)
    return seen


def write(cluster: EmbeddedCluster, rows: list[pa.RecordBatch], partitions: int) -> None:
    cluster.create_topic(TOPIC, partitions)
    options = parse_options({"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": TOPIC}).spec
    commit = write_task(iter(rows), options)
    assert commit.rows_in == commit.rows_acked == sum(batch.num_rows for batch in rows)


@pytest.mark.behaviour("Tasks", "All rows of a task arrive, to however many partitions they go")
@pytest.mark.parametrize(("partitions", "expected"), [(63, [100] * 6), (64, [100, 300, 200])])
def test_rows_for_many_partitions_are_gathered_and_all_arrive(
    partitions: int, expected: list[int], sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = batches(6, 100, partitions)
    monkeypatch.setattr(task_writer, "piece_bytes", lambda partitions: 3 * rows[-1].nbytes)
    with EmbeddedCluster() as cluster:
        write(cluster, rows, partitions)
        assert sizes == expected
        found = sorted(int(message.value or b"") for message in read_topic(cluster.bootstrap_servers, TOPIC))
    assert found == list(range(600))


def test_a_wrong_row_of_gathered_ones_has_its_number_in_the_task() -> None:
    rows = batches(4, 100, 64)
    wrong = pa.RecordBatch.from_arrays([pa.array(["x"]), pa.array([-7], pa.int32())], schema=SCHEMA)
    with EmbeddedCluster() as cluster, pytest.raises(SinkWriteError, match=r"row 400 .*has partition -7"):
        write(cluster, [*rows, wrong], 64)


@pytest.mark.behaviour("Tasks", "maxRecordsPerSecond limits each task, in pieces of a tenth of a second")
def test_limited_rows_are_handed_over_in_pieces(sizes: list[int]) -> None:
    rows = batches(2, 5000, 1)
    with EmbeddedCluster() as cluster:
        cluster.create_topic(TOPIC, 1)
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": TOPIC, "maxRecordsPerSecond": "30000"}
        options = parse_options(given).spec
        assert write_task(iter(rows), options).rows_acked == 10_000
        assert sizes == [3000, 2000, 3000, 2000]
        wrong = pa.RecordBatch.from_arrays([pa.array(["x"]), pa.array([-7], pa.int32())], schema=SCHEMA)
        with pytest.raises(SinkWriteError, match=r"row 5000 .*has partition -7"):
            write_task(iter([rows[0], wrong]), options)


def metadata_requests(cluster: EmbeddedCluster) -> int:
    found = [
        metric.value
        for metric in cluster.metrics()
        if metric.name == "RequestsPerSec" and {("request", "Metadata"), ("attribute", "Count")} <= set(metric.tags)
    ]
    return int(sum(found))


@pytest.mark.behaviour("Tasks", "A task goes on with the producer of the task before it")
def test_task_reuses_metadata_and_still_finds_moved_leaders() -> None:
    with EmbeddedCluster(nodes=2) as cluster:
        servers = cluster.bootstrap_servers
        cluster.create_topic(TOPIC, 1, replication_factor=2)
        write_row(servers, 1)
        asked = metadata_requests(cluster)
        write_row(servers, 2)
        assert metadata_requests(cluster) == asked
        leader = next(iter(cluster.nodes))
        for node in cluster.nodes:
            cluster.move_leader(TOPIC, 0, node)
            write_row(servers, 3)
        cluster.stop_node(leader)
        write_row(servers, 4)
        assert len(read_topic(cluster.bootstrap_servers, TOPIC)) == 5


def test_kept_metadata_is_refreshed_by_age_and_after_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedCluster() as cluster:
        servers = cluster.bootstrap_servers
        cluster.create_topic(TOPIC, 1)
        write_row(servers, 1)
        asked = metadata_requests(cluster)
        with pytest.raises(SinkWriteError):
            write_row(servers, 7, partition=7)
        write_row(servers, 2)
        assert metadata_requests(cluster) > asked
        asked = metadata_requests(cluster)
        monkeypatch.setattr(task_writer, "MOST_AGE_MS", -1)
        # Only after retry.backoff.ms since the last request.
        deadline = time.monotonic() + 30
        while metadata_requests(cluster) == asked and time.monotonic() < deadline:
            write_row(servers, 3)
        assert metadata_requests(cluster) > asked


@pytest.mark.behaviour("Tasks", "A row that is refused after the last one fails the task with the cause")
def test_row_refused_after_last_hand_over_fails_the_task() -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic(TOPIC, 1)
        with (
            set_fault(cluster.faults, "produce:error=topic_authorization_failed"),
            pytest.raises(SinkWriteError, match=r"grant WRITE on the topic .*0 rows were acknow"),
        ):
            write_row(cluster.bootstrap_servers, 1)


@pytest.mark.behaviour("Tasks", "A task ends at the first refusal, and leaves no thread")
def test_task_stops_at_first_refused_row_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    trackers: list[DeliveryTracker] = []

    def watched(*arguments: Any) -> DeliveryTracker:
        trackers.append(DeliveryTracker(*arguments))
        return trackers[-1]

    monkeypatch.setattr(task_writer, "DeliveryTracker", watched)
    taken: list[int] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches(5, 1, 1)):
            taken.append(number)
            yield batch
            while trackers[0].first_error is None:
                time.sleep(0.001)

    before = producer_threads()
    with EmbeddedCluster() as cluster:
        cluster.create_topic(TOPIC, 1)
        options = parse_options({"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": TOPIC}).spec
        with set_fault(cluster.faults, "produce:error=topic_authorization_failed"), pytest.raises(SinkWriteError):
            write_task(rows(), options)
        assert taken == [0, 1]
        assert producer_threads() <= before


def producer_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("kafka-producer")}


def write_row(servers: str, value: int, partition: int = 0) -> None:
    """Write a task of one row; the process keeps its metadata by the address of the brokers."""
    options = parse_options({"kafka.bootstrap.servers": servers, "topic": TOPIC}).spec
    row = pa.RecordBatch.from_arrays([pa.array([str(value)]), pa.array([partition], pa.int32())], schema=SCHEMA)
    write_task(iter([row]), options)


def test_a_producer_that_cannot_be_kept_fails_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    before = producer_threads()
    monkeypatch.setattr(task_writer, "start_thread", fail)
    with EmbeddedCluster() as cluster:
        cluster.create_topic(TOPIC, 1)
        write_row(cluster.bootstrap_servers, 1)
        assert len(read_topic(cluster.bootstrap_servers, TOPIC)) == 1
    assert producer_threads() <= before


@pytest.mark.behaviour("Tasks", "A task loads no format, key store reader or token endpoint that it does not use")
def test_a_task_loads_only_what_every_task_uses() -> None:
    """A new Python worker loads all of these modules before its first row, and each costs 20 to 40 ms."""
    code = (
        "import sys; import kafka_sink.spark.task.task_writer; "
        "print(sorted(name for name in sys.modules if name.startswith(('kafka_sink.formats.avro', "
        "'kafka_sink.formats.json', 'kafka_sink.registry.client', 'kafka_sink.http.oauth.token', 'http.client'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n", done.stdout


def test_the_error_of_a_batch_is_that_of_the_record_to_blame() -> None:
    blamed = error_for(ErrorCode.INVALID_RECORD, "record 4 of 6 has no key")
    tracker = DeliveryTracker(SYSTEM_CLOCK)
    place = TopicPartition(TOPIC, 0)
    for error in (BatchRefusedError(blamed), blamed):
        tracker.handing_over()(Delivery(place, NO_OFFSET, 3, 0, NO_TIMESTAMP, error))
    assert tracker.first_error is blamed
