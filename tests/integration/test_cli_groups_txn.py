"""``kafkalite groups`` and ``kafkalite txn`` on the embedded broker."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator

import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.cli.main import run
from kafka_sink.client.blocking.group_admin import GroupAdmin
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.model import Progress
from tests.exactly_once.world import PARTITIONS, QUERY, World
from tests.support.cli_scenarios import (
    CommandLine,
    a_transaction_that_hangs,
    groups_from_birth_to_end,
    transactions_of_others,
)


@pytest.fixture(scope="module", params=[1, 2], ids=["version-1", "version-2"])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=3, config=BrokerConfig(transaction_version=request.param)) as running:
        yield running


@pytest.mark.behaviour(
    "Groups and transactions from the command line", "Groups are shown, reset and deleted on the embedded broker"
)
def test_groups_are_shown_reset_and_deleted(cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    groups_from_birth_to_end(CommandLine(cluster.bootstrap_servers, capsys))


@pytest.mark.behaviour(
    "Groups and transactions from the command line",
    "Transactions are shown, aborted and committed on the embedded broker",
)
def test_transactions_of_others_are_shown_and_ended(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    transactions_of_others(CommandLine(cluster.bootstrap_servers, capsys))


@pytest.mark.behaviour(
    "Groups and transactions from the command line", "A hanging transaction is found and ended on the embedded broker"
)
def test_a_hanging_transaction_is_found_and_ended(cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    a_transaction_that_hangs(CommandLine(cluster.bootstrap_servers, capsys))


@pytest.mark.behaviour(
    "Groups and transactions from the command line", "A sink's progress is shown as its last batch and never reset"
)
def test_progress_of_a_sink_is_no_lag_and_is_not_reset(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    kafkalite = CommandLine(cluster.bootstrap_servers, capsys)
    topic = f"sink-{os.urandom(4).hex()}"
    cluster.create_topic(topic, partitions=PARTITIONS)
    world = World(cluster.bootstrap_servers, topic)
    plan = world.parallel.plan()
    world.steps.decide(plan, Progress(7, QUERY, plan.transaction_version, 1_700_000_000, ()))
    (group,) = (each["group"] for each in kafkalite.json("groups", "list") if topic in each["group"])
    (described,) = kafkalite.json("groups", "describe", group)
    (sink,) = described["sinks"]
    assert sink.pop("age_s") > 0
    assert sink == {"topic": topic, "last_batch": 6, "writer": QUERY, "decided_s": 1_700_000_000}
    assert [(each["offset"], each["lag"]) for each in described["partitions"]] == [(7, None)]
    shown = " ".join(kafkalite("groups", "describe", group).split())
    assert f"{group} is an exactly-once sink: batch 6 of {topic} was committed" in shown
    refused = kafkalite("groups", "reset-offsets", group, "--to-earliest", fails=True)
    assert "is the progress of an exactly-once sink, whose last batch is 6" in refused
    world.client.close()


@pytest.mark.behaviour("Exactly once: neighbours", "The command line does not abort what a sink has decided")
def test_txn_command_follows_the_decision_of_the_sink(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    kafkalite = CommandLine(cluster.bootstrap_servers, capsys)
    topic = f"sink-{os.urandom(4).hex()}"
    cluster.create_topic(topic, partitions=PARTITIONS)
    world = World(cluster.bootstrap_servers, topic)
    plan = world.parallel.plan()
    decided, loser = (world.write_task(plan, 0, row).transaction for row in (b"row", b"copy"))
    for name in (decided, loser):
        said = kafkalite("txn", "commit", name.transactional_id, fails=True)
        assert "belongs to a sink that has not decided to commit it" in said
    world.steps.decide(plan, Progress(1, QUERY, plan.transaction_version, 0, (decided,)))
    said = kafkalite("txn", "abort", decided.transactional_id, fails=True)
    assert "belongs to a batch that its sink has decided to commit" in said
    assert "has not decided" in kafkalite("txn", "commit", loser.transactional_id, fails=True)
    assert kafkalite("txn", "commit", decided.transactional_id) == f"committed {decided.transactional_id}\n"
    assert kafkalite("txn", "abort", loser.transactional_id) == f"aborted {loser.transactional_id}\n"
    assert world.committed() == [b"row"]
    world.client.close()


@pytest.mark.behaviour(
    "Exactly once: neighbours", "The command line aborts nothing of a batch that its sink is deciding, but the decision"
)
def test_txn_abort_ends_a_decision_before_its_transactions(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    kafkalite = CommandLine(cluster.bootstrap_servers, capsys)
    topic = f"sink-{os.urandom(4).hex()}"
    cluster.create_topic(topic, partitions=PARTITIONS)
    world = World(cluster.bootstrap_servers, topic)
    plan = world.parallel.plan()
    written = world.write_task(plan, 0, b"row").transaction
    world.client.run(world.steps.propose(plan, Progress(1, QUERY, plan.transaction_version, 0, (written,))))
    said = kafkalite("txn", "abort", written.transactional_id, fails=True)
    assert f"first abort the transaction of the sink's driver, {plan.driver.transactional_id}" in said
    said = kafkalite("txn", "abort", "--prefix", f"{plan.sink}.")
    assert said == f"aborted {plan.driver.transactional_id}\naborted {written.transactional_id}\n"
    assert world.committed() == []
    world.client.close()


@pytest.mark.parametrize("command", ["delete asked", "delete asked --topic TOPIC", "reset-offsets asked --to-earliest"])
def test_offsets_stay_until_the_answer_is_yes(
    cluster: EmbeddedCluster, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = f"asked-{command[:6].strip()}-{len(command)}"
    cluster.create_topic(topic, 1)
    place = {TopicPartition(topic, 0): 0}
    with GroupAdmin(cluster.bootstrap_servers) as admin:
        admin.set_offsets("asked", place)
        monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
        words = [*command.replace("TOPIC", topic).split(), "--bootstrap-server", cluster.bootstrap_servers]
        assert run(["groups", *words]) == 130
        assert "nothing was changed; --yes answers the question" in capsys.readouterr().err
        assert admin.committed("asked")[TopicPartition(topic, 0)].offset == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["groups", "reset-offsets", "g"], "Give one of --to-earliest, --to-latest and --to-offset."),
        (["groups", "reset-offsets", "g", "--to-latest", "--to-offset", "3"], "Give one of"),
        (["groups", "reset-offsets", "g", "--to-latest", "--partition", "3"], "needs exactly one --topic"),
        (["groups", "reset-offsets", "g", "--to-latest"], "has no committed offsets: give --topic"),
        (["txn", "abort"], "Give transactional ids, or --prefix."),
        (["txn", "hanging", "orders", "--abort-at", "7"], "give its number after the topic"),
        (["txn", "commit", "a", "--prefix", "b"], "not both"),
        (["group", "list"], "did you mean groups?"),
    ],
)
def test_wrong_usage_says_what_to_write(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert run([*arguments, "--bootstrap-server", cluster.bootstrap_servers]) == 2
    assert words in capsys.readouterr().err
