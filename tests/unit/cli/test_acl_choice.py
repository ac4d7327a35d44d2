"""What the options of ``kafkalite acls`` stand for."""

from __future__ import annotations

from typing import Any

import click
import pytest

from kafka_sink.cli.commands.acls import Choice, Principals, Resources, Roles
from kafka_sink.common.acl import AclBindingFilter, AclOperation, PatternType, ResourceType
from tests.support.cases import with_each

ALICE = Principals(("User:alice",))
TOPIC = Resources(("t",))


def choice(resources: Resources = TOPIC, principals: Principals = ALICE, *operations: str, **roles: Any) -> Choice:
    return Choice(resources, principals, tuple(AclOperation[name] for name in operations), Roles(**roles))


def texts(given: Choice) -> list[str]:
    return [
        f"{acl.principal} {acl.host} {acl.permission_type.name} {acl.operation.name} {acl.resource_type.name} "
        f"{acl.pattern_type.name} {acl.resource_name}"
        for acl in given.acls()
    ]


def test_without_an_operation_it_is_all() -> None:
    assert texts(choice()) == ["User:alice * ALLOW ALL TOPIC LITERAL t"]


def test_each_principal_host_operation_and_resource_meet() -> None:
    principals = Principals(("User:a", "User:b"), ("User:c",), ("h1", "h2"))
    resources = Resources(("t",), ("g",), pattern_type=PatternType.PREFIXED)
    found = texts(choice(resources, principals, "READ", "DESCRIBE"))
    assert len(found) == len(set(found)) == (2 * 2 + 1) * 2 * 2
    assert "User:b h2 ALLOW DESCRIBE GROUP PREFIXED g" in found
    assert "User:c * DENY READ TOPIC PREFIXED t" in found


def test_the_cluster_is_literal_whatever_the_names_are() -> None:
    resources = Resources(cluster=True, pattern_type=PatternType.PREFIXED)
    assert texts(choice(resources)) == ["User:alice * ALLOW ALL CLUSTER LITERAL kafka-cluster"]


def test_producer_and_consumer_are_those_of_kafka_acls() -> None:
    resources = Resources(("t",), ("g",), ("i",))
    found = [text.removeprefix("User:alice * ALLOW ") for text in texts(choice(resources, producer=True))]
    assert sorted(found) == [
        "CREATE TOPIC LITERAL t",
        "DESCRIBE TOPIC LITERAL t",
        "DESCRIBE TRANSACTIONAL_ID LITERAL i",
        "WRITE TOPIC LITERAL t",
        "WRITE TRANSACTIONAL_ID LITERAL i",
    ]
    both = texts(choice(resources, producer=True, consumer=True))
    assert len(both) == len(set(both)) == 7
    assert "User:alice * ALLOW READ GROUP LITERAL g" in both


def test_progress_topic_needs_only_to_be_read() -> None:
    given = choice(Resources(("a", "b")), exactly_once="sink", progress_topic="p")
    found = [text.removeprefix("User:alice * ALLOW ") for text in texts(given)]
    assert found == [
        "WRITE TOPIC LITERAL a",
        "WRITE TOPIC LITERAL b",
        "READ TOPIC LITERAL p",
        "WRITE TRANSACTIONAL_ID PREFIXED sink",
        "READ GROUP LITERAL sink",
    ]


def test_resources_alone_select_all_of_their_acls() -> None:
    given = choice(Resources(("t",), pattern_type=PatternType.MATCH), Principals())
    assert given.filters() == [
        AclBindingFilter(resource_type=ResourceType.TOPIC, resource_name="t", pattern_type=PatternType.MATCH)
    ]


@with_each(
    ("given", "error"),
    [
        (choice(Resources()), "Give a resource"),
        (choice(TOPIC, Principals()), "Give --allow-principal or --deny-principal"),
        (choice(TOPIC, ALICE, "CLUSTER_ACTION"), "CLUSTER_ACTION does not exist for TOPIC; it has ALL, READ"),
        (choice(TOPIC, ALICE, "READ", producer=True), "without options that stand for operations"),
        (choice(TOPIC, Principals(denied=("User:a",)), producer=True), "without options that stand for operations"),
        (choice(Resources(groups=("g",)), producer=True), "--producer needs --topic"),
        (choice(consumer=True), "--consumer needs --group"),
        (choice(at_least_once=True, exactly_once="s"), "Give one of --at-least-once and --exactly-once"),
        (choice(at_least_once=True, producer=True), "Give one of --producer and --at-least-once"),
        (choice(Resources(("t",), ("g",)), exactly_once="s"), "--exactly-once knows the resources of a sink"),
        (choice(Resources(("t",), pattern_type=PatternType.PREFIXED), at_least_once=True), "knows the resources"),
        (choice(producer=True, create_topics=True), "--create-topics belongs to"),
        (choice(at_least_once=True, progress_topic="p"), "--progress-topic belongs to --exactly-once"),
    ],
)
def test_options_that_do_not_go_together_are_refused(given: Choice, error: str) -> None:
    with pytest.raises(click.UsageError, match=error):
        given.acls()


@pytest.mark.parametrize("given", [choice(Resources(), Principals()), choice(TOPIC, Principals(), "READ")])
def test_nothing_is_selected_without_being_named(given: Choice) -> None:
    """A filter without a resource would be all ACLs, and one without a principal those of everybody."""
    with pytest.raises(click.UsageError):
        given.filters()


def test_a_host_without_a_principal_is_refused() -> None:
    with pytest.raises(click.UsageError, match="--deny-host needs --deny-principal"):
        Principals(("User:a",), deny_hosts=("h",))
