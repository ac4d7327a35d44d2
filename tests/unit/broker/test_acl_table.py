"""Every API of the broker without one of its permissions: Kafka's error code, no effect, nothing disclosed.

Each row of the table has the permissions that a request requires. The request is sent with all of them, then once
without each: without an ACL for it, and with an ACL that denies it.

Source: apache/kafka ``KafkaApis`` and ``ControllerApis``, and the table of operations in Kafka's documentation
(security, "Operations and Resources on Protocols").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import pytest

from kafka_sink.broker.config import AUTHORIZER
from kafka_sink.broker.handlers.dispatch import HANDLERS
from kafka_sink.broker.network.request_channel import SendResponse
from kafka_sink.common.acl import CLUSTER_NAME, AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from kafka_sink.common.acl import ResourceType as Resource
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.schema import Struct
from tests.fakes.broker_node import BrokerNode
from tests.fakes.record_batches import make_batch
from tests.support.cases import with_each
from tests.support.messages import request_body

#: These require no permission: they precede the authentication.
FREE: Final = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
CODES: Final = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
SECRET: Final = b"SECRET"
TOPIC_CONFIG, BROKER_CONFIG = 2, 4

Need = tuple[AclOperation, Resource, str]
#: The resources that the rows refer to.
RESOURCES: Final = {
    "t": Resource.TOPIC,
    "new": Resource.TOPIC,
    "g": Resource.GROUP,
    "x": Resource.TRANSACTIONAL_ID,
    CLUSTER_NAME: Resource.CLUSTER,
}


@dataclass(frozen=True)
class Row:
    """A request with the permissions that it requires.

    :param shows: text that the response has only if everything is permitted.
    :param hides: without the permission there is no error code, but the response omits *shows*.
    """

    key: ApiKey
    version: int
    body: Any
    needs: tuple[Need, ...]
    shows: bytes
    hides: bool


def row(
    key: ApiKey, version: int, needs: str, *values: Any, shows: bytes = b"", hides: bool = False, **named: Any
) -> Row:
    """A row from a request's fields and its permissions, as ``name OPERATION, …``."""
    pairs = [need.split() for need in needs.replace("cluster ", f"{CLUSTER_NAME} ").split(", ")]
    asked = tuple((AclOperation[operation], RESOURCES[name], name) for name, operation in pairs)
    return Row(key, version, request_body(key, *values, **named), asked, shows, hides)


def records(value: bytes, **sequence: Any) -> list[Any]:
    """The topics of a produce request."""
    return [{"name": "t", "partition_data": [(0, make_batch([value], **sequence))]}]


