"""The first request on every connection: ApiVersions, in a version that the broker supports.

Owned by one NetworkClient and used on its thread, which sends the requests and stores the answers. It only contains
requests that were not sent yet.

Source: ApiVersions; KIP-35, KIP-511 (the client's name, and the fallback version).
"""

from __future__ import annotations

from typing import Final

from kafka_sink.client.connection.api_versions import allowed_versions
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.version import VERSION
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka_sink.protocol.schema import Struct

_SOFTWARE_NAME: Final = "kafkalite"


class VersionQuestions:
    """The connections to which ApiVersions must still be sent, each with its maximum version."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}

    @property
    def waiting(self) -> list[tuple[str, int]]:
        """Connection ids, each with the maximum version to use."""
        return list(self._versions.items())

    def add(self, node_id: str) -> None:
        """Add an established connection; the newest version is tried first."""
        self._versions[node_id] = allowed_versions(ApiKey.API_VERSIONS, None).max

    def remove(self, node_id: str) -> None:
        """Remove a connection: the request was sent, or the connection was lost."""
        self._versions.pop(node_id, None)

    def add_again(self, node_id: str, refused_version: int, answer: ApiVersionsResponse) -> bool:
        """Repeat the request in an older version than *refused_version*; False if the version is not the reason for the
        refusal."""
        if ErrorCode.of(answer.error_code) is not ErrorCode.UNSUPPORTED_VERSION or refused_version == 0:
            return False
        # Brokers since 2.4 return their supported versions with the error; all older ones support version 0.
        theirs = next((a.max_version for a in answer.api_keys if a.api_key == ApiKey.API_VERSIONS), 0)
        self._versions[node_id] = min(theirs, refused_version - 1)
        return True


def api_versions_request(version: int) -> Struct:
    return ApiVersionsRequest(client_software_name=_SOFTWARE_NAME, client_software_version=VERSION)
