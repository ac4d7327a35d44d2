"""``kafkalite check``: reports the causes of a failure before a job starts, and the ACLs that the job needs.

Runs on the main thread. It writes nothing to the cluster.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict

import click

from kafka_sink.cli import options, output
from kafka_sink.common.acl import PatternType
from kafka_sink.preflight.check import check_all
from kafka_sink.preflight.findings import (
    COLUMNS,
    CheckReport,
    CheckTarget,
    ExactlyOnceTarget,
    NewTopicTarget,
    RegistryTarget,
    SubjectTarget,
    needed,
)


@click.command()
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@click.option(
    "--exactly-once",
    "sink",
    metavar="NAME",
    help="Also check the requirements of an exactly-once sink with the transactionalIdPrefix or txnAppId NAME.",
)
@click.option(
    "--progress-topic", metavar="TOPIC", help="Topic of the progress (option progressTopic). Default: the first TOPIC."
)
@click.option(
    "--topic-partitions",
    "partitions",
    type=click.IntRange(min=1),
    help="The job creates missing topics with this number of partitions (option topicPartitions).",
)
@click.option(
    "--print-acls",
    "principal",
    metavar="TYPE:NAME",
    help="Do not check; print the kafka-acls commands that allow this principal, such as User:job, exactly the "
    "operations of the job.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@options.registry
@options.lasting_connection
def check(
    topics: tuple[str, ...],
    sink: str | None,
    progress_topic: str | None,
    partitions: int | None,
    principal: str | None,
    as_json: bool,
    registry: dict[str, str],
    connection: options.Connection,
) -> int:
    """Check that this machine can write to a cluster and its topics.

    Tries names, ports, TLS and SASL of the bootstrap servers and of every broker, and looks up topics, their settings,
    permissions and API versions. With --registry also the schema registry, and the subject TOPIC-value of each topic.
    Writes nothing: no record, topic, group, transaction or schema. Exits with 1 if a job with
    these options would fail.
    """
    limits = dict.fromkeys(("request.timeout.ms", "max.block.ms"), str(connection.timeout_ms))
    target = CheckTarget(
        {**limits, **connection.properties, "bootstrap.servers": connection.bootstrap_servers},
        topics,
        _exactly_once(sink, progress_topic, topics),
        new_topics=tuple(NewTopicTarget(topic, partitions) for topic in topics if partitions is not None),
        registry=RegistryTarget(registry, tuple(SubjectTarget(f"{topic}-value", "value") for topic in topics))
        if registry
        else None,
    )
    if principal is not None:
        for line in _acl_commands(target, principal, connection.bootstrap_servers):
            click.echo(line)
        return 0
    report = CheckReport(check_all(target, "this machine"))
    if as_json:
        output.print_json([{**asdict(finding), "status": finding.status.value} for finding in report.findings])
    else:
        output.print_table(COLUMNS[1:], [row[1:] for row in report.rows()])
        click.echo(report.summary)
    return 0 if report.is_ok else 1


def _exactly_once(sink: str | None, progress_topic: str | None, topics: tuple[str, ...]) -> ExactlyOnceTarget | None:
    if sink is None:
        if progress_topic is not None:
            raise click.UsageError("--progress-topic belongs to --exactly-once.")
        return None
    if progress_topic is None and not topics:
        raise click.UsageError("--exactly-once needs a TOPIC or --progress-topic.")
    return ExactlyOnceTarget(sink, progress_topic or topics[0])


def _acl_commands(target: CheckTarget, principal: str, bootstrap_servers: str) -> Iterator[str]:
    """A command of kafka-acls for each resource; together they are what the job needs.

    :raises UsageError: if *principal* is no principal, or no topic was named.
    """
    kind, _, name = principal.partition(":")
    if not kind or not name:
        raise click.UsageError(f"--print-acls {principal!r} is not TYPE:NAME, such as User:job.")
    if not target.topics:
        raise click.UsageError("--print-acls needs a TOPIC.")
    for operations, resource_type, resource, pattern_type in needed(target):
        words = ["kafka-acls", "--bootstrap-server", bootstrap_servers, "--add", "--allow-principal", principal]
        for operation in operations:
            words += ["--operation", operation.name.title()]
        words += [f"--{resource_type.name.lower().replace('_', '-')}", resource]
        if pattern_type is not PatternType.LITERAL:
            words += ["--resource-pattern-type", pattern_type.name.lower()]
        yield shlex.join(words)
