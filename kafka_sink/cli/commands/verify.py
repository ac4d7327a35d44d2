"""``kafkalite verify``: checks whether a topic has the rows of some files, each once and with the order of each key.

Runs on the main thread. It only reads committed records and belongs to no consumer group, so it changes nothing in the
cluster. It only reads schemas from a registry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from kafka_sink.cli import options, output
from kafka_sink.cli.comparing import FILE_FORMATS, Comparable, ExpectedRows, Fingerprint, Verdict, compare
from kafka_sink.cli.values.json_records import undecodable
from kafka_sink.cli.values.typed_values import KEY, VALUE
from kafka_sink.client.blocking.admin import EARLIEST, LATEST, AdminClient
from kafka_sink.common.errors import SerializationError
from kafka_sink.consumer.config import READ_COMMITTED
from kafka_sink.consumer.log_reader import LogReader
from kafka_sink.formats.column_format import FORMATS

Offsets = dict[int, tuple[int, int]]


def _ranges(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> Offsets:
    ranges: Offsets = {}
    for text in texts:
        partition, separator, rest = text.partition(":")
        first, dash, last = rest.partition("-")
        is_range = separator and dash and partition.isdecimal() and first.isdecimal() and last.isdecimal()
        if not is_range or int(partition) in ranges:
            raise click.BadParameter(f"{text!r}: expected one PARTITION:FIRST-LAST, as 0:100-199.", context, parameter)
        ranges[int(partition)] = (int(first), int(last) + 1)
    return ranges


@click.command()
@click.argument("topic")
@options.several(
    "--against",
    "paths",
    "File, or folder of files, with the expected rows",
    type=click.Path(exists=True, path_type=Path),
    required=True,
)
@click.option("--file-format", type=click.Choice(FILE_FORMATS), help="Format of the files. Default: from their names.")
@click.option("--value", "value_column", default="value", show_default=True, help="Column with the values.")
@click.option("--key", "key_column", help="Column with the keys. Default: the column key, if there is one.")
@options.several(
    "--offsets",
    "ranges",
    "Compare only these offsets of a partition, as reported by a write",
    metavar="PARTITION:FIRST-LAST",
    callback=_ranges,
)
@options.time("--since", "since", "Start at the first record at or after this time (ms or ISO 8601).")
@options.time("--until", "until", "Stop before the first record at or after this time (ms or ISO 8601).")
@click.option(
    "--no-order",
    is_flag=True,
    help="Ignore the order of the records of a key, which is not defined between tasks that write at the same time.",
)
@click.option(
    "--format",
    "value_format",
    type=click.Choice(FORMATS),
    help="Decode values of this format, and compare them instead of their bytes.",
)
@click.option("--key-format", type=click.Choice(FORMATS), help="The same for the keys.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@options.registry
@options.lasting_connection
def verify(
    topic: str,
    paths: tuple[Path, ...],
    file_format: str | None,
    value_column: str,
    key_column: str | None,
    ranges: Offsets,
    since: int | None,
    until: int | None,
    no_order: bool,
    value_format: str | None,
    key_format: str | None,
    as_json: bool,
    registry: dict[str, str],
    connection: options.Connection,
) -> int:
    """Compare the committed records of TOPIC with the rows of files; the exit code is 1 if they differ.

    The expected order of the rows of a key is the order of the file names, and of the rows in each file. A million rows
    of any size take about 200 MB of memory. With --format, the files contain payloads as bytes (JSON also as text) or
    the values themselves, such as structs or the output of consume. The comparison then ignores schema ids, the order
    of fields and null fields.
    """
    if ranges and (since is not None or until is not None):
        raise click.UsageError("--offsets and --since/--until exclude each other.")
    client = options.client_of(registry, limit_ms=connection.timeout_ms)
    keys, values = Comparable(key_format, KEY, client), Comparable(value_format, VALUE, client)
    expected = Fingerprint()
    for key, value in ExpectedRows(file_format, key_column, value_column, keys, values).read(paths):
        expected.add(key, value)
    common = {"client.id": "kafkalite-verify", **connection.bounded}
    if not ranges:
        with AdminClient(connection.bootstrap_servers, common) as admin:
            ranges = _all_offsets(admin, topic, since, until)
    reading = {"bootstrap.servers": connection.bootstrap_servers, "isolation.level": READ_COMMITTED, **common}
    written = _fingerprint(reading, topic, ranges, keys, values)
    verdict = compare(expected, written)
    is_equal = verdict.has_the_same_records and (no_order or verdict.is_in_order)
    if as_json:
        output.print_json({"topic": topic, "equal": is_equal, **asdict(verdict)})
    else:
        output.print_table([topic, "records" if is_equal else "DIFFERENT"], _lines(verdict, no_order))
    return 0 if is_equal else output.EXIT_FAILURE


def _fingerprint(
    reading: dict[str, Any], topic: str, ranges: Offsets, keys: Comparable, values: Comparable
) -> Fingerprint:
    """The fingerprint of the records of *topic* in *ranges*, read with the properties *reading*."""
    written = Fingerprint()
    with LogReader(reading) as reader:
        for partition, (first, end) in sorted(ranges.items()):
            if first >= end:
                continue
            for record in reader.read(topic, [partition], start=first):
                if record.offset >= end:
                    break
                try:
                    written.add(keys.of_payload(record.key), values.of_payload(record.value), partition)
                except SerializationError as error:
                    raise undecodable(record, error) from None
    return written


def _all_offsets(admin: AdminClient, topic: str, since: int | None, until: int | None) -> Offsets:
    """Partition → the first offset and the offset to stop before."""
    partitions = [info.topic_partition for info in admin.describe_topics([topic])[topic].partitions]
    firsts = admin.offsets(partitions, EARLIEST if since is None else since)
    ends = admin.offsets(partitions, LATEST if until is None else until)
    return {partition.partition: (firsts[partition], ends[partition]) for partition in partitions}


def _lines(verdict: Verdict, no_order: bool) -> Iterator[tuple[str, str]]:
    rows = ", ".join(str(row) for row in verdict.missing_rows)
    yield "expected", f"{verdict.expected:,}"
    yield "found", f"{verdict.written:,}"
    yield "missing", f"{verdict.missing:,}" + (f"   first rows in the files: {rows}" if rows else "")
    yield "twice", f"{verdict.twice:,}"
    yield "extra", f"{verdict.extra:,}"
    if not no_order:
        yield "keys", f"{verdict.keys:,}, with the right records {verdict.keys_judged:,}"
        yield "out of order", f"{verdict.keys_out_of_order:,}"
        yield "in several partitions", f"{verdict.keys_in_several_partitions:,}"
