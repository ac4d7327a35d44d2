"""``kafkalite consume``: the records of a topic as JSON lines.

Runs on the main thread. It reads partitions from their logs and belongs to no consumer group, so it changes nothing in
the cluster. It never shows bytes as text that they are not.
"""

from __future__ import annotations

import sys

import click

from kafka_sink.cli import options
from kafka_sink.cli.json_records import to_json_line
from kafka_sink.consumer.log_reader import LogReader
from kafka_sink.consumer.topic_reading import EARLIEST, LATEST


@click.command()
@click.argument("topic")
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this partition; may be repeated. Default: all.",
)
@click.option("--from-beginning", is_flag=True, help="Start at the oldest record: the default, except with --follow.")
@click.option("--offset", type=click.IntRange(min=0), help="Start at this offset of each partition.")
@click.option("--max", "max_records", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option("--follow", is_flag=True, help="Wait for new records instead of stopping at the end.")
@options.connection
def consume(
    topic: str,
    partitions: tuple[int, ...],
    from_beginning: bool,
    offset: int | None,
    max_records: int | None,
    follow: bool,
    bootstrap_servers: str,
    timeout_ms: int,
    properties: dict[str, str],
) -> None:
    """Print the records of TOPIC as JSON lines, up to the end it has now (or for ever, with --follow).

    A line has topic, partition, offset, timestamp (ms), key, value and headers. What is not UTF-8 is printed as
    {"base64": "…"}. With -X isolation.level=read_committed only what was committed is shown.
    """
    if from_beginning and offset is not None:
        raise click.UsageError("--from-beginning and --offset exclude each other.")
    config = {"client.id": "kafkalite-consume", "default.api.timeout.ms": timeout_ms, **properties}
    stdout = sys.stdout.buffer
    with LogReader({"bootstrap.servers": bootstrap_servers, **config}) as reader:
        for record in reader.read(
            topic,
            partitions or None,
            start=_start(from_beginning, offset, follow),
            stop_at_end=not follow,
            max_records=max_records,
        ):
            stdout.write(to_json_line(record))
            if follow:
                stdout.flush()


def _start(from_beginning: bool, offset: int | None, follow: bool) -> str | int:
    if offset is not None:
        return offset
    return LATEST if follow and not from_beginning else EARLIEST
