"""One node of a cluster: its socket server, its handler threads, and its advertised addresses.

The cluster that owns the node starts and stops it, on any thread. The node runs threads of its own. It must not leave
a thread or a socket behind once it is stopped.

Source: apache/kafka ``BrokerServer``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from kafka_sink.broker.config import EndPoint
from kafka_sink.broker.handlers import features
from kafka_sink.broker.handlers.context import BrokerContext
from kafka_sink.broker.handlers.dispatch import dispatcher
from kafka_sink.broker.network.connection_quotas import ConnectionLimits
from kafka_sink.broker.network.listener_security import missing_protection, security_protocols
from kafka_sink.broker.network.request_channel import HandlerPool, RequestChannel
from kafka_sink.broker.network.socket_server import SocketServer, kselector_factory, refuse_unknown_listeners
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.metrics import Family, Metric
from kafka_sink.network.transport.resolver import address_of_this_machine, is_loopback

_ANY_HOST: Final = frozenset({"0.0.0.0", "::"})
HANDLERS_IDLE: Final = Family(
    "KafkaRequestHandlerPool",
    "RequestHandlerAvgIdlePercent",
    "Share of time, 0 to 1, that the handlers wait. Near 0 they are the bottleneck: num.io.threads.",
)


class BrokerServer:
    """One node: a socket server, its handler threads, and its place in the cluster."""

    def __init__(self, context: BrokerContext, endpoints: list[EndPoint], number: int) -> None:
        """*number* is this node's index within its process; it is added to the advertised ports."""
        self._context = context
        self._number = number
        config, clock = context.config, context.clock
        name = f"broker-{context.node_id}"
        selectors = kselector_factory(config, endpoints, context.users, clock, partial(features.answer, context))
        self._server = SocketServer(name, config, endpoints, clock, selectors)
        self._pools = [self._pool(f"{name}-handler", self._server.data_plane_request_channel, config.num_io_threads)]
        if self._server.control_plane_request_channel is not None:
            self._pools.append(self._pool(f"{name}-control-handler", self._server.control_plane_request_channel, 1))
        self._advertised = {item.listener_name: item for item in map(EndPoint.parse, config.advertised_listeners)}
        refuse_unknown_listeners("advertised.listeners", self._advertised, [item.listener_name for item in endpoints])
        for item in self._advertised.values():
            if item.host in _ANY_HOST:
                raise ConfigError.of(
                    "advertised.listeners",
                    f": clients cannot connect to {item}; set the address of a network interface of this machine",
                )
        self._endpoints = endpoints
        self._log = ContextLogger(__name__, name)

    def _pool(self, name: str, channel: RequestChannel, threads: int) -> HandlerPool:
        return HandlerPool(name, channel, dispatcher(self._context, channel), threads)

    def bind(self) -> Mapping[str, EndPoint]:
        """Open the listeners; returns the advertised address of each listener.

        :raises OSError: if an address is in use.
        """
        self._server.bind()
        protocols = security_protocols(self._context.config, [item.listener_name for item in self._endpoints])
        for item in self.bound_endpoints():
            self._warn_if_exposed(item, protocols[item.listener_name])
        return {item.listener_name: self._reachable(item.listener_name) for item in self._endpoints}

    def bound_endpoints(self) -> list[EndPoint]:
        """The addresses that the node listens on, with port 0 replaced by the port that was bound."""
        return [self._server.bound_endpoint(item.listener_name) for item in self._endpoints]

    def serve(self) -> None:
        """Start the threads. The node must already be registered in the cluster."""
        for pool in self._pools:
            pool.start()
        self._server.start_processing_requests()

    def _reachable(self, listener_name: str) -> EndPoint:
        bound = self._server.bound_endpoint(listener_name)
        advertised = self._advertised.get(listener_name)
        if advertised is not None:
            return replace(advertised, port=advertised.port + self._number if advertised.port else bound.port)
        if bound.host not in _ANY_HOST:
            return bound
        # Clients cannot connect to a wildcard address.
        own = address_of_this_machine(bound.host)
        here = replace(bound, host=own or "127.0.0.1")
        self._log.warning(
            "%s accepts connections on every address, and clients are told to connect to %s, %s; if they reach this "
            "machine by another address, set advertised.listeners to it",
            bound,
            here.address,
            "the address of this machine in its network" if own else "which only clients on this machine can",
        )
        return here

    def _warn_if_exposed(self, bound: EndPoint, protocol: str) -> None:
        missing = missing_protection(self._context.config, protocol)
        if missing and (bound.host in _ANY_HOST or not is_loopback(bound.host)):
            danger = (
                "whoever can connect can read, change and delete everything"
                if "authentication" in missing
                else "whoever is on the way can read everything, passwords of PLAIN too"
            )
            self._log.warning(
                "%s IS OPEN TO OTHER MACHINES WITHOUT %s: %s; listen on 127.0.0.1, or configure a listener with "
                "SASL_SSL",
                bound,
                " AND ".join(missing).upper(),
                danger,
            )

    def metrics(self) -> Iterator[Metric]:
        """Kafka's metrics of this node at this moment (any thread)."""
        tags = (("node", str(self._context.node_id)),)
        yield from self._server.metrics(tags)
        yield HANDLERS_IDLE.at(self._pools[0].idle_share, *tags)

    def set_connection_limits(self, limits: ConnectionLimits) -> None:
        """Replace the connection limits (any thread)."""
        self._server.update_connection_limits(limits)

    def stop(self) -> None:
        """Leave the cluster: close listeners and connections, end all threads."""
        self._server.shutdown()
        for pool in self._pools:
            pool.shutdown()
