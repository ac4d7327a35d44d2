"""``kafkalite topics``: lists, creates, changes, deletes and describes topics of any cluster.

Runs on the main thread. Its metadata requests never create topics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import click

from kafka_sink.cli import options, output
from kafka_sink.cli.output import CommandGroup
from kafka_sink.client.blocking.admin import BROKER_DEFAULT, AdminClient
from kafka_sink.client.requests.admin_requests import ConfigValue
from kafka_sink.common.model import TopicPartition
from kafka_sink.ui.documents import topic_documents


@click.group(cls=CommandGroup)
def topics() -> None:
    """List, create, change, delete and describe topics."""


def _connect(connection: options.Connection) -> AdminClient:
    return AdminClient(connection.bootstrap_servers, connection.bounded)


def _configs(text: str) -> Callable[[options.C], options.C]:
    return options.several("--config", "topic_config", text, metavar="NAME=VALUE", callback=options.pairs)


@topics.command("list")
@click.option("--internal", is_flag=True, help="Include Kafka's internal topics.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@options.connection
def list_(internal: bool, as_json: bool, connection: options.Connection) -> None:
    """List the names of all topics, one per line."""
    with _connect(connection) as admin:
        names = admin.list_topics(include_internal=internal)
    if as_json:
        output.print_json(names)
        return
    for name in names:
        output.line(name)


@topics.command()
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "--partitions", type=click.IntRange(min=1), help="Number of partitions. Default: the broker's num.partitions."
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 32767),
    help="Number of replicas of each partition. Default: the broker's default.replication.factor.",
)
@_configs("Set a topic config, such as retention.ms=60000")
@options.connection
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    topic_config: dict[str, str],
    connection: options.Connection,
) -> None:
    """Create topics."""
    with _connect(connection) as admin:
        for name in names:
            admin.create_topic(name, partitions or BROKER_DEFAULT, replication_factor or BROKER_DEFAULT, topic_config)
            output.line(f"created {name}")


@topics.command()
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@output.yes_option
@options.connection
def delete(names: tuple[str, ...], yes: bool, connection: options.Connection) -> None:
    """Delete topics and all their data."""
    output.ask(f"Delete {', '.join(names)} with all records?", yes=yes)
    with _connect(connection) as admin:
        for name in names:
            admin.delete_topics([name])
            output.line(f"deleted {name}")


@topics.command()
@click.argument("name", metavar="TOPIC")
@click.option("--partitions", type=click.IntRange(min=1), help="Increase the number of partitions to this total.")
@_configs("Set a topic config")
@options.several(
    "--delete-config", "deleted", "Remove a topic config, so that the broker's default applies", metavar="NAME"
)
@options.connection
def alter(
    name: str,
    partitions: int | None,
    topic_config: dict[str, str],
    deleted: tuple[str, ...],
    connection: options.Connection,
) -> None:
    """Change the configs of a topic, or add partitions to it."""
    if partitions is None and not topic_config and not deleted:
        raise click.UsageError("Nothing to change: give --partitions, --config or --delete-config.")
    with _connect(connection) as admin:
        if topic_config or deleted:
            admin.alter_topic_configs(name, topic_config, deleted)
        if partitions is not None:
            admin.add_partitions(name, partitions)
    output.line(f"altered {name}")


@topics.command("move-leader")
@click.argument("name", metavar="TOPIC")
@click.argument("partition", type=click.IntRange(min=0))
@click.argument("node_id", metavar="BROKER", type=click.IntRange(min=0))
@options.connection
def move_leader(name: str, partition: int, node_id: int, connection: options.Connection) -> None:
    """Move the leader of a partition: BROKER becomes its preferred leader, and is elected."""
    with _connect(connection) as admin:
        admin.move_leader(TopicPartition(name, partition), node_id)
    output.line(f"broker {node_id} leads {name}-{partition}")


@topics.command()
@click.argument("names", metavar="[TOPIC]...", nargs=-1)
@click.option("--configs", is_flag=True, help="Show topic configs instead, with the source of each value.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@options.connection
def describe(names: tuple[str, ...], configs: bool, as_json: bool, connection: options.Connection) -> None:
    """Show partitions, leaders, replicas and offsets of topics (by default of all topics)."""
    if configs:
        with _connect(connection) as admin:
            _show_configs(admin.topic_configs(names or admin.list_topics()), as_json=as_json)
        return
    with _connect(connection) as admin:
        documents = topic_documents(admin, names or admin.list_topics())
    columns = ("topic", "partition", "leader", "replicas", "in sync", "first offset", "end offset")
    rows = [
        (
            document["topic"],
            entry["partition"],
            _shown(entry["leader"]),
            ",".join(map(str, entry["replicas"])),
            ",".join(map(str, entry["isr"])),
            _shown(entry["first_offset"]),
            _shown(entry["end_offset"]),
        )
        for document in documents
        for entry in document["partitions"]
    ]
    output.show(as_json, documents, columns, rows)
    unknown = [
        f"{document['topic']}-{partition['partition']}"
        for document in documents
        for partition in document["partitions"]
        if partition["leader"] is not None and partition["end_offset"] is None
    ]
    if unknown:
        raise click.ClickException(f"no leader has returned the offsets of {', '.join(unknown)}: check its broker.")


def _show_configs(configs: dict[str, dict[str, ConfigValue]], *, as_json: bool) -> None:
    documents = [
        {"topic": topic, "configs": {name: asdict(value) for name, value in entries.items()}}
        for topic, entries in configs.items()
    ]
    rows = [
        (topic, name, "" if entry.value is None else entry.value, entry.source)
        for topic, entries in configs.items()
        for name, entry in entries.items()
    ]
    output.show(as_json, documents, ("topic", "setting", "value", "from"), rows)


def _shown(value: int | None) -> str:
    return "none" if value is None else str(value)
