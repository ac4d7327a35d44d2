"""Creates a network client for producer, consumer and admin client.

Called on the constructing thread. It only resolves the bootstrap addresses; no connection is opened before the client
is polled.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from kafka_sink.client.connection.connection_states import ConnectionFailure
from kafka_sink.client.connection.metadata_updater import MetadataUpdater
from kafka_sink.client.connection.network_client import NetworkClient
from kafka_sink.client.login.channel_security import create_channel_builder
from kafka_sink.client.metadata.metadata import Metadata
from kafka_sink.client.options.config import RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY, ClientConfig, parse_addresses
from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.threads import StartThread, start_loop
from kafka_sink.network.channel.selectable import Selectable
from kafka_sink.network.polling.selector import KSelector, SelectorLimits
from kafka_sink.network.polling.selector_metrics import SelectorMetrics
from kafka_sink.network.transport.resolver import canonical_names, resolve

__all__ = ["ClientNetwork", "SelectorMetrics", "bootstrap_addresses", "create_client"]

#: Part of the error if no name in ``bootstrap.servers`` has an address now.
NO_ADDRESS: Final = "no usable address"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClientNetwork:
    """A network client, its metadata, its connection metrics and their clock. One thread drives it; ``start_thread``
    starts that thread with the loop to run."""

    client: NetworkClient
    metadata: Metadata
    metrics: SelectorMetrics
    clock: Clock = SYSTEM_CLOCK
    start_thread: StartThread = start_loop


def create_client(
    config: ClientConfig,
    *,
    client_id: str,
    clock: Clock = SYSTEM_CLOCK,
    allow_auto_topic_creation: bool = True,
    selectable: Selectable | None = None,
    metrics: SelectorMetrics | None = None,
) -> tuple[NetworkClient, Metadata]:
    """Create a client with the bootstrap addresses of *config*, and its metadata.

    *selectable* replaces the real network; *metrics* records its traffic.

    :raises ConfigError: if a bootstrap address is not host:port, if none of the hosts can be resolved, or if the
        ``ssl.*`` or ``sasl.*`` options are unusable.
    """
    context = f"client.id={client_id}" if client_id else ""
    metadata = Metadata(
        clock,
        config.retry_backoff_ms,
        config.metadata_max_age_ms,
        config.metadata_max_idle_ms,
        refresh_backoff_max_ms=config.retry_backoff_max_ms,
        log_context=context,
    )
    addresses, unresolved = bootstrap_addresses(config)
    metadata.bootstrap(addresses)
    updater = MetadataUpdater(
        metadata, config, allow_auto_topic_creation=allow_auto_topic_creation, log_context=context
    )
    if selectable is None:
        limits = SelectorLimits(
            max_receive_bytes=config.receive_message_max_bytes, connections_max_idle_ms=config.connections_max_idle_ms
        )
        builder = create_channel_builder(config, clock, client_id)
        selectable = KSelector(builder, clock, limits, metrics=metrics, log_context=context)
    client = NetworkClient(config, selectable=selectable, metadata_updater=updater, clock=clock, client_id=client_id)
    for failure in unresolved:
        client.peers.failed(failure.host, failure.port, failure.cause)
    return client, metadata


def bootstrap_addresses(config: ClientConfig) -> tuple[list[tuple[str, int]], list[ConnectionFailure]]:
    """Host and port of every usable bootstrap address, and a failure for each address whose name does not resolve.

    :raises ConfigError: if no address is usable; the text says why for each.
    """
    usable: list[tuple[str, int]] = []
    unresolved: list[ConnectionFailure] = []
    for host, port in parse_addresses(config.bootstrap_servers):
        try:
            addresses = resolve(host, port)
        except OSError as error:
            _log.warning("removing %s:%d from %s: %s", host, port, config.option("bootstrap.servers"), error)
            unresolved.append(ConnectionFailure(host, port, str(error)))
            continue
        if config.client_dns_lookup == RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY:
            usable.extend((name, port) for name in canonical_names(addresses))
        else:
            usable.append((host, port))
    if not usable:
        raise ConfigError.of(config.option("bootstrap.servers"), f": {NO_ADDRESS}; {'; '.join(map(str, unresolved))}")
    return list(dict.fromkeys(usable)), unresolved
