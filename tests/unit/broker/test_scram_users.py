"""SCRAM credentials that clients create, change and delete (KIP-554)."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from kafka_sink.broker.authorizer import Users
from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.network.listener_security import users_of
from kafka_sink.common.errors import AuthenticationError, ErrorCode
from kafka_sink.network.sasl.scram import ScramClient, ScramServer
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.users import CredentialInfo, ScramCredentialDeletion
from tests.fakes.broker_node import DIRECTORY, BrokerNode

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
SALT = b"a salt of clients"
CONFIGURED: dict[str, Any] = {
    "sasl_enabled_mechanisms": (SHA_512,),
    "sasl_jaas_config": 'org.apache.kafka.common.security.scram.ScramLoginModule required user_fixed="f";',
}


def upsert(name: str, password: str, mechanism: str = SHA_256) -> Any:
    digest = {SHA_256: "sha256", SHA_512: "sha512"}[mechanism]
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), SALT, 4096)
    return (name, 1 + (mechanism == SHA_512), 4096, SALT, salted)


def alter(node: BrokerNode, *upsertions: Any, without: tuple[tuple[str, int], ...] = ()) -> dict[str, int]:
    deletions = [ScramCredentialDeletion(*each) for each in without]
    answer = node.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions, [*upsertions])
    return {result.user: result.error_code for result in answer.results}


def logs_in(users: Users, name: str, password: str, mechanism: str = SHA_256) -> bool:
    client = ScramClient(mechanism, name, password)
    server = ScramServer(mechanism, lambda user: users.scram(mechanism, user))
    try:
        final = client.respond(server.evaluate(client.initial_response()))
        assert final is not None
        client.respond(server.evaluate(final))
    except AuthenticationError:
        return False
    return server.user_name == name


@pytest.mark.behaviour("SASL", "Clients make, change and delete users of SCRAM, who log in at once and after a restart")
def test_users_are_made_changed_and_deleted() -> None:
    node = BrokerNode(**CONFIGURED)
    users = node.context.users
    assert alter(node, upsert("alice, =", "first"), upsert("bob", "b", SHA_512)) == {"alice, =": 0, "bob": 0}
    assert logs_in(users, "alice, =", "first") and logs_in(users, "bob", "b", SHA_512)
    assert not logs_in(users, "bob", "b") and not logs_in(users, "alice, =", "wrong")
    alter(node, upsert("alice, =", "second"))
    reopened = ClusterState(DIRECTORY, node.disk, node.context.config, [1])
    for each in (users, users_of(node.context.config, lambda: reopened.image.scram_users)):
        assert logs_in(each, "alice, =", "second") and not logs_in(each, "alice, =", "first")
    assert b"second" not in (stored := node.disk.read_file(DIRECTORY / "cluster.json") or b"") and b"bob" in stored
    assert alter(node, without=(("alice, =", 1), ("bob", 1))) == {"alice, =": 0, "bob": ErrorCode.RESOURCE_NOT_FOUND}
    assert not logs_in(users, "alice, =", "second") and logs_in(users, "bob", "b", SHA_512)


@pytest.mark.behaviour("SASL", "A SCRAM user of the configuration can be overruled, and not deleted, by a client")
def test_a_user_of_the_configuration_stays() -> None:
    node = BrokerNode(**CONFIGURED)
    users = node.context.users
    assert logs_in(users, "fixed", "f", SHA_512)
    alter(node, upsert("fixed", "other", SHA_512))
    assert logs_in(users, "fixed", "other", SHA_512) and not logs_in(users, "fixed", "f", SHA_512)
    assert alter(node, without=(("fixed", 2),)) == {"fixed": ErrorCode.UNACCEPTABLE_CREDENTIAL}
    answer = node.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, None)
    [result] = answer.results
    assert (result.user, result.credential_infos) == ("fixed", [CredentialInfo(2, 4096)])
