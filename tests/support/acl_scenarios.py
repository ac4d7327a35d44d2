"""ACLs, and requests of a user with them: data for the comparison with a real Kafka."""

from __future__ import annotations

import struct
from typing import Any, Final

from crc32c import crc32c

from kafka_sink.common.acl import AclOperation, AclPermissionType, PatternType, ResourceType
from tests.support.differential import Ask, Json
from tests.support.differential_scenarios import UNKNOWN, A, B, batch

USER: Final = "alice"
_TOPIC, _GROUP, _CLUSTER, _ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
_O: Final = AclOperation


def acl(operation: AclOperation, resource_type: ResourceType, name: str = "kafka-cluster", **changes: Any) -> Json:
    """Return the fields of CreateAcls; a name of more than one character that ends with an asterisk is a prefix."""
    is_prefix = name.endswith("*") and name != "*"
    return {
        "resource_type": int(resource_type),
        "resource_name": name[:-1] if is_prefix else name,
        "resource_pattern_type": int(PatternType.PREFIXED if is_prefix else PatternType.LITERAL),
        "principal": f"User:{USER}",
        "host": "*",
        "operation": int(operation),
        "permission_type": int(AclPermissionType.ALLOW),
        **changes,
    }


def denied(operation: AclOperation, resource_type: ResourceType, name: str = "kafka-cluster", **changes: Any) -> Json:
    return acl(operation, resource_type, name, permission_type=int(AclPermissionType.DENY), **changes)


#: Name → the ACLs of the user, in addition to those of the preceding names.
ROLES: Final[dict[str, list[Json]]] = {
    "nothing": [],
    "reader": [acl(_O.READ, _TOPIC, "diff-a"), acl(_O.DESCRIBE, _GROUP, "*"), acl(_O.DESCRIBE_CONFIGS, _TOPIC, "*")],
    "writer": [
        acl(_O.WRITE, _TOPIC, "diff-a"),
        acl(_O.CREATE, _TOPIC, "diff-cr*"),
        acl(_O.WRITE, _ID, "*", host="127.0.0.1"),
        acl(_O.READ, _GROUP, "*", principal="User:*"),
    ],
    "janitor": [
        acl(_O.DELETE, _TOPIC, "diff-*"),
        acl(_O.ALTER, _TOPIC, "diff-*"),
        acl(_O.DELETE, _GROUP, "diff*"),
        acl(_O.ALTER_CONFIGS, _TOPIC, "diff-*"),
        acl(_O.DESCRIBE, _CLUSTER),
    ],
    "operator": [
        acl(_O.ALTER, _CLUSTER),
        acl(_O.ALTER_CONFIGS, _CLUSTER),
        acl(_O.CREATE, _CLUSTER),
        acl(_O.CLUSTER_ACTION, _CLUSTER),
        acl(_O.IDEMPOTENT_WRITE, _CLUSTER),
    ],
    "everything": [acl(_O.ALL, kind, "*") for kind in (_TOPIC, _GROUP, _ID)] + [acl(_O.ALL, _CLUSTER)],
    "nearly everything": [
        denied(_O.WRITE, _TOPIC, "diff-a"),
        denied(_O.DESCRIBE, _TOPIC, "diff-c*"),
        denied(_O.ALL, _TOPIC, "*", host="10.0.0.1"),
        denied(_O.ALL, _TOPIC, "*", principal="User:bob"),
        denied(_O.READ, _GROUP, "*"),
        denied(_O.DESCRIBE_CONFIGS, _CLUSTER),
        denied(_O.ALTER, _CLUSTER, principal="User:*"),
        denied(_O.WRITE, _ID, "diff-t*"),
    ],
}

_ANY: Final[Json] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def _create(label: str, *creations: Json) -> Ask:
    return Ask("CreateAcls", label, {"creations": list(creations)})


def _describe(label: str, **changes: Any) -> Ask:
    return Ask("DescribeAcls", label, {**_ANY, **changes})


def _delete(label: str, *filters: Json) -> Ask:
    return Ask("DeleteAcls", label, {"filters": [{**_ANY, **each} for each in filters]})


