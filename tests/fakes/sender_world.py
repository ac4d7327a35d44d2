"""A producer without threads and sockets: the test runs the steps of its sender, and acts as its brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka_sink.client.factory import ClientNetwork, SelectorMetrics, create_client
from kafka_sink.common import config as common_config
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.threads import Loop, StartThread
from kafka_sink.network.channel.selectable import Selectable
from kafka_sink.producer.config import ProducerConfig, reconcile
from kafka_sink.producer.futures import Delivery, DeliveryCallback, FutureRecordMetadata
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.pipeline import Pipeline
from tests.fakes.brokers import FakeBrokers, PlayedBrokers
from tests.fakes.clock import FakeClock
from tests.fakes.producing import TOPIC, append


def config_of(properties: Mapping[str, Any]) -> ProducerConfig:
    """Return the configuration of a producer with *properties*."""
    return reconcile(common_config.parse(ProducerConfig, properties), frozenset(properties))


def network_of(
    properties: dict[str, Any], selectable: Selectable, clock: Clock, start_thread: StartThread
) -> ClientNetwork:
    """Return the network of a producer with *properties*."""
    config = config_of(properties)
    client, metadata = create_client(config, client_id=config.client_id or "p", clock=clock, selectable=selectable)
    return ClientNetwork(client, metadata, SelectorMetrics(), clock, start_thread)


def named(properties: dict[str, Any]) -> dict[str, Any]:
    """Properties of a producer by their names, from arguments such as ``linger_ms``."""
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return {"bootstrap.servers": "127.0.0.1:9000", "linger.ms": 0, **given}


class StandingThread:
    """Replaces the sender's thread; joining it runs the sender to its end. :attr:`pipeline` is the loop that it was
    given to run: the parts of the producer.
    """

    def __init__(self, loop: Loop) -> None:
        assert isinstance(loop, Pipeline)
        self.pipeline = loop
        self._is_alive = True
        self.joined_ms: list[float | None] = []
        self.is_stuck = False

    def join(self, timeout: float | None = None) -> None:
        self.joined_ms.append(None if timeout is None else timeout * 1000)
        if self._is_alive and not (self.is_stuck and len(self.joined_ms) == 1):
            self.pipeline.run()
            self._is_alive = False

    def is_alive(self) -> bool:
        return self._is_alive


class SenderWorld:
    """A producer and its brokers; :meth:`step` is one pass of the sender's loop. Records are appended to the
    accumulator directly, so that no call waits.
    """

    def __init__(self, brokers: FakeBrokers | None = None, clock: FakeClock | None = None, **properties: Any) -> None:
        self.clock = clock or FakeClock()
        self.brokers = brokers or FakeBrokers()
        self.network = self.brokers.attach(self.clock)
        given = named({"batch_size": 1000, **properties})
        self.producer = KafkaProducer(given, network=network_of(given, self.network, self.clock, self._start_thread))
        pipeline = self.thread.pipeline
        self.config = config_of(given)
        self.client, self.metadata = pipeline.network.client, pipeline.network.metadata
        self.transactions = pipeline.identity
        self.pool, self.accumulator = pipeline.pool, pipeline.accumulator
        self.drain = pipeline.drain
        self.metrics, self.sender, self.in_flight = pipeline.metrics, pipeline.sender, pipeline.in_flight
        # Without jitter, so that tests know when a retry is due. Kafka has no option for the jitter.
        self.accumulator._settings.retry_backoff.rng.uniform = lambda a, b: 1.0  # type: ignore[method-assign]
        self.deliveries: list[Delivery] = []
        self.told_at: list[int] = []
        self.metadata.add(TOPIC, self.clock.now_ms)

    def _start_thread(self, name: str, loop: Loop) -> StandingThread:
        self.thread = StandingThread(loop)
        return self.thread

    # --- records -----------------------------------------------------------------------------------------------------

    def append(
        self, partition: int = 0, value: bytes = b"v", callback: DeliveryCallback | None = None
    ) -> FutureRecordMetadata:
        """Stage one record and return its future."""
        result = append(self.accumulator, partition, value, callback=callback)
        assert result.future is not None
        return result.future

    def send(self, *values: bytes, partition: int = 0, key: bytes | None = None) -> list[Any]:
        """Stage a record for each of *values* with a callback that records its outcome; return their futures."""
        return [append(self.accumulator, partition, value, key=key, callback=self._told).future for value in values]

    def sent(self, *values: bytes, partition: int = 0, key: bytes | None = None) -> list[Any]:
        """:meth:`send`, and step until every record has its outcome."""
        futures = self.send(*values, partition=partition, key=key)
        self.settle()
        return futures

    def _told(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        self.told_at.append(self.clock.now_ms)

    @property
    def acknowledged(self) -> int:
        return sum(delivery.count for delivery in self.deliveries if delivery.error is None)

    @property
    def failed(self) -> int:
        return sum(delivery.count for delivery in self.deliveries if delivery.error is not None)

    # --- time --------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        return self.clock.now_ms

    @property
    def polls(self) -> list[int]:
        return self.network.poll_timeouts

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            # A poll without events advances the clock, without limit if nothing is to come.
            if not self.accumulator.has_incomplete:
                self.network.wakeup()
            self.sender.run_once()

    def run_until(self, reached: Callable[[], object], steps: int = 200) -> None:
        """Step until *reached* is true; the fake network advances the time if nothing happens."""
        for _ in range(steps):
            if reached():
                return
            self.step()
        raise AssertionError("never came")

    def settle(self, at_most: int = 1000) -> None:
        """Step until every staged record has its outcome."""
        self.run_until(lambda: not self.accumulator.has_incomplete, at_most)

    def connect(self) -> None:
        """Step until the producer can send: it has metadata, connections and a producer id."""
        self.step(20)

    def close(self) -> None:
        """Close as a program that waits for the end."""
        self.sender.initiate_close()
        self.sender.run()

    # --- what is left ------------------------------------------------------------------------------------------------

    @property
    def memory_in_use(self) -> int:
        return self.pool.total_memory - self.pool.available_memory

    def assert_memory_is_back(self) -> None:
        assert self.memory_in_use == 0

    def figure(self, name: str) -> float:
        """Return a metric of ``producer-metrics``."""
        return self.metrics.snapshot(self.now)[name]


class PlayedWorld(SenderWorld):
    """A world in which the test responds to produce requests."""

    brokers: PlayedBrokers

    def __init__(self, leaders: Sequence[int] = (1,), **properties: Any) -> None:
        super().__init__(PlayedBrokers(leaders), **{"batch_size": 16384, **properties})

    def step(self, times: int = 1) -> None:
        """Step; time advances also while nothing is staged."""
        for _ in range(times):
            self.sender.run_once()

    def prepare(self) -> None:
        """Connect to all brokers, and fetch the topic's metadata and the producer id."""
        for partition in range(len(self.brokers.leaders)):
            self.append(partition, b"first")
        self.run_until(lambda: all(self.brokers.requests(node) for node in self.brokers.led_by))
        for node in self.brokers.led_by:
            self.brokers.answer(node)
        self.run_until(lambda: not self.accumulator.has_incomplete)

    def under_way(self, partition: int = 0, value: bytes = b"v", callback: DeliveryCallback | None = None) -> Any:
        """Return the future of a record that was sent to its leader."""
        future = self.append(partition, value, callback)
        self.run_until(self.brokers.requests)
        return future

    def fails(self, code: ErrorCode, message: str | None = None) -> None:
        """Respond to the oldest request with *code*, and let the sender read it."""
        self.brokers.fail(code, message=message)
        self.step()
