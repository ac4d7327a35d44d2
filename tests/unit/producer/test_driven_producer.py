"""The facade: its contract with callers, whichever thread does the work."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from kafka_sink.common.errors import (
    ApiError,
    BrokersUnreachableError,
    BufferExhaustedError,
    ConfigError,
    ErrorCode,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    RowPartitionError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)
from kafka_sink.common.model import (
    NO_OFFSET,
    Header,
    ProducerIdAndEpoch,
    RecordMetadata,
    TopicPartition,
    TransactionVersion,
)
from kafka_sink.common.threads import Loop
from kafka_sink.producer import kafka_producer
from kafka_sink.producer.futures import Delivery, FailedFuture
from kafka_sink.producer.kafka_producer import ANY_PARTITION, KafkaProducer, PartlyStagedError, ProducerRecord
from kafka_sink.producer.staging import column_staging
from kafka_sink.producer.staging.arrow_rows import parts_to_send
from kafka_sink.protocol.header import RequestHeader
from kafka_sink.protocol.messages.metadata import MetadataRequest
from kafka_sink.protocol.messages.produce import ProduceRequest
from kafka_sink.protocol.schema import Struct
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.reference import record_size
from tests.fakes.brokers import NO_LEADER, PlayedBrokers, batches_of, produce_answer
from tests.fakes.chunks import Row, make_chunk
from tests.fakes.clock import FakeClock
from tests.fakes.driven_producer import DrivenProducer
from tests.fakes.producing import TOPIC
from tests.fakes.sender_world import StandingThread, named, network_of
from tests.support.cases import with_each


class Stored:
    """Collects the records that are sent to the brokers, by partition."""

    def __init__(self, driven: DrivenProducer) -> None:
        self.values: dict[int, list[bytes | None]] = {}
        self.headers: list[tuple[Header, ...]] = []
        self.timestamps: list[int] = []
        driven.brokers.on_produce = self._take

    def _take(self, node: str, request: ProduceRequest) -> Any:
        for partition, view in batches_of(request).items():
            for record in view.records():
                self.values.setdefault(partition, []).append(record.value)
                self.headers.append(record.headers)
                self.timestamps.append(record.timestamp)
        return produce_answer(request, 100, {})


def in_use(leaders: tuple[int, ...] = (1,), **properties: Any) -> DrivenProducer:
    """A producer that has sent a record, so that it has metadata of its topic and a connection."""
    driven = DrivenProducer(leaders, **properties)
    driven.producer.send(ProducerRecord(TOPIC, b"v")).result()
    return driven


def int32s(*values: int) -> NDArray[np.int32]:
    return np.array(values, dtype=np.int32)


# --- one record ------------------------------------------------------------------------------------------------------


def test_send_returns_at_once_and_future_gives_the_metadata() -> None:
    driven = DrivenProducer((1, 2))
    stored = Stored(driven)
    headers = [("trace", b"1")]
    future = driven.producer.send(ProducerRecord(TOPIC, b"v", key=b"abc", partition=1, timestamp=7000, headers=headers))
    assert not future.done(), "sending does not wait for the brokers"
    assert future.result() == RecordMetadata(TOPIC, 1, 100, 7000, 3, 1)
    assert (stored.values, stored.headers) == ({1: [b"v"]}, [(("trace", b"1"),)])


def test_record_without_timestamp_gets_the_time_of_send() -> None:
    driven = in_use()
    before = driven.clock.wall_ms()
    assert driven.producer.send(ProducerRecord(TOPIC, b"v")).result().timestamp == before


def test_keys_choose_the_partition() -> None:
    driven = DrivenProducer((1, 1, 1))
    # murmur2 of abc is 479470107.
    assert driven.producer.send(ProducerRecord(TOPIC, b"v", key=b"abc")).result().partition == 479470107 % 3


def test_the_sender_is_woken_by_a_new_or_full_batch_only() -> None:
    driven = in_use(linger_ms=1000, batch_size=HEADER_BYTES + 3 * record_size(0, 0, None, b"v"))
    network = driven.brokers.network
    woken = []
    for _ in range(3):
        network.woken = False
        driven.producer.send(ProducerRecord(TOPIC, b"v"))
        woken.append(network.woken)
    assert woken == [True, False, True]


def test_rows_wake_the_sender() -> None:
    driven = in_use(linger_ms=49)
    for expected in (True, False):
        driven.brokers.network.woken = False
        driven.producer.send_columns(TOPIC, make_chunk([Row()]))
        assert driven.brokers.network.woken is expected


@pytest.mark.behaviour("Sender", "With a long linger.ms the sender looks for new batches itself, and none waits longer")
def test_sender_looks_for_new_batches_itself() -> None:
    driven = in_use(linger_ms=1000)
    network, clock = driven.brokers.network, driven.brokers.clock
    driven.pipeline.sender.run_once()
    assert network.poll_timeouts[-1] == 1000
    network.woken = False
    future = driven.producer.send_columns(TOPIC, make_chunk([Row()]))
    staged_ms = clock.now_ms
    assert not network.woken
    while not future.done():
        driven.pipeline.sender.run_once()
    assert clock.now_ms == staged_ms + 1000


def test_leaving_full_batch_for_another_open_one_wakes_sender() -> None:
    driven = DrivenProducer((1, 1), linger_ms=1000, batch_size=1000)
    send = driven.producer.send
    send(ProducerRecord(TOPIC, b"v"))
    (chosen,) = driven.pipeline.queues.lengths(TOPIC)
    send(ProducerRecord(TOPIC, b"v", partition=1 - chosen))
    driven.brokers.network.woken = False
    send(ProducerRecord(TOPIC, b"x" * 900, partition=chosen))
    driven.brokers.network.woken = False
    send(ProducerRecord(TOPIC, b"y" * 100))
    assert driven.brokers.network.woken


@pytest.mark.parametrize(
    ("name", "properties"),
    [("max.request.size", {"max_request_size": 500}), ("buffer.memory", {"buffer_memory": 500, "batch_size": 100})],
)
def test_too_large_record_fails_even_if_open_batch_has_room(name: str, properties: dict[str, Any]) -> None:
    driven = DrivenProducer(linger_ms=10_000, **properties)
    driven.producer.send(ProducerRecord(TOPIC, b"small"))
    told: list[Delivery] = []
    future = driven.producer.send(ProducerRecord(TOPIC, b"x" * 500), on_delivery=told.append)
    assert future.done()
    with pytest.raises(RecordTooLargeError, match=rf"more than {name} \(500 bytes\)"):
        future.result()
    assert [(each.topic_partition, each.base_offset, type(each.error)) for each in told] == [
        ((TOPIC, 0), NO_OFFSET, RecordTooLargeError)
    ]
    assert driven.producer.metrics()["record-error-total"] == 1
    driven.producer.flush()
    assert driven.memory_in_use == 0


def test_callback_error_for_unstaged_record_spares_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    def fail(delivery: Delivery) -> None:
        raise RuntimeError("mine")

    future = DrivenProducer(max_request_size=500).producer.send(ProducerRecord(TOPIC, b"x" * 500), on_delivery=fail)
    assert isinstance(future, FailedFuture)
    assert "the delivery callback of a record for topic orders raised" in caplog.text


# --- metadata --------------------------------------------------------------------------------------------------------


def test_metadata_that_is_known_is_not_waited_for() -> None:
    driven = in_use()
    waits = len(driven.clock.waits)
    driven.producer.send(ProducerRecord(TOPIC, b"v"))
    assert len(driven.clock.waits) == waits


def test_a_topic_that_does_not_exist_fails_after_max_block() -> None:
    driven = DrivenProducer(max_block_ms=3000)
    started = driven.clock.now_ms
    text = r"topic nowhere is not present in metadata after 3000 ms"
    future = driven.producer.send(ProducerRecord("nowhere", b"v"))
    assert isinstance(future, FailedFuture)
    for call in (future.result, lambda: driven.producer.partitions_for("nowhere")):
        with pytest.raises(UnknownTopicOrPartitionError, match=text):
            call()
    assert 6000 <= driven.clock.now_ms - started < 7000
    assert driven.producer.metrics()["metadata-wait-time-ns-total"] >= 6000e6


def test_brokers_that_cannot_be_reached_are_named_with_the_cause() -> None:
    driven = DrivenProducer(max_block_ms=2000)
    driven.brokers.network.refusals = {"-1": ConnectionRefusedError(111, "Connection refused")}
    with pytest.raises(BrokersUnreachableError) as caught:
        driven.producer.send(ProducerRecord(TOPIC, b"v")).result()
    assert "no broker could be reached within 2000 ms" in str(caught.value)
    assert "127.0.0.1:9000: connection refused" in str(caught.value)


def test_a_partition_out_of_range_is_waited_for_and_named() -> None:
    driven = DrivenProducer((1, 1), max_block_ms=2000)
    with pytest.raises(KafkaTimeoutError, match="partition 2 of topic orders with partition count 2 is not present"):
        driven.producer.send(ProducerRecord(TOPIC, b"v", partition=2)).result()


@with_each("as_rows", [False, True])
def test_a_partition_that_was_added_meanwhile_is_found(as_rows: bool) -> None:
    driven = in_use((1, 1), max_block_ms=2000)
    stored = Stored(driven)
    driven.brokers.move(1, 1, 2)
    if as_rows:
        driven.producer.send_columns(TOPIC, make_chunk([Row(b"new")]), int32s(2))
    else:
        driven.producer.send(ProducerRecord(TOPIC, b"new", partition=2))
    driven.producer.flush()
    assert stored.values == {2: [b"new"]}


def times_given_to_metadata(driven: DrivenProducer, answers_after_ms: int = 0) -> list[int]:
    """The timeouts in ms of later waits for metadata; each wait takes *answers_after_ms* more."""
    given: list[int] = []
    await_update = driven.network.metadata.await_update

    def note(last_version: int, timeout_ms: int) -> None:
        given.append(timeout_ms)
        await_update(last_version, timeout_ms)
        driven.clock.advance(answers_after_ms)

    driven.network.metadata.await_update = note  # type: ignore[method-assign]
    return given


def test_the_time_to_block_is_that_of_all_attempts_together() -> None:
    driven = DrivenProducer(max_block_ms=1000)
    given = times_given_to_metadata(driven)
    assert isinstance(driven.producer.send(ProducerRecord("nowhere", b"v")), FailedFuture)
    assert given == sorted(given, reverse=True) and len(given) > 2
    assert (given[0], given[-1] < 200) == (1000, True)


def test_metadata_that_comes_at_the_very_end_is_too_late() -> None:
    driven = DrivenProducer(max_block_ms=1000)
    times_given_to_metadata(driven, answers_after_ms=1000)
    with pytest.raises(UnknownTopicOrPartitionError, match="after 1000 ms"):
        driven.producer.send(ProducerRecord(TOPIC, b"v")).result()


def test_a_topic_that_is_forbidden_is_not_waited_for() -> None:
    driven = DrivenProducer(max_block_ms=60_000)
    driven.brokers.topic_errors["secret"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    started = driven.clock.now_ms
    with pytest.raises(ApiError, match="may not see the topic 'secret'; grant DESCRIBE"):
        driven.producer.send(ProducerRecord("secret", b"v")).result()
    assert driven.clock.now_ms < started + 1000


def takes_400_ms_for_metadata(driven: DrivenProducer) -> None:
    wait_for = driven.pipeline.topics.wait_for

    def slow(*args: Any) -> Any:
        driven.clock.advance(400)
        return wait_for(*args)

    driven.pipeline.topics.wait_for = slow  # type: ignore[assignment,method-assign]


@pytest.mark.behaviour("KafkaProducer", "Waiting for metadata and waiting for memory share max.block.ms")
def test_metadata_and_memory_share_the_time_to_block() -> None:
    driven = DrivenProducer(max_block_ms=1000, buffer_memory=1000, batch_size=1000)
    driven.brokers.on_produce = lambda node, request: None
    driven.producer.send(ProducerRecord(TOPIC, b"x" * 600))
    waited: list[int] = []
    allocate = driven.pipeline.pool.allocate
    driven.pipeline.pool.allocate = (  # type: ignore[method-assign]
        lambda size, max_block_ms: (waited.append(max_block_ms), allocate(size, max_block_ms))[1]
    )
    takes_400_ms_for_metadata(driven)
    driven.pipeline.topics.cached.clear()
    future = driven.producer.send(ProducerRecord(TOPIC, b"x" * 600))
    assert waited[0] == max(waited) == 600
    with pytest.raises(BufferExhaustedError):
        future.result()


@pytest.mark.behaviour("KafkaProducer", "Waiting for metadata and waiting for memory share max.block.ms")
def test_rows_await_unknown_partition_with_rest_of_max_block() -> None:
    driven = in_use((1, 1), max_block_ms=1000)
    waited = times_given_to_metadata(driven)
    takes_400_ms_for_metadata(driven)
    with pytest.raises(RowPartitionError, match="names partition 7"):
        driven.producer.send_columns(TOPIC, make_chunk([Row(b"x")]), int32s(7))
    assert waited[0] == max(waited) == 600


def test_the_partitions_of_a_topic_can_be_asked_for() -> None:
    infos = DrivenProducer((1, 2, NO_LEADER)).producer.partitions_for(TOPIC)
    assert [info.leader.id if info.leader else None for info in infos] == [1, 2, None]


# --- columns ---------------------------------------------------------------------------------------------------------


def test_rows_go_to_their_partition_or_where_partitioner_says() -> None:
    driven = DrivenProducer((1, 1, 1))
    stored = Stored(driven)
    rows = [Row(b"%d" % index, key=b"abc") for index in range(6)]
    hashed = 479470107 % 3
    driven.producer.send_columns(TOPIC, make_chunk(rows), int32s(2, 0, ANY_PARTITION, 2, 0, ANY_PARTITION))
    driven.producer.flush()
    expected: dict[int, list[bytes | None]] = {}
    for row, partition in zip(rows, (2, 0, hashed, 2, 0, hashed), strict=True):
        expected.setdefault(partition, []).append(row.value)
    assert stored.values == expected


def test_rows_without_a_timestamp_get_the_time_of_their_sending() -> None:
    driven = in_use()
    stored = Stored(driven)
    now = driven.clock.wall_ms()
    driven.producer.send_columns(TOPIC, make_chunk([Row(b"a"), Row(b"b")]))
    driven.producer.send_columns(TOPIC, make_chunk([Row(b"c", timestamp=7)], has_timestamps=True))
    driven.producer.flush()
    assert stored.timestamps == [now, now, 7]


def test_callbacks_report_each_row_once() -> None:
    driven = DrivenProducer((1, 1, 1), batch_size=300)
    told: list[Delivery] = []
    for _ in range(3):
        driven.producer.send_columns(TOPIC, make_chunk([Row(b"x" * 50)] * 100), on_delivery=told.append)
    driven.producer.flush()
    assert sum(delivery.count for delivery in told) == 300
    assert driven.memory_in_use == 0


def test_sending_no_rows_does_not_wait_for_metadata() -> None:
    driven = DrivenProducer()
    driven.producer.send_columns("any topic", make_chunk([]))
    assert driven.clock.waits == []


def test_arrow_rows_are_stored_and_future_gives_their_deliveries() -> None:
    driven = DrivenProducer((1, 1, 1))
    stored = Stored(driven)
    first = pa.RecordBatch.from_pydict({"value": ["a", "b"], "partition": [2, 0]})
    second = pa.RecordBatch.from_pydict({"value": ["c"], "partition": [2]})
    told: list[Delivery] = []
    future = driven.producer.send_columns(TOPIC, pa.Table.from_batches([first, second]), on_delivery=told.append)
    assert not future.done()
    deliveries = future.result()
    assert future.done()
    assert stored.values == {2: [b"a", b"c"], 0: [b"b"]}
    assert sorted((each.topic_partition.partition, each.count) for each in deliveries) == [(0, 1), (2, 1), (2, 1)]
    assert list(deliveries) == told


def test_no_row_of_a_table_is_staged_when_one_cannot_be_written() -> None:
    driven = DrivenProducer((1, 1))
    stored = Stored(driven)
    good = pa.RecordBatch.from_pydict({"value": ["a"], "partition": [0]})
    bad = pa.RecordBatch.from_pydict({"value": ["b"], "partition": [7]})
    with pytest.raises(RowPartitionError):
        driven.producer.send_columns(TOPIC, pa.Table.from_batches([good, bad]))
    driven.producer.flush()
    assert stored.values == {}


def test_rows_future_raises_the_error_and_times_out() -> None:
    driven = DrivenProducer(linger_ms=60_000)
    future = driven.producer.send_columns(TOPIC, make_chunk([Row(b"a")]))
    with pytest.raises(KafkaTimeoutError, match=r"no answer for 1 of 1 rows for .* after waiting for 5 ms"):
        future.result(0.005)
    with pytest.raises(KafkaTimeoutError, match=r"never sent: 1 record\(s\)"):
        driven.producer.close(timeout=0)
    with pytest.raises(KafkaError):
        future.result()


def test_a_chunk_larger_than_the_memory_goes_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_staging, "piece_bytes", lambda partitions: 3000)
    driven = DrivenProducer((1, 1), buffer_memory=2000, batch_size=1000, linger_ms=60_000)
    stored = Stored(driven)
    rows = [Row(b"%03d" % index * 50) for index in range(200)]
    driven.producer.send_columns(TOPIC, make_chunk(rows), int32s(*(index % 2 for index in range(200))))
    driven.producer.flush()
    for partition in (0, 1):
        assert stored.values[partition] == [row.value for row in rows[partition::2]]
    assert driven.memory_in_use == 0


def test_waits_for_memory_while_rows_flow_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_staging, "piece_bytes", lambda partitions: 900)
    driven = DrivenProducer(buffer_memory=1000, batch_size=1000, max_block_ms=400, enable_idempotence=False)

    def slowly(node: str, request: ProduceRequest) -> Any:
        driven.clock.advance(150)
        return produce_answer(request, 100, {})

    driven.brokers.on_produce = slowly
    started = driven.clock.now_ms
    driven.producer.send_columns(TOPIC, make_chunk([Row(b"x" * 800)] * 10))
    assert driven.clock.now_ms > started + 1000


def test_rows_staged_before_memory_ran_out_are_sent() -> None:
    driven = in_use(buffer_memory=1000, batch_size=1000, linger_ms=60_000, max_block_ms=200)
    driven.brokers.on_produce = lambda node, request: None
    with pytest.raises(PartlyStagedError, match="1 of 2 rows for topic orders were staged"):
        driven.producer.send_columns(TOPIC, make_chunk([Row(b"x" * 600)] * 2))
    assert driven.brokers.requests()


def test_rows_staged_before_a_refused_wait_wake_the_sender() -> None:
    driven = in_use((1, 1), buffer_memory=1000, batch_size=1000, linger_ms=40)
    parts = parts_to_send(make_chunk([Row(b"x" * 600)] * 2), int32s(0, 0), driven.clock.wall_ms())
    driven.brokers.network.woken = False
    # A signal handler in the middle of another send: it must not wait for the memory of its second row.
    interrupted = driven.pipeline.queues.of(TopicPartition(TOPIC, 1)).lock
    with interrupted, pytest.raises(PartlyStagedError, match="would deadlock"):
        driven.pipeline.columns.stage(TOPIC, parts, driven.clock.wall_ms(), lambda delivery: None)
    assert driven.brokers.network.woken


def test_rows_wake_the_sender_while_a_flush_waits() -> None:
    driven = in_use(linger_ms=1000)
    network, woken = driven.brokers.network, []
    driven.brokers.on_produce = lambda node, request: None
    driven.producer.send_columns(TOPIC, make_chunk([Row(b"a")]))

    def stage_more() -> None:
        driven.pipeline.sender.run_once()
        network.woken = False
        driven.producer.send_columns(TOPIC, make_chunk([Row(b"b")]))
        woken.append(network.woken)
        driven.brokers.answer()

    driven.clock.actions.append(stage_more)
    driven.producer.flush()
    assert woken == [True], "the flush may have to wait for this batch, too"


def test_rows_left_without_memory_are_told_from_staged_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_staging, "piece_bytes", lambda partitions: 1500)
    driven = DrivenProducer(
        (1, 1), buffer_memory=4000, batch_size=1000, max_block_ms=200, delivery_timeout_ms=10_000_000
    )
    driven.producer.send(ProducerRecord(TOPIC, b"v")).result()
    stored = Stored(driven)
    take, driven.brokers.on_produce = driven.brokers.on_produce, lambda node, request: None
    rows = pa.table({"value": [b"%03d" % row * 100 for row in range(30)], "partition": [row % 2 for row in range(30)]})
    with pytest.raises(PartlyStagedError) as caught:
        driven.producer.send_columns(TOPIC, rows)
    error = caught.value
    assert isinstance(error.__cause__, BufferExhaustedError)
    assert 0 < error.rows_staged < 30 and error.rows_staged + len(error.rows_left) == 30
    driven.brokers.on_produce = take
    assert sum(delivery.count for delivery in error.staged.result()) == error.rows_staged
    driven.producer.send_columns(TOPIC, rows.take(error.rows_left)).result()
    for partition in (0, 1):
        assert stored.values[partition] == [rows["value"][row].as_py() for row in range(partition, 30, 2)]


def test_transaction_rows_without_memory_can_only_be_aborted() -> None:
    driven = DrivenProducer(buffer_memory=1000, batch_size=1000, max_block_ms=200, transactional_id="writer")
    driven.brokers.on_produce = lambda node, request: None
    driven.producer.join_transaction(ProducerIdAndEpoch(9, 0), TransactionVersion.V2)
    with pytest.raises(BufferExhaustedError):
        driven.producer.send_columns(TOPIC, make_chunk([Row(b"x" * 600)] * 2))
    with pytest.raises(TransactionAbortableError, match="1 of 2 rows for topic orders were staged"):
        driven.producer.send_columns(TOPIC, make_chunk([Row(b"y")]))


def test_late_partitioner_failure_says_which_rows_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_staging, "piece_bytes", lambda partitions: 1000)
    stored_rows: list[int] = []

    class FailsLate:
        def configure(self, configs: Any) -> None: ...

        def partition(self, *args: Any) -> int:
            return 0

        def partition_rows(self, topic: str, chunk: Any, sizes: Any, cluster: Any) -> NDArray[np.int32]:
            stored_rows.append(chunk.num_rows)
            if len(stored_rows) > 2:
                raise LookupError("no route")
            return np.zeros(chunk.num_rows, dtype=np.int32)

    driven = DrivenProducer(partitioner_class=FailsLate())
    with pytest.raises(PartlyStagedError, match="no route") as caught:
        driven.producer.send_columns(TOPIC, make_chunk([Row(b"x" * 300)] * 20))
    staged = sum(stored_rows[:2])
    assert list(caught.value.rows_left) == list(range(staged, 20))
    assert sum(delivery.count for delivery in caught.value.staged.result()) == staged


def test_row_for_partition_not_all_brokers_know_yet_is_sent() -> None:
    driven = in_use((1, 1))
    stored = Stored(driven)
    asked: list[int] = []
    answer = driven.brokers.network.broker
    assert answer is not None

    def late(connection_id: str, header: RequestHeader, body: Struct) -> Struct | None:
        if isinstance(body, MetadataRequest):
            asked.append(driven.clock.now_ms)
            driven.brokers.move(*([1, 1, 2] if len(asked) == 3 else [1, 1]))
        return answer(connection_id, header, body)

    driven.brokers.network.broker = late
    driven.producer.send_columns(TOPIC, make_chunk([Row(b"new")]), int32s(2))
    driven.producer.flush()
    assert stored.values == {2: [b"new"]}


def test_known_illegal_topic_name_is_refused_without_asking() -> None:
    driven = DrivenProducer()
    driven.brokers.topic_errors["bad topic!"] = ErrorCode.INVALID_TOPIC_EXCEPTION
    for number in range(3):
        version = driven.network.metadata.update_version
        with pytest.raises(InvalidTopicError, match="topic name 'bad topic!' is not legal"):
            driven.producer.send(ProducerRecord("bad topic!", b"v")).result(0)
        assert (driven.network.metadata.update_version == version) is (number > 0)


# --- flush and close -------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("KafkaProducer", "flush() waits for all records; beyond its time-out, it raises an error")
def test_flush_sends_what_lingers_and_waits_for_the_outcome() -> None:
    driven = DrivenProducer(linger_ms=60_000)
    started = driven.clock.now_ms
    futures = [driven.producer.send(ProducerRecord(TOPIC, b"v")) for _ in range(3)]
    driven.producer.flush()
    assert all(future.done() for future in futures)
    assert driven.clock.now_ms < started + 5000


@pytest.mark.behaviour("KafkaProducer", "flush() waits for all records; beyond its time-out, it raises an error")
def test_flush_gives_up_after_its_time() -> None:
    driven = DrivenProducer()
    driven.brokers.on_produce = lambda node, request: None
    driven.producer.send(ProducerRecord(TOPIC, b"v"))
    with pytest.raises(KafkaTimeoutError, match="flush did not complete within 500 ms"):
        driven.producer.flush(timeout=0.5)


@with_each(("timeout_ms", "is_stuck", "joined_ms"), [(0, False, [3000]), (700, True, [700, 3000])])
def test_close_without_time_left_fails_what_is_not_acknowledged(
    timeout_ms: int, is_stuck: bool, joined_ms: list[int]
) -> None:
    driven = DrivenProducer()
    future = driven.producer.send(ProducerRecord(TOPIC, b"v"))
    driven.thread.is_stuck = is_stuck
    with pytest.raises(KafkaTimeoutError, match=r"not all records were acknowledged: never sent: 1 record\(s\) for"):
        driven.producer.close(timeout=timeout_ms / 1000)
    driven.producer.close(timeout=0)
    with pytest.raises(KafkaError, match="closed before this record was sent"):
        future.result()
    assert driven.thread.joined_ms == joined_ms
    assert not driven.thread.is_alive()


def test_with_block_closes_and_does_not_wait_after_an_error() -> None:
    driven = DrivenProducer()
    with driven.producer as producer:
        future = producer.send(ProducerRecord(TOPIC, b"v"))
    assert future.result().offset == 100
    driven = DrivenProducer()
    with pytest.raises(KeyError), driven.producer as producer:
        future = producer.send(ProducerRecord(TOPIC, b"v"))
        raise KeyError
    with pytest.raises(KafkaError, match="closed before"):
        future.result()


def test_a_callback_sees_its_records_outcome() -> None:
    driven = DrivenProducer()
    told: list[Delivery] = []
    future = driven.producer.send(ProducerRecord(TOPIC, b"v"), on_delivery=told.append)
    future.result()
    assert [(delivery.base_offset, delivery.count, delivery.error) for delivery in told] == [(100, 1, None)]
    driven.brokers.on_produce = lambda node, request: produce_answer(request, -1, {0: ErrorCode.INVALID_RECORD})
    with pytest.raises(ApiError):
        driven.producer.send(ProducerRecord(TOPIC, b"v"), on_delivery=told.append).result()
    assert isinstance(told[1].error, ApiError)


# --- processes and construction --------------------------------------------------------------------------------------


def test_producers_without_a_name_are_told_apart() -> None:
    assert DrivenProducer().producer.client_id != DrivenProducer().producer.client_id
    assert DrivenProducer(client_id="mine").producer.client_id == "mine"


def test_wrong_options_are_refused_before_anything_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_producer, "make_network", lambda *args: pytest.fail("opened"))
    with pytest.raises(ConfigError, match="acks"):
        KafkaProducer({"bootstrap.servers": "127.0.0.1:1", "acks": "2"})


def test_without_a_thread_nothing_stays_open() -> None:
    def fail(name: str, loop: Loop) -> StandingThread:
        raise RuntimeError("can't start new thread")

    clock = FakeClock()
    given = named({})
    network = network_of(given, PlayedBrokers((1,)).attach(clock), clock, fail)
    with pytest.raises(KafkaError, match="Failed to construct kafka producer: can't start new thread"):
        KafkaProducer(given, network=network)
    assert network.client.is_closed


def test_the_real_thread_ends_with_its_producer() -> None:
    producer = KafkaProducer({"bootstrap.servers": "127.0.0.1:1", "client.id": "mine", "max.block.ms": 20})
    (thread,) = (each for each in threading.enumerate() if each.name == "kafka-producer-network-thread | mine")
    assert thread.daemon
    with pytest.raises(BrokersUnreachableError):
        producer.send(ProducerRecord(TOPIC, b"v")).result()
    producer.close(timeout=0)
    assert not thread.is_alive()
