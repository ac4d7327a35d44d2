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
        # The complete matrix also kills the leaders of a Kafka.
        "kafka": bool(CHOSEN or os.environ.get("KAFKALITE_KAFKA_VERSION")) or amounts.MATRIX == "full",
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
_TOOLS: Final = "Kafka's own tools"
_JVMS: Final = "JVMs of its own"
_OWN_SPARK: Final = "a Spark of its own"
_OTHER_CASES: Final = "more cases of a test"
_TIME_OUTS: Final = "waits for time-outs"

_CELL: Final = "test_matrix_cell_stores_every_byte_once"
_VERSION_1_OF_REPLACED: Final = (
    "test_batch_after_the_unknown_one_may_run_again[version 1",
    "test_batch_committed_before_is_written_once[version 1",
)
_BROKEN: Final = "test_exploration_notices_every_broken_rule"

LEFT: Final = (
    Left("kafka", "compat/test_acls_on_kafka.py", _OWN_KAFKA),
    Left("kafka", "compat/test_admin_on_kafka.py", _WAITS, ("test_a_topic_from_its_creation_to_its_end",)),
    Left(
        "kafka",
        "compat/test_admin_tools_on_broker.py",
        _TOOLS,
        ("test_printed_commands_are", "test_leaders_are_elected"),
    ),
    Left("kafka", "compat/test_cli_on_kafka.py", _TOOLS),
    Left("kafka", "compat/test_compaction_on_kafka.py", "waits for Kafka's cleaner"),
    Left(
        "kafka",
        "compat/test_differential.py",
        "compares each answer with Kafka's",
        ("test_the_same_bytes_get_the_same_answers",),
    ),
    Left(
        "kafka",
        "compat/test_exactly_once_on_kafka.py",
        _OTHER_CASES,
        ("test_exactly_once_survives_kills_and_freezes_on_kafka[atomic-version 2]",),
    ),
    Left(
        "kafka",
        "compat/test_exactly_once_on_kafka.py",
        _WAITS,
        ("test_partly_timed_out", "test_wholly_timed_out", "test_transactions_timed_out"),
    ),
    Left(
        "kafka",
        "compat/test_java_clients_on_broker.py",
        _JVMS,
        ("test_a_group_of_verifiable_consumers", "test_console_clients_and_offsets"),
    ),
    Left(
        "kafka",
        "compat/test_log_reader_on_kafka.py",
        _OTHER_CASES,
        tuple(f"test_every_codec_and_answers_smaller_than_the_data[{codec}]" for codec in ("gzip", "lz4", "snappy")),
    ),
    Left("kafka", "compat/test_log_reader_on_kafka.py", _WAITS, ("test_topic_deleted_while_followed",)),
    Left("kafka", "compat/test_meanwhile_on_kafka.py", "the same on a real Kafka"),
    Left("kafka", "compat/test_oauth_on_kafka.py", _OWN_KAFKA),
    Left("kafka", "compat/test_producer_on_kafka_cluster.py", _THREE),
    Left("kafka", "compat/test_public_spark_sinks.py", _JVMS, ("test_sparks_own_sink_takes",)),
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
            f"{_CELL}[kafka-SSL-exactly_once_atomic",
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
                "PLAINTEXT-send",
                "PLAINTEXT-send_columns",
                "PLAINTEXT-writeStream",
                "SASL_SSL-send",
                "SASL_SSL-send_columns",
                "SASL_SSL-writeStream",
                "mTLS-exactly_once_atomic",
                "mTLS-exactly_once_parallel",
                "mTLS-send",
                "mTLS-writeStream",
            )
        ),
    ),
    Left("matrix", "matrix/test_other_clients.py", _OTHER_CASES, ("test_consume_and_verify_read_over_tls",)),
    Left(
        "spark",
        "spark/test_avro_write.py",
        _OTHER_CASES,
        (
            "test_rows_arrive_as_avro[write-atomic]",
            "test_rows_arrive_as_avro[stream-exactly-once]",
            "test_row_that_does_not_fit",
        ),
    ),
    Left(
        "spark",
        "spark/test_batch_write.py",
        _OTHER_CASES,
        ("test_every_row_arrives_unchanged[lz4]", "test_every_row_arrives_unchanged[none]"),
    ),
    Left("spark", "spark/test_broker_crash.py", _TIME_OUTS),
    Left(
        "spark",
        "spark/test_check.py",
        _OTHER_CASES,
        ("test_derived_schemas_are_compared", "test_both_places[batch]", "test_both_places[plain]"),
    ),
    Left(
        "spark",
        "spark/test_dead_letters.py",
        _OTHER_CASES,
        (
            "test_bad_rows_are_dead_letters_in_every_way[df.write]",
            "test_bad_rows_are_dead_letters_in_every_way[foreach_batch]",
            "test_bad_rows_are_dead_letters_in_every_way[stream-exactly-once]",
            "test_bad_rows_are_dropped[df.write]",
            "test_too_many_bad_rows_leave_nothing[df.write-exactly-once]",
            "test_too_many_bad_rows_leave_nothing[write-parallel]",
        ),
    ),
    Left(
        "spark",
        "spark/test_error_rows.py",
        _OTHER_CASES,
        tuple(
            f"test_row_is_raised_as_the_page_says[{error}-{way}"
            for way, errors in {
                "by_stream": (
                    *("ApiError", "BrokersUnreachableError", "ConfigError", "FormatError", "InvalidRecordError"),
                    *("InvalidTimestampError", "InvalidTopicError", "KafkaTimeoutError", "RegistryUnavailableError"),
                    *("RowPartitionError", "RowTooLargeError", "RowWithoutKeyError", "SchemaError"),
                    *("TooManyBadRowsError", "UnknownTopicOrPartitionError", "UnresolvedReferenceError"),
                ),
                "by_write": (
                    *("ApiError", "BrokersUnreachableError", "FormatError", "InvalidRecordError"),
                    *("InvalidTimestampError", "InvalidTopicError", "KafkaTimeoutError", "RegistryUnavailableError"),
                    *("RowPartitionError", "RowSerializationError", "RowTooLargeError"),
                    *("UnknownTopicOrPartitionError", "UnresolvedReferenceError"),
                ),
                "by_format": ("RowWithoutKeyError", "TooManyBadRowsError"),
            }.items()
            for error in errors
        ),
    ),
    Left(
        "spark",
        "spark/test_errors.py",
        _OTHER_CASES,
        (
            "test_an_atomic_write_refuses",
            "test_partition_out_of_range",
            "test_unknown_topic",
            "test_unwritable_row_number_counts_over_the_whole_task[topic option-columns2",
        ),
    ),
    Left("spark", "spark/test_errors.py", _TIME_OUTS, ("test_an_exactly_once_write_that_cannot", "test_unreachable")),
    Left("spark", "spark/test_format_cause.py", _OWN_SPARK),
    Left(
        "spark",
        "spark/test_format_lookup.py",
        _OWN_SPARK,
        ("test_register_spares_what_a_first_write_waits_for", "test_sessions_of_a_process_write"),
    ),
    Left(
        "spark",
        "spark/test_format_lookup.py",
        _OTHER_CASES,
        ("test_df_write_finds_the_format_in_threads_at_once[Thread]",),
    ),
    Left("spark", "spark/test_jobs.py", _OWN_SPARK, ("test_ctrl_c_ends_foreach_batch", "test_sigterm_ends_after")),
    Left(
        "spark",
        "spark/test_json_settings.py",
        _OTHER_CASES,
        ("test_payloads_follow_the_settings[format", "test_texts_that_legacy_changes_are_refused[Africa"),
    ),
    Left("spark", "spark/test_json_write.py", _OTHER_CASES, ("test_values_are_those_of_to_json[by_transaction]",)),
    Left("spark", "spark/test_new_topic.py", _OTHER_CASES, ("test_topic_is_created[stream]",)),
    Left("spark", "spark/test_pages.py", "a million rows", ("test_example_of_a_page_runs[batch-1_000_000]",)),
    Left(
        "spark",
        "spark/test_progress_line.py",
        _OTHER_CASES,
        ("test_line_has_rows_of_tasks_that_have_ended[at-least-once]",),
    ),
    Left("spark", "spark/test_protobuf_write.py", _OTHER_CASES, ("test_rows_arrive_as_protobuf[write-atomic]",)),
    Left(
        "spark", "spark/test_registry_write.py", _OTHER_CASES, ("test_confluents_deserializer_reads_every_row[stream]",)
    ),
    Left("spark", "spark/test_secrets.py", _OWN_SPARK),
    Left("spark", "spark/test_stop_of_programs.py", _OWN_SPARK),
    Left(
        "spark",
        "spark/test_stop.py",
        _OTHER_CASES,
        (
            "test_interrupted_write_ends_at_once[atomic]",
            "test_interrupted_write_ends_at_once[at-least-once]",
            "test_cancelled_write_is_not_tried_again[atomic",
            "test_cancelled_write_is_not_tried_again[parallel",
            "test_cancelled_write_is_not_tried_again[at-least-once",
            "test_stop_within_a_batch_of_foreach_batch",
        ),
    ),
    Left(
        "spark",
        "spark/test_stream_write.py",
        _OTHER_CASES,
        (
            "test_old_checkpoint_that_would_lose_rows_is_refused[parallel]",
            "test_a_checkpoint_one_batch_old_with_the_same_plan_goes_on[parallel]",
            "test_an_atomic_batch_starts_no_tasks_in_vain[cores]",
            "test_an_atomic_write_whose_task_fails_leaves_nothing",
            "test_failed_shuffle_of_an_atomic_write_is_tried_again",
            "test_one_app_id_twice_within_a_batch_is_refused",
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
                "parallel, version 2, ordinary",
                "parallel, version 2, two-phase",
                "atomic, version 2, ordinary",
            )
        ),
    ),
    Left(
        "exploration",
        "exploration/test_exploration.py",
        _OTHER_CASES,
        tuple(f"test_no_interleaving_breaks_a_promise[{protocol}, version 1" for protocol in ("parallel", "atomic")),
    ),
    Left("long", "architecture/test_docs.py", "builds the site", ("test_the_site_has", "test_pages_of_the_site_fit")),
    Left("long", "bench/test_bench_refusals.py", _OWN_SPARK),
    Left(
        "long",
        "bench/test_bench_scale.py",
        _OTHER_CASES,
        ("test_a_parallel_batch_in_memory_is_the_models", "test_the_benchmark_runs"),
    ),
    Left(
        "long",
        "exactly_once/test_advice.py",
        _OTHER_CASES,
        ("test_interrupted_repair_is_accepted_as_it_is[True",),
    ),
    Left(
        "long",
        "exactly_once/test_faults.py",
        _OTHER_CASES,
        (
            "test_an_unknown_error_is_never_taken_for_the_decision[version 1",
            "test_passing_faults_change_nothing[version 1",
            "test_unconfirmed_batch_end_raises_and_next_driver_finishes[version 1",
        ),
    ),
    Left(
        "long",
        "exactly_once/test_identities.py",
        _OTHER_CASES,
        ("test_drivers_and_reused_ids_pass_the_last_epoch[5",),
    ),
    Left(
        "long",
        "exactly_once/test_lives.py",
        _OTHER_CASES,
        ("test_drivers_that_end_at_one_point_lose_and_repeat_nothing[killed",),
    ),
    Left(
        "long",
        "exactly_once/test_lost_ends.py",
        _OTHER_CASES,
        (
            "test_driver_may_die_anywhere_while_it_writes_an_end_again[version 1",
            "test_driver_may_die_anywhere_while_it_writes_an_end_again[version 2-aborted-atomic",
            "test_lost_abort_is_not_turned_into_a_commit[version 1",
            "test_lost_commit_is_written_again_before_anything_else[version 1",
            "test_the_proof_of_a_torn_batch_discards_no_decision[version 1",
        ),
    ),
    Left(
        "long",
        "exactly_once/test_many_sinks.py",
        "many sinks, one after another",
        ("test_many_sinks_one_after_another",),
    ),
    Left(
        "long",
        "exactly_once/test_meanwhile.py",
        _OTHER_CASES,
        tuple(
            f"test_revoked_permission_is_named_and_granting_it_is_enough[{moment}"
            for moment in ("atomic-half written", "atomic-written", "parallel-half written", "parallel-written")
        ),
    ),
    Left(
        "long",
        "exactly_once/test_others_open_and_late_decisions.py",
        _TIME_OUTS,
        ("test_batch_is_not_decided_after_its_time_out[version 1",),
    ),
    Left("long", "exactly_once/test_replaced_coordinators.py", _OTHER_CASES, _VERSION_1_OF_REPLACED),
    Left(
        "long",
        "exactly_once/test_two_phase.py",
        _OTHER_CASES,
        (
            "test_decided_batch_waits_for_its_driver[version 1",
            "test_undecided_is_ended_by_the_next_driver_or_by_hand[version 1",
        ),
    ),
    Left("long", "exploration/test_exploration.py", _OTHER_CASES, ("test_random_walks_beyond_the_bound",)),
    Left(
        "long",
        "exploration/test_schedules.py",
        "the broken rules that are found last",
        ("test_schedules_notice_a_broken_rule[_open_before]",),
    ),
    Left("long", "hostile/test_answers.py", "measures memory", ("test_an_answer_takes_no_more_than_is_estimated",)),
    Left("long", "integration/test_broker_faults.py", _TIME_OUTS, ("test_lasting_fault_is_reported",)),
    Left(
        "long",
        "integration/test_broker_faults.py",
        _OTHER_CASES,
        tuple(f"test_librdkafka_survives[{fault}]" for fault in ("closed-half-way", "no-producer-id", "slow", "twice")),
    ),
    Left(
        "long",
        "integration/test_broker_hostile.py",
        _OTHER_CASES,
        tuple(f"test_a_decompression_bomb_is_refused_and_takes_little_memory[{number}]" for number in (2, 3, 4)),
    ),
    Left(
        "long",
        "integration/test_cli.py",
        _TIME_OUTS,
        ("test_ctrl_c_ends_every_command", "test_the_time_out_bounds_produce"),
    ),
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
        ("test_installed_wheel_works", "test_public_names_need_what_is_required_alone", "test_wheel_and_sdist_hold"),
    ),
    Left(
        "long",
        "integration/test_producer_at_exit.py",
        _OTHER_CASES,
        ("test_interrupt_at_any_moment_leaves_no_doubt_and_never_hangs[forever]",),
    ),
    Left("long", "integration/test_producer_broker_process.py", _TIME_OUTS, ("test_pauses_of_the_broker",)),
    Left("long", "integration/test_producer_faults.py", _TIME_OUTS, ("test_answer_that_never_comes",)),
    Left("long", "integration/test_producer_on_librdkafka_mock.py", _TIME_OUTS, ("test_a_slow_broker_is_waited_for",)),
    Left(
        "long",
        "integration/test_producer_signals.py",
        _OTHER_CASES,
        ("test_signals_at_any_moment_corrupt_and_hang_nothing[sends]",),
    ),
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
            "test_a_wrong_setting_fails_every_send_with_its_cause[plaintext-to-tls]",
            "test_a_wrong_setting_fails_every_send_with_its_cause[tls-to-plaintext]",
            "test_a_wrong_setting_fails_every_send_with_its_cause[wrong-authority]",
            "test_a_wrong_setting_fails_every_send_with_its_cause[wrong-name]",
            "test_a_certificate_that_goes_wrong_under_load_says_so[wrong-authority]",
            "test_a_password_withdrawn_under_load_says_so[SASL_PLAINTEXT",
        ),
    ),
    Left(
        "long",
        "integration/test_tls_load.py",
        _OTHER_CASES,
        ("test_a_load_over_tls_arrives_whole_and_in_order[SASL_SSL]",),
    ),
    Left(
        "long",
        "integration/test_transactions.py",
        _OTHER_CASES,
        ("test_librdkafka_moves_records_exactly_once[1 node, version 1]",),
    ),
    Left(
        "long",
        "integration/test_ui_browser.py",
        _OTHER_CASES,
        ("test_pages_fit_narrow_and_wide_windows[400-dark]", "test_pages_fit_narrow_and_wide_windows[1300-light]"),
    ),
    Left("long", "integration/test_verify.py", "measures memory", ("test_memory_for_many_rows",)),
    Left(
        "long",
        "sim/test_simulation.py",
        _OTHER_CASES,
        ("test_a_seed_replays_exactly_in_another_process[--sim-runs 1 --transactions]",),
    ),
    Left(
        "long",
        "sim/test_simulation.py",
        "the broken rules that are found last",
        tuple(
            f"test_simulation_catches_every_broken_rule[{rule}]"
            for rule in (
                "a new epoch goes on with the old sequences",
                "markers are tried only once",
                "offsets of aborted transactions count",
            )
        ),
    ),
    Left(
        "long",
        "unit/formats/test_json_schema.py",
        _OTHER_CASES,
        tuple(
            f"test_any_value_of_any_keyword_is_refused_or_compared[{draft}]"
            for draft in ("2019-09", "draft-04", "draft-07")
        ),
    ),
    Left("long", "unit/spark/test_lineage.py", _TIME_OUTS, ("test_it_is_off_by_itself",)),
    Left(
        "long",
        "unit/spark/test_worker_process.py",
        _OWN_SPARK,
        ("test_a_failed_task_leaves_the_process_tuned", "test_the_connection_to_the_jvm_has_no_delay"),
    ),
    Left(
        "long",
        "unit/testing/test_judges.py",
        "takes as long as it may",
        ("test_records_of_5000_columns", "test_schemas_that_take_too_long"),
    ),
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
            files = dict.fromkeys(f"`{left.file}`" for left in LEFT if (left.group, left.why) == (group, why))
            yield f"| `{command}` (`{group}`) | {why} | {', '.join(files)} |\n"


if __name__ == "__main__":
    print_into(PAGE, NAME, table())
