"""``kafkalite groups`` and ``kafkalite txn`` on a real Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.cli_scenarios import (
    CommandLine,
    a_transaction_that_hangs,
    groups_from_birth_to_end,
    transactions_of_others,
)

if TYPE_CHECKING:
    from tests.support.real_kafka import RealKafka


@pytest.mark.behaviour(
    "Groups and transactions from the command line", "Groups are shown, reset and deleted on a real Kafka"
)
def test_groups_are_shown_reset_and_deleted(real_kafka: RealKafka, capsys: pytest.CaptureFixture[str]) -> None:
    groups_from_birth_to_end(CommandLine(real_kafka.bootstrap_servers, capsys))


@pytest.mark.behaviour(
    "Groups and transactions from the command line", "Transactions are shown, aborted and committed on a real Kafka"
)
def test_transactions_of_others_are_shown_and_ended(real_kafka: RealKafka, capsys: pytest.CaptureFixture[str]) -> None:
    transactions_of_others(CommandLine(real_kafka.bootstrap_servers, capsys))


@pytest.mark.behaviour(
    "Groups and transactions from the command line", "A hanging transaction is found and ended on a real Kafka"
)
def test_a_hanging_transaction_is_found_and_ended(real_kafka: RealKafka, capsys: pytest.CaptureFixture[str]) -> None:
    a_transaction_that_hangs(CommandLine(real_kafka.bootstrap_servers, capsys))
