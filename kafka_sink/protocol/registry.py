"""The supported APIs: their messages and versions.

Used by client (negotiation), broker (ApiVersions, dispatch) and :mod:`header`, on any thread. Messages are imported
when their API is first used, because a Spark worker pays for every import and needs four APIs. The registry must not
list a version that the messages do not have. A new API needs a module in ``messages`` and a line here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.schema import MAX_VERSION, Struct, VersionRange

#: Key to module in ``messages``; the classes have Kafka's names, ``ListOffsetsRequest`` for ``LIST_OFFSETS``.
_MODULES: Final = {
    ApiKey.PRODUCE: "produce",
    ApiKey.FETCH: "fetch",
    ApiKey.LIST_OFFSETS: "list_offsets",
    ApiKey.METADATA: "metadata",
    ApiKey.OFFSET_COMMIT: "offset_commit",
    ApiKey.OFFSET_FETCH: "offset_fetch",
    ApiKey.FIND_COORDINATOR: "find_coordinator",
    ApiKey.JOIN_GROUP: "join_group",
    ApiKey.HEARTBEAT: "heartbeat",
    ApiKey.LEAVE_GROUP: "leave_group",
    ApiKey.SYNC_GROUP: "sync_group",
    ApiKey.DESCRIBE_GROUPS: "describe_groups",
    ApiKey.LIST_GROUPS: "list_groups",
    ApiKey.SASL_HANDSHAKE: "sasl_handshake",
    ApiKey.API_VERSIONS: "api_versions",
    ApiKey.CREATE_TOPICS: "create_topics",
    ApiKey.DELETE_TOPICS: "delete_topics",
    ApiKey.DELETE_RECORDS: "delete_records",
    ApiKey.INIT_PRODUCER_ID: "init_producer_id",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "offset_for_leader_epoch",
    ApiKey.ADD_PARTITIONS_TO_TXN: "add_partitions_to_txn",
    ApiKey.ADD_OFFSETS_TO_TXN: "add_offsets_to_txn",
    ApiKey.END_TXN: "end_txn",
    ApiKey.WRITE_TXN_MARKERS: "write_txn_markers",
    ApiKey.TXN_OFFSET_COMMIT: "txn_offset_commit",
    ApiKey.DESCRIBE_ACLS: "describe_acls",
    ApiKey.CREATE_ACLS: "create_acls",
    ApiKey.DELETE_ACLS: "delete_acls",
    ApiKey.DESCRIBE_CONFIGS: "describe_configs",
    ApiKey.ALTER_CONFIGS: "alter_configs",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "alter_replica_log_dirs",
    ApiKey.DESCRIBE_LOG_DIRS: "describe_log_dirs",
    ApiKey.SASL_AUTHENTICATE: "sasl_authenticate",
    ApiKey.CREATE_PARTITIONS: "create_partitions",
    ApiKey.DELETE_GROUPS: "delete_groups",
    ApiKey.ELECT_LEADERS: "elect_leaders",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "incremental_alter_configs",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "alter_partition_reassignments",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "list_partition_reassignments",
    ApiKey.OFFSET_DELETE: "offset_delete",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "describe_client_quotas",
    ApiKey.ALTER_CLIENT_QUOTAS: "alter_client_quotas",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "describe_user_scram_credentials",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "alter_user_scram_credentials",
    ApiKey.DESCRIBE_QUORUM: "describe_quorum",
    ApiKey.UPDATE_FEATURES: "update_features",
    ApiKey.DESCRIBE_CLUSTER: "describe_cluster",
    ApiKey.DESCRIBE_PRODUCERS: "describe_producers",
    ApiKey.DESCRIBE_TRANSACTIONS: "describe_transactions",
    ApiKey.LIST_TRANSACTIONS: "list_transactions",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "consumer_group_heartbeat",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "consumer_group_describe",
    ApiKey.LIST_CONFIG_RESOURCES: "list_config_resources",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "describe_topic_partitions",
}


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
