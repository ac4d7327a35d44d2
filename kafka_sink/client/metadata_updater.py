"""Keeps a client's metadata fresh: decides in every poll whether to ask, whom, and what to do with the outcome.

Owned by one NetworkClient and called on its thread from inside its poll. It sends only through the client that calls
it, never waits, and has one request under way at most.
"""

from __future__ import annotations

from typing import Final, Protocol

from kafka_sink.client.client_request import BodyBuilder
from kafka_sink.client.metadata import Metadata, UpdateRequest
from kafka_sink.client.snapshot import has_address
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import ErrorCode, KafkaError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import Node
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafka_sink.protocol.schema import Struct

#: Partitions named in one log line about trouble; the rest is counted.
_TROUBLES_SHOWN: Final = 10


class Requester(Protocol):
    """What the updater needs of the client it belongs to."""

    def least_loaded_node(self, now_ms: int) -> Node | None: ...

    def can_send_request(self, node_id: str, now_ms: int) -> bool: ...

    def can_connect(self, node_id: str, now_ms: int) -> bool: ...

    def is_unreachable(self, node_id: str, since_ms: int) -> bool:
        """The last attempt to connect did not get through."""
        ...

    @property
    def is_any_node_connecting(self) -> bool: ...

    def initiate_connect(self, node: Node, now_ms: int) -> None: ...

    def send_internal(self, node_id: str, api_key: ApiKey, build: BodyBuilder, now_ms: int) -> None:
        """Send past the readiness check; the outcome comes back through the ``handle_`` methods."""
        ...


class MetadataUpdater(Protocol):
    """How a NetworkClient learns about the cluster."""

    def nodes(self) -> tuple[Node, ...]:
        """Every broker that may be talked to."""
        ...

    def is_update_due(self, now_ms: int) -> bool:
        """An update should go out before anything else does."""
        ...

    def maybe_update(self, client: Requester, now_ms: int) -> int:
        """Get an update under way if one is due; how long until this has to be called again, ms."""
        ...

    def is_rebootstrap_due(self, now_ms: int) -> bool:
        """The brokers that are known are of no use: time to leave them all and to call :meth:`rebootstrap`."""
        ...

    def rebootstrap(self, now_ms: int) -> None:
        """Begin again with the bootstrap addresses."""
        ...

    def handle_response(self, response: MetadataResponse, version: int, now_ms: int) -> None:
        """The update arrived, in *version*."""
        ...

    def handle_failed_request(self, now_ms: int, error: KafkaError | None) -> None:
        """The update came to nothing; with an *error* no later one can succeed either."""
        ...

    def handle_server_disconnect(self, now_ms: int, error: KafkaError | None) -> None:
        """A connection was lost or could not be made; *error* if the broker refused us."""
        ...

    def close(self) -> None: ...


