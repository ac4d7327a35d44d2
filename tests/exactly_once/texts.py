"""The texts of the exactly-once code and pages that may contain advice, and the tests that follow it.

:func:`texts` reads them from the code (errors, warnings, notes) and from the tables of pages. :data:`FOLLOWED` has a
part of each text whose advice affects rows, with the tests that follow it and count rows afterwards; :data:`OTHERS`
has a part of each other text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

_MODULES: Final = (
    *sorted((ROOT / "kafka_sink" / "exactly_once").glob("*.py")),
    ROOT / "kafka_sink" / "client" / "blocking" / "transaction_verification.py",
    *(
        ROOT / "kafka_sink" / "spark" / name
        for name in (
            "dataframe_writer.py",
            "data_source.py",
            "driver/atomic_jobs.py",
            "driver/job_failures.py",
            "driver/jobs.py",
            "driver/write_report.py",
            "task/transactional_task.py",
        )
    ),
)
#: Tables whose last column says what to do: page, heading.
_TABLES: Final = (
    ("errors.md", "## Exactly once"),
    ("troubleshooting.md", "## Hanging transactions"),
    ("troubleshooting.md", "## Resolve a batch by hand"),
)
#: Lists whose items say what to do: page, heading.
_LISTS: Final = (("streaming.md", "## Requirements"),)
#: Texts of this length or shorter contain no advice.
_SHORTEST: Final = 27


def texts() -> Iterator[tuple[str, str]]:
    """Yield the place of each text, and the text without its inserted values."""
    yield from ((place, text) for place, text in _all_texts() if len(text) > _SHORTEST)


def _all_texts() -> Iterator[tuple[str, str]]:
    for path in _MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if text := _text_of(node):
                yield f"{path.name}:{getattr(node, 'lineno', 0)}", text
    for page, heading in _TABLES:
        rows = [line for line in _section(page, heading).splitlines() if line.startswith("| ")]
        for row in rows:
            yield f"{page}, {heading}", re.split(r" \| |^\| | \|$", row)[-2]
    for page, heading in _LISTS:
        # A paragraph follows the last item.
        for item in _section(page, heading).split("\n* ")[1:]:
            yield f"{page}, {heading}", " ".join(item.split("\n\n")[0].split())


def _section(page: str, heading: str) -> str:
    return (ROOT / "docs" / page).read_text().split(f"\n{heading}\n")[1].split("\n## ")[0]


def _text_of(node: ast.AST) -> str:
    """Return the text that *node* raises, logs or returns."""
    said: list[ast.expr] = []
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        said = node.exc.args
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAYS:
        said = node.args
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.JoinedStr):
        said = [node.value]
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.Call) and _is_error(node.value.func):
        said = node.value.args
    parts = [each for expression in said for each in ast.walk(expression)]
    return "".join(each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str))


def _is_error(called: ast.expr) -> bool:
    return isinstance(called, ast.Name) and called.id.endswith("Error")


_SAYS: Final = frozenset({"warning", "add_note"})

_RUN_AGAIN: Final = ("test_undecided_batch_is_run_again", "test_batch_after_the_unknown_one_may_run_again")
_IN_ORDER: Final = ("test_version_that_failed_is_written_before_the_next",)
_BY_HAND: Final = (
    "test_end_that_nothing_proves_is_ended_by_hand",
    "test_lost_end_is_ended_by_hand_only_as_it_was_decided",
)
_COMPLETED: Final = ("test_undecided_is_ended_by_the_next_driver_or_by_hand",)
_TORN: Final = ("test_torn_batch_is_accepted_when_its_rows_are_there",)
_CHECKPOINT: Final = ("test_old_checkpoint_goes_on_as_told",)
_STOPS: Final = (
    "test_fenced_writer_stops_and_leaves_the_winner_alone",
    "test_overtaken_driver_does_not_call_its_decision_undone",
)

#: A part of a text → the tests that follow its advice.
FOLLOWED: Final[dict[str, tuple[str, ...]]] = {
    "; this one stops": _STOPS,
    "; run it again": _RUN_AGAIN,
    "run the batch again, which finds out whether it is in Kafka": _RUN_AGAIN,
    "repartition the rows so that one task writes each partition": (
        "test_rows_of_one_partition_are_brought_to_one_task",
    ),
    "start the sink, which ends them": ("test_only_what_the_sink_cannot_judge_is_accepted",),
    "start the sink, which writes the batch again": ("test_batch_that_was_aborted_as_a_whole_is_not_accepted",),
    "choose another name for the sink, or delete these offsets": ("test_group_of_another_program_is_left_or_cleared",),
    "coalesce the batch to fewer tasks": ("test_batch_of_too_many_tasks_is_written_with_fewer",),
    "choose another transactionalIdPrefix or txnAppId; or, if that writer": (
        "test_another_writer_writes_all_that_it_reads",
    ),
    "then the rows since ": _CHECKPOINT,
    "has no progress of earlier batches": ("test_sink_without_progress_goes_on_as_told",),
    "have since forgotten its transactions": ("test_forgotten_batch_is_accepted_as_it_is",),
    "write them under a version that is later than": ("test_version_that_came_too_late_is_written_under_a_later_one",),
    "used twice in batch": ("test_one_app_id_twice_within_a_batch_is_refused",),
    "Compare the batch with its source": _TORN,
    "proves whether it was committed or aborted, so the sink writes nothing more": _BY_HAND,
    "may have been aborted while it was written again": ("test_interrupted_repair_is_accepted_as_it_is",),
    "; make the batches smaller if this is repeated": ("test_a_time_out_is_no_second_driver",),
    "is not committed, ": _IN_ORDER,
    "became visible; ": _IN_ORDER,
    "is in Kafka as a whole or not at all; ": _IN_ORDER,
    "Spark groups the rows by partition before: set the column partition": (
        "test_an_atomic_write_refuses_a_partitioner",
    ),
    # pages
    "or do without them; then `txn accept` with that batch": _TORN,
    "end the transaction with the command of the error": _BY_HAND,
    "`txn accept` with the batch before it": ("test_forgotten_batch_is_accepted_as_it_is",),
    "start with `allowMissingProgress=true`, which writes it": ("test_sink_without_progress_goes_on_as_told",),
    "you may delete its progress record instead": ("test_another_writer_writes_all_that_it_reads",),
    "start the query with the newer checkpoint. If it is lost, ": _CHECKPOINT,
    "If no application needs the offset, you may delete it": ("test_group_of_another_program_is_left_or_cleared",),
    "is a new query and is refused: give it another name": ("test_another_writer_writes_all_that_it_reads",),
    "write them under a new, later": ("test_version_that_came_too_late_is_written_under_a_later_one", *_IN_ORDER),
    "have different `app_id`s": ("test_one_app_id_twice_within_a_batch_is_refused",),
    "If it is exactly one batch behind": ("test_last_batch_again_is_skipped_or_refused_with_other_rows",),
    "without losing or repeating its last batch": ("test_sink_without_progress_goes_on_as_told",),
    "rows of a discarded batch never become visible, rows of a committed one do": (
        "test_lost_abort_is_not_turned_into_a_commit",
        "test_lost_commit_is_written_again_before_anything_else",
    ),
    "run one query per name; the other one continues": _STOPS,
    "the command or the option with which the sink continues": (
        *_CHECKPOINT,
        "test_sink_without_progress_goes_on_as_told",
        "test_forgotten_batch_is_accepted_as_it_is",
    ),
    "run it again: a stream is started again": _RUN_AGAIN,
    "run it again, as above": _RUN_AGAIN,
    "`kafkalite txn accept`": _TORN,
    "with `kafkalite txn hanging TOPIC PARTITION --commit-at OFFSET`, or": _BY_HAND,
    "start `NAME` again: it commits the batch that it had recorded": _COMPLETED,
    "which skips the transactions of a recorded batch; then": _COMPLETED,
    "start `NAME` again: it writes the missing marker": (
        "test_lost_commit_is_written_again_before_anything_else",
        "test_lost_abort_is_not_turned_into_a_commit",
    ),
    "--abort-at OFFSET`, in each partition": _BY_HAND,
    "--commit-at OFFSET`, in each partition": _BY_HAND,
}

#: A part of each text without advice, or whose advice cannot lose or repeat rows.
OTHERS: Final = (
    "this task does not belong to a micro-batch",
    "because Spark would remove executors with rows",
    "because a copy of a task must not write beside the first attempt",
    "the Spark job was cancelled and has not ended",
    "the tasks of an atomic write are tried again only together",
    "; what it says is in the error that the write raised",
    "py4j.protocol.Py4JJavaError: ",
    "**Consumers use `isolation.level=read_committed`.**",
    "**The source is replayable.**",
    "**A batch ends within `kafka.transaction.timeout.ms`**",
    "**Apache Kafka 3.6 or later**",
    "**Permissions**",
    "nothing was recorded for the sink",
    "and no other batch can be accepted",
    "there is nothing to accept",
    " attempts; the last error",
    "attempts must be at least",
    "the transaction of a failed attempt stays open",
    "DescribeConfigs failed with",
    "(option progressTopic) does not exist or is not",
    "more than a third of the time that transactions",
    "the logs were not searched",
    "is missing in %s: the brokers lost it (KAFKA-20734)",
    "the brokers have lost the abort of an earlier transaction",
    "a transaction is open there, and only with READ",
    "not a list of transactions",
    "it took  ms, and transactions may stay open",
    "the brokers do not know the transaction",
    ", and its producer is now",
    "but its task wrote to",
    "use brokers of Apache Kafka 3.6 or newer",
    "; check bootstrap.servers and",
    "the brokers forget the progress of the sink",
    "from a group coordinator that had been replaced",
    "need brokers that verify transactions",
    "cannot; upgrade to Apache Kafka 3.6 or newer",
    " is false on ; set it to true",
    "not every broker answered within",
    "exactly-once writes need the value true",
    "no transactional id was acquired in",
    "is for a transaction for each task",
    "a topic is a log and cannot be replaced",
    "the write has no plan",
    "the write was cancelled ()",
    "do not all belong to version",
    "did not complete, because a task failed",
    "a repeated write writes them again",
    "rows could not be written and %s",
    "tasks reported nothing, so",
    "are duplicated if you repeat the write",
    "option reportPath: cannot write",
    "already committed: nothing was written",
    "this is a second attempt at a task",
    "the transaction of this attempt stays open",
    "the error after the last one names",
    "check the consumer: its group",
    "ask its owner; `kafkalite txn",
    "start the brokers of the partition",
)
