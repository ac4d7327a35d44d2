"""``kafkalite groups``: lists, describes and deletes consumer groups of any cluster, and moves their offsets.

Runs on the main thread. It never joins a group, and changes no group that has members, nor the progress of a sink
whose topic is not named.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import click

from kafka_sink.cli import options, output
from kafka_sink.cli.output import CommandGroup
from kafka_sink.client.blocking.admin import EARLIEST, LATEST, AdminClient
from kafka_sink.client.blocking.group_admin import GroupAdmin
from kafka_sink.common.model import OffsetAndMetadata, TopicPartition
from kafka_sink.exactly_once.transactions import delete_progress_command
from kafka_sink.ui.documents import group_documents, sinks_of


@click.group(cls=CommandGroup)
def groups() -> None:
    """List, describe and delete consumer groups, and reset their offsets."""


def _connect(connection: options.Connection) -> GroupAdmin:
    return GroupAdmin(connection.bootstrap_servers, connection.bounded)


@groups.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@options.connection
def list_(as_json: bool, connection: options.Connection) -> None:
    """List all groups and their states."""
    with _connect(connection) as admin:
        states = admin.list_groups()
    documents = [{"group": name, "state": state} for name, state in states.items()]
    output.show(as_json, documents, ("group", "state"), states.items())


@groups.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@options.connection
def describe(names: tuple[str, ...], as_json: bool, connection: options.Connection) -> None:
    """Show committed offset, lag and assigned member of groups for each partition.

    The offset of an exactly-once sink's group counts batches: the command shows the last batch instead of a lag.
    """
    with _connect(connection) as admin, AdminClient(connection.bootstrap_servers, connection.bounded) as topics:
        described = group_documents(admin, topics, names)
    documents = [document for document in described if not document["problem"]]
    problem = "; ".join(document["problem"] for document in described if document["problem"])
    if not documents:
        raise click.ClickException(f"{problem}.")
    columns = ("group", "state", "topic", "partition", "offset", "end offset", "lag", "member", "client", "host")
    rows = [
        (document["group"], document["state"], *map(_shown, entry.values()))
        for document in documents
        for entry in document["partitions"] or [dict.fromkeys(range(8))]
    ]
    output.show(as_json, documents, columns, rows)
    for document in documents if not as_json else ():
        for sink in document["sinks"]:
            output.line(
                f"{document['group']} is an exactly-once sink: batch {sink['last_batch']} of {sink['topic']} was "
                f"committed {timedelta(seconds=sink['age_s'])} ago by {sink['writer']}; its offset counts batches, so "
                "there is no lag"
            )
    if problem:
        raise click.ClickException(f"{problem}.")


@groups.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@click.option("--topic", help="Delete only the offsets of this topic, and keep the group.")
@output.yes_option
@options.connection
def delete(names: tuple[str, ...], topic: str | None, yes: bool, connection: options.Connection) -> None:
    """Delete groups without members, and their offsets.

    The command deletes the progress of an exactly-once sink with --topic only, because sinks of other topics may have
    the same name. The sink then starts without progress.
    """
    what = "all offsets" if topic is None else f"the offsets for {topic}"
    with _connect(connection) as admin:
        for name in names if topic is None else ():
            for sink in sinks_of(admin.committed(name)):
                raise click.ClickException(
                    f"group {name} is the progress of an exactly-once sink: delete that alone, after which the sink "
                    f"writes all rows of its source again: `{delete_progress_command(name, sink['topic'])}`."
                )
        output.ask(f"Delete {what} of {', '.join(names)}?", yes=yes)
        for name in names:
            if topic is None:
                admin.delete(name)
                output.line(f"deleted {name}")
            else:
                deleted = admin.delete_offsets(name, topic)
                output.line(f"deleted the offsets of {name} for {deleted} partitions of {topic}")


@groups.command("reset-offsets")
@click.argument("name", metavar="GROUP")
@click.option(
    "--topic",
    "topic_names",
    multiple=True,
    help="Reset only this topic; may be repeated. [default: all topics with committed offsets]",
)
@options.several("--partition", "partitions", "Reset only this partition of --topic", type=click.IntRange(min=0))
@click.option("--to-earliest", "target", flag_value="earliest", help="Reset to the earliest offset.")
@click.option("--to-latest", "target", flag_value="latest", help="Reset to the end offset.")
@click.option(
    "--to-offset", "offset", type=click.IntRange(min=0), help="Reset to this offset, or the nearest existing one."
)
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@output.yes_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@options.connection
def reset_offsets(
    name: str,
    topic_names: tuple[str, ...],
    partitions: tuple[int, ...],
    target: str | None,
    offset: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    connection: options.Connection,
) -> None:
    """Reset the offsets of a group without members."""
    if (target is None) == (offset is None):
        raise click.UsageError("Give one of --to-earliest, --to-latest and --to-offset.")
    if partitions and len(topic_names) != 1:
        raise click.UsageError("--partition needs exactly one --topic.")
    with _connect(connection) as admin, AdminClient(connection.bootstrap_servers, connection.bounded) as topics:
        committed = admin.committed(name)
        _refuse_sink(name, committed)
        before = {partition: committed_offset.offset for partition, committed_offset in committed.items()}
        chosen = _chosen_partitions(topics, before, topic_names, partitions)
        if not chosen:
            raise click.UsageError(f"Group {name} has no committed offsets: give --topic.")
        first, end = topics.offsets(chosen, EARLIEST), topics.offsets(chosen, LATEST)
        goal = {"earliest": first, "latest": end}.get(target or "", {})
        after = {one: goal.get(one, min(max(offset or 0, first[one]), end[one])) for one in chosen}
        if not dry_run:
            if before:
                _refuse_members(admin, name)
            output.ask(f"Set the offsets of {name} for {len(after)} partitions?", yes=yes)
            admin.set_offsets(name, after)
    changes = [
        {"topic": partition.topic, "partition": partition.partition, "before": before.get(partition), "after": offset}
        for partition, offset in after.items()
    ]
    columns = ("topic", "partition", "before", "after")
    output.show(as_json, changes, columns, [[_shown(value) for value in change.values()] for change in changes])
    if dry_run and not as_json:
        output.line("dry run: nothing was changed", is_error=True)


def _refuse_sink(name: str, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    for sink in sinks_of(committed):
        raise click.ClickException(
            f"group {name} is the progress of an exactly-once sink, whose last batch is {sink['last_batch']}: with "
            "another offset it would lose or repeat batches. To write all rows of its source again, delete the query's "
            "checkpoint and the offsets of this topic alone: "
            f"`{delete_progress_command(name, sink['topic'])}`."
        )


def _refuse_members(admin: GroupAdmin, name: str) -> None:
    group = admin.describe(name)
    if group.members:
        clients = ", ".join(sorted({member.client_id for member in group.members}))
        raise click.ClickException(
            f"group {name} has active members ({clients}): stop them first, because they would overwrite the offsets."
        )


def _chosen_partitions(
    topics: AdminClient, committed: dict[TopicPartition, int], topic_names: tuple[str, ...], partitions: tuple[int, ...]
) -> list[TopicPartition]:
    if not topic_names:
        return sorted(committed)
    if partitions:
        return [TopicPartition(topic_names[0], number) for number in sorted(set(partitions))]
    described = topics.describe_topics(topic_names)
    return [info.topic_partition for topic in described.values() for info in topic.partitions]


def _shown(value: object) -> str:
    # As Kafka's own tool shows it.
    return "-" if value is None else str(value)
