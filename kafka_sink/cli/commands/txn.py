"""``kafkalite txn``: shows transactions of any cluster, ends hanging ones, and lets a sink resume after a torn batch.

Runs on the main thread. It sends requests to the transaction coordinators, as the producers do. It only ends
transactions that were named, or that belong to the sink that was named.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click

from kafka_sink.cli import options, output
from kafka_sink.cli.output import CommandGroup
from kafka_sink.client.blocking.leader_requests import LogTransaction
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.errors import ApiError, ErrorCode, error_for
from kafka_sink.common.model import NO_TIMEOUT_MS, TopicPartition
from kafka_sink.common.text import words
from kafka_sink.exactly_once.accepting import Standing, standing
from kafka_sink.exactly_once.accepting import accept as accept_batch
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import ProgressError
from kafka_sink.exactly_once.progress import ProgressStore
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.transactions import (
    Transaction,
    TransactionDescription,
    driver_id,
    is_writer_id,
    sink_id,
    sink_of_id,
)

_PREPARED_COMMIT = "PrepareCommit"
_COMMITTED = "CompleteCommit"
#: Brokers leave out, without an error, transactions in a state that they do not know.
_STATES = words("Empty Ongoing PrepareCommit PrepareAbort PrepareEpochFence CompleteCommit CompleteAbort Dead")
_STATE = click.Choice(_STATES, case_sensitive=False)

_ANY_TIMEOUT_MS = 60_000


@click.group(cls=CommandGroup)
def txn() -> None:
    """List, describe, abort and commit transactions; accept a batch of a sink."""


def _connect(connection: options.Connection) -> CoordinatorClient:
    return CoordinatorClient(connection.checked(), timeout_ms=connection.timeout_ms)


def _chosen(client: CoordinatorClient, names: Sequence[str], prefix: str | None, states: Sequence[str]) -> list[str]:
    """*names*, or the ids that begin with *prefix*."""
    if names and prefix is not None:
        raise click.UsageError("Give transactional ids or --prefix, not both.")
    if names:
        return list(names)
    ids = client.run(client.list_ids(states, f"{re.escape(prefix)}.*" if prefix else None))
    # Brokers before 4.1 do not support patterns.
    return sorted(name for name in ids if name.startswith(prefix or ""))


@txn.command("list")
@click.option("--prefix", help="List only ids that begin with this text.")
@options.several("--state", "states", "List only ids in this state, such as Ongoing", type=_STATE)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@options.connection
def list_(prefix: str | None, states: tuple[str, ...], as_json: bool, connection: options.Connection) -> None:
    """List transactional ids and their states."""
    with _connect(connection) as client:
        descriptions = client.run(client.describe(_chosen(client, (), prefix, states)))
    documents = [_document(described) for _, described in sorted(descriptions.items())]
    columns = ("transactional_id", "state", "producer_id", "timeout_ms", "age")
    output.show(as_json, documents, columns, [[document[column] for column in columns] for document in documents])


@txn.command()
@click.argument("names", metavar="[TRANSACTIONAL_ID]...", nargs=-1)
@click.option("--prefix", help="Describe all ids that begin with this text.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@options.connection
def describe(names: tuple[str, ...], prefix: str | None, as_json: bool, connection: options.Connection) -> None:
    """Show state, producer, time-out, age and partitions of transactions."""
    _require_choice(names, prefix)
    with _connect(connection) as client:
        descriptions = _described(client, _chosen(client, names, prefix, ()))
    documents = [_document(described) for described in descriptions]
    columns = ("transactional_id", "state", "producer_id", "epoch", "timeout_ms", "age", "partitions")
    rows = [[*(document[name] for name in columns[:-1]), ", ".join(document["partitions"])] for document in documents]
    output.show(as_json, documents, columns, rows)


@txn.command()
@click.argument("names", metavar="[TRANSACTIONAL_ID]...", nargs=-1)
@click.option("--prefix", help="Abort all open transactions whose ids begin with this text.")
@options.connection
def abort(names: tuple[str, ...], prefix: str | None, connection: options.Connection) -> None:
    """Abort open transactions. Their producers are fenced and must be restarted.

    The command aborts no transaction of a batch that its sink has recorded as committed: it fails, or with --prefix
    skips the transaction.
    """
    _require_choice(names, prefix)
    with _connect(connection) as client:
        # A driver first: its batch cannot be decided any more while the transactions of its tasks are aborted.
        for described in sorted(_described(client, _chosen(client, names, prefix, ["Ongoing"])), key=_driver_of):
            name = described.transaction.transactional_id
            if not described.is_ongoing:
                output.line(f"{name}: {described.state}, nothing to abort")
                continue
            if reason := _against_end(client, described):
                if prefix is None:
                    raise click.ClickException(reason)
                output.line(f"not aborted: {reason}", is_error=True)
                continue
            # A time-out that brokers accept from every client; the transaction's producers set their own again.
            lasting_ms = _ANY_TIMEOUT_MS if described.timeout_ms == NO_TIMEOUT_MS else described.timeout_ms
            client.run(client.init_producer_id(name, lasting_ms))
            output.line(f"aborted {name}")


@txn.command()
@click.argument("names", metavar="[TRANSACTIONAL_ID]...", nargs=-1)
@click.option("--prefix", help="Commit all open transactions whose ids begin with this text.")
@options.connection
def commit(names: tuple[str, ...], prefix: str | None, connection: options.Connection) -> None:
    """Commit open transactions that are known to be complete, so that their records become visible.

    Use this only for transactions that a driver decided to commit before it failed: only the driver knew whether all
    records were written. Of kafkalite's own sinks the command commits only transactions of a batch that the sink has
    recorded as committed, and stops with an error at any other: first run 'kafkalite txn abort', which skips those
    of a recorded batch.
    """
    _require_choice(names, prefix)
    with _connect(connection) as client:
        transaction_version = client.transaction_version()
        for described in _described(client, _chosen(client, names, prefix, ["Ongoing"])):
            name = described.transaction.transactional_id
            if described.state == _COMMITTED:
                output.line(f"{name}: already committed")
                continue
            if not described.is_ongoing and described.state != _PREPARED_COMMIT:
                raise click.ClickException(f"{name} is {described.state}: there is nothing to commit.")
            is_sinks = described.is_ongoing and sink_of_id(name) is not None
            if is_sinks and described.transaction not in _decided(client, name):
                raise click.ClickException(
                    f"{name} belongs to a sink that has not decided to commit it, and its rows are written again "
                    "with their batch: start the sink, or use 'kafkalite txn abort'."
                )
            codes = client.run(client.end([described.transaction], transaction_version, commit=True))
            code = codes[described.transaction]
            if code is not ErrorCode.NONE:
                raise error_for(code, f"{name} has ended in another way in the meantime")
            output.line(f"committed {name}")


@txn.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0), required=False)
@click.option(
    "--abort-at", "abort_at", type=click.IntRange(min=0), help="Abort the transaction that begins at this offset."
)
@click.option(
    "--commit-at",
    "commit_at",
    type=click.IntRange(min=0),
    help="Commit the transaction that begins at this offset, if its coordinator has committed it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@options.connection
def hanging(
    topic: str,
    partition: int | None,
    abort_at: int | None,
    commit_at: int | None,
    as_json: bool,
    connection: options.Connection,
) -> None:
    """Show the transactions that are open in the logs of a topic, or of one partition, and block consumers
    with isolation.level=read_committed.

    --abort-at aborts one of them, in this partition only. It is for transactions that are unknown to their coordinator,
    or that it has aborted; use 'abort' for those that 'kafkalite txn list' shows as Ongoing. --commit-at commits one
    that its coordinator has committed, but whose commit marker this partition has lost (KAFKA-20734). The command
    refuses both if the coordinator's state does not agree. Both need CLUSTER_ACTION on the cluster.
    """
    if abort_at is not None and commit_at is not None:
        raise click.UsageError("Give --abort-at or --commit-at, not both.")
    start_offset = abort_at if commit_at is None else commit_at
    if start_offset is not None and partition is None:
        raise click.UsageError(
            "--abort-at and --commit-at end a transaction in one partition: give its number after the topic."
        )
    with _connect(connection) as client:
        if partition is not None and start_offset is not None:
            log = TopicPartition(topic, partition)
            _end_in_log(client, log, start_offset, commit=commit_at is not None)
            return
        logs = _partitions_of(client, topic, partition)
        opened = client.run(client.leaders.open_transactions(logs))
        numbered = [(log.partition, transaction) for log in logs for transaction in opened.get(log, ())]
    documents = [{"partition": number, **asdict(transaction)} for number, transaction in numbered]
    columns = ("partition", "start offset", "producer id", "epoch", "last written")
    rows = [
        (n, transaction.start_offset, transaction.producer_id, transaction.epoch, _age(transaction.last_written_ms))
        for n, transaction in numbered
    ]
    output.show(as_json, documents, columns, rows)


@txn.command()
@click.argument("name")
@click.argument("topic")
@click.option(
    "--version", required=True, type=click.IntRange(min=-1), help="The batch that is the sink's last complete one."
)
@click.option("--writer", help="The sink's writer, as its error names it; needed if the sink has no progress.")
@output.yes_option
@options.connection
def accept(name: str, topic: str, version: int, writer: str | None, yes: bool, connection: options.Connection) -> None:
    """Let the exactly-once sink NAME, whose progress is stored for TOPIC, continue after a batch that an operator has
    to decide.

    The sink stops with an error that names this command in three cases: the brokers have aborted a part of a decided
    batch, they no longer know how it ended, or they have deleted the sink's progress. Compare the batch with its source
    first, and write missing rows with another program: the sink never writes the accepted batch again. The command
    refuses a sink that can continue without it.
    """
    with _connect(connection) as client:
        steps = SinkDriver(client, name, topic, topics=None)
        state = client.run(standing(steps))
        reason = state.against(version, writer)
        if reason is not None:
            raise click.ClickException(f"nothing was changed for the sink {name} ({topic}): {reason}.")
        _show_standing(name, topic, state, version)
        output.ask(f"Record that batch {version} is the last complete one?", yes=yes)
        accept_batch(steps, version, writer)
    output.line(f"recorded: the sink {name} ({topic}) resumes with batch {version + 1}")


def _show_standing(name: str, topic: str, state: Standing, version: int) -> None:
    progress = state.progress
    if progress is None:
        output.line(f"The sink {name} ({topic}) has no progress.")
    else:
        output.line(f"The sink {name} ({topic}) of {progress.writer} has decided batch {progress.version}:")
        output.print_table(
            ("transaction", "outcome"), [(str(ended), outcome.value) for ended, outcome in state.outcomes.items()]
        )
    if progress is not None and version < progress.version:
        output.line(
            f"The sink will write batch {progress.version} again: rows of it that are in Kafka already are then "
            "duplicated."
        )
        return
    output.line(
        f"The sink will resume with batch {version + 1} and never write batch {version} again: rows of it that are not "
        "in Kafka stay missing. A running driver of the sink stops."
    )


def _partitions_of(client: CoordinatorClient, topic: str, partition: int | None) -> list[TopicPartition]:
    """The partition, or all partitions of *topic*."""
    numbers = [info.partition for info in client.run(client.partitions(topic))]
    if not numbers:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} does not exist")
    if partition is not None and partition not in numbers:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{partition}")
    return [TopicPartition(topic, number) for number in numbers if partition in (None, number)]


def _end_in_log(client: CoordinatorClient, partition: TopicPartition, start_offset: int, *, commit: bool) -> None:
    _partitions_of(client, *partition)
    transactions = client.run(client.leaders.open_transactions([partition])).get(partition, [])
    chosen = next((opened for opened in transactions if opened.start_offset == start_offset), None)
    if chosen is None:
        begins = ", ".join(str(opened.start_offset) for opened in transactions) or "none"
        text = f"no transaction of {partition} begins at {start_offset}; open transactions begin at: {begins}."
        raise click.ClickException(text)
    named = client.run(client.list_ids(producer_ids=[chosen.producer_id]))
    descriptions = client.run(client.describe(named)).values()
    described = next((item for item in descriptions if item.transaction.producer_id == chosen.producer_id), None)
    reason = None
    if commit:
        reason = _against_commit(client, described, chosen)
    elif described is not None and _is_committed(client, described, chosen):
        reason = "was committed by its coordinator, and an abort would lose its rows: use --commit-at."
    elif described is not None and described.is_ongoing and partition in described.partitions:
        name = described.transaction.transactional_id
        reason = f"is still open for its coordinator: use 'kafkalite txn abort {name}'."
    if reason is not None:
        raise click.ClickException(f"the transaction of producer id {chosen.producer_id} in {partition} {reason}")
    client.run(client.leaders.write_marker(partition, chosen, commit=commit))
    done = "committed" if commit else "aborted"
    output.line(f"{done} the transaction of producer id {chosen.producer_id} in {partition}")


def _is_committed(client: CoordinatorClient, described: TransactionDescription, opened: LogTransaction) -> bool:
    """Whether the coordinator, or the decision of its sink, proves that *opened*, of *described*, is committed."""
    transaction = Transaction(described.transaction.transactional_id, opened.producer_id, opened.epoch)
    if described.is_commit_of(transaction, client.transaction_version()):
        return True
    return transaction in _decided(client, transaction.transactional_id)


def _against_end(client: CoordinatorClient, described: TransactionDescription) -> str:
    """The reason why the transaction *described* must not be aborted; empty if it may be."""
    name, driver = described.transaction.transactional_id, _driver_of(described)
    try:
        decided = _decided(client, name, require_stable=bool(driver))
        if not described.is_repair and described.transaction not in decided:
            return ""
    except ProgressError as error:
        return f"{name}: {error}"
    except ApiError as error:
        if error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
            raise
        return (
            f"{name} may belong to the batch that its sink is committing now: run the command again, or first abort "
            f"the transaction of the sink's driver, {driver}"
        )
    return (
        f"{name} belongs to a batch that its sink has decided to commit, and an abort would lose its rows: start the "
        "sink, which completes the batch, or use 'kafkalite txn commit'."
    )


def _against_commit(
    client: CoordinatorClient, described: TransactionDescription | None, opened: LogTransaction
) -> str | None:
    """The reason why the *opened* transaction must not be committed; None if its commit is proven."""
    if described is None:
        return "is unknown to every coordinator: nothing proves that it was committed. --abort-at aborts it."
    if described.is_ongoing:
        return (
            f"is still open for its coordinator: use 'kafkalite txn commit {described.transaction.transactional_id}'."
        )
    if not _is_committed(client, described, opened):
        return (
            f"has epoch {opened.epoch}, and its coordinator says that {described.transaction} is {described.state}: "
            "that does not prove that it was committed. --abort-at aborts it."
        )
    return None


def _require_choice(names: Sequence[str], prefix: str | None) -> None:
    if not names and not prefix:
        raise click.UsageError("Give transactional ids, or --prefix. Run 'kafkalite txn list' to see the existing ids.")


def _driver_of(described: TransactionDescription) -> str:
    """The id of the sink's driver; empty unless *described* is a transaction of one of the sink's tasks."""
    name = described.transaction.transactional_id
    sink = sink_id(*(sink_of_id(name) or ("", "")))
    return driver_id(sink) if is_writer_id(sink, name) else ""


def _decided(
    client: CoordinatorClient, transactional_id: str, *, require_stable: bool = False
) -> Collection[Transaction]:
    """The transactions that the sink of *transactional_id* has decided to commit; empty if the id is not a sink's.

    :raises ApiError: with *require_stable*, UNSTABLE_OFFSET_COMMIT if it is deciding now.
    """
    sink = sink_of_id(transactional_id)
    if sink is None:
        return ()
    progress = client.run(ProgressStore(client, *sink).read(require_stable=require_stable, waits=False))
    return () if progress is None else progress.transactions


def _described(client: CoordinatorClient, names: Sequence[str]) -> list[TransactionDescription]:
    descriptions = client.run(client.describe(names))
    missing = [name for name in names if name not in descriptions]
    if missing:
        text = f"{missing[0]!r}; run 'kafkalite txn list' to see the existing ids"
        raise error_for(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, text)
    return [descriptions[name] for name in names]


def _document(described: TransactionDescription) -> dict[str, Any]:
    return {
        "transactional_id": described.transaction.transactional_id,
        "state": described.state,
        "producer_id": described.transaction.producer_id,
        "epoch": described.transaction.epoch,
        # KIP-939: the transaction stays open until a client ends it.
        "timeout_ms": "none" if described.timeout_ms == NO_TIMEOUT_MS else described.timeout_ms,
        "age": _age(described.started_ms) if described.is_ongoing else "none",
        "partitions": [str(partition) for partition in sorted(described.partitions)],
    }


def _age(since_ms: int) -> str:
    """The time since then, as h:mm:ss."""
    return "none" if since_ms < 0 else str(timedelta(seconds=max(SYSTEM_CLOCK.wall_ms() - since_ms, 0) // 1000))
