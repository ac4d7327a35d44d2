"""``kafkalite produce`` with a fake producer."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from kafka_sink.cli.commands import produce
from kafka_sink.cli.commands.produce import numbered_lines
from kafka_sink.common.config import parse
from kafka_sink.common.errors import (
    ApiError,
    BrokersUnreachableError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    error_for,
)
from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.config import ProducerConfig, reconcile
from kafka_sink.producer.futures import Delivery, FailedFuture
from kafka_sink.producer.kafka_producer import ProducerRecord
from tests.support.command_line import run_command


class FakeProducer:
    """Acknowledges records on flush; a test sets the error that prevents a record from being staged or stored."""

    records: ClassVar[list[ProducerRecord]]
    properties: ClassVar[dict[str, Any]]
    hangs: ClassVar[bool] = False
    stage_error: ClassVar[Callable[[ProducerRecord], ApiError | None]] = staticmethod(lambda record: None)
    delivery_error: ClassVar[Callable[[ProducerRecord], ApiError | None]] = staticmethod(lambda record: None)

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.properties.update(properties)
        self.waiting: list[tuple[ProducerRecord, Callable[[Delivery], None]]] = []

    def __enter__(self) -> FakeProducer:
        return self

    def __exit__(self, *error: object) -> None:
        assert not self.waiting or error[0] is not None

    def send(self, record: ProducerRecord, on_delivery: Callable[[Delivery], None]) -> object:
        error = type(self).stage_error(record)
        if error is not None:
            on_delivery(Delivery(TopicPartition(record.topic, -1), -1, 1, 0, -1, error))
            return FailedFuture(error)
        self.records.append(record)
        self.waiting.append((record, on_delivery))
        return None

    def flush(self, *, timeout: float) -> None:
        if self.hangs:
            raise KafkaTimeoutError(f"not done after {timeout} s")
        offsets: dict[int, int] = {}
        for record, on_delivery in self.waiting:
            partition = record.partition or 0
            error = type(self).delivery_error(record)
            offset = -1 if error else offsets.get(partition, 10)
            offsets[partition] = max(offset, 9) + 1
            on_delivery(Delivery(TopicPartition(record.topic, partition), offset, 1, 8, -1, error))
        self.waiting.clear()

    def close(self, *, timeout: float) -> None:
        assert timeout == 0
        for record, on_delivery in self.waiting:
            on_delivery(Delivery(TopicPartition(record.topic, 0), -1, 1, 0, -1, KafkaError("closed")))
        self.waiting.clear()


@pytest.fixture(autouse=True)
def producer(monkeypatch: pytest.MonkeyPatch) -> type[FakeProducer]:
    """A separate class for each test."""

    class Producer(FakeProducer):
        records: ClassVar[list[ProducerRecord]] = []
        properties: ClassVar[dict[str, Any]] = {}

    monkeypatch.setattr(produce, "KafkaProducer", Producer)
    return Producer


def produced(stdin: bytes, *options: str) -> tuple[int, str, str]:
    """The exit code and the output of ``kafkalite produce events``."""
    done = run_command(["produce", "events", *options], stdin)
    return done.returncode, done.stdout, done.stderr


def test_json_lines_become_records_and_their_places_are_reported(producer: type[FakeProducer]) -> None:
    stdin = b'{"key": "k", "value": "a"}\n\n  \r\n{"value": "b", "partition": 2}\r\n{"value": "c", "partition": 2}'
    told = "3 acknowledged, 0 failed\nevents-0: offsets 10..10\nevents-2: offsets 10..11\n"
    assert produced(stdin) == (0, told, "")
    assert producer.records == [
        ProducerRecord("events", b"a", b"k"),
        ProducerRecord("events", b"b", partition=2),
        ProducerRecord("events", b"c", partition=2),
    ]


def test_a_transaction_is_refused_before_anything_is_read(producer: type[FakeProducer]) -> None:
    code, _, said = produced(b"a\n", "--raw", "-X", "transactional.id=x")
    assert code == 2 and "produce does not use transactions: remove -X transactional.id" in said
    assert not producer.properties


def test_raw_lines_are_values_as_they_are(producer: type[FakeProducer]) -> None:
    assert produced(b'{"a"\r\n\n\xff\n last ', "--raw")[0] == 0
    assert [record.value for record in producer.records] == [b'{"a"\r', b"", b"\xff", b" last "]


def test_the_report_as_json() -> None:
    code, out, _ = produced(b"a\nb\n", "--raw", "--json")
    places = [{"partition": 0, "first_offset": 10, "last_offset": 11}]
    assert code == 0
    assert json.loads(out) == {"topic": "events", "acknowledged": 2, "failed": 0, "partitions": places}


def test_a_bad_line_is_named_and_the_others_go_on() -> None:
    code, out, err = produced(b'{"value": "a"}\n{"valeu": "b"}\n{"value": "c"}\n')
    assert (code, err) == (1, "kafkalite: line 2: unknown field 'valeu' (did you mean value?)\n")
    assert out.startswith("2 acknowledged, 1 failed\n")


def test_too_large_record_is_named_by_line_and_others_continue(producer: type[FakeProducer]) -> None:
    refuse = RecordTooLargeError("the record for topic events needs up to 9 bytes")
    producer.stage_error = staticmethod(lambda record: refuse if record.value == b"big" else None)
    code, out, err = produced(b"a\nbig\nb\n", "--raw")
    assert (code, err) == (1, "kafkalite: line 2: the record for topic events needs up to 9 bytes\n")
    assert out.startswith("2 acknowledged, 1 failed\n")


def test_an_error_that_every_line_would_meet_ends_the_input(producer: type[FakeProducer]) -> None:
    asked: list[ProducerRecord] = []

    def unreachable(record: ProducerRecord) -> ApiError:
        asked.append(record)
        return BrokersUnreachableError("127.0.0.1:1: connection refused")

    producer.stage_error = staticmethod(unreachable)
    code, out, err = produced(b"a\nb\nc\n", "--raw")
    assert (code, out, len(asked)) == (1, "0 acknowledged, 1 failed\n", 1)
    assert err.startswith("kafkalite: 127.0.0.1:1: connection refused. Is the broker running?")


def test_unacknowledged_records_fail_and_show_each_error_once(producer: type[FakeProducer]) -> None:
    refuse = error_for(ErrorCode.NOT_ENOUGH_REPLICAS)
    producer.delivery_error = staticmethod(lambda record: refuse if record.value != b"a" else None)
    told = "1 acknowledged, 2 failed\nevents-0: offsets 10..10\n"
    assert produced(b"a\nb\nc\n", "--raw") == (1, told, "kafkalite: NOT_ENOUGH_REPLICAS\n")


def test_number_of_different_errors_shown_is_limited() -> None:
    code, out, err = produced(b"x\n" * 100)
    assert (code, out) == (1, "0 acknowledged, 100 failed\n")
    assert len(err.splitlines()) == produce.MAX_ERRORS_SHOWN


def test_no_lines_are_no_failure() -> None:
    assert produced(b"") == (0, "0 acknowledged, 0 failed\n", "")


def test_an_interrupt_ends_the_input_but_not_what_was_sent(producer: type[FakeProducer]) -> None:
    def interrupt(record: ProducerRecord) -> None:
        if record.value == b"b":
            raise KeyboardInterrupt

    producer.stage_error = staticmethod(interrupt)
    code, out, _ = produced(b"a\nb\nc\n", "--raw")
    assert code == 130 and out.startswith("1 acknowledged, 0 failed\n")


def test_bootstrap_server_and_properties_reach_the_producer(producer: type[FakeProducer]) -> None:
    assert produced(b"", "--bootstrap-server", "k:1", "-X", "acks=1", "-X", "client.id=me")[0] == 0
    names = ("bootstrap.servers", "client.id", "acks")
    assert [producer.properties[name] for name in names] == ["k:1", "me", "1"]


@pytest.mark.parametrize(
    ("options", "time_outs"),
    [
        ("", (15_000, 15_000, 15_005)),
        ("--timeout 2", (2_000, 2_000, 2_005)),
        ("--timeout 600", (600_000, 30_000, 600_005)),
        ("--timeout 2 -X linger.ms=9000", (2_000, 2_000, 11_000)),
        ("--timeout 2 -X max.block.ms=7", (7, 2_000, 2_005)),
        ("--timeout 2 -X request.timeout.ms=50", (2_000, 50, 2_005)),
        ("--timeout 2 -X request.timeout.ms=5000", (2_000, 5_000, 5_005)),
        ("--timeout 2 -X delivery.timeout.ms=90000", (2_000, 30_000, 90_000)),
        ("--timeout 2 -X delivery.timeout.ms=105", (2_000, 100, 105)),
    ],
)
def test_the_time_out_bounds_every_wait_unless_a_property_does(
    options: str, time_outs: tuple[int, int, int], producer: type[FakeProducer]
) -> None:
    assert produced(b"", *options.split())[0] == 0
    config = reconcile(parse(ProducerConfig, producer.properties), frozenset(producer.properties))
    assert (config.max_block_ms, config.request_timeout_ms, config.delivery_timeout_ms) == time_outs


def test_what_is_not_acknowledged_in_time_fails_and_is_counted(producer: type[FakeProducer]) -> None:
    producer.hangs = True
    assert produced(b"a\nb\n", "--raw") == (1, "0 acknowledged, 2 failed\n", "kafkalite: closed\n")


def test_no_line_is_sent_after_one_that_ran_out_of_time(
    producer: type[FakeProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(self: FakeProducer, record: ProducerRecord, on_delivery: Callable[[Delivery], None]) -> None:
        self.records.append(record)
        expired = KafkaTimeoutError("expiring 1 record(s)")
        on_delivery(Delivery(TopicPartition(record.topic, 0), -1, 1, 0, -1, expired))

    monkeypatch.setattr(producer, "send", send)
    code, out, _ = produced(b"a\nb\nc\n", "--raw")
    assert (code, out) == (1, "0 acknowledged, 1 failed\n")
    assert [record.value for record in producer.records] == [b"a"]


def test_unknown_offsets_are_null_in_the_report() -> None:
    tally = produce.Tally()
    tally.on_delivery(1, Delivery(TopicPartition("events", 0), -1, 5, 8, -1, None))
    report = tally.report("events")
    assert report["acknowledged"] == 5
    assert report["partitions"] == [{"partition": 0, "first_offset": None, "last_offset": None}]


def test_runs_of_records_widen_the_range_in_any_order() -> None:
    tally = produce.Tally()
    for base, count in ((10, 5), (3, 2), (5, 5)):
        tally.on_delivery(1, Delivery(TopicPartition("events", 0), base, count, 8, -1, None))
    assert tally.report("events")["partitions"] == [{"partition": 0, "first_offset": 3, "last_offset": 14}]


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    lines = numbered_lines(io.BytesIO(b"ok\n" + b"1234567890"), max_bytes=5)
    assert next(lines) == (1, b"ok")
    with pytest.raises(produce.InputTooLongError, match="longer than 5 bytes") as caught:
        next(lines)
    assert caught.value.line_number == 2


def test_a_line_that_is_too_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "numbered_lines", lambda lines: numbered_lines(lines, max_bytes=5))
    code, out, err = produced(b"a\n1234567890\nb\n", "--raw")
    assert (code, err) == (1, "kafkalite: line 2: longer than 5 bytes; the lines after it were not read\n")
    assert out.startswith("1 acknowledged, 1 failed\n")


def test_a_line_of_just_the_limit_is_read() -> None:
    assert list(numbered_lines(io.BytesIO(b"12345\n12345"), max_bytes=5)) == [(1, b"12345"), (2, b"12345")]
