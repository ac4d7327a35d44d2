"""The producers that one task of a worker leaves for the next one, and those that are closed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kafka_sink.client.factory import ClientNetwork, SelectorMetrics, create_client
from kafka_sink.common import config as common_config
from kafka_sink.common.errors import AuthenticationError
from kafka_sink.common.threads import Loop
from kafka_sink.producer import config as producer_config
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.kafka_producer import ProducerRecord
from kafka_sink.producer.pipeline import Pipeline
from kafka_sink.producer.task_producer import TaskProducer
from kafka_sink.spark.task import task_writer
from kafka_sink.spark.task.task_writer import MOST_AGE_MS, MOST_IDLE_MS, MOST_PRODUCERS, KeptProducers
from kafka_sink.spark.write_spec import producer_spec
from tests.fakes.brokers import FakeBrokers
from tests.fakes.clock import FakeClock
from tests.fakes.producing import TOPIC

HERE = {"bootstrap.servers": "127.0.0.1:9092", "linger.ms": "5"}


def key_of(properties: Mapping[str, str]) -> bytes:
    return producer_spec(properties).digest_with_files()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def closing(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """The functions of the threads that close idle connections; the tests call them."""
    started: list[Callable[[], None]] = []
    monkeypatch.setattr(task_writer, "start_thread", lambda name, run: started.append(run) or run)
    return started


@pytest.fixture
def kept(clock: FakeClock, closing: list[Callable[[], None]]) -> KeptProducers:
    return KeptProducers(clock)


class IdleThread:
    """A sender thread that runs only when it is joined."""

    def __init__(self, name: str, loop: Loop) -> None:
        self._loop = loop
        self._is_alive = True

    def is_alive(self) -> bool:
        return self._is_alive

    def join(self, timeout: float | None = None) -> None:
        self._loop.run()
        self._is_alive = False


class Connected:
    """A producer with one connection to a broker, and with metadata."""

    def __init__(self, clock: FakeClock) -> None:
        self.selectable = FakeBrokers().attach(clock)
        config = common_config.parse(ProducerConfig, HERE)
        client, metadata = create_client(config, client_id="me", clock=clock, selectable=self.selectable)
        self.network = ClientNetwork(client, metadata, SelectorMetrics(), clock, self._start)
        for _ in range(10):
            client.poll(10, clock.now_ms)
        assert not metadata.fetch().is_bootstrap
        self.producer = TaskProducer(producer_config.read(HERE), network=self.network)

    def _start(self, name: str, loop: Loop) -> IdleThread:
        assert isinstance(loop, Pipeline)
        self.pipeline = loop
        return IdleThread(name, loop)

    @property
    def is_closed(self) -> bool:
        return self.network.client.is_closed


@pytest.mark.behaviour("Tasks", "A task goes on with the producer of the task before it")
def test_a_task_gets_the_producer_of_the_one_before(clock: FakeClock, kept: KeptProducers) -> None:
    left = Connected(clock)
    kept.keep(key_of(HERE), left.producer)
    assert kept.take(key_of(dict(reversed(HERE.items())))) is left.producer
    assert not left.is_closed


@pytest.mark.behaviour("Tasks", "Nothing of a task that failed or was interrupted goes on")
def test_what_was_taken_and_not_returned_is_closed(clock: FakeClock, kept: KeptProducers) -> None:
    """An interrupt may occur before the task has a reference to its producer."""
    left = Connected(clock)
    kept.keep(key_of(HERE), left.producer)
    kept.take(key_of(HERE))
    assert kept.take(key_of(HERE)) is None
    assert left.is_closed


@pytest.mark.behaviour("Tasks", "Tasks with other properties have producers of their own")
def test_other_properties_have_producers_of_their_own(clock: FakeClock, kept: KeptProducers) -> None:
    kept.keep(key_of(HERE), Connected(clock).producer)
    assert kept.take(key_of({**HERE, "sasl.jaas.config": "another password"})) is None
    assert kept.take(key_of(HERE)) is not None


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("ssl.keystore.location", "DIR/secret"),
        ("sasl.password", "${dir:DIR:secret}"),
        ("sasl.jaas.config", 'X required password="${file:DIR/secret:key}";'),
    ],
)
def test_a_renewed_secret_gets_a_new_producer(
    option: str, value: str, clock: FakeClock, kept: KeptProducers, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("old")
    properties = {**HERE, option: value.replace("DIR", str(tmp_path))}
    begun = key_of(properties)
    assert key_of(properties) == begun
    # The secret changes while a task runs: its connections were made with the old one.
    secret.write_text("renewed")
    kept.keep(begun, Connected(clock).producer)
    assert kept.take(key_of(properties)) is None


@pytest.mark.behaviour("Tasks", "Producers with lost connections and idle ones do not go on")
def test_a_producer_with_lost_connections_does_not_go_on(clock: FakeClock, kept: KeptProducers) -> None:
    left = Connected(clock)
    kept.keep(key_of(HERE), left.producer)
    left.selectable.lose(next(iter(left.selectable.connections)))
    left.network.client.poll(0, clock.now_ms)
    assert kept.take(key_of(HERE)) is None
    assert left.is_closed


def test_producer_with_an_unresolved_address_is_still_kept(clock: FakeClock, kept: KeptProducers) -> None:
    left = Connected(clock)
    left.network.client.peers.failed("no-such-host.invalid", 9092, "cannot resolve host name")
    kept.keep(key_of(HERE), left.producer)
    assert kept.take(key_of(HERE)) is left.producer


def test_a_producer_with_refused_credentials_does_not_go_on(clock: FakeClock, kept: KeptProducers) -> None:
    left = Connected(clock)
    left.network.metadata.fatal_error(AuthenticationError("the password has changed"))
    kept.keep(key_of(HERE), left.producer)
    assert kept.take(key_of(HERE)) is None
    assert left.is_closed


@pytest.mark.parametrize("spoil", ["closed", "refused", "unsent"])
def test_a_producer_that_is_not_at_rest_does_not_go_on(spoil: str, clock: FakeClock, kept: KeptProducers) -> None:
    left = Connected(clock)
    if spoil == "closed":
        left.producer.close(timeout=0)
    elif spoil == "refused":
        assert left.pipeline.identity is not None
        left.pipeline.identity.fail_for_good(AuthenticationError("no"))
    else:
        left.network.metadata.add(TOPIC, clock.now_ms)
        for _ in range(5):
            left.network.client.poll(10, clock.now_ms)
        left.producer.send(ProducerRecord(TOPIC, b"x", partition=0))
    kept.keep(key_of(HERE), left.producer)
    assert kept.take(key_of(HERE)) is None
    assert left.is_closed


def test_an_old_view_of_the_cluster_is_refreshed(clock: FakeClock, kept: KeptProducers) -> None:
    left = Connected(clock)
    metadata = left.network.metadata
    kept.keep(key_of(HERE), left.producer)
    clock.advance(MOST_AGE_MS - metadata.age_ms(clock.now_ms))
    assert kept.take(key_of(HERE)) is left.producer
    assert metadata.time_to_next_update_ms(clock.now_ms) > 0
    kept.keep(key_of(HERE), left.producer)
    clock.advance(1)
    assert kept.take(key_of(HERE)) is left.producer
    assert metadata.time_to_next_update_ms(clock.now_ms) == 0


@pytest.mark.behaviour("Tasks", "Producers with lost connections and idle ones do not go on")
def test_idle_producers_are_closed(clock: FakeClock, closing: list[Callable[[], None]]) -> None:
    time = FakeClock()
    kept = KeptProducers(time)
    first, second = Connected(clock), Connected(clock)
    kept.keep(key_of(HERE), first.producer)
    time.advance(10)
    kept.keep(key_of({**HERE, "acks": "1"}), second.producer)
    time.actions.append(lambda: None)
    closing[0]()
    assert first.is_closed and second.is_closed
    # A wait without a producer to close, then until the first and until the second have been idle for long enough.
    assert time.waits == [MOST_IDLE_MS - 10, MOST_IDLE_MS - 10, 10]


@pytest.mark.behaviour("Tasks", "No more than ten producers wait for their next task")
def test_the_oldest_of_too_many_producers_is_closed(clock: FakeClock, kept: KeptProducers) -> None:
    left = [Connected(clock) for _ in range(MOST_PRODUCERS + 2)]
    for number, each in enumerate(left):
        kept.keep(key_of({**HERE, "client.id": str(number)}), each.producer)
    assert [each.is_closed for each in left] == [True, True, *[False] * MOST_PRODUCERS]


def test_a_close_that_fails_keeps_nothing_else_open(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, closing: list[Callable[[], None]]
) -> None:
    kept = KeptProducers(FakeClock())
    first, second = Connected(clock), Connected(clock)

    def fail(timeout_ms: int) -> None:
        raise OSError("no")

    monkeypatch.setattr(first.producer, "close", fail)
    kept.keep(key_of(HERE), first.producer)
    kept.keep(key_of({**HERE, "acks": "1"}), second.producer)
    closing[0]()
    assert second.is_closed


def test_of_two_producers_the_newer_is_kept(clock: FakeClock, kept: KeptProducers) -> None:
    older, newer = Connected(clock), Connected(clock)
    kept.keep(key_of(HERE), older.producer)
    kept.keep(key_of(HERE), newer.producer)
    assert older.is_closed
    assert kept.take(key_of(HERE)) is newer.producer


def test_a_forked_process_begins_with_none(clock: FakeClock, kept: KeptProducers) -> None:
    left = Connected(clock)
    kept.keep(key_of(HERE), left.producer)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, b"none" if kept.take(key_of(HERE)) is None and not left.is_closed else b"some")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read_end, 4) == b"none"
    assert kept.take(key_of(HERE)) is left.producer


def test_no_secret_is_part_of_what_is_kept(clock: FakeClock, kept: KeptProducers) -> None:
    kept.keep(key_of({**HERE, "ssl.key.password": "hunter2"}), Connected(clock).producer)
    assert b"hunter2" not in repr(vars(kept)).encode()
