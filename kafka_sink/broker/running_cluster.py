"""The objects that exist only while the nodes of a cluster run: those that all nodes share, and of each node its socket
server, its handler threads and its advertised addresses.

Called by the threads that start and stop nodes, one at a time; a node runs its own threads. No thread, socket or
temporary directory may be left behind once it is stopped.

Source: apache/kafka ``BrokerServer``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from kafka_sink.broker.authorizer import Authorizer
from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.cluster.topic_state import NO_LEADER
from kafka_sink.broker.config import BrokerConfig, EndPoint
from kafka_sink.broker.coordinator.group_coordinator import GroupCoordinator
from kafka_sink.broker.coordinator.store import CoordinatorStore, TransactionStore
from kafka_sink.broker.coordinator.transaction_coordinator import TransactionCoordinator
from kafka_sink.broker.coordinator.transaction_markers import TransactionMarkers
from kafka_sink.broker.data_directory import TemporaryDirectory, hold
from kafka_sink.broker.delays import DelayedOperationPurgatory, Timer
from kafka_sink.broker.faults.faults import Faults
from kafka_sink.broker.handlers import features
from kafka_sink.broker.handlers.context import BrokerContext
from kafka_sink.broker.handlers.dispatch import dispatcher, served_versions
from kafka_sink.broker.handlers.topics import delete_with_records
from kafka_sink.broker.log.filesystem import FileSystem
from kafka_sink.broker.log.log_manager import LogManager
from kafka_sink.broker.log.partition_log import LogConfig
from kafka_sink.broker.network.connection_quotas import ConnectionLimits
from kafka_sink.broker.network.listener_security import missing_protection, users_of
from kafka_sink.broker.network.quotas import CONSUMER_RATE, PRODUCER_RATE, ClientQuota, ResponseBudget
from kafka_sink.broker.network.request_channel import HandlerPool, RequestChannel
from kafka_sink.broker.network.socket_server import SocketServer, refuse_unknown_listeners
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import ApiError, ConfigError, error_for
from kafka_sink.common.files import make_own_directory
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.metrics import Family, Metric
from kafka_sink.common.model import TopicPartition
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
        answer_versions = partial(features.answer, context)
        self.server = SocketServer(name, config, endpoints, context.users, clock, answer_versions)
        self._pools = [self._pool(f"{name}-handler", self.server.data_plane_request_channel, config.num_io_threads)]
        if self.server.control_plane_request_channel is not None:
            self._pools.append(self._pool(f"{name}-control-handler", self.server.control_plane_request_channel, 1))
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
        self.server.bind()
        for item in self.bound_endpoints():
            self._warn_if_exposed(item, self.server.security.protocols[item.listener_name])
        return {item.listener_name: self._reachable(item.listener_name) for item in self._endpoints}

    def bound_endpoints(self) -> list[EndPoint]:
        """The addresses that the node listens on, with port 0 replaced by the port that was bound."""
        return [self.server.bound_endpoint(item.listener_name) for item in self._endpoints]

    def serve(self) -> None:
        """Start the threads. The node must already be registered in the cluster."""
        for pool in self._pools:
            pool.start()
        self.server.start_processing_requests()

    def _reachable(self, listener_name: str) -> EndPoint:
        bound = self.server.bound_endpoint(listener_name)
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
        yield from self.server.metrics(tags)
        yield HANDLERS_IDLE.at(self._pools[0].idle_share, *tags)

    def stop(self) -> None:
        """Leave the cluster: close listeners and connections, end all threads."""
        self.server.shutdown()
        for pool in self._pools:
            pool.shutdown()


WAITING_FETCHES: Final = Family(
    "DelayedOperationPurgatory", "PurgatorySize", "Fetches that wait for records: about the number of idle consumers."
)


class RunningCluster:
    """The objects of a cluster that exist only while it runs."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        filesystem: FileSystem,
        node_ids: Sequence[int],
        data_dir: Path | None,
        faults: Faults,
    ) -> None:
        """*data_dir*: None for a temporary directory.

        :raises OSError: if the data directory is in use or not usable.
        :raises ConfigError: if it has other content.
        """
        self._config = config
        self._clock = clock
        self._node_ids = tuple(node_ids)
        self._timer = Timer(clock)
        self._purgatory = DelayedOperationPurgatory(self._timer)
        self._brokers: dict[int, BrokerServer] = {}
        self._bound: dict[int, list[EndPoint]] = {}
        with ExitStack() as steps:
            self._open(filesystem, data_dir, faults, steps)
            self._start()
            self._steps_of_stop = steps.pop_all()

    def _open(self, filesystem: FileSystem, data_dir: Path | None, faults: Faults, steps: ExitStack) -> None:
        """Open everything on the disk, and create the coordinators; *steps* close it, the last one first."""
        config, clock = self._config, self._clock
        directory = data_dir
        if directory is None:
            temporary = TemporaryDirectory()
            steps.callback(temporary.remove)
            directory = temporary.path
        make_own_directory(directory)
        filesystem.make_directories(directory)
        steps.callback(hold(directory / ".lock", "broker process").release)
        self.state = ClusterState(directory, filesystem, config, self._node_ids)
        self.logs = LogManager(directory / "logs", filesystem, clock)
        # Temporary data need not be flushed.
        steps.callback(self.logs.abandon if data_dir is None else self.logs.close)
        steps.callback(self.logs.stop_housekeeping)
        self.logs.open_existing(self._log_config)
        coordinators = CoordinatorStore(directory, flush_writes=config.log_flush_interval_messages == 1)
        steps.callback(coordinators.close)
        steps.callback(self._timer.stop)
        self._groups = GroupCoordinator(config, coordinators, clock, self._timer, self.state)
        complete_transaction = self._groups.complete_transaction
        markers = TransactionMarkers(self.state, self.logs, complete_transaction, clock, self._purgatory.check)
        store, allocate = TransactionStore(coordinators), self.state.allocate_producer_id
        windows = config.quota_window_num, int(config.quota_window_size_seconds * 1000)
        self._context = BrokerContext(
            # Each node has a copy with its own id.
            node_id=NO_LEADER,
            config=config,
            cluster=self.state,
            logs=self.logs,
            purgatory=self._purgatory,
            timer=self._timer,
            clock=clock,
            producer_quota=ClientQuota(*windows),
            consumer_quota=ClientQuota(*windows),
            response_budget=ResponseBudget(config.queued_max_response_bytes),
            groups=self._groups,
            transactions=TransactionCoordinator(config, store, markers, allocate, clock, self._timer),
            markers=markers,
            faults=faults,
            authorizer=Authorizer(config, lambda: self.state.image.acls),
            users=users_of(config, lambda: self.state.image.scram_users),
            versions=served_versions(config),
        )

    def _log_config(self, partition: TopicPartition) -> LogConfig | None:
        topic = self.state.topic(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return None
        return topic.settings.log

    def _start(self) -> None:
        """Read the state of the coordinators and start the threads."""
        self.state.subscribe(self._groups.follow)
        self.state.subscribe(self._follow_quotas)
        self._follow_quotas()
        self.state.subscribe(LogChanges(self.state, self.logs, self._purgatory).apply)
        self._groups.start()
        self._context.transactions.start()
        self._timer.start("broker-timer")
        check_ms, flush_ms = self._config.log_retention_check_interval_ms, self._config.log_flush_scheduler_interval_ms
        self.logs.start_housekeeping("broker-housekeeping", check_ms, flush_ms)
        self.logs.start_compaction("broker-compaction", lambda: self.state.defaults.log_cleaner_backoff_ms)

    def _follow_quotas(self) -> None:
        """Apply the quotas of the cluster's image."""
        context, quotas = self._context, self.state.image.quotas
        for quota, name in ((context.producer_quota, PRODUCER_RATE), (context.consumer_quota, CONSUMER_RATE)):
            quota.follow({entity: values[name] for entity, values in quotas.items() if name in values})

    def start_nodes(self, nodes: Mapping[int, list[EndPoint]]) -> None:
        """Start *nodes*, each with its listeners. :raises OSError: if an address is in use. :raises ConfigError."""
        reachable = {}
        for node_id, endpoints in nodes.items():
            number = self._node_ids.index(node_id)
            broker = BrokerServer(replace(self._context, node_id=node_id), endpoints, number)
            self._brokers[node_id] = broker
            try:
                reachable[node_id] = broker.bind()
            except BaseException:
                self._brokers.pop(node_id).stop()
                raise
            self._bound[node_id] = broker.bound_endpoints()
        # All nodes at once; otherwise the first one would become the leader of all partitions of which it is a replica.
        self.state.nodes_up(reachable)
        for node_id in nodes:
            self._brokers[node_id].serve()

    def metrics(self) -> list[Metric]:
        figures = [metric for broker in tuple(self._brokers.values()) for metric in broker.metrics()]
        # All nodes share one purgatory.
        return [*figures, WAITING_FETCHES.at(self._purgatory.watched, ("delayedOperation", "Fetch"))]

    def set_connection_limits(self, limits: ConnectionLimits) -> None:
        for broker in tuple(self._brokers.values()):
            broker.server.connection_quotas.update(limits)

    def restart_node(self, node_id: int) -> None:
        """:raises ValueError: if it was not stopped. :raises OSError: if its address is in use by now."""
        if node_id in self._brokers or node_id not in self._bound:
            raise ValueError(f"broker {node_id} was not stopped before")
        self.start_nodes({node_id: self._bound[node_id]})

    def delete_topic(self, name: str) -> None:
        """:raises ApiError: if it does not exist, or cannot be deleted."""
        outcome = delete_with_records(self._context, [name])[name]
        if isinstance(outcome, ApiError):
            raise error_for(outcome.code, str(outcome))

    def stop_node(self, node_id: int) -> None:
        """:raises ValueError: if it does not run.

        :raises OSError: if its stop cannot be stored; it continues to run.
        """
        if node_id not in self._brokers:
            raise ValueError(f"broker {node_id} is not running")
        # Leaders move before the connections are closed, so that requests in the meantime find the new ones.
        self.state.node_down(node_id)
        self._brokers.pop(node_id).stop()

    def stop(self) -> None:
        """Stop all nodes, flush and close the logs, release the data directory.

        If a step fails, all others are executed nevertheless. :raises OSError: if some data could not be written.
        """
        with self._steps_of_stop as steps:
            for broker in self._brokers.values():
                steps.callback(broker.stop)


class LogChanges:
    """Applies changes of the cluster to its logs, on the thread that made them: settings, and leaders for which delayed
    fetches wait. It must not hold a lock while delayed fetches are answered."""

    def __init__(self, cluster: ClusterState, logs: LogManager, purgatory: DelayedOperationPurgatory) -> None:
        self._cluster = cluster
        self._logs = logs
        self._purgatory = purgatory
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._applied = cluster.image

    def apply(self) -> None:
        """Apply the current state of the cluster."""
        with self._lock:
            image = self._cluster.image
            before, self._applied = self._applied, image
            changed = [topic for name, topic in image.topics.items() if before.topics.get(name) is not topic]
            for topic in changed:
                for log in filter(None, map(self._logs.get, topic.topic_partitions())):
                    log.reconfigure(topic.settings.log)
        for topic in changed:
            old = before.topics.get(topic.name)
            states = zip(topic.topic_partitions(), old.partitions if old else (), topic.partitions, strict=False)
            for partition, state_before, state in states:
                if state != state_before:
                    self._purgatory.check(partition)
