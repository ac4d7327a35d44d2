"""A sender over a real NetworkClient and a network that the test plays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafka_sink.client.factory import create_client
from kafka_sink.common import config as common_config
from kafka_sink.common.backoff import ExponentialBackoff
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.producer import config as producer_config
from kafka_sink.producer.batching.accumulator import RecordAccumulator
from kafka_sink.producer.batching.buffer_pool import BufferPool
from kafka_sink.producer.batching.producer_batch import Compression
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.futures import DeliveryCallback, FutureRecordMetadata
from kafka_sink.producer.metrics import ProducerMetrics
from kafka_sink.producer.sending.batch_drain import BatchDrain
from kafka_sink.producer.sending.sender import Sender
from kafka_sink.producer.transactions.manager import make_transactions
from kafka_sink.records.compression import CompressionType
from tests.fakes.manual_clock import ManualClock
from tests.fakes.played_brokers import NO_LEADER, PlayedBrokers
from tests.fakes.producing import TOPIC, append


class SenderWorld(PlayedBrokers):
    """A sender and the brokers that it speaks to."""

    def __init__(self, leaders: Sequence[int] = (1,), **properties: Any) -> None:
        given = {"linger.ms": 0, **{name.replace("_", "."): value for name, value in properties.items()}}
        config = common_config.parse(ProducerConfig, {"bootstrap.servers": "127.0.0.1:9000", **given})
        self.config = producer_config.reconcile(config, frozenset(given))
        super().__init__(leaders, ManualClock())
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
            pool=BufferPool(
                self.config.buffer_memory_bytes, self.config.batch_size_bytes, self.clock, on_wait=self.client.wakeup
            ),
            clock=self.clock,
        )
        self.drain = BatchDrain(
            self.accumulator,
            linger_ms=self.config.linger_ms,
            retry_backoff=ExponentialBackoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms, jitter=0),
            delivery_timeout_ms=self.config.delivery_timeout_ms,
            idempotence=self.idempotence,
        )
        self.metrics = ProducerMetrics(self.accumulator.pool)
        self.sender = Sender(
            client=self.client,
            metadata=self.metadata,
            accumulator=self.accumulator,
            drain=self.drain,
            transactions=self.transactions,
            config=self.config,
            metrics=self.metrics,
            clock=self.clock,
            log=log,
        )
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
