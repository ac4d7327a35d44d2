"""``kafkalite produce``: sends one record per line of stdin.

Reads and stages on the main thread; delivery callbacks run on the producer's sender thread. A line that cannot be sent
is reported and counted, and the following lines are sent. A record is only counted as acknowledged if a broker has
acknowledged it, unless the user set acks=0.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import click

from kafka_sink.cli import options, output
from kafka_sink.cli.values.json_records import Read, bytes_from_json, from_json_line
from kafka_sink.cli.values.typed_values import KEY, VALUE, TypedColumn, payload_writer
from kafka_sink.common import config as configuration
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.errors import KafkaTimeoutError, RecordTooLargeError, SerializationError
from kafka_sink.formats.column_format import AVRO, PROTOBUF
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.futures import Delivery, FailedFuture
from kafka_sink.producer.kafka_producer import KafkaProducer, ProducerRecord
from kafka_sink.registry.client import RegistryClient

#: Larger than any record that a broker accepts; limits the memory for a file without line feeds.
MAX_LINE_BYTES: Final = 64 * 1024 * 1024
#: The maximum number of different errors that are printed per run; further ones are only counted.
MAX_ERRORS_SHOWN: Final = 5
#: The additional time for records whose time-out has passed to fail with their own error before the producer is closed.
EXPIRY_GRACE_MS: Final = 500

#: Errors of a single record; after any other error the following lines would fail as well.
_FAULTS_OF_A_LINE: Final = (SerializationError, RecordTooLargeError)

_schema_file: Final = partial(click.option, metavar="FILE", type=click.Path(exists=True, path_type=Path))

LineReader = Callable[[bytes], ProducerRecord]


class Tally:
    """Counts outcomes: those of sent records mostly on the sender thread, others on the main thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acknowledged = 0
        self.failed = 0
        self._ranges: dict[int, tuple[int, int]] = {}
        self._errors: set[str] = set()
        #: Whether a record has timed out: the following records would only wait for the same time.
        self.has_timed_out = False

    def on_delivery(self, line_number: int, delivery: Delivery) -> None:
        """Count the record of a line as acknowledged or failed."""
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
        """Count a failed line. Its number is shown if the error concerns this line only; each text is shown once."""
        text = output.explain(error)
        if isinstance(error, _FAULTS_OF_A_LINE):
            text = f"line {line_number}: {text}"
        with self._lock:
            self.failed += 1
            self.has_timed_out = self.has_timed_out or isinstance(error, KafkaTimeoutError)
            is_shown = text not in self._errors and len(self._errors) < MAX_ERRORS_SHOWN
            if is_shown:
                self._errors.add(text)
        if is_shown:
            output.error_line(text)

    def report(self, topic: str) -> dict[str, Any]:
        """The outcome, ready for JSON. Offsets are null if the broker did not return them (acks=0)."""
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
                "failed": self.failed,
                "partitions": partitions,
            }


@click.command()
@click.argument("topic")
@click.option("--raw", is_flag=True, help="Send every line as a value without a key; the default is JSON lines.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--format", "value_format", type=click.Choice([AVRO, PROTOBUF]), help="Write values in this format.")
@_schema_file(
    "--value-schema",
    help="Schema of the values, or a folder with the schema and the files that it refers to, which the command "
    "registers. Default: the latest one of the subject TOPIC-value.",
)
@click.option(
    "--value-message", metavar="NAME", help="Message of the schema, with --format protobuf. Default: the first one."
)
@click.option("--key-format", type=click.Choice([AVRO, PROTOBUF]), help="Write keys in this format.")
@_schema_file(
    "--key-schema", help="The same as --value-schema, for keys. Default: the latest one of the subject TOPIC-key."
)
@click.option("--key-message", metavar="NAME", help="The same as --value-message, for keys.")
@options.registry
@options.lasting_connection
@click.pass_context
def produce(
    context: click.Context,
    topic: str,
    raw: bool,
    as_json: bool,
    value_format: str | None,
    value_schema: Path | None,
    value_message: str | None,
    key_format: str | None,
    key_schema: Path | None,
    key_message: str | None,
    registry: dict[str, str],
    connection: options.Connection,
) -> None:
    """Send each line of stdin to TOPIC as a record, and report the offsets.

    A line is {"key": "k", "value": "v", "headers": [["name", "value"]], "partition": 0, "timestamp": 1700000000000}, of
    which only the value is required. Use {"base64": "…"} for bytes that are not text. With --format the value may be
    any JSON, as consume prints it, and is encoded by a schema of the registry; --key-format does the same for the key.
    The exit code is 1 if any record was not acknowledged. The command stops reading after a record has timed out
    (--timeout, unless -X delivery.timeout.ms is given).
    """
    properties = connection.properties
    if "transactional.id" in properties:
        raise click.UsageError("produce does not use transactions: remove -X transactional.id.")
    client = options.client_of(registry, limit_ms=connection.timeout_ms)
    if raw and (key_format or value_format):
        raise click.UsageError("--raw excludes --format and --key-format.")
    if client is not None and not (key_format or value_format):
        if context.params["registry_url"] is not None:
            raise click.UsageError("--registry needs --format or --key-format.")
        # They come from a file that other commands use, too: the producer logs that they are not its options.
        properties |= registry
    read_key = _reader(client, topic, KEY, key_format, key_schema, key_message)
    read_value = _reader(client, topic, VALUE, value_format, value_schema, value_message)
    config = {"bootstrap.servers": connection.bootstrap_servers, "client.id": "kafkalite-produce", **properties}
    config = {**_time_outs(config, connection.timeout_ms), **config}
    tally = Tally()
    lines = numbered_lines(sys.stdin.buffer)
    reader: LineReader = partial(ProducerRecord, topic)
    if not raw:
        lines = ((number, line) for number, line in lines if line.strip())
        reader = partial(from_json_line, topic, key=read_key, value=read_value)
    with KafkaProducer(config) as producer:
        sending = _Sending(producer, tally, int(config["delivery.timeout.ms"]))
        completed = sending.send_lines(lines, reader)
    _print_report(tally.report(topic), as_json)
    if not completed:
        raise click.Abort
    if tally.failed:
        context.exit(1)


