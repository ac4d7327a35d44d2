"""A Kafka cluster inside this process: the place where network layer, handlers and log are put together.

Started and stopped by any thread; it brings its own. All nodes share one cluster state and one set of logs: data is
stored once, and a partition's replicas are the nodes that may lead it. Must never leave a thread, a socket or a
temporary directory behind once it is stopped.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final

from kafka_sink.broker.client_quotas import ClientQuota
from kafka_sink.broker.cluster_state import ClusterState
from kafka_sink.broker.config import BrokerConfig, EndPoint
from kafka_sink.broker.connection_quotas import ConnectionLimits
from kafka_sink.broker.coordinator.store import CoordinatorStore
from kafka_sink.broker.coordinator.transaction_coordinator import TransactionCoordinator
from kafka_sink.broker.coordinator.transaction_markers import TransactionMarkers
from kafka_sink.broker.coordinator.transaction_store import TransactionStore
from kafka_sink.broker.handler_pool import HandlerPool
from kafka_sink.broker.handlers.context import BrokerContext
from kafka_sink.broker.handlers.dispatch import HANDLERS, dispatcher
from kafka_sink.broker.log.filesystem import DirectoryLock, FileSystem, OsFileSystem
from kafka_sink.broker.log.log_manager import LogManager
from kafka_sink.broker.log.partition_log import LogConfig
from kafka_sink.broker.purgatory import DelayedOperationPurgatory
from kafka_sink.broker.request_channel import RequestChannel
from kafka_sink.broker.response_budget import ResponseBudget
from kafka_sink.broker.socket_server import SocketServer, kselector_factory
from kafka_sink.broker.timer import Timer
from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.metrics import Metric, render_prometheus
from kafka_sink.common.model import TopicPartition

FIRST_NODE_ID: Final = 1
_DEFAULT_LISTENER: Final = "PLAINTEXT"
_ANY_HOST: Final = frozenset({"0.0.0.0", "::"})


class EmbeddedBroker:
    """One node: a socket server, its handler threads, and its place in the cluster."""

    def __init__(self, context: BrokerContext, endpoints: list[EndPoint]) -> None:
        self._context = context
        config, clock = context.config, context.clock
        name = f"broker-{context.node_id}"
        self._server = SocketServer(name, config, endpoints, clock, kselector_factory(config, clock))
        self._pools = [self._pool(f"{name}-handler", self._server.data_plane_request_channel, config.num_io_threads)]
        if self._server.control_plane_request_channel is not None:
            self._pools.append(self._pool(f"{name}-control-handler", self._server.control_plane_request_channel, 1))
        self._advertised = {item.listener_name: item for item in map(EndPoint.parse, config.advertised_listeners)}
        self._endpoints = endpoints

    def _pool(self, name: str, channel: RequestChannel, threads: int) -> HandlerPool:
        return HandlerPool(name, channel, dispatcher(self._context, channel), threads)

    def bind(self) -> Mapping[str, EndPoint]:
        """Open the listeners; returns where clients connect to, by listener. :raises OSError: an address is taken."""
        self._server.startup(start_processing_requests=False)
        return {item.listener_name: self._reachable(item.listener_name) for item in self._endpoints}

    def bound_endpoints(self) -> list[EndPoint]:
        """Where it listens, with the ports that were free."""
        return [self._server.bound_endpoint(item.listener_name) for item in self._endpoints]

    def serve(self) -> None:
        """Start the threads; the cluster knows the node by now."""
        for pool in self._pools:
            pool.start()
        self._server.start_processing_requests()

    def _reachable(self, listener_name: str) -> EndPoint:
        bound = self._server.bound_endpoint(listener_name)
        advertised = self._advertised.get(listener_name)
        if advertised is not None:
            return replace(advertised, port=advertised.port or bound.port)
        # Nobody can connect to "any address"; whoever has clients elsewhere has to say by which name they reach us.
        return replace(bound, host="127.0.0.1") if bound.host in _ANY_HOST else bound

    def metrics(self) -> Iterator[Metric]:
        """Kafka's figures of this node, as they are now (any thread)."""
        tags = (("node", str(self._context.node_id)),)
        yield from self._server.metrics(tags)
        idle = self._pools[0].idle_share
        yield Metric("RequestHandlerAvgIdlePercent", "KafkaRequestHandlerPool", tags, idle)

    def set_connection_limits(self, limits: ConnectionLimits) -> None:
        """Have other limits from now on (any thread)."""
        self._server.update_connection_limits(limits)

    def stop(self) -> None:
        """Leave the cluster: close listeners and connections, end all threads."""
        self._server.shutdown()
        for pool in self._pools:
            pool.shutdown()