ROWS: Final = [
    row(ApiKey.PRODUCE, 9, "t WRITE", None, -1, 1000, records(b"new")),
    row(
        ApiKey.PRODUCE,
        9,
        "x WRITE, t WRITE",
        "x",
        -1,
        1000,
        records(b"new", is_transactional=True, producer_id=0, producer_epoch=0, base_sequence=0),
    ),
    row(ApiKey.FETCH, 12, "t READ", topics=[{"topic": "t", "partitions": [0]}], shows=SECRET),
    row(ApiKey.LIST_OFFSETS, 7, "t DESCRIBE", topics=[("t", [{"partition_index": 0, "timestamp": -1}])]),
    row(ApiKey.DELETE_RECORDS, 2, "t DELETE", [("t", [(0, 1)])]),
    row(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, "t DESCRIBE", topics=[("t", [(0, -1, 0)])]),
    row(ApiKey.METADATA, 9, "t DESCRIBE", [{"name": "t"}]),
    row(ApiKey.METADATA, 9, "t DESCRIBE", None, shows=b"\x02t", hides=True),
    row(ApiKey.METADATA, 9, "new DESCRIBE, new CREATE", [{"name": "new"}], allow_auto_topic_creation=True),
    row(ApiKey.FIND_COORDINATOR, 3, "g DESCRIBE", "g", 0, shows=b"127.0.0.1"),
    row(ApiKey.FIND_COORDINATOR, 6, "x DESCRIBE", key_type=1, coordinator_keys=["x"], shows=b"127.0.0.1"),
    row(ApiKey.JOIN_GROUP, 3, "g READ", "g", 10000, 10000, protocol_type="consumer", protocols=["range"]),
    row(ApiKey.SYNC_GROUP, 3, "g READ", "g", 1, "m"),
    row(ApiKey.HEARTBEAT, 3, "g READ", "g", 1, "m"),
    row(ApiKey.LEAVE_GROUP, 4, "g READ", "g", members=["m"]),
    row(ApiKey.OFFSET_COMMIT, 8, "g READ, t READ", "g", topics=[{"name": "t", "partitions": [(0, 1)]}]),
    row(ApiKey.OFFSET_FETCH, 7, "g DESCRIBE, t DESCRIBE", "g", [{"name": "t", "partition_indexes": [0]}], shows=SECRET),
    row(ApiKey.OFFSET_FETCH, 7, "t DESCRIBE", "g", None, shows=SECRET, hides=True),
    row(ApiKey.OFFSET_DELETE, 0, "g DELETE, t READ", "g", [("t", [0])]),
    row(ApiKey.TXN_OFFSET_COMMIT, 3, "x WRITE, g READ, t READ", "x", "g", topics=[("t", [(0, 1)])]),
    row(ApiKey.DESCRIBE_GROUPS, 5, "g DESCRIBE", ["g"], shows=b"Empty"),
    row(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        "g READ, t DESCRIBE",
        "g",
        "m",
        0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
        shows=b"\x02m",
    ),
    row(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        1,
        "g DESCRIBE",
        ["g"],
        include_authorized_operations=False,
        shows=b"is not a consumer group",
    ),
    row(ApiKey.LIST_GROUPS, 4, "g DESCRIBE", shows=b"\x02g", hides=True),
    row(ApiKey.DELETE_GROUPS, 2, "g DELETE", ["g"]),
    # Version 4 does not return the new topic's configuration.
    row(ApiKey.CREATE_TOPICS, 4, "new CREATE", [("new", 1, 1)]),
    row(ApiKey.CREATE_TOPICS, 7, "new CREATE, new DESCRIBE_CONFIGS", [("new", 1, 1)], validate_only=True),
    row(ApiKey.DELETE_TOPICS, 6, "t DELETE", ["t"]),
    row(ApiKey.INIT_PRODUCER_ID, 4, "cluster IDEMPOTENT_WRITE", None, 60000),
    row(ApiKey.INIT_PRODUCER_ID, 6, "x WRITE, x TWO_PHASE_COMMIT", "x", 60000, enable2_pc=True),
    row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        "x WRITE, t WRITE",
        v3_and_below_transactional_id="x",
        v3_and_below_topics=[("t", [0])],
    ),
    row(ApiKey.ADD_PARTITIONS_TO_TXN, 5, "cluster CLUSTER_ACTION", [{"transactional_id": "x", "topics": [("t", [0])]}]),
    row(ApiKey.ADD_OFFSETS_TO_TXN, 3, "x WRITE, g READ", "x", group_id="g"),
    row(ApiKey.END_TXN, 3, "x WRITE", "x", committed=True),
    row(ApiKey.WRITE_TXN_MARKERS, 1, "cluster CLUSTER_ACTION", [(0, 0, True, [("t", [0])], 0)]),
    row(ApiKey.WRITE_TXN_MARKERS, 1, "cluster ALTER", [(0, 0, True, [("t", [0])], 0)]),
    row(ApiKey.DESCRIBE_PRODUCERS, 0, "t READ", [("t", [0])]),
    row(ApiKey.DESCRIBE_TRANSACTIONS, 0, "x DESCRIBE", ["x"], shows=b"Ongoing"),
    row(ApiKey.DESCRIBE_TRANSACTIONS, 0, "t DESCRIBE", ["x"], shows=b"\x02t", hides=True),
    row(ApiKey.LIST_TRANSACTIONS, 0, "x DESCRIBE", shows=b"\x02x", hides=True),
    row(ApiKey.DESCRIBE_CONFIGS, 4, "t DESCRIBE_CONFIGS", [(TOPIC_CONFIG, "t", None)], shows=b"retention.ms"),
    row(
        ApiKey.DESCRIBE_CONFIGS, 4, "cluster DESCRIBE_CONFIGS", [(BROKER_CONFIG, "1", None)], shows=b"log.retention.ms"
    ),
    row(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, "t ALTER_CONFIGS", [(TOPIC_CONFIG, "t", [("retention.ms", 0, "77")])]),
    row(ApiKey.ALTER_CONFIGS, 2, "t ALTER_CONFIGS", [(TOPIC_CONFIG, "t", [("retention.ms", "77")])]),
    row(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        "cluster ALTER_CONFIGS",
        [(BROKER_CONFIG, "1", [("log.retention.ms", 0, "77")])],
    ),
    row(ApiKey.ALTER_CONFIGS, 2, "cluster ALTER_CONFIGS", [(BROKER_CONFIG, "1", [("log.retention.ms", "77")])]),
    row(ApiKey.CREATE_PARTITIONS, 3, "t ALTER", [("t", 3, None)]),
    row(
        ApiKey.DESCRIBE_CLUSTER,
        1,
        "cluster DESCRIBE",
        include_cluster_authorized_operations=True,
        shows=(1 << AclOperation.DESCRIBE).to_bytes(4, "big"),
        hides=True,
    ),
    row(ApiKey.DESCRIBE_LOG_DIRS, 4, "cluster DESCRIBE", topics=None, shows=b"/data/logs"),
    row(ApiKey.DESCRIBE_QUORUM, 2, "cluster DESCRIBE", [("__cluster_metadata", [0])], shows=b"127.0.0.1"),
    row(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, "cluster DESCRIBE"),
    row(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, "t DESCRIBE", ["t"]),
    row(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, "t DESCRIBE", [], shows=b"\x02t", hides=True),
    row(ApiKey.LIST_CONFIG_RESOURCES, 1, "cluster DESCRIBE_CONFIGS", [2], shows=b"\x02t"),
    row(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, "cluster DESCRIBE_CONFIGS", [], strict=False),
    row(ApiKey.ALTER_CLIENT_QUOTAS, 1, "cluster ALTER_CONFIGS", [([("user", None)], [("producer_byte_rate", 1000.0)])]),
    row(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, "cluster DESCRIBE", None),
    row(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, "cluster ALTER", upsertions=[("new", 1, 4096, b"salt", b"salted")]),
    row(ApiKey.ELECT_LEADERS, 2, "cluster ALTER", 0, [("t", [0])]),
    row(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, "cluster ALTER", topics=[("t", [(0, [1])])]),
    row(ApiKey.DESCRIBE_ACLS, 3, "cluster DESCRIBE", 1, None, 1, None, None, 1, 1, shows=b"User:ANONYMOUS"),
    row(ApiKey.CREATE_ACLS, 3, "cluster ALTER", [(2, "t", 3, "User:eve", "*", 3, 3)]),
    row(ApiKey.DELETE_ACLS, 3, "cluster ALTER", [(1, None, 1, None, None, 1, 1)]),
]


