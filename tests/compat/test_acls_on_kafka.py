"""A real Kafka with its StandardAuthorizer and the embedded broker get the same ACLs and the same requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.common.config import parse
from tests.compat.kafka_version import requires_kafka
from tests.compat.test_differential import KNOWN as KNOWN_WITHOUT_ACLS
from tests.compat.test_differential import Known, shared
from tests.conftest import Figure
from tests.support.acl_scenarios import ACLS, BY_OTHERS, ROLES, USER, WITH_ACLS
from tests.support.amounts import LONG
from tests.support.differential import Ask, Broker, differences
from tests.support.differential_scenarios import SCENARIOS, TOPICS
from tests.support.real_kafka import RealKafka, running_kafka
from tests.support.secure_cluster import users

_IS_MODEL: Final = requires_kafka("4.3", "the APIs and answers that the embedded broker is modelled on")

_AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Kafka itself, and the clients that create topics and ACLs for the tests.
    "super.users": "User:ANONYMOUS",
}
_NOT_SHOWN: Final = "what makes Kafka fail with UNKNOWN_SERVER_ERROR is an INVALID_REQUEST"
_FAULTS_FIRST: Final = "of a request without a permission and with another fault, the fault is looked for first"
#: The roles that send the requests: in the normal run those that may do some of everything, with --long all.
_TRIED: Final = tuple(ROLES) if LONG else ("writer", "operator", "nearly everything")
KNOWN: Final = (
    Known("Produce: an unknown magic", ".*error_code", _FAULTS_FIRST),
    Known(
        "(Incremental)?AlterConfigs: (a setting of nothing|twice|a broker .*|what only a start sets)",
        ".*error_code",
        _FAULTS_FIRST,
    ),
    Known(
        "Metadata: a topic (to be created|of another prefix)", r"\.topics", "Kafka answers before the topic is there"
    ),
    Known("FindCoordinator: a share group", ".*", "there are no share groups (KIP-932)"),
    Known("DescribeUserScramCredentials: sparse", ".*", _NOT_SHOWN),
    Known(r"CreateAcls: \w+ [12]", r".*error_code", _NOT_SHOWN),
    *KNOWN_WITHOUT_ACLS,
)


_JAAS: Final = users(**{USER: USER})


@pytest.fixture(scope="module")
def guarded_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    with running_kafka(
        tmp_path_factory.mktemp("kafka-with-acls"),
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms=PLAIN",
        f"listener.name.sasl_plaintext.plain.sasl.jaas.config={_JAAS}",
        *(f"{name}={value}" for name, value in _AUTHORIZER.items()),
        listeners={"SASL_PLAINTEXT": "SASL_PLAINTEXT"},
    ) as running:
        yield running


@pytest.fixture(scope="module")
def pair(guarded_kafka: RealKafka) -> Iterator[tuple[Broker, Broker]]:
    """Yield the embedded broker and Kafka, each with a listener for users."""
    properties = {
        **_AUTHORIZER,
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": _JAAS,
    }
    with EmbeddedCluster(num_partitions=1, config=parse(BrokerConfig, properties)) as cluster:
        brokers = (
            Broker(cluster.bootstrap_servers, cluster.nodes[1]["SASL_PLAINTEXT"].address),
            Broker(guarded_kafka.bootstrap_servers, guarded_kafka.address("SASL_PLAINTEXT")),
        )
        yield brokers
        for broker in brokers:
            broker.close()


def compare(pair: tuple[Broker, Broker]) -> tuple[int, list[str]]:
    """Return the number of answers with an intentional difference, and a text for each other difference."""
    ours, theirs = pair
    assert list(ours.answers) == list(theirs.answers)
    unknown, meant = [], set()
    for name, answer in theirs.answers.items():
        _, api, label = name.split(": ", 2)
        question = f"{api.rsplit(' ', 1)[0]}: {label}"
        for where, mine, other in differences(ours.answers[name], answer):
            if any(re.fullmatch(each.asked, question) and re.match(each.where, where) for each in KNOWN):
                meant.add(name)
            else:
                unknown.append(f"{name} {where}: {mine!r:.300}, Kafka says {other!r:.300}")
        ours.answers.pop(name)
    theirs.answers.clear()
    return len(meant), unknown


@_IS_MODEL
@pytest.mark.behaviour(
    "Same answers as Apache Kafka", "ACLs are made, described and deleted as in Kafka, by those who may do it"
)
def test_acls_are_changed_and_described_alike(pair: tuple[Broker, Broker], figure: Figure) -> None:
    versions = shared(*pair)
    asked = 0
    for broker in pair:
        asked = broker.play("acls", ACLS, versions)
        broker.log_in(USER)
        asked += broker.play("acls", BY_OTHERS, versions)
        broker.log_in("")
    _, unknown = compare(pair)
    assert not unknown, "\n".join(unknown)
    figure("requests about ACLs", asked)


@_IS_MODEL
@pytest.mark.behaviour(
    "Same answers as Apache Kafka",
    "Whatever ACLs a user has: each API refuses, hides and shows what Kafka's StandardAuthorizer does",
)
def test_users_with_acls_get_the_same_answers(pair: tuple[Broker, Broker], figure: Figure) -> None:
    versions = shared(*pair)
    ends = [{key: range(each.stop - 1, each.stop) for key, each in versions.items()}]
    if LONG:
        # Requests by topic id and by name check permissions differently; the versions in between need no test.
        ends.append({key: range(each.start, min(each.start + 1, each.stop - 1)) for key, each in versions.items()})
        ends[1][0] = range(9, 10)
    asked = 0
    for broker, other in zip(pair, (None, pair[0]), strict=True):
        broker.create_topics(TOPICS)
        asked = 0
        for role in _TRIED:
            creations = ROLES[role]
            broker.play(role, [Ask("CreateAcls", f"of a {role}", {"creations": creations})], ends[0])
            broker.await_acls(creations)
            broker.log_in(USER)
            for scenario, asks in {**SCENARIOS, "with ACLs": WITH_ACLS}.items():
                asked += sum(broker.play(f"{role}, {scenario}", asks, table, other) for table in ends)
            broker.log_in("")
    meant, unknown = compare(pair)
    assert not unknown, f"{len(unknown)}\n" + "\n".join(unknown)
    figure("requests of users with ACLs", asked)
    figure("answers that differ, all in a way that is meant", meant)
