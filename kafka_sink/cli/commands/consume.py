"""``kafkalite consume``: prints the records of a topic as JSON lines.

Runs on the main thread. It reads partitions without a consumer group, so it changes nothing in the cluster. Bytes that
are not text are never shown as text.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack

import click

from kafka_sink.cli import options, output
from kafka_sink.cli.values.json_records import to_json_line
from kafka_sink.cli.values.typed_values import shown
from kafka_sink.client.blocking.admin import AdminClient, AdminConfig
from kafka_sink.common import config as configuration
from kafka_sink.consumer.config import READ_COMMITTED, READ_UNCOMMITTED
from kafka_sink.consumer.fetched_partition import ConsumedRecord
from kafka_sink.consumer.log_reader import SHOW_DAMAGED, LogReader, PeekLimits, newest_records
from kafka_sink.consumer.topic_reading import EARLIEST, LATEST, FromTime, Start
from kafka_sink.formats.column_format import FORMATS


@click.command()
@click.argument("topic")
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Read only this partition; may be repeated. Default: all partitions.",
)
@click.option(
    "--from-beginning", is_flag=True, help="Start at the earliest record. This is the default without --follow."
)
@click.option("--offset", type=click.IntRange(min=0), help="Start at this offset in each partition.")
@options.time(
    "--time",
    "time_ms",
    "Start at the first record of this time in each partition: ms since 1970, or 2026-01-31T12:00:00Z.",
)
@click.option(
    "--newest",
    type=click.IntRange(min=1),
    help="Print this number of records with the latest timestamps of all partitions, in the order of their timestamps.",
)
@click.option("--max", "max_records", type=click.IntRange(min=1), help="Stop after this number of records.")
@click.option("--follow", is_flag=True, help="Wait for new records instead of stopping at the end.")
@click.option(
    "--isolation",
    type=click.Choice([READ_UNCOMMITTED, READ_COMMITTED]),
    help="read_committed skips the records of aborted transactions and stops before open ones. Default: "
    "read_uncommitted.",
)
@click.option("--format", "value_format", type=click.Choice(FORMATS), help="Decode values of this format.")
@click.option("--key-format", type=click.Choice(FORMATS), help="Decode keys of this format.")
@options.registry
@options.lasting_connection
def consume(
    topic: str,
    partitions: tuple[int, ...],
    from_beginning: bool,
    offset: int | None,
    time_ms: int | None,
    newest: int | None,
    max_records: int | None,
    follow: bool,
    isolation: str | None,
    value_format: str | None,
    key_format: str | None,
    registry: dict[str, str],
    connection: options.Connection,
) -> int:
    """Print the records of TOPIC as JSON lines, up to its current end (or continuously with --follow).

    A line has topic, partition, offset, timestamp (ms), key, value and headers. Bytes that are not UTF-8 are
    printed as {"base64": "…"}. With --format the value is printed as JSON: Avro and Protobuf by its schema in the
    registry, JSON as it is, with or without the header of a registry. A record that is damaged or cannot be decoded is
    printed as {"hex": "…"} with the reason in the field error; the next records follow, and the exit code is 3.
    """
    client = options.client_of(registry, limit_ms=connection.timeout_ms)
    show_key, show_value = shown(key_format, "key", client), shown(value_format, "value", client)
    starts = {"--from-beginning": from_beginning, "--offset": offset, "--time": time_ms, "--newest": newest}
    _exclude(starts)
    if newest is not None:
        _exclude({"--newest": newest, "--partition": partitions, "--max": max_records, "--follow": follow})
    config = {"client.id": "kafkalite-consume", **connection.bounded}
    if isolation is not None:
        config["isolation.level"] = isolation
    reading = {"bootstrap.servers": connection.bootstrap_servers, **config}
    stdout = sys.stdout.buffer
    printed = refused = 0

    def refuse(reason: str) -> None:
        nonlocal refused
        refused += 1
        output.error_line(reason)

    with ExitStack() as stack:
        records: Iterable[ConsumedRecord]
        if newest is not None:
            records = newest_records(reading, topic, newest, PeekLimits(timeout_ms=connection.timeout_ms))
        else:
            records = stack.enter_context(LogReader(reading)).read(
                topic,
                partitions or None,
                start=_start(from_beginning, offset, time_ms, follow),
                stop_at_end=not follow,
                max_records=max_records,
                looking=SHOW_DAMAGED,
            )
        for record in records:
            stdout.write(to_json_line(record, show_key, show_value, report=refuse))
            printed += 1
            if follow:
                stdout.flush()
    if refused:
        output.error_line(f"{refused} of {printed} records could not be shown, and are printed in hexadecimal digits")
        return output.EXIT_NOT_SHOWN
    if offset and not printed:
        with AdminClient(connection.bootstrap_servers, configuration.known_to(AdminConfig, config)) as admin:
            described = [info for info in admin.describe_topics([topic])[topic].partitions if info.leader]
            chosen = [info.topic_partition for info in described if not partitions or info.partition in partitions]
            end_offsets = admin.offsets(chosen, known_only=True)
        # Without this message the topic would appear to be empty.
        too_short = [
            f"{partition} ends at offset {end}" for partition, end in sorted(end_offsets.items()) if end < offset
        ]
        if too_short:
            output.error_line(f"no records to read from offset {offset} on: {', '.join(too_short)}")
    return 0


def _exclude(options_given: Mapping[str, object]) -> None:
    """:raises UsageError: if more than one of the options was given."""
    names = [name for name, value in options_given.items() if value not in (None, ()) and value is not False]
    if len(names) > 1:
        raise click.UsageError(f"{' and '.join(names)} exclude each other.")


def _start(from_beginning: bool, offset: int | None, time_ms: int | None, follow: bool) -> Start:
    if offset is not None:
        return offset
    if time_ms is not None:
        return FromTime(time_ms)
    return LATEST if follow and not from_beginning else EARLIEST