def binding(need: Need) -> AclBinding:
    operation, resource_type, name = need
    return AclBinding(principal="User:ANONYMOUS", operation=operation, resource_type=resource_type, resource_name=name)


def node_with(*acls: AclBinding) -> BrokerNode:
    """A broker with a record, a group's offset and an open transaction, whose client has only *acls*."""
    node = BrokerNode(authorizer_class_name=AUTHORIZER, transaction_two_phase_commit_enable="true")
    node.cluster.create_topic("t", 1)
    node.cluster.create_acls([binding((AclOperation.ALL, kind, "*")) for kind in CODES if kind is not Resource.CLUSTER])
    node.call(ApiKey.PRODUCE, 9, None, -1, 1000, records(SECRET))
    offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": SECRET.decode()}
    node.call(ApiKey.OFFSET_COMMIT, 8, "g", topics=[{"name": "t", "partitions": [offset]}])
    answer = node.call(ApiKey.INIT_PRODUCER_ID, 4, "x", 60000)
    added = node.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, [], "x", answer.producer_id, answer.producer_epoch, [("t", [0])])
    assert set(codes(added)) == {0}
    node.cluster.delete_acls(AclBindingFilter())
    node.cluster.create_acls(list(acls))
    return node


def codes(answer: Any) -> Iterator[int]:
    """All error codes of a response."""
    if isinstance(answer, list):
        for item in answer:
            yield from codes(item)
    elif isinstance(answer, Struct):
        for field in fields(answer):
            value = getattr(answer, field.name)
            if field.name.endswith("error_code"):
                yield value
            yield from codes(value)


def kept(node: BrokerNode) -> list[Any]:
    """All state that a request could change."""
    tables = [name for (name,) in node.store.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
    log = node.logs.get(TopicPartition("t", 0))
    assert log is not None
    image = node.cluster.image
    return [
        dict(image.topics),
        image.acls,
        image.quotas,
        log.start_offset,
        log.end_offset,
        [(table, node.store.rows(f"SELECT * FROM {table}")) for table in tables],
    ]


def asked(node: BrokerNode, row: Row) -> tuple[set[int], bytes]:
    """The error codes and the bytes of the response to a row's request; none if the response is delayed."""
    body = row.body
    # The producer id is that of the open transaction.
    if any(field.name == "producer_id" for field in fields(body)) and row.key is not ApiKey.INIT_PRODUCER_ID:
        body = replace(body, producer_id=0, producer_epoch=0)
    node.send(row.key, row.version, body)
    if not node.responses:
        return set(), b""
    response = node.responses[0]
    assert isinstance(response, SendResponse)
    raw = b"".join(map(bytes, response.segments))
    return set(codes(node.answer(row.key, row.version))), raw


@pytest.mark.behaviour(
    "ACLs", "Every API refuses a client without its permission, changes nothing and discloses nothing"
)
@with_each("row", ROWS)
def test_every_api_needs_each_of_its_permissions(row: Row) -> None:
    allowed = [binding(need) for need in row.needs]
    # The permissions that a row omits because another row of the same API has them.
    others = [
        binding(need)
        for other in ROWS
        if row.hides and other.key is row.key
        for need in other.needs
        if need not in row.needs
    ]
    found, raw = asked(node_with(*allowed, *others), row)
    refusals = {int(code) for code in CODES.values()}
    assert not found & refusals
    assert row.shows in raw
    for index, (operation, resource_type, name) in enumerate(row.needs):
        denied = replace(
            binding((operation, resource_type, name)), permission_type=AclPermissionType.DENY, host="127.0.0.1"
        )
        rest = allowed[:index] + allowed[index + 1 :] + others
        for acls in (rest, [*rest, allowed[index], denied]):
            node = node_with(*acls)
            before = kept(node)
            found, raw = asked(node, row)
            if row.hides:
                assert not found & refusals
            else:
                assert int(CODES[resource_type]) in found, (operation, found)
            assert SECRET not in raw
            assert not row.shows or row.shows not in raw
            assert kept(node) == before


def test_the_table_has_every_api() -> None:
    assert {row.key for row in ROWS} | FREE == set(HANDLERS)
