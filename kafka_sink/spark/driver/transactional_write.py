"""What both ways to write with a transaction for each task do on the driver: the data source's and :func:`write`'s.

Used in the planner's and committer's processes, and in the user's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kafka_sink.common.errors import TooManyBadRowsError
from kafka_sink.spark.driver.write_report import check_bad_rows
from kafka_sink.spark.task.task_outcome import TaskOutcome, total_of
from kafka_sink.spark.write_spec import ExactlyOnce, WriteSpec

if TYPE_CHECKING:
    from kafka_sink.exactly_once.model import OpenTransaction
    from kafka_sink.exactly_once.parallel import ParallelSink
    from kafka_sink.exactly_once.plan import Plan

#: The writer of a sink that is named by txnAppId: any process that continues its numbers.
APPLICATION: Final = "an application"


def transactions_to_commit(
    sink: ParallelSink, plan: Plan, outcomes: Sequence[TaskOutcome], spec: WriteSpec
) -> list[OpenTransaction]:
    """The transactions of the tasks with these *outcomes*.

    :raises TooManyBadRowsError: if more rows are bad than maxBadRows allows; the batch of *plan* was aborted.
    """
    try:
        check_bad_rows(total_of(outcomes), spec)
    except TooManyBadRowsError:
        sink.give_up(plan)
        raise
    transactions = [outcome.transaction.open for outcome in outcomes if outcome.transaction is not None]
    return [each for each in transactions if each is not None]


def sink_of(spec: WriteSpec, exactly_once: ExactlyOnce) -> ParallelSink:
    """The sink that commits once as *exactly_once* says."""
    # The planner of other writes starts without importing the protocol and its dependencies.
    from kafka_sink.exactly_once.parallel import ParallelSink
    from kafka_sink.exactly_once.sink_driver import SinkDriver
    from kafka_sink.spark.task.shared_client import shared_client

    client = shared_client(spec.producer)
    return ParallelSink(
        SinkDriver(
            client,
            exactly_once.name,
            exactly_once.progress_topic,
            timeout_ms=spec.producer.transaction_timeout_ms,
            two_phase=exactly_once.two_phase,
            topics=spec.topics,
        )
    )
