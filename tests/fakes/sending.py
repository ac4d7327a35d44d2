"""A producer's sender and everything below it, without threads and sockets, against brokers that the test plays."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

from kafka_sink.client.factory import create_client
from kafka_sink.common import config as common_config
from kafka_sink.common.backoff import ExponentialBackoff
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import Node
from kafka_sink.producer.batching.accumulator import RecordAccumulator
from kafka_sink.producer.batching.buffer_pool import BufferPool
from kafka_sink.producer.batching.producer_batch import Compression
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.futures import Delivery
from kafka_sink.producer.metrics import ProducerMetrics
from kafka_sink.producer.sending.batch_drain import BatchDrain
from kafka_sink.producer.sending.sender import Sender
from kafka_sink.producer.transactions.manager import make_transactions
from kafka_sink.protocol.header import RequestHeader
from kafka_sink.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kafka_sink.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_sink.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafka_sink.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kafka_sink.protocol.registry import APIS
from kafka_sink.protocol.schema import Struct
from kafka_sink.records.compression import CompressionType
from kafka_sink.records.reader import Record, RecordBatchView, read_batches
from tests.fakes import metadata_answers
from tests.fakes.clock import FakeClock
from tests.fakes.producing import TOPIC, append
from tests.fakes.selectable import FakeSelectable

#: Answers of one produce attempt of a partition: a code, a whole answer, or silence.
SILENCE = object()
Verdict = ErrorCode | PartitionProduceResponse | object


class FakeBrokers:
    """Brokers with one topic: they store what they are sent, unless a test has put verdicts in :attr:`verdicts`.

    ``leaders[partition] = (node id, epoch)``. A batch over ``max_message_bytes`` is refused as too large.
    """

    def __init__(self, leaders: Sequence[int] = (1,), nodes: int = 1) -> None:
        self.nodes = {number: Node(number, "127.0.0.1", 9000 + number) for number in range(1, nodes + 1)}
        self.leaders = {partition: (leader, 0) for partition, leader in enumerate(leaders)}
        self.verdicts: dict[int, deque[Verdict]] = defaultdict(deque)
        self.max_message_bytes = 2**31
        self.throttle_ms = 0
        self.tells_leaders = False
        self.stored: dict[int, list[Record]] = defaultdict(list)
        self.batches: dict[int, list[RecordBatchView]] = defaultdict(list)
        self.produced: list[tuple[str, int, int]] = []
        self.metadata_requests = 0
        self.clock: FakeClock | None = None

    def __call__(self, connection_id: str, header: RequestHeader, body: Struct) -> Struct | None:
        if isinstance(body, ApiVersionsRequest):
            return ApiVersionsResponse(
                api_keys=[
                    ApiVersion(api_key=key, min_version=api.versions.min, max_version=api.versions.max)
                    for key, api in APIS.items()
                ]
            )
        if isinstance(body, MetadataRequest):
            self.metadata_requests += 1
            return self.metadata()
        if isinstance(body, InitProducerIdRequest):
            return InitProducerIdResponse(producer_id=9, producer_epoch=0)
        assert isinstance(body, ProduceRequest)
        return self._produce(connection_id, body)

    def metadata(self) -> MetadataResponse:
        partitions = [metadata_answers.partition(p, leader, epoch) for p, (leader, epoch) in self.leaders.items()]
        return metadata_answers.answer(metadata_answers.topic(TOPIC, *partitions), nodes=tuple(self.nodes.values()))

    def _produce(self, connection_id: str, request: ProduceRequest) -> ProduceResponse | None:
        answers = []
        for data in request.topic_data[0].partition_data:
            assert isinstance(data.records, memoryview)
            (batch,) = read_batches(data.records)
            assert batch.verify_crc()
            assert self.clock is not None
            self.produced.append((connection_id, data.index, self.clock.now_ms))
            self.batches[data.index].append(batch)
            answer = self._judge(connection_id, data.index, batch)
            if answer is None:
                return None
            answers.append(answer)
        return ProduceResponse(
            responses=[TopicProduceResponse(name=TOPIC, partition_responses=answers)],
            throttle_time_ms=self.throttle_ms,
            node_endpoints=[
                NodeEndpoint(node_id=node.id, host=node.host, port=node.port) for node in self.nodes.values()
            ]
            if self.tells_leaders
            else [],
        )

    def _judge(self, connection_id: str, partition: int, batch: RecordBatchView) -> PartitionProduceResponse | None:
        if self.verdicts[partition]:
            verdict = self.verdicts[partition].popleft()
            if verdict is SILENCE:
                return None
            if isinstance(verdict, PartitionProduceResponse):
                return verdict
            if verdict is not ErrorCode.NONE:
                assert isinstance(verdict, ErrorCode)
                return PartitionProduceResponse(index=partition, error_code=verdict, base_offset=-1)
        leader, epoch = self.leaders[partition]
        if connection_id != str(leader):
            return PartitionProduceResponse(
                index=partition,
                error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                base_offset=-1,
                current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                if self.tells_leaders
                else LeaderIdAndEpoch(),
            )
        if batch.header.size_in_bytes > self.max_message_bytes:
            return PartitionProduceResponse(index=partition, error_code=ErrorCode.MESSAGE_TOO_LARGE, base_offset=-1)
        base_offset = len(self.stored[partition])
        self.stored[partition] += batch.records()
        return PartitionProduceResponse(index=partition, base_offset=base_offset)

    def values(self, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.stored[partition]]

    def produced_at(self, partition: int = 0) -> list[int]:
        return [at_ms for _, index, at_ms in self.produced if index == partition]


class SenderWorld:
    """A sender with its accumulator, network client and metadata; :meth:`step` is one pass of its loop."""

    def __init__(self, brokers: FakeBrokers | None = None, **properties: Any) -> None:
        self.clock = FakeClock()
        self.brokers = brokers or FakeBrokers()
        self.brokers.clock = self.clock
        self.network = FakeSelectable(self.clock, self.brokers)
        given = {
            "bootstrap.servers": "127.0.0.1:9092",
            "batch.size": 1000,
            "linger.ms": 0,
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
        config = common_config.parse(ProducerConfig, given)
        self.config = config
        self.client, self.metadata = create_client(config, client_id="me", clock=self.clock, selectable=self.network)
        log = ContextLogger(__name__, "test")
        self.transactions = (
            make_transactions(config, self.client.api_versions, self.clock, log) if config.enable_idempotence else None
        )
        self.pool = BufferPool(
            config.buffer_memory_bytes, config.batch_size_bytes, self.clock, on_wait=self.client.wakeup
        )
        self.accumulator = RecordAccumulator(
            batch_size_bytes=config.batch_size_bytes,
            compression=Compression(CompressionType.from_name(config.compression_type), config.compression_level),
            pool=self.pool,
            clock=self.clock,
            transactions=self.transactions if config.transactional_id else None,
        )
        self.drain = BatchDrain(
            self.accumulator,
            linger_ms=config.linger_ms,
            retry_backoff=ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter=0),
            delivery_timeout_ms=config.delivery_timeout_ms,
            idempotence=None if self.transactions is None else self.transactions.sequences,
            transactions=self.transactions if config.transactional_id else None,
        )
        self.metrics = ProducerMetrics(self.pool)
        self.sender = Sender(
            client=self.client,
            metadata=self.metadata,
            accumulator=self.accumulator,
            drain=self.drain,
            transactions=self.transactions,
            config=config,
            metrics=self.metrics,
            clock=self.clock,
            log=log,
        )
        self.deliveries: list[Delivery] = []
        self.told_at: list[int] = []
        self.metadata.add(TOPIC, self.clock.now_ms)

    def send(self, *values: bytes, partition: int = 0, key: bytes | None = None) -> list[Any]:
        """Stage a record for each of *values*; their futures."""
        return [append(self.accumulator, partition, value, key=key, callback=self._told).future for value in values]

    def _told(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        self.told_at.append(self.clock.now_ms)

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            # A poll in which nothing happens moves the clock on, for ever if nothing is to come.
            if not self.accumulator.has_incomplete:
                self.network.wakeup()
            self.sender.run_once()

    def settle(self, at_most: int = 1000) -> None:
        """Step until everything staged has its outcome."""
        for _ in range(at_most):
            if not self.accumulator.has_incomplete:
                return
            self.sender.run_once()
        raise AssertionError(f"not settled after {at_most} steps, at {self.clock.now_ms} ms")

    def connect(self) -> None:
        """Get as far as being able to send: metadata, connections, producer id."""
        for _ in range(20):
            self.step()

    @property
    def acknowledged(self) -> int:
        return sum(delivery.count for delivery in self.deliveries if delivery.error is None)

    @property
    def failed(self) -> int:
        return sum(delivery.count for delivery in self.deliveries if delivery.error is not None)

    def assert_memory_is_back(self) -> None:
        assert self.pool.available_memory == self.pool.total_memory
