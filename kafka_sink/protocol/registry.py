"""The supported APIs: their messages and versions.

Used by client (negotiation), broker (ApiVersions, dispatch) and :mod:`header`, on any thread. Messages are imported
when their API is first used, because a Spark worker pays for every import and needs four APIs. The registry must not
list a version that the messages do not have. A new API needs messages there and its key here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.schema import MAX_VERSION, Struct, VersionRange

#: The APIs of each module in ``messages``; the classes have Kafka's names, ``ListOffsetsRequest`` for ``LIST_OFFSETS``.
_NAMES: Final = {
    "produce": "PRODUCE",
    "fetch": "FETCH",
    "log_offsets": "LIST_OFFSETS OFFSET_FOR_LEADER_EPOCH DELETE_RECORDS",
    "metadata": "METADATA FIND_COORDINATOR",
    "group_offsets": "OFFSET_COMMIT OFFSET_FETCH TXN_OFFSET_COMMIT OFFSET_DELETE",
    "group_members": "JOIN_GROUP HEARTBEAT LEAVE_GROUP SYNC_GROUP CONSUMER_GROUP_HEARTBEAT",
    "group_admin": "DESCRIBE_GROUPS LIST_GROUPS DELETE_GROUPS CONSUMER_GROUP_DESCRIBE",
    "connection": "API_VERSIONS SASL_HANDSHAKE SASL_AUTHENTICATE",
    "topics": "CREATE_TOPICS DELETE_TOPICS CREATE_PARTITIONS",
    "transactions": "INIT_PRODUCER_ID ADD_PARTITIONS_TO_TXN ADD_OFFSETS_TO_TXN END_TXN",
    "transaction_admin": "WRITE_TXN_MARKERS DESCRIBE_PRODUCERS DESCRIBE_TRANSACTIONS LIST_TRANSACTIONS",
    "acls": "DESCRIBE_ACLS CREATE_ACLS DELETE_ACLS",
    "configs": "DESCRIBE_CONFIGS ALTER_CONFIGS INCREMENTAL_ALTER_CONFIGS LIST_CONFIG_RESOURCES",
    "replicas": "DESCRIBE_LOG_DIRS ELECT_LEADERS ALTER_PARTITION_REASSIGNMENTS LIST_PARTITION_REASSIGNMENTS",
    "users": "DESCRIBE_CLIENT_QUOTAS ALTER_CLIENT_QUOTAS DESCRIBE_USER_SCRAM_CREDENTIALS ALTER_USER_SCRAM_CREDENTIALS",
    "cluster": "DESCRIBE_QUORUM DESCRIBE_CLUSTER DESCRIBE_TOPIC_PARTITIONS",
}
_MODULES: Final = {ApiKey[name]: module for module, names in _NAMES.items() for name in names.split()}


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its request and response, the versions that both have, and the first flexible version."""

    key: ApiKey
    request: type[Struct]
    response: type[Struct]
    versions: VersionRange
    flexible_from: int


class _Apis(Mapping[ApiKey, Api]):
    """The APIs by key; each is loaded on first use."""

    def __init__(self) -> None:
        self._loaded: dict[int, Api] = {}

    def __getitem__(self, key: int) -> Api:
        entry = self._loaded.get(key)
        if entry is None:
            entry = self._loaded[key] = _load(ApiKey(key), _MODULES[ApiKey(key)])
        return entry

    def __contains__(self, key: object) -> bool:
        return key in _MODULES

    def __iter__(self) -> Iterator[ApiKey]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


def _load(key: ApiKey, module_name: str) -> Api:
    module = import_module(f"kafka_sink.protocol.messages.{module_name}")
    name = key.name.title().replace("_", "")
    request: type[Struct] = getattr(module, f"{name}Request")
    response: type[Struct] = getattr(module, f"{name}Response")
    schema = request.SCHEMA
    if schema.versions is None or (schema.versions, schema.flexible) != (
        response.SCHEMA.versions,
        response.SCHEMA.flexible,
    ):
        raise TypeError(f"{name}: request and response differ in their versions")
    flexible_from = schema.flexible.min if schema.flexible.max >= 0 else MAX_VERSION + 1
    return Api(key, request, response, schema.versions, flexible_from)


#: Every API by its key.
APIS: Final[Mapping[ApiKey, Api]] = _Apis()


def api(key: int) -> Api:
    """The API with *key*. :raises ValueError: if Kafka has no such API, or it has no messages here."""
    try:
        return APIS[key]  # type: ignore[index]
    except (KeyError, ValueError):
        raise ValueError(f"API key {key} has no messages here") from None
