"""A proxy that makes a broker offer what a hosted Kafka documents, and close connections where that one does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import RequestHeader
from tests.support.fault_proxy import Fault, FaultProxy

#: Azure Event Hubs, as its users report it: no transactions that work, and no ApiVersions after version 3.
EVENT_HUBS: Final[Mapping[ApiKey, tuple[int, int]]] = {
    ApiKey.PRODUCE: (3, 7),
    ApiKey.FETCH: (4, 6),
    ApiKey.LIST_OFFSETS: (0, 8),
    ApiKey.METADATA: (0, 5),
    ApiKey.OFFSET_COMMIT: (0, 8),
    ApiKey.OFFSET_FETCH: (0, 8),
    ApiKey.FIND_COORDINATOR: (0, 4),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 5),
    ApiKey.LIST_GROUPS: (0, 4),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.CREATE_TOPICS: (0, 2),
    ApiKey.DELETE_TOPICS: (0, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 1),
    ApiKey.DESCRIBE_CONFIGS: (0, 2),
    ApiKey.SASL_AUTHENTICATE: (0, 1),
}
_MOST_BYTES: Final = 1_046_528


class HostedProxy(FaultProxy):
    """Stands before all brokers of *bootstrap_servers* and offers *offered*; it closes the connection at any other
    request, also at a version of ApiVersions, and at a request that is too large."""

    def __init__(self, bootstrap_servers: str, offered: Mapping[ApiKey, tuple[int, int]] = EVENT_HUBS) -> None:
        super().__init__(bootstrap_servers)
        self.told_versions = offered

    def judge(self, header: RequestHeader, frame: bytes, body_at: int) -> Any:
        oldest, newest = (self.told_versions or {}).get(ApiKey(header.api_key), (0, -1))
        if not oldest <= header.api_version <= newest or len(frame) > _MOST_BYTES:
            return Fault.RESET_BEFORE
        return super().judge(header, frame, body_at)
