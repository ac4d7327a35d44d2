"""Keeps a client's metadata up to date: in every poll it decides whether to send a request and to which node, and
handles the outcome.

Owned by one NetworkClient and called on its thread from within its poll. It sends only through the calling client,
never waits, and has at most one request in flight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_sink.client.connection.client_request import BodyBuilder
from kafka_sink.client.metadata.cluster import has_address
from kafka_sink.client.metadata.metadata import Metadata, UpdateRequest
from kafka_sink.client.options.config import REBOOTSTRAP, ClientConfig
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import ErrorCode, KafkaError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import Node
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafka_sink.protocol.schema import Struct

if TYPE_CHECKING:
    from kafka_sink.client.connection.network_client import NetworkClient

#: The number of topics named in one log line about errors; the rest are counted.
_TROUBLES_SHOWN: Final = 10


class MetadataUpdater:
    """Updates a :class:`~kafka_sink.client.metadata.metadata.Metadata`.

    With ``metadata.recovery.strategy=rebootstrap`` it starts again with the bootstrap addresses if no known broker can
    be reached (KIP-899), if a broker requests it, or if no update has succeeded for
    ``metadata.recovery.rebootstrap.trigger.ms`` (KIP-1102).

    :param allow_auto_topic_creation: whether a request for an unknown topic may create it.
    """

    def __init__(
        self, metadata: Metadata, config: ClientConfig, *, allow_auto_topic_creation: bool, log_context: str = ""
    ) -> None:
        self._metadata = metadata
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._request_timeout_ms = config.request_timeout_ms
        # Without a backoff the client would poll continuously while a connection is being set up.
        self._pause_ms = max(config.reconnect_backoff_ms, 1)
        self._may_rebootstrap = config.metadata_recovery_strategy == REBOOTSTRAP
        self._rebootstrap_trigger_ms = config.metadata_recovery_rebootstrap_trigger_ms
        # The time of the first attempt at the update that is due now; None if none is due.
        self._trying_since_ms: int | None = None
        # Failures before the last rebootstrap do not count: a broker may be back, or have another address.
        self._rebootstrapped_ms = -FOREVER_MS
        self._is_sent_back = False
        self._log = ContextLogger(__name__, log_context)
        self._in_progress: UpdateRequest | None = None

    def nodes(self) -> tuple[Node, ...]:
        """All brokers that may be contacted."""
        return self._metadata.fetch().nodes

    def is_update_due(self, now_ms: int) -> bool:
        """Whether an update must be sent before any other request."""
        return self._in_progress is None and self._metadata.time_to_next_update_ms(now_ms) == 0

    def maybe_update(self, client: NetworkClient, now_ms: int) -> int:
        """Start an update if one is due; returns the time until the next call, ms."""
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
        """Whether the known brokers are unusable: the client must then disconnect from all of them and call
        :meth:`rebootstrap`."""
        if not self._may_rebootstrap:
            return False
        since_ms = self._trying_since_ms
        return self._is_sent_back or (since_ms is not None and now_ms - since_ms > self._rebootstrap_trigger_ms)

    def rebootstrap(self, now_ms: int) -> None:
        """Start again with the bootstrap addresses."""
        self._is_sent_back = False
        self._trying_since_ms = self._rebootstrapped_ms = now_ms
        self._metadata.rebootstrap()

    def _is_cluster_lost(self, client: NetworkClient) -> bool:
        """Whether a connection to every known broker was attempted and none was established: all may have new addresses
        by now."""
        cluster = self._metadata.fetch()
        since_ms = self._rebootstrapped_ms
        return not cluster.is_bootstrap and all(
            client.states.is_unreachable(node.connection_id, since_ms) for node in cluster.nodes
        )

    def _update_from(self, client: NetworkClient, node: Node, now_ms: int) -> int:
        if client.can_send_request(node.connection_id, now_ms):
            update = self._metadata.next_request(now_ms)
            self._in_progress = update
            client.send_internal(node.connection_id, ApiKey.METADATA, self._builder(update), now_ms)
            return self._request_timeout_ms
        if client.states.is_any_connecting:
            # Connect to one node at a time: if the attempt succeeds, others would be unnecessary.
            return self._pause_ms
        if client.can_connect(node.connection_id, now_ms):
            client.initiate_connect(node, now_ms)
            return self._pause_ms
        # Connected but busy, or still in its handshake: the network will report an event.
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
            raise RuntimeError("received a metadata response without a request in flight")
        self._log_troubles(response)
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self._may_rebootstrap:
            self._is_sent_back = True
        elif response.error_code or not any(has_address(broker.host, broker.port) for broker in response.brokers):
            # A broker that is still starting lists no brokers, not even itself.
            self._metadata.failed_update(now_ms)
        else:
            self._trying_since_ms = None
            self._metadata.update(response, update, version=version, now_ms=now_ms)

    def _log_troubles(self, response: MetadataResponse) -> None:
        troubles = {topic.name: ErrorCode.of(topic.error_code).name for topic in response.topics if topic.error_code}
        if troubles:
            shown = ", ".join(f"{name}: {code}" for name, code in list(troubles.items())[:_TROUBLES_SHOWN])
            more = len(troubles) - _TROUBLES_SHOWN
            self._log.info(
                "metadata response has errors for topics: %s%s", shown, f" and {more} more" if more > 0 else ""
            )

    def handle_failed_request(self, now_ms: int, error: KafkaError | None) -> None:
        """Handle a failed update; with an *error* no later update can succeed either."""
        self._in_progress = None
        self._metadata.failed_update(now_ms)
        if error is not None:
            self._metadata.fatal_error(error)

    def handle_server_disconnect(self, now_ms: int, error: KafkaError | None) -> None:
        """Handle a connection that was lost or could not be made; *error* if the broker refused the authentication."""
        if self.is_update_due(now_ms):
            # An update was due; counting it as failed applies the backoff between attempts.
            self._metadata.failed_update(now_ms)
        if error is not None:
            self._metadata.fatal_error(error)
        # The broker may never return, and other brokers may lead its partitions.
        self._metadata.request_update()

    def close(self) -> None:
        self._metadata.close()
