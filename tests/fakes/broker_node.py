"""One broker without sockets and threads: frames in, answers out, on a clock and a disk of the test's own."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kafka_sink.broker.authorizer import Authorizer
from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.config import BrokerConfig, EndPoint
from kafka_sink.broker.coordinator.group_coordinator import GroupCoordinator
from kafka_sink.broker.coordinator.store import CoordinatorStore, TransactionStore
from kafka_sink.broker.coordinator.transaction_coordinator import TransactionCoordinator
from kafka_sink.broker.coordinator.transaction_markers import TransactionMarkers
from kafka_sink.broker.delays import DelayedOperationPurgatory, Timer
from kafka_sink.broker.faults.faults import Faults
from kafka_sink.broker.handlers.context import BrokerContext
from kafka_sink.broker.handlers.dispatch import HANDLERS, dispatcher
from kafka_sink.broker.log.log_manager import LogManager
from kafka_sink.broker.network.listener_security import users_of
from kafka_sink.broker.network.quotas import ClientQuota, ResponseBudget
from kafka_sink.broker.network.request_channel import Request, RequestChannel, RequestContext, Response, SendResponse
from kafka_sink.broker.running_cluster import LogChanges
from kafka_sink.common.clock import Clock
from kafka_sink.common.config import parse
from kafka_sink.network.frames import NetworkReceive
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import decode_request_header, decode_response, encode_request
from tests.fakes.clock import FakeClock
from tests.fakes.memory_filesystem import MemoryFileSystem
from tests.support.messages import request_body

DIRECTORY = Path("/data")
#: SQLite needs a real directory; where there is one in memory no test waits for a disk.
_MEMORY = Path("/dev/shm")


class BrokerNode:
    """Node 1 of *nodes*, all of them "running"; responses are collected in :attr:`responses`."""

    def __init__(self, nodes: int = 1, *, clock: Clock | None = None, **properties: object) -> None:
        node_ids = range(1, nodes + 1)
        self.disk = MemoryFileSystem()
        self.clock = FakeClock()
        clock = clock or self.clock
        self.timer = Timer(clock)
        self.responses: list[Response] = []
        self.faults = Faults()
        config = parse(BrokerConfig, {name.replace("_", "."): value for name, value in properties.items()})
        self.cluster = ClusterState(DIRECTORY, self.disk, config, node_ids)
        self.cluster.nodes_up(
            {node: {"PLAINTEXT": EndPoint("PLAINTEXT", "127.0.0.1", 9000 + node)} for node in node_ids}
        )
        self.logs = LogManager(DIRECTORY / "logs", self.disk, clock)
        self.purgatory = DelayedOperationPurgatory(self.timer)
        self.cluster.subscribe(LogChanges(self.cluster, self.logs, self.purgatory).apply)
        self._coordinators_directory = TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None)
        self.coordinators_directory = Path(self._coordinators_directory.name)
        self.store = store = CoordinatorStore(self.coordinators_directory, flush_writes=False)
        self.groups = GroupCoordinator(config, store, clock, self.timer, self.cluster)
        self.markers = TransactionMarkers(
            self.cluster, self.logs, self.groups.complete_transaction, clock, self.purgatory.check
        )
        self.transactions = TransactionCoordinator(
            config, TransactionStore(store), self.markers, self.cluster.allocate_producer_id, clock, self.timer
        )
        self.context = BrokerContext(
            1,
            config,
            self.cluster,
            self.logs,
            self.purgatory,
            self.timer,
            clock,
            ClientQuota(),
            ClientQuota(),
            ResponseBudget(config.queued_max_response_bytes),
            self.groups,
            self.transactions,
            self.markers,
            self.faults,
            Authorizer(config, lambda: self.cluster.image.acls),
            users_of(config, lambda: self.cluster.image.scram_users),
            {key: handler.versions for key, handler in HANDLERS.items()},
        )
        self._channel = RequestChannel(10)
        self._dispatch = dispatcher(self.context, self._channel)

    def enqueue_response(self, response: Response) -> None:
        self.responses.append(response)

    def handle_frame(self, frame: bytes) -> None:
        """Let the handlers have a frame, as a processor would."""
        header, offset = decode_request_header(frame)
        context = RequestContext(header, "connection", "127.0.0.1", "PLAINTEXT")
        self._dispatch(Request(self, context, NetworkReceive("connection", memoryview(frame)), offset))

    def send(self, key: ApiKey, version: int, *values: Any, **named: Any) -> None:
        """Send a request, or one with these fields (:mod:`tests.support.messages`); its answer may come later."""
        body = request_body(key, *values, **named)
        self.handle_frame(b"".join(map(bytes, encode_request(key, version, 7, "client", body))))

    def answer(self, key: ApiKey, version: int) -> Any:
        """The oldest response that was not looked at; it has to be an answer."""
        response = self.responses.pop(0)
        assert isinstance(response, SendResponse), response
        correlation_id, body = decode_response(key, version, b"".join(map(bytes, response.segments)))
        assert correlation_id == 7
        return body

    def call(self, key: ApiKey, version: int, *values: Any, **named: Any) -> Any:
        """Send a request and decode the one answer it gets at once."""
        self.send(key, version, *values, **named)
        answer = self.answer(key, version)
        assert self.responses == []
        return answer