class EmbeddedCluster:
    """A Kafka cluster of *nodes* brokers in this process, for tests and small set-ups.

    ::

        with EmbeddedCluster(nodes=3) as cluster:
            cluster.create_topic("flights", partitions=6)
            producer = KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers})

    *port* is the first node's, further nodes take the ports after it; 0 takes free ones. *data_dir* keeps the data for
    the next start; without it the data lives in a temporary directory and ends with the cluster. *num_partitions* and
    *auto_create_topics* stand for ``num.partitions`` and ``auto.create.topics.enable`` of *config*.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        data_dir: str | Path | None = None,
        config: BrokerConfig | None = None,
        num_partitions: int | None = None,
        auto_create_topics: bool | None = None,
        filesystem: FileSystem | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Nothing runs yet. :raises ConfigError: the configuration contradicts itself."""
        if nodes < 1:
            raise ConfigError(f"a cluster has at least one node, not {nodes}")
        config = config or BrokerConfig()
        if num_partitions is not None:
            config = replace(config, num_partitions=num_partitions)
        if auto_create_topics is not None:
            config = replace(config, auto_create_topics_enable=auto_create_topics)
        self._config = config
        self._clock = clock
        self._filesystem = filesystem or OsFileSystem()
        self._node_ids = tuple(range(FIRST_NODE_ID, FIRST_NODE_ID + nodes))
        listeners = [EndPoint.parse(text) for text in config.listeners]
        self._listeners = listeners or [EndPoint(_DEFAULT_LISTENER, host, port)]
        self._data_dir = Path(data_dir) if data_dir is not None else None
        self._log = ContextLogger(__name__, "cluster")
        self._lock = threading.Lock()
        # Guarded by the lock; set while the cluster runs.
        self._running: _RunningCluster | None = None

    def __enter__(self) -> EmbeddedCluster:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Open the logs and start every node; clients can connect when this returns.

        :raises OSError: an address cannot be bound, or the data directory is in use or not usable.
        :raises ConfigError: the data directory holds something else, or the configuration contradicts itself.
        """
        with self._lock:
            if self._running is not None:
                raise RuntimeError("the cluster is running already")
            self._running = _RunningCluster(self._config, self._clock, self._filesystem, self._node_ids, self._data_dir)
            try:
                self._running.start_nodes({node_id: self._endpoints(node_id) for node_id in self._node_ids})
            except BaseException:
                self._running.stop()
                self._running = None
                raise

    def _endpoints(self, node_id: int) -> list[EndPoint]:
        number = node_id - FIRST_NODE_ID
        return [replace(item, port=item.port + number if item.port else 0) for item in self._listeners]

    def stop(self) -> None:
        """Stop every node and close the logs. A second call does nothing."""
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            running.stop()

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,…`` of every running node, on the first listener."""
        nodes = self._cluster.state.nodes
        name = self._listeners[0].listener_name
        return ",".join(f"{nodes[node][name].host}:{nodes[node][name].port}" for node in sorted(nodes))

    @property
    def _cluster(self) -> _RunningCluster:
        running = self._running
        if running is None:
            raise RuntimeError("the cluster is not running")
        return running

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        *,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; −1 takes the configured default. :raises ApiError: it exists or is not a legal one."""
        self._cluster.state.create_topic(name, partitions, replication_factor, configs)

    def metrics(self) -> list[Metric]:
        """Figures of every running node under Kafka's names: times of requests by API, idle threads, connections.

        Times are those of each API's newest requests, in ms; idle threads are shares from 0 to 1.
        """
        return self._cluster.metrics()

    def prometheus(self) -> str:
        """:meth:`metrics` in Prometheus' text format."""
        return render_prometheus(self.metrics())

    def set_produce_quota(self, bytes_per_s: int | None, client_id: str | None = None) -> None:
        """Throttle *client_id* (None: every client without a quota of its own) from *bytes_per_s* on; None lifts it."""
        self._cluster.producer_quota.set_limit(bytes_per_s, client_id)

    def set_fetch_quota(self, bytes_per_s: int | None, client_id: str | None = None) -> None:
        """As :meth:`set_produce_quota`, for what clients read."""
        self._cluster.consumer_quota.set_limit(bytes_per_s, client_id)

    def set_connection_limits(self, limits: ConnectionLimits) -> None:
        """Limit connections to each running node in another way from now on."""
        self._cluster.set_connection_limits(limits)

    def stop_node(self, node_id: int) -> None:
        """Stop one node (ids start at 1), as if it had gone down: others take over what they are replicas of."""
        self._cluster.stop_node(node_id)

    def start_node(self, node_id: int) -> None:
        """Start a stopped node again, on the port it had. :raises OSError: somebody else has it by now."""
        self._cluster.restart_node(node_id)


