"""The API versions and features of each connected broker, and the requests for them.

The network thread updates :class:`ApiVersions`, and any thread may read it. The entry of a broker is immutable and is
replaced as a whole. Choosing a version never uses the network; there is no entry until the broker has answered.

:class:`VersionQuestions` is used on the network thread, which sends the requests and stores the answers. A broker
answers a version that it does not know with an error and its own versions. Some services close the connection instead
(Azure Event Hubs does at version 4), so each closed connection is followed by one with an older version.

Source: ApiVersions; KIP-35, KIP-511 (the client's name, and the fallback version).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kafka_sink.common.errors import ErrorCode, UnsupportedVersionError
from kafka_sink.common.locks import Lock
from kafka_sink.common.version import OLDEST_KAFKA, VERSION
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.connection import ApiVersionsRequest, ApiVersionsResponse
from kafka_sink.protocol.registry import api
from kafka_sink.protocol.schema import Struct, VersionRange

_UPGRADE_BROKERS: Final = f"upgrade it to Apache Kafka {OLDEST_KAFKA} or newer"

_KNOWN_KEYS = frozenset(int(key) for key in ApiKey)

#: The first version per API from which the client waits for the throttle time that a broker reports (KIP-219). In
#: earlier versions the broker delays its response instead. For newer APIs (not listed) the client always waits.
_CLIENT_THROTTLES_FROM: Final[dict[ApiKey, int]] = {
    ApiKey.PRODUCE: 6,
    ApiKey.FETCH: 8,
    ApiKey.LIST_OFFSETS: 3,
    ApiKey.METADATA: 6,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.API_VERSIONS: 2,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.DELETE_TOPICS: 2,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.ADD_PARTITIONS_TO_TXN: 1,
    ApiKey.ADD_OFFSETS_TO_TXN: 1,
    ApiKey.END_TXN: 1,
    ApiKey.TXN_OFFSET_COMMIT: 1,
    ApiKey.CREATE_PARTITIONS: 1,
    ApiKey.DELETE_RECORDS: 1,
    ApiKey.DESCRIBE_CONFIGS: 2,
    ApiKey.OFFSET_COMMIT: 4,
    ApiKey.OFFSET_FETCH: 4,
}
_SOFTWARE_NAME: Final = "kafkalite"
#: The versions to try after a peer has closed at the newest: the first one with the client's name, then the oldest.
_AFTER_CLOSE: Final = (3, 0)


@dataclass(frozen=True, slots=True)
class NodeApiVersions:
    """The APIs of one broker and the cluster's finalized features (name → level), as it reported them (KIP-584).

    *finalized_features_epoch* grows with every change of the features; −1 if the broker has no features.
    """

    versions: Mapping[ApiKey, VersionRange]
    finalized_features: Mapping[str, int] = field(default_factory=dict)
    finalized_features_epoch: int = -1

    @classmethod
    def of(cls, response: ApiVersionsResponse) -> NodeApiVersions:
        """The versions from a broker's answer; APIs unknown to this client are omitted."""
        return cls(
            {
                ApiKey(entry.api_key): VersionRange(entry.min_version, entry.max_version)
                for entry in response.api_keys
                if entry.api_key in _KNOWN_KEYS
            },
            {feature.name: feature.max_version_level for feature in response.finalized_features},
            response.finalized_features_epoch,
        )

    def latest_usable_version(self, api_key: ApiKey, max_version: int | None = None) -> int:
        """The highest version that the broker, this client and *max_version* allow.

        :raises UnsupportedVersionError: if there is no such version.
        """
        ours = allowed_versions(api_key, max_version)
        theirs = self.versions.get(api_key)
        if theirs is None:
            raise UnsupportedVersionError(f"the broker does not support {api_key.name}; {_UPGRADE_BROKERS}")
        latest = min(ours.max, theirs.max)
        if latest < ours.min or latest < theirs.min:
            remedy = _UPGRADE_BROKERS if theirs.max < ours.min else "it needs a newer version of kafkalite"
            raise UnsupportedVersionError(
                f"the broker supports {api_key.name} versions {theirs}, this client supports versions {ours}; {remedy}"
            )
        return latest


