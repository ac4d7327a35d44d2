"""A sender over a real NetworkClient and a network that the test plays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafka_sink.client.factory import create_client
from kafka_sink.common import config as common_config
from kafka_sink.common.backoff import ExponentialBackoff
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import Node
from kafka_sink.producer import config as producer_config
from kafka_sink.producer.accumulator import RecordAccumulator
from kafka_sink.producer.buffer_pool import BufferPool
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.futures import DeliveryCallback, FutureRecordMetadata
from kafka_sink.producer.metrics import ProducerMetrics
from kafka_sink.producer.producer_batch import Compression
from kafka_sink.producer.sender import Sender
from kafka_sink.producer.transactions import make_transactions
from kafka_sink.protocol.header import RequestHeader
from kafka_sink.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kafka_sink.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_sink.protocol.messages.metadata import MetadataRequest
from kafka_sink.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kafka_sink.protocol.registry import APIS
from kafka_sink.protocol.schema import Struct
from kafka_sink.records.compression import CompressionType
from kafka_sink.records.reader import RecordBatchView, read_batches
from tests.fakes import metadata_answers
from tests.fakes.producing import TOPIC, append
from tests.fakes.scripted_clock import ScriptedClock
from tests.fakes.selectable import FakeSelectable

#: Addresses, so that nothing has to be resolved.
NODES = {1: Node(1, "127.0.0.1", 9001), 2: Node(2, "127.0.0.1", 9002)}
BOOTSTRAP_ID = "-1"
NO_LEADER = -1


class SenderWorld:
    """Brokers 1 and 2 answer whatever is not about records at once; produce requests are left to the test.

    :param leaders: who leads partition 0, 1, … of the topic; may be changed later.
    """

    def __init__(self, leaders: Sequence[int] = (1,), **properties: Any) -> None:
        given = {"linger.ms": 0, **{name.replace("_", "."): value for name, value in properties.items()}}
        config = common_config.parse(ProducerConfig, {"bootstrap.servers": "127.0.0.1:9000", **given})
        self.config = producer_config.reconcile(config, frozenset(given))
        self.leaders = list(leaders)
        self.clock = ScriptedClock()
        self.network = FakeSelectable(self.clock, self._answer)  # type: ignore[arg-type]
        self.client, self.metadata = create_client(
            self.config, client_id="p", clock=self.clock, selectable=self.network
        )
        log = ContextLogger(__name__, "p")
        self.transactions = (
            make_transactions(self.config, self.client.api_versions, self.clock, log)
            if self.config.enable_idempotence
            else None
        )
        self.idempotence = None if self.transactions is None else self.transactions.sequences
        self.accumulator = RecordAccumulator(
            batch_size_bytes=self.config.batch_size_bytes,
            compression=Compression(CompressionType.from_name(self.config.compression_type), None),
            linger_ms=self.config.linger_ms,
            retry_backoff=ExponentialBackoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms, jitter=0),
            delivery_timeout_ms=self.config.delivery_timeout_ms,
            pool=BufferPool(
                self.config.buffer_memory_bytes, self.config.batch_size_bytes, self.clock, on_wait=self.client.wakeup
            ),
            clock=self.clock,
            idempotence=self.idempotence,
        )
        self.metrics = ProducerMetrics(self.accumulator.pool)
        self.sender = Sender(
            client=self.client,
            metadata=self.metadata,
            accumulator=self.accumulator,
            transactions=self.transactions,
            config=self.config,
            metrics=self.metrics,
            clock=self.clock,
            log=log,
        )
        #: Answers to InitProducerId; with none left the ids 77, 78, … are given out. None leaves one unanswered.
        self.producer_ids: list[InitProducerIdResponse | None] = []
        self.producer_ids_given = 0
        #: What the brokers speak, where it is not everything.
        self.versions: dict[Any, tuple[int, int]] = {}
        #: Plays produce requests, where the test does not do so itself.
        self.on_produce: Callable[[str, ProduceRequest], ProduceResponse | None] = lambda node, request: None
        self.metadata.add(TOPIC, self.now)

    # --- time --------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        return self.clock.now_ms

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.sender.run_once()

    def run_until(self, reached: Callable[[], object], steps: int = 200) -> None:
        """Step until *reached*; the fake network moves time on where nothing happens."""
        for _ in range(steps):
            if reached():
                return
            self.step()
        raise AssertionError("never came")

    def settle(self) -> None:
        """Connect to all brokers, learn the topic, get the producer id."""
        for partition in range(len(self.leaders)):
            self.append(partition, b"first")
        self.run_until(lambda: all(self.requests(node) for node in self.led_by))
        for node in self.led_by:
            self.answer(node)
        self.run_until(lambda: not self.accumulator.has_incomplete)

    @property
    def led_by(self) -> set[int]:
        return {leader for leader in self.leaders if leader != NO_LEADER}

    @property
    def polls(self) -> list[int]:
        return self.network.poll_timeouts

    # --- records -----------------------------------------------------------------------------------------------------

    def append(
        self, partition: int = 0, value: bytes = b"v", callback: DeliveryCallback | None = None
    ) -> FutureRecordMetadata:
        result = append(self.accumulator, partition, value, callback=callback)
        assert result.future is not None
        return result.future

    @property
    def memory_in_use(self) -> int:
        return self.accumulator.pool.total_memory - self.accumulator.pool.available_memory

    def figure(self, name: str) -> float:
        """A figure of ``producer-metrics``."""
        return self.metrics.snapshot(self.now)[name]

    # --- brokers -----------------------------------------------------------------------------------------------------

    def requests(self, node: int = 1) -> list[ProduceRequest]:
        """Produce requests that wait for an answer, oldest first."""
        if str(node) not in self.network.connections:
            return []
        return [body for _, body in self.network.requests(str(node)) if isinstance(body, ProduceRequest)]

    def batches(self, node: int = 1, request: int = -1) -> dict[int, RecordBatchView]:
        """What a request carries, by partition; the newest unless said otherwise."""
        return batches_of(self.requests(node)[request])

    def values(self, node: int = 1, request: int = -1) -> dict[int, list[bytes | None]]:
        return {
            partition: [record.value for record in view.records()]
            for partition, view in self.batches(node, request).items()
        }

    def answer(self, node: int = 1, base_offset: int = 100, **answers: Any) -> None:
        """Answer the oldest produce request: success, but for the partitions in *answers* (``p0=ErrorCode…``)."""
        request = self.requests(node)[0]
        errors = {int(name[1:]): code for name, code in answers.items()}
        self.network.reply(str(node), produce_answer(request, base_offset, errors))

    def fail(self, code: ErrorCode, node: int = 1, message: str | None = None) -> None:
        """Answer the oldest produce request with *code* for every partition."""
        request = self.requests(node)[0]
        errors = dict.fromkeys(batches_of(request), code)
        self.network.reply(str(node), produce_answer(request, -1, errors, message))

    def lose(self, node: int = 1, cause: str = "connection reset") -> None:
        self.network.lose(str(node), cause)

    def _answer(self, connection_id: str, header: RequestHeader, body: Struct) -> Struct | None:
        if isinstance(body, ApiVersionsRequest):
            ranges = {key: (api.versions.min, api.versions.max) for key, api in APIS.items()} | self.versions
            return ApiVersionsResponse(
                api_keys=[
                    ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges.items()
                ]
            )
        if isinstance(body, MetadataRequest):
            partitions = [
                metadata_answers.partition(index, leader, error=5 if leader == NO_LEADER else 0)
                for index, leader in enumerate(self.leaders)
            ]
            return metadata_answers.answer(metadata_answers.topic(TOPIC, *partitions), nodes=tuple(NODES.values()))
        if isinstance(body, InitProducerIdRequest):
            if self.producer_ids:
                return self.producer_ids.pop(0)
            self.producer_ids_given += 1
            return InitProducerIdResponse(producer_id=76 + self.producer_ids_given, producer_epoch=0)
        assert isinstance(body, ProduceRequest)
        return self.on_produce(connection_id, body)


def batches_of(request: ProduceRequest) -> dict[int, RecordBatchView]:
    """The batches of *request* by partition, their CRCs checked."""
    found: dict[int, RecordBatchView] = {}
    for topic in request.topic_data:
        for part in topic.partition_data:
            assert isinstance(part.records, memoryview)
            (view,) = read_batches(part.records)
            assert view.verify_crc()
            found[part.index] = view
    return found


def produce_answer(
    request: ProduceRequest, base_offset: int, errors: dict[int, ErrorCode], message: str | None = None
) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(
                        index=part.index,
                        error_code=errors.get(part.index, ErrorCode.NONE),
                        base_offset=-1 if part.index in errors else base_offset,
                        error_message=message,
                    )
                    for part in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
