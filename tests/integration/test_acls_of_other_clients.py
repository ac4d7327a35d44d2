"""librdkafka's admin client and clients on an embedded broker with ACLs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kafka_sink import EmbeddedCluster
from tests.support.secure_cluster import guarded_cluster

WAIT_S: Final = 60
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedCluster]:
    with guarded_cluster(alice="alice-s3cret") as running:
        yield running


def as_alice(cluster: EmbeddedCluster, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.nodes[1]["SASL_PLAINTEXT"].address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "alice-s3cret",
        **more,
    }


def acl(kind: ResourceType, name: str, operation: AclOperation, pattern: ResourcePatternType = LITERAL) -> AclBinding:
    return AclBinding(kind, name, pattern, "User:alice", "*", operation, AclPermissionType.ALLOW)


@pytest.mark.behaviour("ACLs", "librdkafka's admin client adds, lists and deletes ACLs")
def test_acls_are_changed_by_librdkafka(guarded: EmbeddedCluster) -> None:
    admin = AdminClient({"bootstrap.servers": guarded.bootstrap_servers})
    made = [
        acl(ResourceType.TOPIC, "made-", AclOperation.WRITE, PREFIXED),
        acl(ResourceType.TRANSACTIONAL_ID, "made", AclOperation.DESCRIBE),
    ]
    for created in admin.create_acls(made).values():
        created.result(WAIT_S)
    nothing: Any = None
    anything = AclBindingFilter(
        ResourceType.ANY,
        nothing,
        ResourcePatternType.ANY,
        "User:alice",
        nothing,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert sorted(map(str, admin.describe_acls(anything).result(WAIT_S))) == sorted(map(str, made))
    deleted = admin.delete_acls([anything])[anything].result(WAIT_S)
    assert len(deleted) == 2 and admin.describe_acls(anything).result(WAIT_S) == []
    mine = AdminClient(as_alice(guarded))
    with pytest.raises(KafkaException) as refused:
        mine.create_acls(made[:1])[made[0]].result(WAIT_S)
    assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.behaviour(
    "ACLs", "Producers and consumers of librdkafka may do what ACLs allow, and are told what they may not"
)
def test_clients_of_librdkafka_are_held_to_acls(guarded: EmbeddedCluster) -> None:
    admin = AdminClient({"bootstrap.servers": guarded.bootstrap_servers})
    admin.create_topics([NewTopic("mine", 1), NewTopic("theirs", 1)])["mine"].result(WAIT_S)
    allowed = [
        acl(ResourceType.TOPIC, "mine", AclOperation.WRITE),
        acl(ResourceType.TOPIC, "mine", AclOperation.READ),
        acl(ResourceType.GROUP, "my-", AclOperation.READ, PREFIXED),
    ]
    for created in admin.create_acls(allowed).values():
        created.result(WAIT_S)
    said: list[Any] = []
    producer = Producer(as_alice(guarded, **{"enable.idempotence": True}))
    for topic in ("mine", "theirs"):
        producer.produce(topic, b"x", on_delivery=lambda error, message: said.append((message.topic(), error)))
    producer.flush(WAIT_S)
    told = {topic: None if error is None else error.code() for topic, error in said}
    assert told == {"mine": None, "theirs": KafkaError.TOPIC_AUTHORIZATION_FAILED}
    for group, code in (("my-group", None), ("their-group", KafkaError.GROUP_AUTHORIZATION_FAILED)):
        consumer = Consumer(as_alice(guarded, **{"group.id": group, "auto.offset.reset": "earliest"}))
        consumer.subscribe(["mine"])
        message = consumer.poll(WAIT_S)
        assert message is not None
        error = message.error()
        assert (None if error is None else error.code()) == code
        consumer.close()
    # Only what alice may describe.
    assert set(AdminClient(as_alice(guarded)).list_topics(timeout=WAIT_S).topics) == {"mine"}
