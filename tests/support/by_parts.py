"""Tests that the normal run leaves to parts of the proof (``tests/proof/parts.py``), because they take long: they need
a real Kafka or a Spark of their own, or try more cases of a test.

``scripts/test.sh --long`` runs all of them. ``python -m tests.support.by_parts`` prints the table of tests/README.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from scripts.pages import print_into
from tests.support import amounts
from tests.support.other_brokers import CHOSEN

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "tests" / "README.md"
NAME: Final = "by parts"

_COMMANDS: Final = {
    "kafka": "scripts/test.sh --kafka V",
    "matrix": "scripts/test.sh --matrix",
    "spark": "scripts/test.sh --spark V",
    "long": "scripts/test.sh --long",
    "exploration": "scripts/prove.sh 'exploration-*'",
}
#: The groups of parts that this run belongs to.
_RUNS: Final = {
    group
    for group, runs in {
        "kafka": bool(CHOSEN or os.environ.get("KAFKALITE_KAFKA_VERSION")),
        "matrix": amounts.MATRIX == "full",
        "spark": bool(os.environ.get("KAFKALITE_SPARK_VERSION")),
    }.items()
    if runs
}


class Left(NamedTuple):
    """Tests of *file* whose names begin with one of *names* (all tests without them), but not with one of *but*, are
    run by the parts of *group*, because of *why*. *names* are as pytest prints them behind ``::``."""

    group: str
    file: str
    why: str
    names: tuple[str, ...] = ("",)
    but: tuple[str, ...] = ()

    def has(self, test: str) -> bool:
        file, _, name = test.partition("::")
        return (
            file == f"tests/{self.file}"
            and name.startswith(self.names)
            and not (self.but and name.startswith(self.but))
        )


_OWN_KAFKA: Final = "a Kafka with listeners or options of its own"
_THREE: Final = "a Kafka of three nodes"
_WAITS: Final = "waits for time-outs of a Kafka"
_OWN_SPARK: Final = "a Spark of its own"
_OTHER_CASES: Final = "more cases of a test"
_TIME_OUTS: Final = "waits for time-outs"

_CELL: Final = "test_matrix_cell_stores_every_byte_once"
_BROKEN: Final = "test_exploration_notices_every_broken_rule"

LEFT: Final = (
    Left("kafka", "compat/test_acls_on_kafka.py", _OWN_KAFKA),
    Left("kafka", "compat/test_cli_on_kafka.py", "Kafka's own tools"),
    Left("kafka", "compat/test_compaction_on_kafka.py", "waits for Kafka's cleaner"),
    Left(
        "kafka",
        "compat/test_exactly_once_on_kafka.py",
        _WAITS,
        ("test_partly_timed_out", "test_wholly_timed_out", "test_transactions_timed_out"),
    ),
    Left(
        "kafka",
        "compat/test_java_clients_on_broker.py",
        "JVMs of its own",
        ("test_a_group_of_verifiable_consumers", "test_console_clients_and_offsets"),
    ),
    Left("kafka", "compat/test_meanwhile_on_kafka.py", "the same on a real Kafka"),
    Left("kafka", "compat/test_oauth_on_kafka.py", _OWN_KAFKA),
    Left("kafka", "compat/test_producer_on_kafka_cluster.py", _THREE),
    Left("kafka", "compat/test_security_on_kafka.py", _OWN_KAFKA),
    Left("kafka", "compat/test_transactions_on_kafka_cluster.py", _THREE),
    Left(
        "kafka",
        "compat/test_transactions_on_kafka.py",
        _OTHER_CASES,
        (
            "test_every_answer_is_kafkas[Kafka",
            *(
                f"test_{test}[embedded, version 1]"
                for test in (
                    "a_fenced_producer_that_goes_on_sending_writes_nothing",
                    "calls_out_of_order_are_refused",
                    "nothing_is_seen_before_the_commit",
                    "what_was_committed_is_read_and_what_was_aborted_is_not",
                    "worker_killed_repeatedly_writes_each_round_exactly_once",
                )
            ),
        ),
    ),
    Left("kafka", "compat/test_two_phase_on_kafka.py", _OWN_KAFKA),
    Left("kafka", "compat/test_ui_on_kafka.py", "the same on a real Kafka"),
    Left("kafka", "compat/test_verification_on_kafka.py", _OWN_KAFKA),
    Left(
        "matrix",
        "matrix/test_cut_connections.py",
        "the same on a real Kafka",
        ("test_cut_connections_lose_and_repeat_nothing[kafka]",),
    ),
    Left(
        "matrix",
        "matrix/test_matrix.py",
        _OTHER_CASES,
        (f"{_CELL}[kafka-",),
        (
            f"{_CELL}[kafka-SASL_PLAINTEXT-exactly_once_parallel",
            f"{_CELL}[kafka-SSL-exactly_once_atomic",
            f"{_CELL}[kafka-SSL-writeStream",
            f"{_CELL}[kafka-mTLS-send_columns",
        ),
    ),
    Left(
        "matrix",
        "matrix/test_matrix.py",
        _OTHER_CASES,
        tuple(
            f"{_CELL}[embedded-{cell}-"
            for cell in (
                "PLAINTEXT-exactly_once_atomic",
                "PLAINTEXT-exactly_once_parallel",
                "SASL_SSL-writeStream",
                "mTLS-exactly_once_parallel",
                "mTLS-writeStream",
            )
        ),
    ),
    Left(
        "spark",
        "spark/test_avro_write.py",
        _OTHER_CASES,
        ("test_rows_arrive_as_avro[write-atomic]",),
    ),
    Left(
        "spark",
        "spark/test_dead_letters.py",
        _OTHER_CASES,
        (
            "test_bad_rows_are_dead_letters_in_every_way[foreach_batch]",
            "test_too_many_bad_rows_leave_nothing[write-parallel]",
        ),
    ),
    Left(
        "spark",
        "spark/test_error_rows.py",
        _OTHER_CASES,
        tuple(
            f"test_row_is_raised_as_the_page_says[{error}-by_stream"
            for error in (
                *("ApiError", "BrokersUnreachableError", "FormatError", "InvalidRecordError", "InvalidTimestampError"),
                *("InvalidTopicError", "RegistryUnavailableError", "RowPartitionError", "RowTooLargeError"),
                *("RowWithoutKeyError", "SchemaError", "UnknownTopicOrPartitionError"),
            )
        ),
    ),
    Left("spark", "spark/test_format_cause.py", _OWN_SPARK),
    Left(
        "spark",
        "spark/test_format_lookup.py",
        _OWN_SPARK,
        ("test_register_spares_what_a_first_write_waits_for", "test_sessions_of_a_process_write"),
    ),
    Left("spark", "spark/test_jobs.py", _OWN_SPARK, ("test_ctrl_c_ends_foreach_batch", "test_sigterm_ends_after")),
    Left("spark", "spark/test_secrets.py", _OWN_SPARK),
    Left("spark", "spark/test_stop_of_programs.py", _OWN_SPARK),
    Left(
        "spark",
        "spark/test_stop.py",
        _OTHER_CASES,
        (
            "test_interrupted_write_ends_at_once[atomic]",
            "test_interrupted_write_ends_at_once[at-least-once]",
            "test_cancelled_write_is_not_tried_again[parallel",
            "test_cancelled_write_is_not_tried_again[at-least-once",
            "test_stop_within_a_batch_of_foreach_batch[atomic]",
        ),
    ),
    Left(
        "spark",
        "spark/test_stream_write.py",
        _OTHER_CASES,
        (
            "test_old_checkpoint_that_would_lose_rows_is_refused[parallel]",
            "test_a_checkpoint_one_batch_old_with_the_same_plan_goes_on[parallel]",
        ),
    ),
    Left(
        "long",
        "exploration/test_exploration.py",
        "the broken rules that are found last",
        tuple(
            f"{_BROKEN}[{rule}]"
            for rule in (
                "a committer believes its planner",
                "an operator may accept any batch",
                "an operator's command does not look again",
                "nothing is proven before aborts",
            )
        ),
    ),
    Left(
        "exploration",
        "exploration/test_exploration.py",
        "all states with two faults",
        tuple(
            f"test_no_interleaving_breaks_a_promise[{protocol}, 1 batches of 1 tasks; 1 drivers, at most 2 faults"
            for protocol in (
                "parallel, version 1, ordinary",
                "parallel, version 1, two-phase",
                "parallel, version 2, ordinary",
                "parallel, version 2, two-phase",
                "atomic, version 1, ordinary",
                "atomic, version 2, ordinary",
            )
        ),
    ),
    Left("long", "architecture/test_docs.py", "builds the site", ("test_the_site_has", "test_pages_of_the_site_fit")),
    Left("long", "bench/test_bench_refusals.py", _OWN_SPARK),
    Left(
        "long",
        "exactly_once/test_faults.py",
        _OTHER_CASES,
        (
            "test_an_unknown_error_is_never_taken_for_the_decision[version 1",
            "test_unconfirmed_batch_end_raises_and_next_driver_finishes[version 1",
        ),
    ),
    Left(
        "long",
        "exactly_once/test_lost_ends.py",
        _OTHER_CASES,
        (
            "test_driver_may_die_anywhere_while_it_writes_an_end_again[version 1",
            "test_the_proof_of_a_torn_batch_discards_no_decision[version 1",
        ),
    ),
    Left(
        "long",
        "exactly_once/test_others_open_and_late_decisions.py",
        _TIME_OUTS,
        ("test_batch_is_not_decided_after_its_time_out[version 1",),
    ),
    Left("long", "integration/test_broker_faults.py", _TIME_OUTS, ("test_lasting_fault_is_reported",)),
    Left(
        "long",
        "integration/test_cli_groups_txn.py",
        _OTHER_CASES,
        ("test_a_hanging_transaction_is_found_and_ended[version-1",),
    ),
    Left("long", "integration/test_demo.py", _OWN_SPARK, ("test_demo_stores_every_flight",)),
    Left(
        "long",
        "integration/test_package.py",
        "an environment of its own",
        ("test_installed_wheel_works", "test_public_names_need_what_is_required_alone"),
    ),
    Left("long", "integration/test_producer_faults.py", _TIME_OUTS, ("test_answer_that_never_comes",)),
    Left(
        "long",
        "integration/test_pytest_plugin.py",
        "an environment of its own",
        ("test_a_foreign", "test_scopes", "test_workers", "test_the_documentation", "test_a_project", "test_a_wrong"),
    ),
    Left("long", "integration/test_scripts.py", "a release for each refusal", ("test_release_is_refused",)),
    Left(
        "long",
        "integration/test_security.py",
        _OTHER_CASES,
        ("test_reauthentication_while_producing_loses_nothing[SASL_PLAINTEXT",),
    ),
    Left(
        "long",
        "integration/test_security_under_load.py",
        _OTHER_CASES,
        (
            "test_a_wrong_setting_fails_every_send_with_its_cause[tls-to-plaintext]",
            "test_a_wrong_setting_fails_every_send_with_its_cause[wrong-authority]",
            "test_a_wrong_setting_fails_every_send_with_its_cause[wrong-name]",
            "test_a_certificate_that_goes_wrong_under_load_says_so[wrong-authority]",
            "test_a_password_withdrawn_under_load_says_so[SASL_PLAINTEXT",
        ),
    ),
    Left(
        "long",
        "integration/test_ui_browser.py",
        _OTHER_CASES,
        ("test_pages_fit_narrow_and_wide_windows[400-dark]", "test_pages_fit_narrow_and_wide_windows[1300-light]"),
    ),
    Left("long", "unit/spark/test_lineage.py", _TIME_OUTS, ("test_it_is_off_by_itself",)),
)


def left_out(test: str) -> str | None:
    """Why this run leaves *test*, the name that pytest gives it, to a part; None if it does not."""
    if amounts.LONG:
        return None
    for left in LEFT:
        if left.has(test) and left.group not in _RUNS:
            return f"left to {_COMMANDS[left.group]} ({left.why})"
    return None


def table() -> str:
    """In Markdown, a row for each group and reason."""
    return "".join(_lines())


def _lines() -> Iterator[str]:
    yield "| left to | because of | tests of |\n| --- | --- | --- |\n"
    for group, command in _COMMANDS.items():
        for why in dict.fromkeys(left.why for left in LEFT if left.group == group):
            files = ", ".join(f"`{left.file}`" for left in LEFT if (left.group, left.why) == (group, why))
            yield f"| `{command}` (`{group}`) | {why} | {files} |\n"


if __name__ == "__main__":
    print_into(PAGE, NAME, table())
