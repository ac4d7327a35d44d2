"""``kafkalite acls`` on the embedded broker."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.broker.config import AUTHORIZER, BrokerConfig
from kafka_sink.cli.main import run
from kafka_sink.cli.output import EXIT_INTERRUPTED, EXIT_USAGE
from kafka_sink.common.acl import AclBindingFilter
from tests.support.cli_scenarios import CommandLine

ALICE = ("--allow-principal", "User:alice")


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedCluster]:
    config = BrokerConfig(authorizer_class_name=AUTHORIZER, super_users="User:ANONYMOUS")
    with EmbeddedCluster(config=config) as running:
        yield running


@pytest.fixture
def cluster(guarded: EmbeddedCluster) -> EmbeddedCluster:
    guarded.delete_acls(AclBindingFilter())
    return guarded


@pytest.fixture
def kafkalite(cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(cluster.bootstrap_servers, capsys)


@pytest.mark.behaviour("ACLs", "'kafkalite acls' adds, lists and removes ACLs, and shows them before it asks")
def test_acls_are_added_listed_and_removed(
    cluster: EmbeddedCluster, kafkalite: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    added = kafkalite("acls", "add", *ALICE, "--operation", "DescribeConfigs", "--topic", "t")
    assert "User:alice * ALLOW DESCRIBE_CONFIGS TOPIC t LITERAL" in " ".join(added.split())
    assert added.endswith("added 1 ACL\n")
    again = kafkalite("acls", "add", *ALICE, "--operation", "describe_configs", "--topic", "t", "--yes")
    assert again == "nothing to add: 1 ACL existed already\n"
    more = kafkalite(
        "acls", "add", *ALICE, "--operation", "Read", "--operation", "DescribeConfigs", "--topic", "t", "--yes"
    )
    assert more.endswith("added 1 ACL, 1 existed already\n")
    kafkalite(
        "acls", "add", "--deny-principal", "User:bob", "--group", "g", "--resource-pattern-type", "prefixed", "--yes"
    )
    assert kafkalite.json("acls", "list", "--principal", "User:bob") == [
        {
            "principal": "User:bob",
            "host": "*",
            "permission": "DENY",
            "operation": "ALL",
            "resource": "GROUP",
            "name": "g",
            "pattern": "PREFIXED",
        }
    ]
    assert len(kafkalite.json("acls", "list")) == 3
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    removed = kafkalite("acls", "remove", *ALICE, "--operation", "Read", "--topic", "t")
    assert "READ" in removed and "DESCRIBE_CONFIGS" not in removed and removed.endswith("removed 1 ACL\n")
    assert len(cluster.describe_acls()) == 2


def test_what_applies_to_a_resource_is_listed_and_removed(cluster: EmbeddedCluster, kafkalite: CommandLine) -> None:
    kafkalite("acls", "add", *ALICE, "--topic", "orders", "--topic", "other", "--yes")
    kafkalite("acls", "add", *ALICE, "--topic", "ord", "--resource-pattern-type", "prefixed", "--yes")
    applying = ("--topic", "orders", "--resource-pattern-type", "match")
    assert [each["name"] for each in kafkalite.json("acls", "list", *applying)] == ["ord", "orders"]
    assert [each["name"] for each in kafkalite.json("acls", "list", "--topic", "orders")] == ["orders"]
    kafkalite("acls", "remove", *applying, "--yes")
    assert [acl.resource_name for acl in cluster.describe_acls()] == ["other"]
    assert kafkalite("acls", "remove", *applying, "--yes") == "nothing to remove: no ACL matches\n"


@pytest.mark.behaviour("ACLs", "Without a yes, 'kafkalite acls' changes nothing, and says so")
@pytest.mark.parametrize("answer", ["n\n", ""])
def test_nothing_is_changed_without_a_yes(
    answer: str, cluster: EmbeddedCluster, kafkalite: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafkalite("acls", "add", *ALICE, "--topic", "t", "--yes")
    before = cluster.describe_acls()
    for command in (("add", "--topic", "new"), ("remove", "--topic", "t")):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        arguments = ["acls", *command, *ALICE, "--bootstrap-server", cluster.bootstrap_servers]
        assert run(arguments) == EXIT_INTERRUPTED
    assert cluster.describe_acls() == before


def test_everything_is_not_removed_by_mistake(cluster: EmbeddedCluster, kafkalite: CommandLine) -> None:
    kafkalite("acls", "add", *ALICE, "--topic", "t", "--yes")
    for given in ((), ALICE, ("--topic", "t", "--operation", "Read")):
        arguments = ["acls", "remove", *given, "--yes", "--bootstrap-server", cluster.bootstrap_servers]
        assert run(arguments) == EXIT_USAGE
    assert len(cluster.describe_acls()) == 1


def test_wrong_values_name_the_option_and_the_value(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ("--bootstrap-server", cluster.bootstrap_servers)
    for given, error in (
        (("--allow-principal", "alice"), "'--allow-principal': 'alice' is not TYPE:NAME, such as User:alice"),
        ((*ALICE, "--operation", "Red"), "'--operation': 'Red' is not an operation; expected one of ALL, READ"),
    ):
        assert run(["acls", "add", *given, "--topic", "t", *server]) == EXIT_USAGE
        assert error in capsys.readouterr().err


def test_a_cluster_without_authorizer_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedCluster() as cluster:
        error = CommandLine(cluster.bootstrap_servers, capsys)("acls", "list", fails=True)
    assert "SECURITY_DISABLED: the ACLs: no authorizer is configured" in error