class DefaultMetadataUpdater:
    """Feeds a :class:`~kafka_sink.client.metadata.Metadata`.

    :param allow_auto_topic_creation: whether asking for an unknown topic may create it.
    :param rebootstrap: begin again with the bootstrap addresses when no known broker can be reached (KIP-899), when a
        broker says so, or when no update has succeeded for *rebootstrap_trigger_ms* (KIP-1102).
    """

    def __init__(
        self,
        metadata: Metadata,
        *,
        allow_auto_topic_creation: bool,
        request_timeout_ms: int,
        reconnect_backoff_ms: int,
        rebootstrap: bool,
        rebootstrap_trigger_ms: int,
        log_context: str = "",
    ) -> None:
        self._metadata = metadata
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._request_timeout_ms = request_timeout_ms
        # Without a backoff the client would poll without a pause for as long as a connection is being set up.
        self._pause_ms = max(reconnect_backoff_ms, 1)
        self._may_rebootstrap = rebootstrap
        self._rebootstrap_trigger_ms = rebootstrap_trigger_ms
        # When the first attempt at the update that is due now began; None while there is none.
        self._trying_since_ms: int | None = None
        # What could not be reached before may be back, or be told of under another address.
        self._rebootstrapped_ms = -FOREVER_MS
        self._is_sent_back = False
        self._log = ContextLogger(__name__, log_context)
        self._in_progress: UpdateRequest | None = None

    def nodes(self) -> tuple[Node, ...]:
        return self._metadata.fetch().nodes

    def is_update_due(self, now_ms: int) -> bool:
        return self._in_progress is None and self._metadata.time_to_next_update_ms(now_ms) == 0

    def maybe_update(self, client: Requester, now_ms: int) -> int:
        wait_ms = self._metadata.time_to_next_update_ms(now_ms)
        if self._in_progress is not None:
            wait_ms = max(wait_ms, self._request_timeout_ms)
        if wait_ms > 0:
            return wait_ms
        if self._trying_since_ms is None:
            self._trying_since_ms = now_ms
        if self._may_rebootstrap and self._is_cluster_lost(client):
            self.rebootstrap(now_ms)
        node = client.least_loaded_node(now_ms)
        if node is None:
            self._log.debug("no broker is available for a metadata request")
            return self._pause_ms
        return self._update_from(client, node, now_ms)

    def is_rebootstrap_due(self, now_ms: int) -> bool:
        if not self._may_rebootstrap:
            return False
        since_ms = self._trying_since_ms
        return self._is_sent_back or (since_ms is not None and now_ms - since_ms > self._rebootstrap_trigger_ms)

    def rebootstrap(self, now_ms: int) -> None:
        self._is_sent_back = False
        self._trying_since_ms = self._rebootstrapped_ms = now_ms
        self._metadata.rebootstrap()

    def _is_cluster_lost(self, client: Requester) -> bool:
        """Every known broker was tried, and none let us in: they may all have new addresses by now."""
        cluster = self._metadata.fetch()
        since_ms = self._rebootstrapped_ms
        return not cluster.is_bootstrap and all(
            client.is_unreachable(node.connection_id, since_ms) for node in cluster.nodes
        )

    def _update_from(self, client: Requester, node: Node, now_ms: int) -> int:
        if client.can_send_request(node.connection_id, now_ms):
            update = self._metadata.next_request(now_ms)
            self._in_progress = update
            client.send_internal(node.connection_id, ApiKey.METADATA, self._builder(update), now_ms)
            return self._request_timeout_ms
        if client.is_any_node_connecting:
            # One attempt at a time: it may well succeed, and then the others were for nothing.
            return self._pause_ms
        if client.can_connect(node.connection_id, now_ms):
            client.initiate_connect(node, now_ms)
            return self._pause_ms
        # Connected but busy, or not past its handshake yet: the network will tell.
        return FOREVER_MS

    def _builder(self, update: UpdateRequest) -> BodyBuilder:
        def build(version: int) -> Struct:
            return MetadataRequest(
                topics=[MetadataRequestTopic(name=topic) for topic in update.topics],
                allow_auto_topic_creation=self._allow_auto_topic_creation,
            )

        return build

    def handle_response(self, response: MetadataResponse, version: int, now_ms: int) -> None:
        update, self._in_progress = self._in_progress, None
        if update is None:
            raise RuntimeError("a metadata answer arrived that nobody asked for")
        self._log_troubles(response)
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self._may_rebootstrap:
            self._is_sent_back = True
        elif response.error_code or not any(has_address(broker.host, broker.port) for broker in response.brokers):
            # A broker that is still starting knows nobody, not even itself.
            self._metadata.failed_update(now_ms)
        else:
            self._trying_since_ms = None
            self._metadata.update(response, update, version=version, now_ms=now_ms)

    def _log_troubles(self, response: MetadataResponse) -> None:
        troubles = {topic.name: ErrorCode.of(topic.error_code).name for topic in response.topics if topic.error_code}
        if troubles:
            shown = ", ".join(f"{name}: {code}" for name, code in list(troubles.items())[:_TROUBLES_SHOWN])
            more = len(troubles) - _TROUBLES_SHOWN
            self._log.info("metadata reports errors for topics: %s%s", shown, f" and {more} more" if more > 0 else "")

    def handle_failed_request(self, now_ms: int, error: KafkaError | None) -> None:
        self._in_progress = None
        self._metadata.failed_update(now_ms)
        if error is not None:
            self._metadata.fatal_error(error)

    def handle_server_disconnect(self, now_ms: int, error: KafkaError | None) -> None:
        if self.is_update_due(now_ms):
            # It would have gone there; counting it as failed keeps the attempts apart.
            self._metadata.failed_update(now_ms)
        if error is not None:
            self._metadata.fatal_error(error)
        # The broker may be gone for good, and its partitions led by others.
        self._metadata.request_update()

    def close(self) -> None:
        self._metadata.close()
