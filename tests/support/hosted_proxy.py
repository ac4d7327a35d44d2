"""A proxy with which a broker supports only the APIs of a hosted Kafka, and closes connections as that one does."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import RequestHeader
from kafka_sink.protocol.registry import APIS
from tests.support.fault_proxy import Fault, FaultProxy

#: The APIs of each service, with the source: version ranges as published, or all versions (``null``) if only names
#: are published. ``most_bytes`` is the largest request.
HOSTED: Final[Mapping[str, Mapping[str, Any]]] = json.loads(
    Path(__file__).with_name("hosted_kafkas.json").read_text(encoding="utf-8")
)
EVENT_HUBS: Final = "Azure Event Hubs"
_MOST_BYTES: Final = 100 * 2**20


def offered_by(service: str) -> dict[ApiKey, tuple[int, int]]:
    """The first and last version of each API that *service* offers."""
    ranges: Mapping[str, Sequence[int] | None] = HOSTED[service]["offered"]
    # No client of ours sends APIs that have no message of ours.
    found = {ApiKey[name]: versions for name, versions in ranges.items() if name in ApiKey.__members__}
    return {key: (oldest, newest) for key, versions in found.items() for oldest, newest in [versions or _ours(key)]}


def _ours(key: ApiKey) -> tuple[int, int]:
    return APIS[key].versions.min, APIS[key].versions.max


class HostedProxy(FaultProxy):
    """A proxy of all brokers of *bootstrap_servers* that supports the APIs of *service* except *without*. It closes the
    connection at any other request, also at other versions of ApiVersions, and at a request that is too large."""

    def __init__(self, bootstrap_servers: str, service: str = EVENT_HUBS, without: Collection[ApiKey] = ()) -> None:
        super().__init__(bootstrap_servers)
        self.told_versions = {key: versions for key, versions in offered_by(service).items() if key not in without}
        self._most_bytes = HOSTED[service].get("most_bytes", _MOST_BYTES)

    def judge(self, header: RequestHeader, frame: bytes, body_at: int) -> Any:
        oldest, newest = (self.told_versions or {}).get(ApiKey(header.api_key), (0, -1))
        if not oldest <= header.api_version <= newest or len(frame) > self._most_bytes:
            return Fault.RESET_BEFORE
        return super().judge(header, frame, body_at)