_ONE: Final = acl(_O.READ, _TOPIC, "acl-{v}")
#: Requests of users who may change ACLs.
ACLS: Final = (
    _create("one", _ONE),
    _create("it again", _ONE),
    _create("none"),
    _create("two of one pattern", {**_ONE, "operation": 4}, {**_ONE, "operation": 4, "host": "1.2.3.4"}),
    _create("a prefix", acl(_O.READ, _TOPIC, "acl-{v}*")),
    _create("twice", acl(_O.ALTER, _TOPIC, "acl-{v}"), acl(_O.ALTER, _TOPIC, "acl-{v}")),
    _create("one good and one bad", acl(_O.DELETE, _TOPIC, "acl-{v}"), acl(_O.DELETE, _TOPIC, "")),
    _create("no name", acl(_O.READ, _GROUP, "")),
    _create("a cluster of another name", acl(_O.READ, _CLUSTER, "mine")),
    _create("a token", acl(_O.DESCRIBE, ResourceType.DELEGATION_TOKEN, "acl-{v}")),
    _create("a user", acl(_O.CREATE_TOKENS, ResourceType.USER, "User:acl-{v}")),
    _create("an operation that a topic does not have", acl(_O.CLUSTER_ACTION, _TOPIC, "acl-{v}-odd")),
    _create("no principal", {**_ONE, "principal": ""}),
    _create("a principal without a type", {**_ONE, "principal": "alice"}),
    _create("no host", {**_ONE, "host": ""}),
    *(
        _create(f"{field} {code}", {**_ONE, field: code})
        for field in ("resource_type", "resource_pattern_type", "operation", "permission_type")
        for code in (0, 1, 2, 99)
    ),
    _describe("those of a topic", resource_type_filter=2, resource_name_filter="acl-{v}"),
    _describe("literal ones", resource_type_filter=2, resource_name_filter="acl-{v}", pattern_type_filter=3),
    _describe("prefixes", resource_type_filter=2, resource_name_filter="acl-{v}", pattern_type_filter=4),
    _describe("those that apply", resource_type_filter=2, resource_name_filter="acl-{v}-x", pattern_type_filter=2),
    _describe("those of a host", host_filter="1.2.3.4", resource_name_filter="acl-{v}"),
    _describe("those of a principal", principal_filter="User:bob"),
    _describe("those of an operation", operation=4, resource_name_filter="acl-{v}"),
    _describe("those that deny", permission_type=2, resource_name_filter="acl-{v}"),
    _describe("those of nobody", principal_filter="User:nobody"),
    *(
        _describe(f"{field} {code}", **{"resource_name_filter": "acl-{v}", field: code})
        for field in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
        for code in (0, 99)
    ),
    _delete("those of a host", {"host_filter": "1.2.3.4", "resource_name_filter": "acl-{v}"}),
    _delete("no filters"),
    _delete("nothing", {"principal_filter": "User:nobody"}),
    _delete(
        "one of two filters twice",
        {"resource_name_filter": "acl-{v}", "operation": 4},
        {"resource_name_filter": "acl-{v}", "operation": 4},
    ),
    *(
        _delete(f"{field} {code}", {"resource_name_filter": "acl-{v}", field: code})
        for field in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
        for code in (0, 99)
    ),
    _delete("those that apply", {"resource_name_filter": "acl-{v}-x", "pattern_type_filter": 2, "operation": 3}),
    _delete("the rest", {"resource_name_filter": "acl-{v}"}, {"resource_name_filter": "User:acl-{v}"}),
    _describe("what is left", resource_name_filter="acl-{v}"),
)
#: Requests of users who may not change ACLs.
BY_OTHERS: Final = (
    _create("by a user", acl(_O.READ, _TOPIC, "acl-x")),
    _describe("by a user"),
    _delete("by a user", {}),
)


def _transactional(records: bytes) -> bytes:
    """Return the batch as the first one of a transaction, with an unknown producer id."""
    marked = bytearray(records)
    marked[22] |= 0x10
    marked[43:57] = struct.pack(">qhi", 123_456, 0, 0)
    marked[17:21] = crc32c(bytes(marked[21:])).to_bytes(4, "big")
    return bytes(marked)


def _produce(label: str, *topics: Json, **changes: Any) -> Ask:
    records = _transactional(batch()) if "transactional_id" in changes else batch()
    data = [{**topic, "partition_data": [{"index": 0, "records": records}]} for topic in topics]
    return Ask("Produce", label, {"acks": -1, "timeout_ms": 3000, "topic_data": data, **changes})


_FETCH: Final[Json] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 50_000_000, "session_epoch": -1}
_PART: Final[Json] = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50_000_000}
#: Requests that only the scenarios with ACLs have.
WITH_ACLS: Final = (
    _produce("to several topics", A, B, UNKNOWN),
    _produce("in a transaction", A, B, transactional_id="diff-t"),
    _produce("in a transaction of another prefix", A, transactional_id="other"),
    _produce("in a transaction without an id", A, transactional_id=None),
    Ask("Fetch", "several topics", {**_FETCH, "topics": [{**each, "partitions": [_PART]} for each in (A, B)]}),
    Ask(
        "Fetch",
        "by a follower",
        {
            **_FETCH,
            "replica_id": 1,
            "replica_state": {"replica_id": 1, "replica_epoch": -1},
            "topics": [{**A, "partitions": [{**_PART, "partition": 99}]}],
        },
    ),
    Ask("Metadata", "a topic to be created", {"topics": [{"name": "diff-created-{v}"}]}),
    Ask("Metadata", "a topic of another prefix", {"topics": [{"name": "other-{v}"}]}),
    Ask(
        "InitProducerId",
        "no transaction",
        {"transaction_timeout_ms": 0, "producer_id": -1, "producer_epoch": -1, "transactional_id": None},
    ),
    Ask(
        "OffsetCommit",
        "to several topics",
        {
            "group_id": "diff-acls",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [
                {**each, "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}
                for each in (A, B, UNKNOWN)
            ],
        },
    ),
    Ask(
        "OffsetFetch",
        "all of a group",
        {"group_id": "diff-acls", "topics": None, "groups": [{"group_id": "diff-acls", "topics": None}]},
        range(2, 100),
    ),
    Ask(
        "DescribeGroups", "operations", {"groups": ["diff-acls", "diff-nobody"], "include_authorized_operations": True}
    ),
)
