"""A Kafka cluster inside this process: the public entry point.

Any thread may start and stop it; it runs its own threads. All nodes share one cluster state and one set of logs:
data is stored once, and the replicas of a partition are the nodes that may lead it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from kafka_sink.broker.config import BrokerConfig, EndPoint
from kafka_sink.broker.faults.disk import FaultyFileSystem
from kafka_sink.broker.faults.faults import Faults
from kafka_sink.broker.log.filesystem import FileSystem, OsFileSystem
from kafka_sink.broker.network.connection_quotas import ConnectionLimits
from kafka_sink.broker.running_cluster import RunningCluster
from kafka_sink.common.acl import AclBinding, AclBindingFilter, validate
from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.log_context import Said
from kafka_sink.common.metrics import Metric
from kafka_sink.common.model import TopicPartition
from kafka_sink.common.text import html_table
from kafka_sink.common.threads import at_fork

FIRST_NODE_ID: Final = 1
_DEFAULT_LISTENER: Final = "PLAINTEXT"
_LAST_PORT: Final = 65535

_log = logging.getLogger(__name__)

#: Running clusters without a with statement → their addresses; kept here because a program may lose its reference.
_left_running: Final[dict[RunningCluster, str]] = {}
_told: Final = Said()


class EmbeddedCluster:
    """A Kafka cluster of *nodes* brokers in this process, for development and tests.

    ::

        with EmbeddedCluster(nodes=3) as cluster:
            cluster.create_topic("flights", partitions=6)
            producer = KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers})

    *port* is the port of the first node, and further nodes use the ports after it; 0 selects free ports. *data_dir*
    keeps the data for the next start; without it the data is in a temporary directory that is deleted with the cluster.
    *num_partitions* and *auto_create_topics* override ``num.partitions`` and ``auto.create.topics.enable`` of *config*.
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
        """Does not start anything.

        :raises ConfigError: if an argument is not a number, or the configuration contradicts itself.
        """
        config = config or BrokerConfig()
        _check_number("nodes", nodes)
        _check_number("port", port)
        if num_partitions is not None:
            config = replace(config, num_partitions=num_partitions)
        if auto_create_topics is not None:
            config = replace(config, auto_create_topics_enable=auto_create_topics)
        self._config = config
        self._clock = clock
        #: Fault injection; no faults are set initially.
        self.faults: Final = Faults()
        self._filesystem = FaultyFileSystem(filesystem or OsFileSystem(flushes=data_dir is not None), self.faults)
        if nodes < 1:
            raise ConfigError(f"a cluster has at least one node, got {nodes}")
        self._node_ids = range(FIRST_NODE_ID, FIRST_NODE_ID + nodes)
        self._data_dir = None if data_dir is None else Path(data_dir)
        listeners = [EndPoint.parse(text) for text in config.listeners]
        self._listeners = listeners or [EndPoint(_DEFAULT_LISTENER, host, port)]
        _refuse_taken_ports(self._listeners, nodes)
        _refuse_taken_ports([EndPoint.parse(text) for text in config.advertised_listeners], nodes)
        self._lock = threading.Lock()
        # Guarded by the lock; set while the cluster runs.
        self._running: RunningCluster | None = None
        # True in processes that were forked from the one in which the cluster runs.
        self._was_forked = False
        at_fork(self, EmbeddedCluster._forked)

    def __enter__(self) -> EmbeddedCluster:
        self._start(is_scoped=True)
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def start(self) -> None:
        """Open the logs and start every node; clients can connect when this returns.

        :raises OSError: if an address cannot be bound, or the data directory is in use or not usable.
        :raises ConfigError: if the data directory has other content, or the configuration contradicts itself.
        :raises RuntimeError: if the cluster is already running.
        """
        self._start(is_scoped=False)

    def _start(self, *, is_scoped: bool) -> None:
        with self._lock:
            if self._running is not None:
                raise RuntimeError("the cluster is already running")
            self._running = RunningCluster(
                self._config, self._clock, self._filesystem, self._node_ids, self._data_dir, self.faults
            )
            try:
                self._running.start_nodes({node_id: self._endpoints(node_id) for node_id in self._node_ids})
            except BaseException:
                failed, self._running = self._running, None
                failed.stop()
                raise
            started = self._running
        if not is_scoped:
            _tell_of_others(self.bootstrap_servers)
            _left_running[started] = self.bootstrap_servers

    def _endpoints(self, node_id: int) -> list[EndPoint]:
        number = node_id - FIRST_NODE_ID
        return [replace(item, port=item.port + number if item.port else 0) for item in self._listeners]

    def stop(self) -> None:
        """Stop every node and close the logs. A second call, or a call in a forked child, does nothing.

        :raises OSError: if not all data could be written; the cluster is stopped nevertheless.
        """
        with self._lock:
            running, self._running = self._running, None
            was_forked, self._was_forked = self._was_forked, False
        if running is not None:
            _left_running.pop(running, None)
        if running is not None and not was_forked:
            running.stop()

    def _forked(self) -> None:
        self._lock = threading.Lock()
        self._was_forked = self._running is not None
        _left_running.clear()

    def __repr__(self) -> str:
        if self._running is None:
            return "EmbeddedCluster(not running)"
        return f"EmbeddedCluster(bootstrap_servers={self.bootstrap_servers!r})"

    def _repr_html_(self) -> str:
        """A table of the running nodes and their listeners, for a notebook."""
        if self._running is None:
            return html_table((), [], caption="EmbeddedCluster (not running)")
        rows = [
            (node_id, name, endpoint.address)
            for node_id, listeners in sorted(self.nodes.items())
            for name, endpoint in sorted(listeners.items())
        ]
        return html_table(("node", "listener", "address"), rows, caption="EmbeddedCluster")

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,…`` of every running node, on the first listener."""
        nodes = self.nodes
        name = self._listeners[0].listener_name
        return ",".join(nodes[node][name].address for node in sorted(nodes))

    @property
    def nodes(self) -> Mapping[int, Mapping[str, EndPoint]]:
        """Running nodes: id → listener name → advertised address."""
        return self._started.state.nodes

    @property
    def _started(self) -> RunningCluster:
        running = self._running
        if running is None:
            raise RuntimeError("the cluster is not running")
        return running

    @property
    def _cluster(self) -> RunningCluster:
        if self._was_forked:
            raise RuntimeError(
                "the cluster runs in the process from which this one was forked: use bootstrap_servers to connect "
                "to it as a client"
            )
        return self._started

    def create_topic(
        self, name: str, partitions: int = -1, *, replication_factor: int = -1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; −1 selects the configured default.

        :raises ApiError: if it exists or its name is not valid.
        """
        self._cluster.state.create_topic(name, partitions, replication_factor, configs)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records.

        :raises UnknownTopicOrPartitionError: if it does not exist.
        """
        self._cluster.delete_topic(name)

    def create_acls(self, acls: Sequence[AclBinding]) -> None:
        """Add *acls*; existing ones are unchanged.

        They are enforced if ``authorizer.class.name`` is configured.

        :raises ApiError: INVALID_REQUEST, if one of them is not valid; none is added then.
        """
        for acl in acls:
            validate(acl)
        self._cluster.state.create_acls(acls)

    def describe_acls(self, wanted: AclBindingFilter | None = None) -> list[AclBinding]:
        """The ACLs that *wanted* selects; all of them without it."""
        return [acl for acl in self._cluster.state.image.acls.acls if wanted is None or wanted.matches(acl)]

    def delete_acls(self, wanted: AclBindingFilter) -> list[AclBinding]:
        """Delete the ACLs that *wanted* selects, and return them."""
        return self._cluster.state.delete_acls(wanted)

    def metrics(self) -> list[Metric]:
        """Metrics of every running node under Kafka's names: request times by API, idle threads, connections.

        Times are those of the most recent requests of each API, in ms; idle shares are from 0 to 1.
        """
        return self._cluster.metrics()

    def prometheus(self) -> str:
        """:meth:`metrics` as OpenMetrics."""
        # Imported on use: most programs do not need it.
        from kafka_sink.common.exposition import OPENMETRICS, rendered

        return rendered(self.metrics(), OPENMETRICS)[0]

    def set_connection_limits(self, limits: ConnectionLimits) -> None:
        """Replace the connection limits of every running node."""
        self._cluster.set_connection_limits(limits)

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Make another replica the leader of a partition; clients learn the new leader and continue there.

        :raises ApiError: if there is no such partition, or *node_id* is not a replica of it or does not run.
        """
        self._cluster.state.move_leader(TopicPartition(topic, partition), node_id)

    def stop_node(self, node_id: int) -> None:
        """Stop one node (ids start at 1) as if it had failed: the other replicas take over its partitions."""
        self._cluster.stop_node(node_id)

    def start_node(self, node_id: int) -> None:
        """Restart a stopped node on its previous port. :raises OSError: if the port is in use by now."""
        self._cluster.restart_node(node_id)


