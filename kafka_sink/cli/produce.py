"""``kafkalite produce``: one record per line of stdin.

Reads and stages on the main thread; the outcomes arrive on the producer's sender thread. A line that cannot be sent is
reported and counted, and the others go on; nothing is ever taken for acknowledged that no broker has acknowledged,
unless the user asked for that (acks=0).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import IO, Any, Final

import click

from kafka_sink.cli import options, output
from kafka_sink.cli.json_records import from_json_line
from kafka_sink.common.errors import ApiError, RecordTooLargeError, SerializationError
from kafka_sink.producer.futures import Delivery, DeliveryCallback, FailedFuture
from kafka_sink.producer.kafka_producer import KafkaProducer, ProducerRecord

#: Beyond any record a broker would take; keeps a file without line feeds from filling the memory.
MAX_LINE_BYTES: Final = 64 * 1024 * 1024
#: Different errors of one run that are spelt out; the rest is only counted.
MAX_ERRORS_SHOWN: Final = 5

#: What makes one record unfit; after any other error the following lines would fare the same.
_FAULTS_OF_A_LINE: Final = (SerializationError, RecordTooLargeError)

LineReader = Callable[[bytes], ProducerRecord]


class Tally:
    """Counts outcomes: what was sent mostly on the sender thread, what was not on the main thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acknowledged = 0
        self._failed = 0
        self._ranges: dict[int, tuple[int, int]] = {}
        self._errors: set[str] = set()

    def on_delivery(self, line_number: int, delivery: Delivery) -> None:
        """The record of a line was acknowledged, or has failed."""
        if delivery.error is not None:
            self.add_failure(line_number, delivery.error)
            return
        last = delivery.base_offset + delivery.count - 1
        with self._lock:
            self._acknowledged += delivery.count
            partition = delivery.topic_partition.partition
            low, high = self._ranges.get(partition, (delivery.base_offset, last))
            self._ranges[partition] = (min(low, delivery.base_offset), max(high, last))

    def add_failure(self, line_number: int, error: Exception) -> None:
        """A line is not stored. Its number is shown where it is the line's own fault; every text is shown once."""
        text = output.explain(error)
        if isinstance(error, _FAULTS_OF_A_LINE):
            text = f"line {line_number}: {text}"
        with self._lock:
            self._failed += 1
            is_shown = text not in self._errors and len(self._errors) < MAX_ERRORS_SHOWN
            if is_shown:
                self._errors.add(text)
        if is_shown:
            output.error_line(text)

    @property
    def failed(self) -> int:
        return self._failed

    def report(self, topic: str) -> dict[str, Any]:
        """The outcome, ready for JSON. Offsets are null where the broker did not tell them (acks=0)."""
        with self._lock:
            partitions = [
                {
                    "partition": partition,
                    "first_offset": low if low >= 0 else None,
                    "last_offset": high if low >= 0 else None,
                }
                for partition, (low, high) in sorted(self._ranges.items())
            ]
            return {
                "topic": topic,
                "acknowledged": self._acknowledged,
                "failed": self._failed,
                "partitions": partitions,
            }


@click.command()
@click.argument("topic")
@click.option("--raw", is_flag=True, help="Every line is a value as it is, without a key; the default is JSON lines.")
@click.option("--json", "as_json", is_flag=True, help="Report the outcome as JSON.")
@options.connection
@click.pass_context
def produce(
    context: click.Context,
    topic: str,
    raw: bool,
    as_json: bool,
    bootstrap_servers: str,
    timeout_ms: int,
    properties: dict[str, str],
) -> None:
    """Send a record to TOPIC for every line of stdin and report where they went.

    A line is {"key": "k", "value": "v", "headers": [["name", "value"]], "partition": 0, "timestamp": 1700000000000}, of
    which only the value must be there. null and {"base64": "…"} stand for what is not text. Exit code 1 if any line
    was not acknowledged.
    """
    config = {"bootstrap.servers": bootstrap_servers, "client.id": "kafkalite-produce", "max.block.ms": timeout_ms}
    tally = Tally()
    lines = numbered_lines(sys.stdin.buffer)
    reader: LineReader = partial(ProducerRecord, topic)
    if not raw:
        lines = ((number, line) for number, line in lines if line.strip())
        reader = partial(from_json_line, topic)
    with KafkaProducer({**config, **properties}) as producer:
        completed = _send_lines(producer, lines, reader, tally)
    _print_report(tally.report(topic), as_json)
    if not completed:
        raise click.Abort
    if tally.failed:
        context.exit(1)


def _send_lines(producer: KafkaProducer, lines: Iterable[tuple[int, bytes]], reader: LineReader, tally: Tally) -> bool:
    """Send all *lines* and wait for their outcomes; False when Ctrl-C ended the input early."""
    completed = True
    try:
        for number, line in lines:
            try:
                record = reader(line)
            except SerializationError as error:
                tally.add_failure(number, error)
                continue
            if not _stage(producer, record, partial(tally.on_delivery, number)):
                break
    except KeyboardInterrupt:
        completed = False
    except InputTooLongError as error:
        tally.add_failure(error.line_number, error)
    # No deadline of its own: every record has one, delivery.timeout.ms.
    producer.flush()
    return completed


def _stage(producer: KafkaProducer, record: ProducerRecord, on_delivery: DeliveryCallback) -> bool:
    """Hand *record* over; False when the records after it would fare no better than it did."""
    future = producer.send(record, on_delivery)
    if isinstance(future, FailedFuture):
        try:
            future.get(0)
        except ApiError as error:
            return isinstance(error, _FAULTS_OF_A_LINE)
    return True


class InputTooLongError(SerializationError):
    """A line is so long that it cannot be read, nor what follows it."""

    def __init__(self, line_number: int, max_bytes: int) -> None:
        super().__init__(f"longer than {max_bytes} bytes; nothing after it was read")
        self.line_number = line_number


def numbered_lines(lines: IO[bytes], max_bytes: int = MAX_LINE_BYTES) -> Iterator[tuple[int, bytes]]:
    """(number from 1 on, bytes without the line feed) of every line.

    :raises InputTooLongError: a line is longer than *max_bytes*.
    """
    number = 0
    while line := lines.readline(max_bytes + 1):
        number += 1
        if len(line) > max_bytes and not line.endswith(b"\n"):
            raise InputTooLongError(number, max_bytes)
        yield number, line.removesuffix(b"\n")


def _print_report(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_json(report)
        return
    click.echo(f"{report['acknowledged']} acknowledged, {report['failed']} failed")
    for entry in report["partitions"]:
        if entry["first_offset"] is not None:
            click.echo(
                f"{report['topic']}-{entry['partition']}: offsets {entry['first_offset']}..{entry['last_offset']}"
            )