class _RunningCluster:
    """Everything that exists only while a cluster runs."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        filesystem: FileSystem,
        node_ids: tuple[int, ...],
        data_dir: Path | None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._temporary = Path(tempfile.mkdtemp(prefix="kafkalite-")) if data_dir is None else None
        directory = data_dir if data_dir is not None else self._temporary
        assert directory is not None
        filesystem.make_directories(directory)
        self._directory_lock = DirectoryLock(directory)
        try:
            self.state = ClusterState(directory, filesystem, config, node_ids)
            self.logs = LogManager(directory / "logs", filesystem, clock)
            self.logs.open_existing(self._log_config)
            flush_writes = config.log_flush_interval_messages == 1
            self._coordinators = CoordinatorStore(directory, flush_writes=flush_writes)
        except BaseException:
            self._release_directory()
            raise
        self._timer = Timer(clock)
        self._purgatory = DelayedOperationPurgatory(self._timer)
        self._markers = TransactionMarkers(self.state, self.logs, None, clock, self._purgatory.check)
        self._transactions = TransactionCoordinator(
            config,
            TransactionStore(self._coordinators),
            self._markers,
            self.state.allocate_producer_id,
            clock,
            self._timer,
        )
        windows = config.quota_window_num, int(config.quota_window_size_seconds * 1000)
        self.producer_quota = ClientQuota(config.quota_producer_default, *windows)
        self.consumer_quota = ClientQuota(config.quota_consumer_default, *windows)
        self._response_budget = ResponseBudget(config.queued_max_response_bytes)
        self._brokers: dict[int, EmbeddedBroker] = {}
        self._bound: dict[int, list[EndPoint]] = {}
        self._transactions.start()
        self._timer.start("broker-timer")
        self.logs.start_housekeeping(
            "broker-housekeeping", config.log_retention_check_interval_ms, config.log_flush_scheduler_interval_ms
        )

    def _log_config(self, partition: TopicPartition) -> LogConfig | None:
        topic = self.state.topic(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return None
        return topic.settings.log

    def start_nodes(self, nodes: Mapping[int, list[EndPoint]]) -> None:
        reachable = {}
        for node_id, endpoints in nodes.items():
            broker = EmbeddedBroker(self._context(node_id), endpoints)
            self._brokers[node_id] = broker
            try:
                reachable[node_id] = broker.bind()
            except OSError:
                self._brokers.pop(node_id).stop()
                raise
            self._bound[node_id] = broker.bound_endpoints()
        # All at once: one after the other, the first would take the lead of everything it has a replica of.
        self.state.nodes_up(reachable)
        for node_id in nodes:
            self._brokers[node_id].serve()

    def _context(self, node_id: int) -> BrokerContext:
        return BrokerContext(
            node_id,
            self._config,
            self.state,
            self.logs,
            self._purgatory,
            self._timer,
            self._clock,
            self.producer_quota,
            self.consumer_quota,
            self._response_budget,
            self._transactions,
            self._markers,
            {key: handler.versions for key, handler in HANDLERS.items()},
        )

    def metrics(self) -> list[Metric]:
        return [metric for broker in tuple(self._brokers.values()) for metric in broker.metrics()]

    def set_connection_limits(self, limits: ConnectionLimits) -> None:
        for broker in tuple(self._brokers.values()):
            broker.set_connection_limits(limits)

    def restart_node(self, node_id: int) -> None:
        if node_id in self._brokers or node_id not in self._bound:
            raise ValueError(f"broker {node_id} is not one that was stopped")
        self.start_nodes({node_id: self._bound[node_id]})

    def stop_node(self, node_id: int) -> None:
        broker = self._brokers.pop(node_id, None)
        if broker is None:
            raise ValueError(f"broker {node_id} is not running")
        moved = self.state.node_down(node_id)
        broker.stop()
        for partition in moved:
            self._purgatory.check(partition)

    def stop(self) -> None:
        for broker in self._brokers.values():
            broker.stop()
        self._timer.stop()
        self._coordinators.close()
        self.logs.stop_housekeeping()
        if self._temporary is None:
            self.logs.close()
        else:
            # Nothing is kept, so nothing has to reach the disk.
            self.logs.abandon()
        self._release_directory()

    def _release_directory(self) -> None:
        self._directory_lock.release()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