def _tell_of_others(started: str) -> None:
    """Warn once that another cluster still runs besides the one at *started*: if a notebook cell is run again, the
    previous cluster loses its name and is not stopped."""
    others = ", ".join(_left_running.values())
    if others and _told.is_new("others"):
        _log.warning(
            "another EmbeddedCluster of this process still runs, at %s, besides the new one at %s; to have one at a "
            "time, call stop() before a cell is run again, or use it in a with statement",
            others,
            started,
        )


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{name} must be a whole number, got {value!r:.50} ({type(value).__name__})")


def _refuse_taken_ports(listeners: Sequence[EndPoint], nodes: int) -> None:
    """:raises ConfigError: if the ports of further nodes collide with another listener or exceed the last port."""
    taken: dict[str, str] = {}
    for listener in listeners:
        for number in range(nodes if listener.port else 0):
            shifted = replace(listener, port=listener.port + number)
            whose = f"{listener} of node {number + 1}"
            if shifted.port > _LAST_PORT:
                raise ConfigError(
                    f"{nodes} nodes use {listener} and the ports after it, but {shifted.port} is not a valid port"
                )
            other = taken.setdefault(shifted.address, whose)
            if other != whose:
                raise ConfigError(
                    f"{whose} and {other} would both use {shifted.address}: each node uses the ports after those of "
                    "the first one, so leave room between listeners, or use port 0"
                )