def _reader(
    client: RegistryClient | None,
    topic: str,
    column: str,
    form: str | None,
    schema_file: Path | None,
    message: str | None,
) -> Read:
    """The function that converts the *column* of a line to a payload: unchanged, or encoded in the format *form*."""
    option = "--format" if column == VALUE else f"--{column}-format"
    if schema_file is not None and form is None:
        raise click.UsageError(f"--{column}-schema needs {option} and --registry.")
    if message is not None and form != PROTOBUF:
        raise click.UsageError(f"--{column}-message needs {option} {PROTOBUF}.")
    if form is None:
        return bytes_from_json
    if client is None:
        raise click.UsageError(f"{option} needs --registry.")
    return payload_writer(client, TypedColumn(topic, column, form, schema_file, message))


def _time_outs(config: dict[str, Any], timeout_ms: int) -> dict[str, Any]:
    """The properties that apply *timeout_ms* to every wait of the producer, as far as *config* allows it.

    :raises ConfigError: if a property is unknown or invalid.
    """
    parsed = configuration.parse(ProducerConfig, config)
    request_ms = parsed.request_timeout_ms
    if "request.timeout.ms" not in config:
        left_ms = parsed.delivery_timeout_ms - parsed.linger_ms if "delivery.timeout.ms" in config else timeout_ms
        request_ms = min(request_ms, max(left_ms, 1))
    return {
        "max.block.ms": timeout_ms,
        "request.timeout.ms": request_ms,
        # The producer requires at least this: the request follows the linger time.
        "delivery.timeout.ms": max(timeout_ms, request_ms) + parsed.linger_ms,
    }


class _Sending:
    """Sends lines and waits for their outcomes until *timeout_ms* after the last line was read."""

    def __init__(self, producer: KafkaProducer, tally: Tally, timeout_ms: int) -> None:
        self._producer = producer
        self._tally = tally
        self._timeout_ms = timeout_ms
        self._deadline_ms = SYSTEM_CLOCK.monotonic_ms() + timeout_ms

    def send_lines(self, lines: Iterable[tuple[int, bytes]], reader: LineReader) -> bool:
        """Send all *lines* and wait for their outcomes; False if Ctrl-C ended the input early."""
        completed = True
        try:
            for number, line in lines:
                self._deadline_ms = SYSTEM_CLOCK.monotonic_ms() + self._timeout_ms
                if self._tally.has_timed_out or not self._send_line(number, line, reader):
                    break
        except KeyboardInterrupt:
            completed = False
        except InputTooLongError as error:
            self._tally.add_failure(error.line_number, error)
        self._finish()
        return completed

    def _send_line(self, number: int, line: bytes, reader: LineReader) -> bool:
        """Pass the record of *line* to the producer; False if the following ones would fail in the same way."""
        try:
            record = reader(line)
        except SerializationError as error:
            self._tally.add_failure(number, error)
            return True
        future = self._producer.send(record, on_delivery=partial(self._tally.on_delivery, number))
        # Any other future is not done yet, or its error concerns this line only.
        return not isinstance(future, FailedFuture) or isinstance(future.exception(), _FAULTS_OF_A_LINE)

    def _finish(self) -> None:
        try:
            left_ms = max(self._deadline_ms - SYSTEM_CLOCK.monotonic_ms(), 0)
            self._producer.flush(timeout=(left_ms + EXPIRY_GRACE_MS) / 1000)
        except KafkaTimeoutError:
            # The remaining records fail now and are counted like all others that were not acknowledged.
            with suppress(KafkaTimeoutError):
                self._producer.close(timeout=0)


class InputTooLongError(SerializationError):
    """A line is too long to be read, so the following lines cannot be read either."""

    def __init__(self, line_number: int, max_bytes: int) -> None:
        super().__init__(f"longer than {max_bytes} bytes; the lines after it were not read")
        self.line_number = line_number


def numbered_lines(lines: IO[bytes], max_bytes: int = MAX_LINE_BYTES) -> Iterator[tuple[int, bytes]]:
    """(number from 1 on, bytes without the line feed) of every line.

    :raises InputTooLongError: if a line is longer than *max_bytes*.
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
    output.line(f"{report['acknowledged']} acknowledged, {report['failed']} failed")
    for entry in report["partitions"]:
        if entry["first_offset"] is not None:
            output.line(
                f"{report['topic']}-{entry['partition']}: offsets {entry['first_offset']}..{entry['last_offset']}"
            )
