"""A KeyboardInterrupt, or a signal handler that sends, at every line that a producer's caller executes.

Each run interrupts a call at another line of ``kafka_sink``, until a call completes without an interrupt. That is
stricter than CPython, which checks for signals only after some bytecodes. Afterwards the producer can only be closed,
unless the call had not begun or was complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink.common.errors import KafkaError
from kafka_sink.common.model import RecordMetadata, TopicPartition
from kafka_sink.producer.futures import Delivery
from kafka_sink.producer.kafka_producer import ProducerRecord
from tests.conftest import Figure
from tests.fakes.interrupted_producer import InterruptedProducer, settled
from tests.fakes.interrupting import Points, interrupt
from tests.fakes.producing import TOPIC
from tests.support import amounts

#: "all": every line. Otherwise a sample of the lines.
_ALL = amounts.INTERRUPT_POINTS == "all"

#: Otherwise every n-th line; for the many lines of column calls, every n-th of those.
_STRIDE, _STRIDE_OF_COLUMNS = 23, 10

#: Errors that a handler may receive.
_REFUSED = "was called during|outside a transaction|closed|call begin_transaction|timed out before"

#: More points than any call has.
_MOST_POINTS = 1_000_000


@dataclass
class Episode:
    """The records that one run sends, and their outcomes."""

    world: InterruptedProducer
    number: int = 0
    sent: int = 0

    def __post_init__(self) -> None:
        self.values: set[bytes] = set()
        self.futures: list[tuple[bytes, Any]] = []

    def value(self, size: int = 20) -> bytes:
        self.sent += 1
        value = (b"%d of run %d " % (self.sent, self.number)).ljust(size, b".")
        self.values.add(value)
        return value

    def send(self, partition: int | None = 0, size: int = 20, **fields: Any) -> None:
        value = self.value(size)
        record = ProducerRecord(TOPIC, value, partition=partition, **fields)
        future = self.world.producer.send(record, on_delivery=lambda delivery: self.world.told(value, delivery))
        self.futures.append((value, future))

    def send_columns(self, rows: int = 30, size: int = 20) -> None:
        values = [self.value(size) for _ in range(rows)]
        table = pa.table({"value": values, "partition": pa.array([row % 3 for row in range(rows)], pa.int32())})
        self.world.producer.send_columns(TOPIC, table, on_delivery=self.world.on_delivery)

    def check(self) -> None:
        """Everything has completed: acknowledged records are stored at their reported offsets."""
        for value, future in self.futures:
            assert future.done(), "a future never ended"
            with suppress(KafkaError):
                metadata = future.result(0)
                stored = self.world.brokers.stored[metadata.partition][metadata.offset].value
                assert stored == value, f"{value!r} was acknowledged, and {stored!r} stored"
        self.world.check_stored(self.values)


Act = Callable[[Episode], object]


def nothing(episode: Episode) -> None:
    pass


def one_sent(episode: Episode) -> None:
    """The topic is known, and a batch is open."""
    episode.world.producer.send(ProducerRecord(TOPIC, episode.value(), partition=0))


def columns_sent(episode: Episode) -> None:
    episode.send_columns(3)


def memory_is_full(episode: Episode) -> None:
    for partition in range(3):
        episode.send(partition, 900)


def in_transaction(episode: Episode) -> None:
    episode.world.producer.init_transactions()
    episode.world.producer.begin_transaction()


def initialized(episode: Episode) -> None:
    episode.world.producer.init_transactions()


def in_transaction_with_records(episode: Episode) -> None:
    in_transaction(episode)
    episode.send(0)
    episode.send(1)


def several(episode: Episode) -> None:
    for partition in range(3):
        episode.send(partition)


@dataclass(frozen=True)
class Scenario:
    prepare: Act
    act: Act
    properties: tuple[tuple[str, Any], ...] = ()


LINGER = ("linger_ms", 60_000)
SMALL = (LINGER, ("batch_size", 1000))
TIGHT = (LINGER, ("batch_size", 1000), ("buffer_memory", 3000))
GROWING = (LINGER, ("batch_size", 100_000))
TRANSACTIONAL = (LINGER, ("transactional", True))

SENDS = {
    "the first record": Scenario(nothing, lambda it: it.send(), (LINGER,)),
    "a record for an open batch": Scenario(one_sent, lambda it: it.send(key=b"k"), (LINGER,)),
    "a record with headers": Scenario(one_sent, lambda it: it.send(headers=[("a", b"1")]), (LINGER,)),
    "a record without a partition": Scenario(one_sent, lambda it: it.send(None), (LINGER,)),
    "a record that opens a batch": Scenario(one_sent, lambda it: it.send(size=930), SMALL),
    "a record that is too large": Scenario(one_sent, lambda it: it.send(size=2_000_000), (LINGER,)),
    "a record that makes a batch grow": Scenario(one_sent, lambda it: it.send(size=30_000), GROWING),
    "a record that waits for memory": Scenario(memory_is_full, lambda it: it.send(0, 900), TIGHT),
    "a record of a transaction": Scenario(in_transaction, lambda it: it.send(), TRANSACTIONAL),
}
COLUMNS = {
    "columns for new batches": Scenario(one_sent, lambda it: it.send_columns(), SMALL),
    "columns for open batches": Scenario(columns_sent, lambda it: it.send_columns(6), (LINGER,)),
    "columns that make batches grow": Scenario(columns_sent, lambda it: it.send_columns(6, 10_000), GROWING),
    "columns that wait for memory": Scenario(nothing, lambda it: it.send_columns(9, 900), TIGHT),
}
WAITS = {
    "flush": Scenario(several, lambda it: it.world.producer.flush(), (LINGER,)),
    "close": Scenario(several, lambda it: it.world.producer.close(), (LINGER,)),
    "close at once": Scenario(several, lambda it: settled(partial(it.world.producer.close, timeout=0)), (LINGER,)),
}
TRANSACTIONS = {
    "init": Scenario(nothing, lambda it: it.world.producer.init_transactions(), TRANSACTIONAL),
    "begin": Scenario(initialized, lambda it: it.world.producer.begin_transaction(), TRANSACTIONAL),
    "commit": Scenario(in_transaction_with_records, lambda it: it.world.producer.commit_transaction(), TRANSACTIONAL),
    "abort": Scenario(in_transaction_with_records, lambda it: it.world.producer.abort_transaction(), TRANSACTIONAL),
    "send offsets": Scenario(
        in_transaction_with_records,
        lambda it: it.world.producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): 5}, "group"),
        TRANSACTIONAL,
    ),
}
ALL = {**SENDS, **COLUMNS, **WAITS, **TRANSACTIONS}


def runs(name: str, strike: Callable[[Episode], None], stride: int) -> Iterator[tuple[Episode, Points]]:
    """One episode for each point, interrupted there; the caller checks the state that each episode leaves."""
    scenario = ALL[name]
    stride = 1 if _ALL else stride * _STRIDE_OF_COLUMNS if name in COLUMNS else stride
    for point in range(0, _MOST_POINTS, stride):
        episode = Episode(InterruptedProducer(**dict(scenario.properties)), point)
        scenario.prepare(episode)
        points = Points(point, lambda episode=episode: strike(episode))  # type: ignore[misc]
        with suppress(KeyboardInterrupt):
            points.during(partial(scenario.act, episode))
        if points.struck is None:
            episode.world.end()
            return
        yield episode, points
    raise AssertionError("the call has no end")


def goes_on(episode: Episode) -> None:
    """The producer is used again, and each call works."""
    producer = episode.world.producer
    episode.world.check_left()
    if episode.world.pipeline.transactions is not None:
        for call in (producer.init_transactions, producer.commit_transaction, producer.abort_transaction):
            settled(call)
        commits_one(episode)
    elif (refused := settled(lambda: episode.send(0)) or settled(lambda: episode.send_columns(3))) is None:
        producer.flush(timeout=60)
        assert episode.world.memory_in_use == 0
        assert not episode.world.pipeline.pool.queued
    else:
        assert "closed" in str(refused)
    episode.world.end()
    episode.check()


def commits_one(episode: Episode) -> None:
    producer = episode.world.producer
    producer.begin_transaction()
    episode.send(0)
    producer.commit_transaction()
    assert episode.futures[-1][1].result(0).partition == 0
    assert episode.world.memory_in_use == 0


def can_only_be_closed(episode: Episode) -> None:
    """Every call fails and states what is certain; a close completes the futures, and a new producer continues."""
    producer, interruption = episode.world.producer, episode.world.pipeline.calls.interruption
    assert interruption is not None
    assert interruption.startswith("KeyboardInterrupt ended ")
    calls: list[Callable[[], object]] = [lambda: episode.send(0), lambda: episode.send_columns(3), producer.flush]
    transactions = episode.world.pipeline.transactions
    if transactions is not None:
        calls += [producer.begin_transaction, producer.commit_transaction, producer.abort_transaction]
    for call in calls:
        assert re.match(f"this producer can only be closed, because {interruption}: ", str(settled(call)))
    episode.world.end()
    episode.check()
    if transactions is not None:
        next_one = Episode(InterruptedProducer(transactional=True, brokers=episode.world.brokers), -1)
        next_one.world.producer.init_transactions()
        commits_one(next_one)
        next_one.world.end()


@pytest.mark.behaviour(
    "Faults: interrupts and signals",
    "After a KeyboardInterrupt at any line of a call a producer can only be closed, and loses and doubles nothing",
)
@pytest.mark.parametrize("name", ALL)
def test_a_call_may_be_interrupted_at_every_line(name: str, figure: Figure) -> None:
    tried = closed = 0
    failed: list[str] = []
    for episode, points in runs(name, lambda _: interrupt(), _STRIDE):
        tried += 1
        closed += (is_interrupted := episode.world.pipeline.calls.interruption is not None)
        try:
            (can_only_be_closed if is_interrupted else goes_on)(episode)
        except BaseException as error:
            failed.append(f"{points.struck}: {type(error).__name__} {str(error)[:150]}")
    figure("interrupted", f"{tried} points, {closed} of them within the call")
    assert not failed, f"{len(failed)} of {tried}:\n" + "\n".join(failed)


@pytest.mark.behaviour(
    "Faults: interrupts and signals", "A signal handler may send and flush at every line of the producer's calls"
)
@pytest.mark.parametrize("name", ALL)
def test_a_signal_handler_may_send_at_every_line(name: str, figure: Figure) -> None:
    """The handler gets an error at once where it cannot send; the interrupted call completes as if undisturbed."""
    sent = refused = 0
    failed: list[str] = []

    def handle(episode: Episode) -> None:
        nonlocal sent, refused
        waited_since = episode.world.clock.now_ms
        for call in (lambda: episode.send(0), episode.world.producer.flush):
            error = settled(call)
            if error is not None:
                assert re.search(_REFUSED, str(error))
        refused += error is not None
        sent += error is None
        assert episode.world.clock.now_ms - waited_since < 1000

    for episode, points in runs(name, handle, 3 * _STRIDE):
        try:
            goes_on(episode)
        except BaseException as error:
            failed.append(f"{points.struck}: {type(error).__name__} {str(error)[:150]}")
    figure("handlers", f"{sent} sent and flushed, {refused} told at once that they cannot")
    assert not failed, f"{len(failed)} of {sent + refused}:\n" + "\n".join(failed)


@pytest.mark.behaviour(
    "Faults: interrupts and signals", "sys.exit() in a delivery callback is logged, and the sender goes on"
)
@pytest.mark.parametrize(
    "raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=lambda it: type(it).__name__
)
def test_what_a_delivery_callback_raises_stops_nobody(raised: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    episode = Episode(InterruptedProducer())
    producer = episode.world.producer

    def raise_it(_: Delivery) -> None:
        raise raised

    futures = [
        producer.send(ProducerRecord(TOPIC, episode.value(), partition=number % 3), on_delivery=raise_it)
        for number in range(9)
    ]
    episode.send(0)
    episode.send(1)
    rows = pa.table({"value": [episode.value() for _ in range(9)]})
    columns = producer.send_columns(TOPIC, rows, on_delivery=raise_it)
    producer.flush(timeout=60)
    assert all(future.result(0).offset >= 0 for future in futures)
    assert sum(delivery.count for delivery in columns.result(0)) == 9
    assert type(raised).__name__ in caplog.text
    goes_on(episode)


@pytest.mark.behaviour(
    "Faults: interrupts and signals", "sys.exit() in an interceptor is logged, and the sender goes on"
)
def test_interceptor_error_on_sender_thread_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Exits:
        def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
            raise SystemExit(3)

    episode = Episode(InterruptedProducer(interceptors=[Exits()]))
    for _ in range(3):
        episode.send(0)
    episode.world.producer.flush(timeout=60)
    episode.world.end()
    episode.check()
    assert "Exits raised SystemExit(3)" in caplog.text


@pytest.mark.behaviour(
    "Faults: interrupts and signals", "An error of a signal handler in the middle of an append is no error of the call"
)
def test_alarm_in_an_append_closes_the_producer() -> None:
    """Not only exceptions that end programs: a handler may raise any exception, which a caller may take for its own."""

    def alarm() -> None:
        raise TimeoutError("alarm")

    interrupted = 0
    for point in range(0, _MOST_POINTS, 1 if _ALL else _STRIDE):
        episode = Episode(InterruptedProducer(linger_ms=60_000), point)
        points = Points(point, alarm)
        with suppress(TimeoutError):
            points.during(episode.send)
        if points.struck is None:
            break
        interruption = episode.world.pipeline.calls.interruption
        if interruption is None:
            goes_on(episode)
        else:
            assert interruption == "TimeoutError ended send half-way"
            assert "can only be closed" in str(settled(lambda episode=episode: episode.send(0)))  # type: ignore[misc]
            episode.world.end()
            episode.check()
            interrupted += 1
    assert interrupted > 1


@pytest.mark.behaviour(
    "Faults: interrupts and signals", "A sender thread that was interrupted fails what it had to send"
)
def test_interrupted_sender_thread_closes_the_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    episode = Episode(InterruptedProducer(linger_ms=60_000))
    episode.send(0)
    monkeypatch.setattr(episode.world.pipeline.sender, "run_once", interrupt)
    with suppress(KeyboardInterrupt):
        episode.world.sender.run(episode.world.pipeline.run)
    refused = str(settled(episode.world.producer.flush))
    assert "can only be closed, because KeyboardInterrupt ended the sender thread half-way" in refused
    with pytest.raises(KafkaError, match="KeyboardInterrupt ended the sender thread before this record was sent"):
        episode.futures[0][1].result(0)
