"""Everything that exists only while the nodes of this process run: made when they start, gone when they stop.

Called by whoever starts and stops nodes, one at a time. All nodes of the process share it. Must never leave a thread, a
socket or a temporary directory behind once it is stopped.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from kafka_sink.broker.broker_server import BrokerServer
from kafka_sink.broker.client_quotas import ClientQuota
from kafka_sink.broker.config import BrokerConfig, EndPoint
from kafka_sink.broker.connection_quotas import ConnectionLimits
from kafka_sink.broker.coordinator.group_coordinator import GroupCoordinator
from kafka_sink.broker.coordinator.store import CoordinatorStore
from kafka_sink.broker.coordinator.transaction_coordinator import TransactionCoordinator
from kafka_sink.broker.coordinator.transaction_markers import TransactionMarkers
from kafka_sink.broker.coordinator.transaction_store import TransactionStore
from kafka_sink.broker.faults.faults import Faults
from kafka_sink.broker.handlers.context import BrokerContext
from kafka_sink.broker.handlers.dispatch import HANDLERS
from kafka_sink.broker.log.filesystem import FileSystem
from kafka_sink.broker.membership import Membership
from kafka_sink.broker.purgatory import DelayedOperationPurgatory
from kafka_sink.broker.response_budget import ResponseBudget
from kafka_sink.broker.timer import Timer
from kafka_sink.common.clock import Clock
from kafka_sink.common.metrics import Metric


class RunningCluster:
    """Everything that exists only while a cluster runs."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        filesystem: FileSystem,
        node_ids: tuple[int, ...],
        data_dir: Path | None,
        faults: Faults,
        *,
        shared: bool,
    ) -> None:
        """:raises OSError: the data directory is in use or not usable. :raises ConfigError: it holds something else."""
        self._config = config
        self._clock = clock
        self._faults = faults
        self._temporary = Path(tempfile.mkdtemp(prefix="kafkalite-")) if data_dir is None else None
        directory = data_dir if data_dir is not None else self._temporary
        assert directory is not None
        self._node_ids = node_ids
        self._shared = shared
        with ExitStack() as undo:
            undo.callback(self._remove_temporary)
            self._membership = Membership(directory, filesystem, config, clock, node_ids, shared=shared)
            undo.callback(self._membership.release)
            self.state, self.logs = self._membership.state, self._membership.logs
            undo.callback(self.logs.abandon)
            flush_writes = config.log_flush_interval_messages == 1
            self._coordinators = CoordinatorStore(directory, flush_writes=flush_writes, shared=shared)
            undo.callback(self._coordinators.close)
            self._timer = Timer(clock)
            self._purgatory = DelayedOperationPurgatory(self._timer)
            self._groups = GroupCoordinator(config, self._coordinators, clock, self._timer, self.state, node_ids)
            self._markers = TransactionMarkers(self.state, self.logs, self._groups, clock, self._purgatory.check)
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
            self._brokers: dict[int, BrokerServer] = {}
            self._bound: dict[int, list[EndPoint]] = {}
            self.state.subscribe(self._groups.follow)
            self._groups.start()
            self._transactions.start()
            self._timer.start("broker-timer")
            self._membership.start(self._purgatory, self._transactions.follow)
            self.logs.start_housekeeping(
                "broker-housekeeping", config.log_retention_check_interval_ms, config.log_flush_scheduler_interval_ms
            )
            undo.pop_all()

    def start_nodes(self, nodes: Mapping[int, list[EndPoint]]) -> None:
        """Start *nodes*, each with its listeners. :raises OSError: an address is taken. :raises ConfigError."""
        reachable = {}
        for node_id, endpoints in nodes.items():
            number = self._node_ids.index(node_id)
            broker = BrokerServer(self._context(node_id), endpoints, number)
            self._brokers[node_id] = broker
            try:
                reachable[node_id] = broker.bind()
            except BaseException:
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
            self._groups,
            self._transactions,
            self._markers,
            self._faults,
            {key: handler.versions for key, handler in HANDLERS.items()},
        )

    def metrics(self) -> list[Metric]:
        return [metric for broker in tuple(self._brokers.values()) for metric in broker.metrics()]

    def set_connection_limits(self, limits: ConnectionLimits) -> None:
        for broker in tuple(self._brokers.values()):
            broker.set_connection_limits(limits)

    def restart_node(self, node_id: int) -> None:
        """:raises ValueError: it was not stopped. :raises OSError: its address is taken by now."""
        if node_id in self._brokers or node_id not in self._bound:
            raise ValueError(f"broker {node_id} is not one that was stopped")
        self.start_nodes({node_id: self._bound[node_id]})

    def stop_node(self, node_id: int) -> None:
        """:raises ValueError: it does not run."""
        broker = self._brokers.pop(node_id, None)
        if broker is None:
            raise ValueError(f"broker {node_id} is not running")
        # Others lead before the connections are closed: who asks meanwhile is told so.
        self.state.node_down(node_id)
        broker.stop()

    def stop(self) -> None:
        """Stop what runs, flush and close the logs, let go of the data directory."""
        for node_id in tuple(self._brokers) if self._shared else ():
            self.stop_node(node_id)
        for broker in self._brokers.values():
            broker.stop()
        self._membership.stop()
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
        self._membership.release()
        self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
