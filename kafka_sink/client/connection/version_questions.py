"""The first request on every connection: ApiVersions, in a version that the broker supports.

Owned by one NetworkClient and used on its thread, which sends the requests and stores the answers. It contains the
requests that were not sent yet, and which version is asked of a peer that has closed a connection at a newer one.

A broker answers a version that it does not know with an error and its own versions. Some services close the connection
instead (Azure Event Hubs does at version 4), so each closed connection is followed by one with an older version.

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

#: What a peer that closes at the newest version is asked: the first one with the client's name, then the oldest.
_AFTER_CLOSE: Final = (3, 0)


class VersionQuestions:
    """The connections to which ApiVersions must still be sent, each with its maximum version."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}
        self._newest = allowed_versions(ApiKey.API_VERSIONS, None).max
        #: By the connection ids of peers that have closed at a newer version.
        self._after_close: dict[str, int] = {}

    @property
    def waiting(self) -> list[tuple[str, int]]:
        """Connection ids, each with the maximum version to use."""
        return list(self._versions.items())

    def add(self, node_id: str) -> None:
        """Add an established connection; the newest version is tried first, as far as it is not known to be refused."""
        self._versions[node_id] = self._after_close.get(node_id, self._newest)

    def remove(self, node_id: str) -> None:
        """Remove a connection: the request was sent, or the connection was lost."""
        self._versions.pop(node_id, None)

    def add_again(self, node_id: str, refused_version: int, answer: ApiVersionsResponse) -> bool:
        """Repeat the request in an older version than *refused_version*; False if the version is not the reason for the
        refusal."""
        if ErrorCode.of(answer.error_code) is not ErrorCode.UNSUPPORTED_VERSION or refused_version == 0:
            return False
        # Brokers since 2.4 return their supported versions with the error; all older ones support version 0.
        self._versions[node_id] = min(_newest_of(answer, 0), refused_version - 1)
        return True

    def closed(self, node_id: str, version: int) -> bool:
        """The peer has closed the connection instead of answering *version*: whether there is an older one to ask on
        the next connection. After the oldest it begins again with the newest."""
        older = next((each for each in _AFTER_CLOSE if each < version), None)
        self._after_close.pop(node_id, None)
        if older is None:
            return False
        self._after_close[node_id] = older
        return True

    def answered(self, node_id: str, answer: ApiVersionsResponse) -> None:
        """The peer has answered. If it had closed at a version that it does not list, nobody in its cluster is asked
        that one again; if it lists it, the connection was lost for another reason."""
        if self._after_close.pop(node_id, None) is not None:
            self._newest = min(self._newest, _newest_of(answer, self._newest))


def _newest_of(answer: ApiVersionsResponse, otherwise: int) -> int:
    """The newest version of ApiVersions that the broker lists."""
    return next((each.max_version for each in answer.api_keys if each.api_key == ApiKey.API_VERSIONS), otherwise)


def api_versions_request(version: int) -> Struct:
    return ApiVersionsRequest(client_software_name=_SOFTWARE_NAME, client_software_version=VERSION)
