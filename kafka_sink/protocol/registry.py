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
_KEYS: Final = {
    "produce": (ApiKey.PRODUCE,),
    "fetch": (ApiKey.FETCH,),
    "log_offsets": (ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DELETE_RECORDS),
    "metadata": (ApiKey.METADATA, ApiKey.FIND_COORDINATOR),
    "group_offsets": (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.TXN_OFFSET_COMMIT, ApiKey.OFFSET_DELETE),
    "group_members": (
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ),
    "group_admin": (
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.DELETE_GROUPS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
    ),
    "connection": (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
    "topics": (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS),
    "transactions": (
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
    ),
    "transaction_admin": (
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    ),
    "acls": (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS),
    "configs": (
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.LIST_CONFIG_RESOURCES,
    ),
    "replicas": (
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ),
    "users": (
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ),
    "cluster": (
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ),
}
_MODULES: Final = {key: module for module, keys in _KEYS.items() for key in keys}


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
    """The API with *key*.

    :raises ValueError: if Kafka has no such API, or it has no messages here.
    """
    try:
        return APIS[key]  # type: ignore[index]
    except (KeyError, ValueError):
        raise ValueError(f"API key {key} has no messages here") from None
