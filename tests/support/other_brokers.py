"""Brokers that are not Apache Kafka, for ``scripts/test.sh --broker NAME``: tests/compat then asks them what it asks a
real Kafka. They are built from source once, into .work/brokers, by the toolchain of their language."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.ports import free_ports

ROOT = Path(__file__).parents[2]
BUILT = ROOT / ".work" / "brokers"
BUILD_TIMEOUT_S = 3600
START_TIMEOUT_S = 60

#: The chosen broker; empty for Apache Kafka.
CHOSEN = os.environ.get("KAFKALITE_BROKER", "")


@dataclass(frozen=True)
class OtherBroker:
    """How it is *built* into a folder by *toolchain*, and the command that *runs* it there with its first port. *nodes*
    listen on that port and the next ones."""

    toolchain: str
    built: Callable[[Path], Sequence[str]]
    runs: Callable[[Path, int], Sequence[str]]
    nodes: int
    #: Where *built* is run.
    source: Path = ROOT


BROKERS = {
    "kfake": OtherBroker(
        "go",
        lambda folder: ["go", "build", "-o", str(folder / "kfake"), "."],
        lambda folder, port: [str(folder / "kfake"), str(port)],
        nodes=3,
        source=ROOT / "tests" / "brokers" / "kfake",
    ),
    "tansu": OtherBroker(
        "cargo",
        lambda folder: [
            *("cargo", "install", "tansu", "--version", "0.6.0", "--locked", "--features", "libsql"),
            *("--root", str(folder)),
        ],
        lambda folder, port: [
            *(str(folder / "bin" / "tansu"), "broker", "--storage-engine=sqlite://tansu.db"),
            *(f"--{listener}=tcp://127.0.0.1:{port}" for listener in ("listener-url", "advertised-listener-url")),
        ],
        nodes=1,
    ),
}


@contextlib.contextmanager
def running_other_broker(directory: Path) -> Iterator[str]:
    """The chosen broker, started in *directory*; its addresses."""
    broker, folder = BROKERS[CHOSEN], BUILT / CHOSEN
    if shutil.which(broker.toolchain) is None:
        pytest.fail(f"{CHOSEN} is built with {broker.toolchain}, which is not installed here", pytrace=False)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(broker.built(folder), cwd=broker.source, check=True, timeout=BUILD_TIMEOUT_S)
    port = free_ports(broker.nodes)
    with (directory / "broker.log").open("wb") as log:
        process = subprocess.Popen(broker.runs(folder, port), cwd=directory, stdout=log, stderr=log)
    try:
        _await_port(port, process)
        yield ",".join(f"127.0.0.1:{port + node}" for node in range(broker.nodes))
    finally:
        process.terminate()
        process.wait(START_TIMEOUT_S)


#: Tests of this folder that a broker fails, by the beginnings of their names, each with the reason.
LACKS: dict[str, dict[str, str]] = {
    "kfake": {
        "test_a_topic_from_its_creation_to_its_end": "Metadata names another replica than CreateTopics was given",
        "test_invalid_admin_requests_raise_kafkas_errors": "CreateTopics accepts every name",
        "test_transactions_of_others_are_shown_and_ended": "EndTxn from another connection is refused",
        "test_a_hanging_transaction_is_found_and_ended": "brokers answer for partitions of one another",
        "test_the_same_bytes_get_the_same_answers": "it does not answer as Kafka in all details",
        "test_only_the_known_apis_are_not_served": "it serves other APIs than Kafka",
        "test_groups_are_answered_as_kafka_does": "it does not answer as Kafka in all details",
        "test_every_answer_is_kafkas": "it does not answer as Kafka in all details",
        "test_one_broker_answers": "it has three brokers",
        "test_batches_over_the_topics_limit": "it refuses epochs that an idempotent producer begins (KIP-360)",
        "test_partly_timed_out_decided_batch": "it does not abort transactions that time out",
        "test_wholly_timed_out_decided_batch": "it does not abort transactions that time out",
        "test_transactions_timed_out_before_decision": "it does not abort transactions that time out",
        "test_kafkas_own_tool_finds_transactional_batches": "it keeps no log on disk",
        "test_worker_killed_repeatedly": "OffsetFetch of a group without offsets is an error for the test's reader",
        "test_the_same_batches_are_left_as_in_kafka": "it does not compact logs",
        "test_consumer_groups_are_answered_as_kafka_does": "it does not answer as Kafka in all details",
        "test_records_that_kafka_stores_although_they_are_damaged": "it does not check compressed records",
        **dict.fromkeys(
            (f"test_what_the_settings_refuse_is_what_the_brokers_refuse[row{row}-" for row in (1, 3, 5)),
            "it checks neither keys nor timestamps of records",
        ),
    },
    "tansu": {
        **dict.fromkeys(
            (
                "test_every_answer_is_kafkas",
                "test_what_was_committed_is_read",
                "test_nothing_is_seen_before_the_commit",
                "test_kafkas_own_tool_finds_transactional_batches",
                "test_offsets_are_committed_with_the_transaction",
                "test_a_member_that_the_group_does_not_know",
                "test_a_second_producer_fences_the_first",
                "test_a_fenced_producer_that_goes_on_sending",
                "test_librdkafka_and_we_fence_each_other",
                "test_calls_out_of_order_are_refused",
                "test_a_time_out_above_the_brokers_limit",
                "test_closing_aborts_the_open_transaction",
                "test_worker_killed_repeatedly",
                "test_read_committed_skips_aborted",
                "test_a_transaction_of_one_producer",
            ),
            "it has no EndTxn",
        ),
        **dict.fromkeys(
            (
                "test_exactly_once_survives",
                "test_partly_timed_out_decided_batch",
                "test_wholly_timed_out_decided_batch",
                "test_transactions_timed_out_before_decision",
                "test_transactions_of_others_are_shown_and_ended",
                "test_a_hanging_transaction_is_found",
                "test_a_broker_that_verifies_is_written_to",
                "test_killed_spark_is_exact",
                "test_pages_show_a_real_kafka",
                "test_brokers_without_two_phase_commit",
                "test_topic_grows_and_is_made_again_on_kafka[atomic]",
                "test_topic_grows_and_is_made_again_on_kafka[parallel]",
                "test_thousand_tasks_fit_into_one_partition_of_kafka",
            ),
            "it has no ListTransactions, so exactly once is refused",
        ),
        **dict.fromkeys(
            (
                "test_groups_are_answered_as_kafka_does",
                "test_the_same_bytes_get_the_same_answers",
                "test_only_the_known_apis_are_not_served",
                "test_invalid_admin_requests_raise_kafkas_errors",
                "test_groups_are_shown_reset_and_deleted",
            ),
            "it does not answer as Kafka in all details",
        ),
        "test_batches_over_the_topics_limit": "it accepts batches over max.message.bytes",
        **dict.fromkeys(
            (
                "test_every_codec_and_answers_smaller_than_the_data[snappy]",
                "test_columns_arrive_unchanged_and_kafka_finds_batches_valid[snappy]",
            ),
            "it refuses snappy, and then closes every connection",
        ),
        "test_deleted_records_are_not_there_any_more": "it does not delete records",
        "test_the_same_batches_are_left_as_in_kafka": "it does not compact logs",
        "test_consumer_groups_are_answered_as_kafka_does": "it closes the connection at ConsumerGroupHeartbeat",
        "test_records_that_kafka_stores_although_they_are_damaged": "it does not check compressed records",
        **dict.fromkeys(
            (f"test_what_the_settings_refuse_is_what_the_brokers_refuse[row{row}-" for row in (1, 3, 5, 7, 9, 10)),
            "it checks neither keys, timestamps nor sizes of records",
        ),
        "test_an_unknown_topic_is_not_made": "it closes the connection",
    },
}


def lack_of(test: str) -> str | None:
    """Why the chosen broker fails *test*; None if it does not."""
    lacks = LACKS.get(CHOSEN, {})
    return next((reason for name, reason in lacks.items() if test.startswith(name)), None)


def _await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    pytest.fail(f"{CHOSEN} did not start; its exit code is {process.poll()}", pytrace=False)
