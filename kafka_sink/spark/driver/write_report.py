"""Checks the tasks' messages on the driver, and creates the report of a write.

Used on the driver, in the process that commits. It never fails a committed write.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.errors import KafkaError
from kafka_sink.exactly_once.model import NO_OFFSETS, Skipped
from kafka_sink.spark.driver.lineage import emit, is_configured
from kafka_sink.spark.task.task_outcome import TaskOutcome, percentile_ms, total_of
from kafka_sink.spark.versions import WriterCommitMessage
from kafka_sink.spark.write_spec import WriteSpec

#: The decision in the report of a write that is not complete.
FAILED: Final = "failed"

_log = logging.getLogger(__name__)


def check_bad_rows(outcomes: Sequence[TaskOutcome], spec: WriteSpec) -> None:
    """Warn of the bad rows of all tasks.

    :raises TooManyBadRowsError: if they are more than the option maxBadRows allows.
    """
    if not any(each.bad_rows for each in outcomes):
        return
    total = total_of(outcomes)
    bad_rows, rows, first = total.bad_rows, total.rows_in, total.first_bad_row
    if spec.max_bad_rows is not None:
        spec.max_bad_rows.check(bad_rows, rows, first)
    place = "were dropped" if spec.dead_letter_topic is None else f"are in topic {spec.dead_letter_topic}"
    _log.warning("%d of %d rows could not be written and %s; the first: %s", bad_rows, rows, place, first)


def check_messages(messages: Sequence[WriterCommitMessage | None]) -> list[TaskOutcome]:
    """The outcomes of the tasks.

    :raises KafkaError: if a task's message is missing or its row counts differ.
    """
    outcomes = _outcomes_of(messages)
    if len(outcomes) != len(messages):
        raise KafkaError(
            f"{len(messages) - len(outcomes)} of {len(messages)} tasks reported nothing, so it is not known whether "
            "their rows were written; write again (rows may then be duplicated)"
        )
    short = [each for each in outcomes if each.rows_acked + each.bad_rows != each.rows_in]
    if short:
        raise KafkaError(
            "; ".join(
                f"partition {each.task_partition}: {each.rows_acked} of {each.rows_in - each.bad_rows} rows "
                "acknowledged"
                for each in short
            )
        )
    return outcomes


def _outcomes_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskOutcome]:
    """The outcomes of the tasks that had ended."""
    return [message for message in messages if isinstance(message, TaskOutcome)]


def report_of(outcomes: Sequence[TaskOutcome], **more: Any) -> dict[str, Any]:
    """The report with rows, bytes, times and offset ranges; the entries of *more* come first."""
    total = total_of(outcomes)
    return {
        **more,
        "rows": total.rows_acked,
        "bad_rows": total.bad_rows,
        "bytes": total.record_bytes,
        "wire_bytes": total.wire_bytes,
        "batches": total.batches,
        "tasks": len(outcomes),
        "elapsed_ms": total.elapsed_ms,
        "ack_p50_ms": percentile_ms(total.ack_ms, 0.5),
        "ack_p99_ms": percentile_ms(total.ack_ms, 0.99),
        "partitions": {
            str(partition): {"rows": part.rows, "first": part.first_offset, "last": part.last_offset}
            for partition, part in total.ranges.items()
        },
    }


def publish_failure(
    messages: Sequence[WriterCommitMessage | None], spec: WriteSpec, error: str = "", **more: Any
) -> None:
    """As :func:`publish`, for a write that has failed; *messages* are those of the tasks that had ended."""
    fields = {"error": error} if error else {}
    publish(partial(report_of, _outcomes_of(messages), **more, decision=FAILED, **fields), spec)


def publish(make: Callable[[], dict[str, Any]], spec: WriteSpec, inputs: Sequence[str] = ()) -> None:
    """Log the report that *make* returns as one JSON line, append it to the file of the option reportPath, and send it
    as lineage, with the files *inputs* that were read, if that is configured; nothing is made if nobody reads it."""
    if not (_log.isEnabledFor(logging.INFO) or spec.report_path is not None or is_configured()):
        return
    report = make()
    text = json.dumps({**report, "timestamp_ms": SYSTEM_CLOCK.wall_ms()})
    _log.info("write %s: %s", "not completed" if report.get("decision") == FAILED else "committed", text)
    emit(report, spec, inputs)
    if (path := spec.report_path) is None:
        return
    try:
        # One write, because a progress_listener in another process appends lines of its own.
        with Path(path).open("ab", buffering=0) as file:
            file.write(f"{text}\n".encode())
    except OSError as error:
        # All rows are written, and an error now would only cause them to be written again.
        _log.warning("option reportPath: cannot write %s (%s); the report is: %s", path, error, text)


def warn_of_skipped(sink: str | None, skipped: Skipped) -> None:
    """Say that nothing was written, so that a wrong version number is noticed."""
    _log.warning("version %d of %s %s", skipped.version, sink, _why(skipped))


def _why(skipped: Skipped) -> str:
    if skipped.is_older:
        return (
            f"is older than version {skipped.last}, the last one that is committed: nothing was written. If version "
            f"{skipped.version} was never committed, its rows are not in Kafka: write them under a version that is "
            f"later than {skipped.last}. Versions are written one after another"
        )
    if skipped.doubt == NO_OFFSETS.unknown:
        # The ordinary repetition of an application's version.
        return "was already committed: nothing was written"
    if not skipped.doubt:
        return "was already committed, with the same rows: nothing was written"
    return (
        "was already committed: nothing was written. It is not known whether these are the same rows, because "
        f"{skipped.doubt}; if they are not (a checkpoint was restored from a copy, or a number is used twice), they "
        "are not in Kafka"
    )


def warn_of_leftovers(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Log which rows of an at-least-once write that did not complete stay in the topics. Spark tells neither why it did
    not, nor what the tasks that did not finish have written."""
    outcomes = _outcomes_of(messages)
    rows, others = total_of(outcomes).rows_acked, len(messages) - len(outcomes)
    stays = [f"the {rows:,} rows of {len(outcomes)} finished tasks"] if rows else []
    if others:
        stays.append(f"acknowledged rows of {others} unfinished tasks, if any (the errors of tasks count them)")
    _log.warning(
        "the write did not complete: a task failed, or it was stopped. These rows stay in the topics, and are "
        "duplicated if you repeat the write: %s",
        " and ".join(stays) or "none",
    )
