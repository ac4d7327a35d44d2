"""Every API in every version, with bodies that are almost empty or oversized: it answers, and discloses no secrets."""

from __future__ import annotations

from typing import Final

import pytest

from kafka_sink.broker.config import AUTHORIZER
from kafka_sink.broker.handlers.dispatch import HANDLERS
from kafka_sink.broker.network.request_channel import CloseConnectionResponse, NoOpResponse, SendResponse
from kafka_sink.common.acl import AclBinding, AclBindingFilter, AclOperation, ResourceType
from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import encode_request
from kafka_sink.protocol.schema import ZERO_UUID, Struct
from tests.fakes.broker_node import BrokerNode
from tests.support.cases import with_each
from tests.support.request_items import bodies_of

VERSIONS: Final = [
    (key, version)
    for key, handler in HANDLERS.items()
    for version in range(handler.versions.min, handler.versions.max + 1)
]
#: No response: Kafka closes the connection, too, or the client expects none (acks=0).
SILENT: Final = {ApiKey.PRODUCE, ApiKey.CREATE_ACLS, ApiKey.DESCRIBE_ACLS, ApiKey.DELETE_ACLS}
#: About the largest length of a string in the older versions of each message (before version 8 or so).
LONG: Final = "x" * 32_750
SECRET, ABSENT = "secret", "absent"


def frame(key: ApiKey, version: int, body: Struct) -> bytes:
    return b"".join(map(bytes, encode_request(key, version, 7, "c", body)))


@pytest.mark.behaviour(
    "Faults: hostile clients", "Every API in every version answers empty, null, default and longest values"
)
@pytest.mark.parametrize("fault", [None, ErrorCode.UNKNOWN_SERVER_ERROR])
@pytest.mark.parametrize("nodes", [1, 3])
@with_each(("text", "number"), [("", None), (None, None), ("t", 2), (LONG, None), (LONG, 2), ("t", -1)])
def test_every_request_is_answered(text: str | None, number: int | None, nodes: int, fault: ErrorCode | None) -> None:
    node = BrokerNode(nodes)
    node.cluster.create_topic("t", 1)
    topic_id = ZERO_UUID if number is None else node.context.topic("t").topic_id
    if fault is not None:
        node.faults.on("any", error=fault)
    for key, version in VERSIONS:
        for body in bodies_of(key, version, text, topic_id, number):
            node.handle_frame(frame(key, version, body))
            expected = SendResponse | CloseConnectionResponse | NoOpResponse if key in SILENT else SendResponse
            assert all(isinstance(each, expected) for each in node.responses), (key, version, body)
            node.responses.clear()


@pytest.fixture
def closed() -> BrokerNode:
    """A broker with a topic, a group and a transactional id of one name, and a client that has no permission."""
    node = BrokerNode(authorizer_class_name=AUTHORIZER)
    everything = [
        AclBinding(principal="User:ANONYMOUS", operation=AclOperation.ALL, resource_type=kind, resource_name="*")
        for kind in (ResourceType.GROUP, ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID)
    ]
    node.cluster.create_topic(SECRET, 1)
    node.cluster.create_acls(everything)
    assert node.call(ApiKey.INIT_PRODUCER_ID, 4, SECRET, 60000).error_code == 0
    offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    node.call(ApiKey.OFFSET_COMMIT, 8, SECRET, topics=[{"name": SECRET, "partitions": [offset]}])
    node.cluster.delete_acls(AclBindingFilter())
    return node


def answers(node: BrokerNode, key: ApiKey, version: int, body: Struct) -> bytes:
    node.handle_frame(frame(key, version, body))
    sent = [segment for each in node.responses if isinstance(each, SendResponse) for segment in each.segments]
    node.responses.clear()
    return b"".join(map(bytes, sent))


@pytest.mark.behaviour("ACLs", "A client without permissions is told no name, and not whether one exists")
@with_each("number", [None, 2, 4])
def test_without_permissions_no_name_is_told(closed: BrokerNode, number: int | None) -> None:
    topic_id = closed.context.topic(SECRET).topic_id
    for key, version in VERSIONS:
        for text in ("", None):
            for body in bodies_of(key, version, text, topic_id, number):
                assert SECRET.encode() not in answers(closed, key, version, body), (key, version, body)


@with_each("number", [None, 2, 4])
def test_without_permissions_no_name_is_known_to_exist(closed: BrokerNode, number: int | None) -> None:
    for key, version in VERSIONS:
        there, absent = (
            [answers(closed, key, version, body) for body in bodies_of(key, version, text, ZERO_UUID, number)]
            for text in (SECRET, ABSENT)
        )
        assert [each.replace(SECRET.encode(), ABSENT.encode()) for each in there] == absent, (key, version)
