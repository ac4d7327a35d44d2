"""Brokers in memory: the real handlers, logs and cluster state, with faults between them and the network.

The network passes frames in and takes responses out. All nodes share one set of logs, as those of the embedded cluster;
a node that is down leads no partition and gets no request. A crash discards every object and recovers from the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.coordinator.store import CoordinatorStore, TransactionStore
from kafka_sink.broker.coordinator.transaction_state import TransactionMetadata
from kafka_sink.broker.handlers.dispatch import dispatcher
from kafka_sink.broker.log.log_manager import LogManager
from kafka_sink.broker.log.partition_log import LogConfig
from kafka_sink.broker.network.quotas import CLIENT
from kafka_sink.broker.network.request_channel import (
    CloseConnectionResponse,
    Request,
    RequestChannel,
    RequestContext,
    RequestHandler,
    Response,
    SendResponse,
)
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.consumer.fetched_partition import AbortedTransactions, ConsumedRecord, FetchedPartition
from kafka_sink.network.frames import NetworkReceive
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import (
    RequestHeader,
    decode_request_body,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from kafka_sink.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from kafka_sink.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kafka_sink.protocol.messages.transactions import InitProducerIdResponse
from kafka_sink.records.batch import parse_header
from kafka_sink.records.reader import read_batches
from tests.fakes.broker_node import DIRECTORY, BrokerNode
from tests.sim.coordination import REFUSALS, refusal, started
from tests.sim.ledger import Ledger
from tests.sim.network import Answer, Frame
from tests.sim.plan import Plan
from tests.sim.world import ViolationError, World

#: Retriable errors before anything is stored.
_REFUSALS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CORRUPT_MESSAGE,
)
#: Errors after the batch was stored.
_FAILURES_AFTER = (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT)
#: Fatal errors.
_REFUSALS_FOR_GOOD = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_RECORD,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.POLICY_VIOLATION,
)
_EVERYTHING = 2**30
_FETCH_VERSION = 11
#: So few that a reader needs several requests.
_FETCH_BYTES = 1000
_OF_TRANSACTIONS = (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN)


@dataclass(slots=True)
class _Verdict:
    """The random outcome of one partition of a produce request."""

    code: ErrorCode
    stored: bool


class SimCluster:
    """All brokers of a run."""

    def __init__(self, world: World, plan: Plan, ledger: Ledger) -> None:
        self._world = world
        self._plan = plan
        self._ledger = ledger
        self.faults_active = True
        node = BrokerNode(nodes=plan.nodes, clock=world, **plan.broker)
        if plan.produce_quota:
            node.context.producer_quota.follow({frozenset({(CLIENT, None)}): plan.produce_quota})
        for topic in plan.topics:
            node.cluster.create_topic(
                topic.name,
                assignment=topic.assignment,
                configs={
                    "max.message.bytes": str(topic.max_message_bytes),
                    # Timestamps of records are far from simulated time.
                    "message.timestamp.after.max.ms": str(2**63 - 1),
                },
            )
        # Its coordinators' files go when it goes.
        self._node = node
        self._store = node.store
        self._disk = node.disk
        self._context = node.context
        self._endpoints = dict(node.cluster.nodes)
        self._channel = RequestChannel(10)
        self._responses: list[Response] = []
        self._handlers: dict[int, RequestHandler] = {}
        self.down: set[int] = set()
        self._keeps_time = False
        self._timer_due_ms = FOREVER_MS
        self._make_handlers()

    def _make_handlers(self) -> None:
        self._handlers = {
            node_id: dispatcher(replace(self._context, node_id=node_id), self._channel) for node_id in self._endpoints
        }

    @property
    def node_ids(self) -> list[int]:
        return sorted(self._endpoints)

    # --- faults ------------------------------------------------------------------------------------------------------

    def stop_leading(self, node_id: int) -> None:
        """Take all leaderships from the node; its connections stay."""
        self.down.add(node_id)
        self._context.cluster.node_down(node_id)
        self._context.groups.follow()
        self._world.note("node {} leads nothing", node_id)

    def lead_again(self, node_id: int) -> None:
        """Bring the node back, which becomes the leader of partitions without leader."""
        self.down.discard(node_id)
        self._context.cluster.nodes_up({node_id: self._endpoints[node_id]})
        self._context.groups.follow()
        self._world.note("node {} is back", node_id)

    def crash(self) -> None:
        """Crash and restart every process, which recovers from the disk."""
        config = self._context.config
        cluster = ClusterState(DIRECTORY, self._disk, config, self.node_ids)
        logs = LogManager(DIRECTORY / "logs", self._disk, self._world)

        def log_config(partition: TopicPartition) -> LogConfig | None:
            topic = cluster.topic(partition.topic)
            return topic.settings.log if topic is not None else None

        logs.open_existing(log_config)
        cluster.nodes_up({node_id: self._endpoints[node_id] for node_id in self.node_ids if node_id not in self.down})
        self._context = replace(self._context, cluster=cluster, logs=logs)
        if self._keeps_time:
            self._start_coordinators()
        self._make_handlers()
        self._world.note("all brokers crashed and recovered")

    # --- transactions ------------------------------------------------------------------------------------------------

    def coordinate(self, ids: Iterable[TransactionMetadata]) -> None:
        """Enable transactions in this run: coordinators with the transactional *ids*, and a running timer."""
        store = TransactionStore(self._store)
        for metadata in ids:
            store.save(metadata)
        self._keeps_time = True
        self._start_coordinators()
        self._make_handlers()

    def _start_coordinators(self) -> None:
        self._store.close()
        self._store = CoordinatorStore(self._node.coordinators_directory, flush_writes=False)
        waits = self._plan.faults.markers_wait
        self._context = started(self._context, self._store, lambda: self._strikes(waits))
        self._context.transactions.start()
        self._timer_due_ms = FOREVER_MS
        self._run_timer()

    def _run_timer(self) -> None:
        """Act as the timer's thread: run due tasks, and schedule the next run for the next due time."""
        timer = self._context.timer
        due_ms = timer.run_due(self._world.now_ms)
        if due_ms >= self._timer_due_ms:
            return
        self._timer_due_ms = due_ms

        def run() -> None:
            if self._context.timer is timer and self._timer_due_ms == due_ms:
                self._timer_due_ms = FOREVER_MS
                self._run_timer()

        self._world.at(due_ms, run)

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a consumer group."""
        return {partition: found.offset for partition, found in self._context.groups.fetch(group).items()}

    def is_stable(self, partition: TopicPartition) -> bool:
        """Whether no transaction is open in *partition*."""
        log = self._context.logs.get(partition)
        return log is None or log.last_stable_offset == log.end_offset

    def read_committed(self, partition: TopicPartition) -> list[ConsumedRecord]:
        """Return all records that a reader of committed records gets, in its order; none without a leader."""
        topic = self._context.cluster.topic(partition.topic)
        assert topic is not None
        leader = topic.partitions[partition.partition].leader
        if leader not in self._handlers:
            return []
        records: list[ConsumedRecord] = []
        offset = 0
        while True:
            answer = self._fetch(leader, partition, offset)
            fetched = FetchedPartition(
                partition,
                answer.records or b"",  # type: ignore[arg-type]
                offset,
                aborted=AbortedTransactions(
                    (each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()
                ),
            )
            records += fetched
            if fetched.next_offset == offset:
                return records
            offset = fetched.next_offset

    def _fetch(self, leader: int, partition: TopicPartition, offset: int) -> PartitionData:
        request = FetchRequest(
            isolation_level=1,
            topics=[
                FetchTopic(
                    topic=partition.topic,
                    partitions=[
                        FetchPartition(
                            partition=partition.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
                        )
                    ],
                )
            ],
        )
        payload = b"".join(map(bytes, encode_request(ApiKey.FETCH, _FETCH_VERSION, 1, "reader", request)))
        header, body_at = decode_request_header(payload)
        answer = self._call(leader, payload, header, body_at)
        assert isinstance(answer, bytes), answer
        _, body = decode_response(ApiKey.FETCH, _FETCH_VERSION, answer)
        assert isinstance(body, FetchResponse)
        found = body.responses[0].partitions[0]
        if found.error_code:
            raise ViolationError(f"{partition} cannot be read from {offset} on: {ErrorCode.of(found.error_code).name}")
        return found

    # --- requests ----------------------------------------------------------------------------------------------------

    def enqueue_response(self, response: Response) -> None:
        """Take a response from the handlers (see ``RequestChannel``)."""
        self._responses.append(response)

    def handle(self, node_id: int, frame: Frame) -> Answer | str | None:
        """Return the response of node *node_id*: None = no response, "close" = it closes the connection."""
        header, offset = decode_request_header(frame.payload)
        self._world.note("node {} gets {} {}", node_id, header.api_key.name, header.correlation_id)
        if header.api_key is ApiKey.PRODUCE:
            return self._produce(node_id, frame, header, offset)
        if header.api_key in _OF_TRANSACTIONS and self._strikes(self._plan.faults.coordinator_refuses):
            return self._refuse(frame, header, offset)
        answer = self._call(node_id, frame.payload, header, offset)
        if header.api_key is ApiKey.INIT_PRODUCER_ID and isinstance(answer, bytes):
            answer = self._init_producer_id(header, answer)
        return Answer(answer, lambda: None) if isinstance(answer, bytes) else answer

    def _refuse(self, frame: Frame, header: RequestHeader, offset: int) -> Answer:
        code = self._world.rng.choice(REFUSALS)
        if header.api_key is ApiKey.TXN_OFFSET_COMMIT and code is ErrorCode.CONCURRENT_TRANSACTIONS:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._world.note("  it is refused: {}", code.name)
        body = refusal(decode_request_body(header, frame.payload, offset), code)
        assert body is not None
        segments = encode_response(header.api_key, header.api_version, header.correlation_id, body)
        return Answer(b"".join(map(bytes, segments)), lambda: None)

    def _call(
        self,
        node_id: int,
        payload: bytes,
        header: RequestHeader,
        offset: int,
        observe: Callable[[], None] = lambda: None,
    ) -> bytes | str | None:
        """Return the response of the handlers; *observe* is called after they return and before the timer runs."""
        self._responses.clear()
        context = RequestContext(header, "connection", "127.0.0.1", "PLAINTEXT")
        self._handlers[node_id](Request(self, context, NetworkReceive("connection", memoryview(payload)), offset))
        observe()
        if self._keeps_time:
            self._run_timer()
        for response in self._responses:
            if isinstance(response, SendResponse):
                return b"".join(map(bytes, response.segments))
            if isinstance(response, CloseConnectionResponse):
                return "close"
        return None

    def _init_producer_id(self, header: RequestHeader, answer: bytes) -> bytes:
        correlation_id, body = decode_response(header.api_key, header.api_version, answer)
        assert isinstance(body, InitProducerIdResponse)
        if self._strikes(self._plan.faults.refused_before):
            body = InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=-1)
        elif body.error_code == 0 and body.producer_epoch == 0:
            body.producer_epoch = self._plan.first_epoch
        return b"".join(map(bytes, encode_response(header.api_key, header.api_version, correlation_id, body)))

    # --- produce -----------------------------------------------------------------------------------------------------

    def _strikes(self, share: float) -> bool:
        return self.faults_active and self._world.chance(share)

    def _verdict(self) -> _Verdict | None:
        faults, rng = self._plan.faults, self._world.rng
        if self._strikes(faults.refused_before):
            return _Verdict(rng.choice(_REFUSALS), stored=False)
        if self._strikes(faults.refused_for_good):
            return _Verdict(rng.choice(_REFUSALS_FOR_GOOD), stored=False)
        if self._strikes(faults.failed_after):
            return _Verdict(rng.choice(_FAILURES_AFTER), stored=True)
        return None

    def _produce(self, node_id: int, frame: Frame, header: RequestHeader, offset: int) -> Answer | str | None:
        body = decode_request_body(header, frame.payload, offset)
        assert isinstance(body, ProduceRequest)
        numbers: dict[TopicPartition, list[int]] = {}
        verdicts: dict[TopicPartition, _Verdict] = {}
        for topic in body.topic_data:
            for data in topic.partition_data:
                partition = TopicPartition(topic.name, data.index)
                if partition in numbers:
                    raise ViolationError(f"a produce request names {partition} twice")
                assert isinstance(data.records, memoryview)
                numbers[partition] = self._ledger.received(partition, data.records, frame.sent)
                self._world.note("  {}: {} ({})", partition, numbers[partition], parse_header(data.records))
                verdict = self._verdict()
                if verdict is not None:
                    self._world.note("  {} will be answered with {}", partition, verdict)
                    verdicts[partition] = verdict
        refused = {partition for partition, verdict in verdicts.items() if not verdict.stored}
        if refused and body.acks == 0:
            return "close"
        identities = {
            TopicPartition(topic.name, data.index): _identity(data.records)
            for topic in body.topic_data
            for data in topic.partition_data
        }
        answer = self._append(node_id, frame.payload, header, offset, body, numbers, identities, refused)
        if not isinstance(answer, bytes):
            return answer
        return self._answer(header, answer, verdicts, numbers)

    def _append(
        self,
        node_id: int,
        payload: bytes,
        header: RequestHeader,
        offset: int,
        body: ProduceRequest,
        numbers: dict[TopicPartition, list[int]],
        identities: dict[TopicPartition, tuple[int, int]],
        refused: set[TopicPartition],
    ) -> bytes | str | None:
        if refused:
            for topic in body.topic_data:
                kept = [d for d in topic.partition_data if TopicPartition(topic.name, d.index) not in refused]
                topic.partition_data = kept
            body.topic_data = [topic for topic in body.topic_data if topic.partition_data]
            segments = encode_request(header.api_key, header.api_version, header.correlation_id, header.client_id, body)
            payload = b"".join(map(bytes, segments))
        ends = {partition: self._end(partition) for partition in numbers if partition not in refused}

        def observe() -> None:
            for partition, end in ends.items():
                if self._end(partition) > end:
                    self._ledger.stored(partition, numbers[partition], end, identities[partition])

        # It runs before the timer, which may write a transaction's marker to the same log.
        return self._call(node_id, payload, header, offset, observe)

    def _end(self, partition: TopicPartition) -> int:
        log = self._context.logs.get(partition)
        return 0 if log is None else log.end_offset

    def _answer(
        self,
        header: RequestHeader,
        answer: bytes,
        verdicts: dict[TopicPartition, _Verdict],
        numbers: dict[TopicPartition, list[int]],
    ) -> Answer:
        correlation_id, body = decode_response(header.api_key, header.api_version, answer)
        assert isinstance(body, ProduceResponse)
        for partition, verdict in verdicts.items():
            _put(body, partition, verdict)
        acknowledged: list[int] = []
        for topic in body.responses:
            for part in topic.partition_responses:
                partition = TopicPartition(topic.name, part.index)
                code = ErrorCode.of(part.error_code)
                if code is ErrorCode.NONE:
                    acknowledged += numbers[partition]
                elif partition not in verdicts:
                    self._world.note("  {} is refused: {} {}", partition, code.name, part.error_message)
        if verdicts:
            segments = encode_response(header.api_key, header.api_version, correlation_id, body)
            answer = b"".join(map(bytes, segments))
        return Answer(answer, lambda: self._ledger.acknowledged(acknowledged))

    # --- the end -----------------------------------------------------------------------------------------------------

    def check_logs(self) -> None:
        """Compare every log, read as a consumer reads it, with the records that the handlers reported as stored."""
        for partition in list(self._ledger.logs):
            log = self._context.logs.get(partition)
            if log is None:
                if self._ledger.logs[partition]:
                    raise ViolationError(f"the log of {partition} is gone")
                continue
            records = log.read(0, _EVERYTHING, whole_first_batch=True).records
            self._ledger.compare_with_log(partition, list(read_batches(records)))


def _identity(records: object) -> tuple[int, int]:
    assert isinstance(records, memoryview)
    header = parse_header(records)
    return header.producer_id, header.producer_epoch


def _put(body: ProduceResponse, partition: TopicPartition, verdict: _Verdict) -> None:
    """Replace the response of the handlers for *partition* by an error."""
    topic = next((topic for topic in body.responses if topic.name == partition.topic), None)
    if topic is None:
        topic = TopicProduceResponse(name=partition.topic, partition_responses=[])
        body.responses.append(topic)
    part = next((part for part in topic.partition_responses if part.index == partition.partition), None)
    if part is None:
        part = PartitionProduceResponse(index=partition.partition)
        topic.partition_responses.append(part)
    elif part.error_code:
        # The error of the handlers stays: the batch was not stored after all.
        return
    part.error_code, part.base_offset, part.error_message = verdict.code, -1, "injected"


Handler = Callable[[int, Frame], "Answer | str | None"]