def allowed_versions(api_key: ApiKey, max_version: int | None) -> VersionRange:
    """The versions of an API that this client supports, limited to *max_version*."""
    versions = api(api_key).versions
    return versions if max_version is None else VersionRange(versions.min, min(versions.max, max_version))


def throttle_ms(api_key: ApiKey, version: int, body: Struct) -> int:
    """How long to send no request to the broker after *body*; 0 = not throttled, or by the broker itself."""
    reported = int(getattr(body, "throttle_time_ms", 0))
    return reported if version >= _CLIENT_THROTTLES_FROM.get(api_key, 0) else 0


class ApiVersions:
    """Connection id → the API versions of the broker. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._nodes: dict[str, NodeApiVersions] = {}
        self._features: Mapping[str, int] = {}
        self._features_epoch = -1

    @property
    def lock(self) -> Lock:
        """The lock that every method needs."""
        return self._lock

    def update(self, node_id: str, versions: NodeApiVersions) -> None:
        with self._lock:
            self._nodes[node_id] = versions
            if versions.finalized_features_epoch > self._features_epoch:
                self._features = versions.finalized_features
                self._features_epoch = versions.finalized_features_epoch

    def remove(self, node_id: str) -> None:
        with self._lock:
            self._nodes.pop(node_id, None)

    def get(self, node_id: str) -> NodeApiVersions | None:
        """The versions of the broker; None until the broker has answered, and again after it is disconnected."""
        with self._lock:
            return self._nodes.get(node_id)

    def know_features_of(self, other: ApiVersions) -> None:
        """Copy the features from *other*, which belongs to a client of the same cluster."""
        self._features, self._features_epoch = other._features, other._features_epoch

    def feature_level(self, name: str) -> int:
        """The level of a finalized feature in the newest report of any broker; 0 if no broker has reported it."""
        with self._lock:
            return self._features.get(name, 0)


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
        """Repeat the request in an older version than *refused_version*; False if that is not why it was refused."""
        if ErrorCode.of(answer.error_code) is not ErrorCode.UNSUPPORTED_VERSION or refused_version == 0:
            return False
        # Brokers since 2.4 return their supported versions with the error; all older ones support version 0.
        self._versions[node_id] = min(_newest_of(answer, 0), refused_version - 1)
        return True

    def closed(self, node_id: str, version: int) -> bool:
        """The peer has closed the connection instead of answering *version*. Whether there is an older version to try
        on the next connection; after the oldest, the next connection starts with the newest again."""
        older = next((each for each in _AFTER_CLOSE if each < version), None)
        self._after_close.pop(node_id, None)
        if older is None:
            return False
        self._after_close[node_id] = older
        return True

    def answered(self, node_id: str, answer: ApiVersionsResponse) -> None:
        """The peer has answered. If it had closed at a version that it does not list, no broker of its cluster gets
        that version again; if it lists it, the connection was lost for another reason."""
        if self._after_close.pop(node_id, None) is not None:
            self._newest = min(self._newest, _newest_of(answer, self._newest))


def _newest_of(answer: ApiVersionsResponse, otherwise: int) -> int:
    """The newest version of ApiVersions that the broker lists; version 0 if it lists none that exists."""
    listed = (key.max_version for key in answer.api_keys if key.api_key == ApiKey.API_VERSIONS)
    return max(next(listed, otherwise), 0)


def api_versions_request(version: int) -> Struct:
    # Brokers refuse other characters than letters, digits, dots and dashes; the number of a build between releases has
    # a plus sign.
    return ApiVersionsRequest(client_software_name=_SOFTWARE_NAME, client_software_version=VERSION.replace("+", "-"))
