"""The first request on every connection: what the broker can do, asked in a version of that question that it knows.

Owned by one NetworkClient and its thread, which sends the requests and keeps the answers. It holds only what has not
been asked yet.

Source: ApiVersions; KIP-35, KIP-511 (the client's name, and the version to fall back to).
"""

from __future__ import annotations

from typing import Final

from kafka_sink.client.api_versions import allowed_versions
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.version import VERSION
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka_sink.protocol.schema import Struct

_SOFTWARE_NAME: Final = "kafkalite"


class VersionQuestions:
    """Connections that still have to be asked, and in which version at most."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}

    @property
    def waiting(self) -> list[tuple[str, int]]:
        """Connection ids, each with the version to ask in."""
        return list(self._versions.items())

    def add(self, node_id: str) -> None:
        """The connection is there: the newest version is tried first."""
        self._versions[node_id] = allowed_versions(ApiKey.API_VERSIONS, None).max

    def remove(self, node_id: str) -> None:
        """It was asked, or is gone."""
        self._versions.pop(node_id, None)

    def add_again(self, node_id: str, refused_version: int, answer: ApiVersionsResponse) -> bool:
        """Ask in an older version than *refused_version*; False when that is not what the broker refuses."""
        if ErrorCode.of(answer.error_code) is not ErrorCode.UNSUPPORTED_VERSION or refused_version == 0:
            return False
        # Brokers since 2.4 tell with the error which versions they have; older ones all know version 0.
        theirs = next((a.max_version for a in answer.api_keys if a.api_key == ApiKey.API_VERSIONS), 0)
        self._versions[node_id] = min(theirs, refused_version - 1)
        return True


def api_versions_request(version: int) -> Struct:
    return ApiVersionsRequest(client_software_name=_SOFTWARE_NAME, client_software_version=VERSION)
