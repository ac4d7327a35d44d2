"""ACLs of the embedded broker: stored with the topics, shared by all nodes, and off by default."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_sink.broker.authorizer import AclCache, Authorizer
from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.config import AUTHORIZER, BrokerConfig
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.common.acl import (
    CLUSTER_NAME,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from kafka_sink.common.config import parse
from kafka_sink.common.errors import ApiError, ConfigError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from tests.fakes.broker_node import BrokerNode
from tests.fakes.memory_filesystem import MemoryFileSystem
from tests.support.cases import with_each

READ = AclBinding(
    principal="User:alice", operation=AclOperation.READ, resource_type=ResourceType.TOPIC, resource_name="orders"
)
PREFIX = replace(READ, resource_name="ord", pattern_type=PatternType.PREFIXED, host="10.0.0.1")
DENIED = replace(READ, permission_type=AclPermissionType.DENY, principal="User:bob")
ALL = AclBindingFilter()


@pytest.mark.behaviour("ACLs", "ACLs are kept with the topics: a cluster that starts again has them")
def test_a_cluster_that_starts_again_has_its_acls() -> None:
    disk = MemoryFileSystem()
    first = ClusterState(Path("/data"), disk, BrokerConfig(), [1])
    first.create_acls([READ, PREFIX, READ])
    first.create_acls([DENIED, PREFIX])
    assert first.delete_acls(AclBindingFilter(host="10.0.0.1")) == [PREFIX]
    second = ClusterState(Path("/data"), disk, BrokerConfig(), [1])
    assert second.image.acls == first.image.acls == AclCache((READ, DENIED))
    assert second.delete_acls(ALL) == [READ, DENIED]
    assert ClusterState(Path("/data"), disk, BrokerConfig(), [1]).image.acls.acls == ()


def test_damaged_acls_are_refused_at_the_start() -> None:
    for entry in ([READ.principal], [*AclCache((READ,)).encoded()[0][:1], 99, 2, "orders", 3, 3, "*"]):
        with pytest.raises(ValueError):
            AclCache.decode([entry])


@pytest.mark.behaviour("ACLs", "Without an authorizer everybody may do everything, and ACLs cannot be changed")
def test_acls_are_not_enforced_by_default() -> None:
    nothing = Authorizer(BrokerConfig(), AclCache)
    assert nothing.allows("User:x", "10.0.0.1", AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    assert nothing.allows_any("User:x", "10.0.0.1", AclOperation.WRITE, ResourceType.TOPIC)


@with_each(
    ("client", "host", "allowed"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0", True),
        ("10.0.0.2", "10.0.0.1", False),
    ],
)
def test_hosts_are_compared_in_the_format_of_java(client: str, host: str, allowed: bool) -> None:
    cache = AclCache((replace(READ, host=host),))
    authorizer = Authorizer(BrokerConfig(authorizer_class_name=AUTHORIZER), lambda: cache)
    assert authorizer.allows("User:alice", client, AclOperation.READ, ResourceType.TOPIC, "orders") is allowed


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer", f"expected {AUTHORIZER}, or nothing"),
        ("super.users", "alice", "expected User:name, and semicolons between several"),
        ("allow.everyone.if.no.acl.found", "maybe", "is not true or false"),
    ],
)
def test_wrong_options_are_refused(option: str, value: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        parse(BrokerConfig, {option: value})
    assert option in str(caught.value)
    assert parse(BrokerConfig, {"super.users": "User:a; User:CN=b,O=c"}).super_user_names == {"User:a", "User:CN=b,O=c"}


@with_each(
    "wrong",
    [
        replace(READ, resource_name=""),
        replace(READ, resource_type=ResourceType.ANY),
        replace(READ, operation=AclOperation.UNKNOWN),
        replace(READ, pattern_type=PatternType.MATCH),
        replace(READ, permission_type=AclPermissionType.ANY),
        replace(READ, principal="alice"),
        replace(READ, resource_type=ResourceType.CLUSTER),
    ],
)
def test_invalid_acls_of_a_test_are_refused(wrong: AclBinding) -> None:
    with EmbeddedCluster() as cluster:
        with pytest.raises(ApiError) as caught:
            cluster.create_acls([READ, wrong])
        assert caught.value.code is ErrorCode.INVALID_REQUEST
        assert cluster.describe_acls() == []


@pytest.mark.behaviour("EmbeddedCluster", "Tests add, list and delete ACLs without a client")
def test_a_test_changes_acls_without_a_client() -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_acls([READ, PREFIX])
        applying = AclBindingFilter(resource_name="orders", pattern_type=PatternType.MATCH)
        assert cluster.describe_acls(applying) == [READ, PREFIX]
        assert cluster.describe_acls(AclBindingFilter(resource_name="ord")) == [PREFIX]
        assert cluster.delete_acls(AclBindingFilter(operation=AclOperation.READ)) == [READ, PREFIX]
        assert cluster.describe_acls() == []


@pytest.mark.behaviour(
    "ACLs", "A topic that a client may not describe is not disclosed, and the log says what is missing"
)
def test_the_log_says_what_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kafka_sink.broker.authorizer")
    node = BrokerNode(authorizer_class_name=AUTHORIZER)
    node.cluster.create_topic("orders")
    for name in ("orders", "nothing\n"):
        answer = node.call(ApiKey.METADATA, 12, [{"name": name}], allow_auto_topic_creation=True)
        (topic,) = answer.topics
        assert (topic.error_code, topic.partitions) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    assert [record.getMessage() for record in caplog.records] == [
        f"'User:ANONYMOUS' from 127.0.0.1 may not DESCRIBE TOPIC {name!r}, which METADATA needs: add an ACL, or make "
        "it one of super.users"
        for name in ("orders", "nothing\n")
    ]
    assert list(node.cluster.topics) == ["orders"]
