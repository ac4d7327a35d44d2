"""Common parts of the ways to write exactly once on the driver: the sink, the transactions to commit, and the rows
of the last call for each sink.

Used in the planner's and committer's processes, and in the user's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_sink.common.bounded import Latest
from kafka_sink.common.errors import ConfigError, TooManyBadRowsError
from kafka_sink.spark.driver.write_report import check_bad_rows
from kafka_sink.spark.task.task_outcome import TaskOutcome
from kafka_sink.spark.write_spec import ExactlyOnce, WriteSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kafka_sink.exactly_once.model import Plan
    from kafka_sink.exactly_once.protocols import ParallelSink
    from kafka_sink.exactly_once.sink_driver import SinkDriver
    from kafka_sink.exactly_once.transactions import OpenTransaction

#: The writer of a sink that is named by txnAppId: any process that continues its numbers.
APPLICATION: Final = "an application"


def transactions_to_commit(
    sink: ParallelSink, plan: Plan, outcomes: Sequence[TaskOutcome], spec: WriteSpec
) -> list[OpenTransaction]:
    """The transactions of the tasks with these *outcomes*.

    :raises TooManyBadRowsError: if more rows are bad than maxBadRows allows; the batch of *plan* was aborted.
    """
    try:
        check_bad_rows(outcomes, spec)
    except TooManyBadRowsError:
        sink.give_up(plan)
        raise
    transactions = [outcome.transaction.open for outcome in outcomes if outcome.transaction is not None]
    return [each for each in transactions if each is not None]


def driver_of(spec: WriteSpec, exactly_once: ExactlyOnce) -> SinkDriver:
    """The driver of the sink that *exactly_once* names."""
    # The planner of other writes starts without importing the protocol and its dependencies.
    from kafka_sink.exactly_once.sink_driver import SinkDriver
    from kafka_sink.spark.task.shared_client import shared_client

    return SinkDriver(
        shared_client(spec.producer),
        exactly_once.name,
        exactly_once.progress_topic,
        timeout_ms=spec.producer.transaction_timeout_ms,
        two_phase=exactly_once.two_phase,
        topics=spec.topics,
    )


def sink_of(spec: WriteSpec, exactly_once: ExactlyOnce) -> ParallelSink:
    """The sink that commits once as *exactly_once* says, with a transaction for each task."""
    from kafka_sink.exactly_once.protocols import ParallelSink

    return ParallelSink(driver_of(spec, exactly_once))


class _Call(NamedTuple):
    run: str
    version: int
    df: DataFrame


#: Each holds a DataFrame, so those of sinks that have not written for long are forgotten.
_MOST: Final = 50
#: By cluster, name and progress topic.
_last: Final[Latest[tuple[tuple[str, ...], str, str], _Call]] = Latest(_MOST)


def note_call(df: DataFrame, spec: WriteSpec, sink: ExactlyOnce, run: str, version: int) -> None:
    """*df* was written as *version* in this *run* of a query, or skipped because *version* was committed: by another
    call, if this one has other rows than the first call for *version* in this run.

    A skipped call counts as well: whoever restarts a query after the error finds the batch committed in both calls.

    :raises ConfigError: if it has other rows.
    """
    key = _key(spec, sink)
    last = _last.get(key)
    if last is None or (last.run, last.version) != (run, version):
        _last.put(key, _Call(run, version, df))
        return
    if df.sameSemantics(last.df):
        return
    missing = "" if version == 0 else ", with option allowMissingProgress=true in its first batch"
    raise ConfigError(
        f"app_id {sink.name!r} was used twice in batch {version}, for different rows: the first call has committed the "
        f"batch, and the rows of this one were not written. Give this call an app_id of its own{missing}, and start "
        "the query again: it runs the batch again, skips what is committed and writes these rows"
    )


def _key(spec: WriteSpec, sink: ExactlyOnce) -> tuple[tuple[str, ...], str, str]:
    return spec.producer.bootstrap_servers, sink.name, sink.progress_topic
