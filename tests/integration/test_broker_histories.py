"""Histories of foreign clients while brokers are killed and paused and clients cut off, judged as Jepsen judges them.

KAFKALITE_HISTORY_SECONDS sets for how long.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.errors import KafkaError
from kafka_sink.common.model import TopicPartition as Partition
from kafka_sink.common.threads import start_thread
from tests.conftest import Figure
from tests.support import amounts
from tests.support.broker_process import BrokerProcess
from tests.support.fault_proxy import Fault, FaultProxy
from tests.support.histories import History, Outcome, Poll, Writes, anomalies, interleaved
from tests.support.readback import read_topic
from tests.support.waiting import until

SECONDS = amounts.HISTORY_SECONDS
TOPIC = "history"
PARTITIONS = 3
NODES = (1, 2, 3)
QUIET = {"reconnect.backoff.max.ms": 200, "log_level": 0}
#: A client gets no further for this long when a broker pauses or is killed.
LIMIT_S = 60.0


class Numbers:
    """Values that are given out once."""

    def __init__(self) -> None:
        self._next = 0
        self._lock = threading.Lock()

    def take(self) -> int:
        with self._lock:
            self._next += 1
            return self._next


def write_transactions(servers: str, name: str, history: History, numbers: Numbers, over: threading.Event) -> None:
    draw = random.Random(name)
    producer: Producer | None = None
    while not over.is_set():
        if producer is None:
            producer = Producer({"bootstrap.servers": servers, "transactional.id": name, **QUIET})
            _until_done(partial(producer.init_transactions, LIMIT_S))
        writes = history.begin(name)
        try:
            producer.begin_transaction()
            for _ in range(draw.randint(1, 20)):
                _produce(producer, writes, numbers, draw)
            _until_done(partial(producer.flush, LIMIT_S))
            writes.end_began_s = time.monotonic()
            if draw.random() < 0.2:
                _until_done(partial(producer.abort_transaction, LIMIT_S))
                writes.outcome = Outcome.ABORTED
            else:
                _until_done(partial(producer.commit_transaction, LIMIT_S))
                writes.outcome = Outcome.COMMITTED
        except KafkaException as error:
            writes.end_began_s = min(writes.end_began_s, time.monotonic())
            if error.args[0].txn_requires_abort():
                _until_done(partial(producer.abort_transaction, LIMIT_S))
                writes.outcome = Outcome.ABORTED
            else:
                # Fenced by itself, or worse: the next one under that name ends what it left.
                producer = None


def write_plain(servers: str, name: str, history: History, numbers: Numbers, over: threading.Event) -> None:
    draw = random.Random(name)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **QUIET})
    while not over.is_set():
        writes = history.begin(name)
        writes.end_began_s = 0.0
        for _ in range(draw.randint(1, 20)):
            _produce(producer, writes, numbers, draw)
        if producer.flush(LIMIT_S) == 0 and len(writes.places) == len(writes.values):
            writes.outcome = Outcome.COMMITTED


def _produce(producer: Producer, writes: Writes, numbers: Numbers, draw: random.Random) -> None:
    value = numbers.take()

    def note(error: object, message: Message) -> None:
        if error is None:
            writes.places[value] = (message.partition() or 0, message.offset() or 0)

    writes.values.append(value)
    producer.produce(TOPIC, str(value).encode(), partition=draw.randrange(PARTITIONS), on_delivery=note)


def _until_done(step: Callable[[], object]) -> None:
    deadline = time.monotonic() + 2 * LIMIT_S
    while True:
        try:
            step()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


def read(servers: str, name: str, history: History, has_all: Callable[[int], bool]) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": name,
            "isolation.level": "read_committed",
            **QUIET,
            "fetch.wait.max.ms": 20,
        }
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    count = 0
    while not has_all(count):
        messages = [message for message in consumer.consume(200, timeout=0.1) if message.error() is None]
        count += len(messages)
        if messages:
            history.polled(name, [((m.partition() or 0, m.offset() or 0), int(m.value() or b"")) for m in messages])
    consumer.close()


def trouble(broker: BrokerProcess, cut: list[threading.Event], until_s: float) -> Counter[str]:
    """Kill, pause, cut off and move leaders by chance; whatever it was is over when this returns."""
    draw, done = random.Random(7), Counter[str]()
    with AdminClient(broker.bootstrap_servers) as admin:
        while time.monotonic() < until_s:
            what = draw.choice(["kills", "pauses", "partitions", "moves"])
            done[what] += 1
            if what == "kills":
                broker.kill()
                time.sleep(draw.uniform(0.0, 0.5))
                broker.start()
            elif what == "pauses":
                with broker.paused():
                    time.sleep(draw.uniform(0.2, 2.0))
            elif what == "partitions":
                event = draw.choice(cut)
                event.set()
                time.sleep(draw.uniform(0.2, 2.0))
                event.clear()
            else:
                try:
                    admin.move_leader(Partition(TOPIC, draw.randrange(PARTITIONS)), draw.choice(NODES))
                except KafkaError:
                    # It may be no leader yet again after a kill.
                    done["moves refused"] += 1
            time.sleep(draw.uniform(0.1, 0.6))
    return done


def ended(history: History) -> Counter[str]:
    return Counter(writes.outcome.value for writes in list(history.writes))


def cuts(event: threading.Event) -> Callable[[object, int], Fault | None]:
    return lambda key, number: Fault.RESET_BEFORE if event.is_set() else None


@pytest.mark.behaviour(
    "Faults: the embedded broker", "Histories of clients over killed, paused and cut-off brokers have no anomaly"
)
def test_histories_have_no_anomaly(tmp_path: Path, figure: Figure) -> None:
    broker = BrokerProcess(tmp_path / "data", nodes=len(NODES))
    history, numbers, over = History(), Numbers(), threading.Event()
    cut = [threading.Event(), threading.Event()]
    settled = [sys.maxsize]
    try:
        broker.start()
        servers = broker.bootstrap_servers
        with AdminClient(servers) as admin:
            admin.create_topic(TOPIC, PARTITIONS, replication_factor=len(NODES))
        with FaultProxy(servers, cuts(cut[0])) as writing, FaultProxy(servers, cuts(cut[1])) as reading:
            writers = [
                start_thread(name, partial(work, way, name, history, numbers, over))
                for name, work, way in (
                    ("tx-1", write_transactions, writing.bootstrap_servers),
                    ("tx-2", write_transactions, servers),
                    ("plain-1", write_plain, writing.bootstrap_servers),
                )
            ]
            readers = [
                start_thread(name, partial(read, way, name, history, lambda count: count >= settled[0]))
                for name, way in (("reader-1", reading.bootstrap_servers), ("reader-2", servers))
            ]
            done = trouble(broker, cut, time.monotonic() + SECONDS)
            until("ends of both kinds", lambda: ended(history)["committed"] > 10 and ended(history)["aborted"] > 0)
            over.set()
            for thread in writers:
                thread.join(4 * LIMIT_S)
                assert not thread.is_alive(), f"{thread.name} gets no further"
            found = read_topic(servers, TOPIC)
            settled[0] = len(found)
            for thread in readers:
                thread.join(LIMIT_S)
                assert not thread.is_alive(), f"{thread.name} does not find all that is there"
    finally:
        # Threads that a failure has left end too.
        over.set()
        settled[0] = 0
        broker.stop()
    log = {(record.partition, record.offset): int(record.value or b"") for record in found}
    wrong = anomalies(history, log)
    outcomes = ended(history)
    figure(
        f"{SECONDS:.0f} s of trouble",
        f"{sum(done.values())} ({', '.join(f'{n} {what}' for what, n in done.most_common())}): {len(log)} records read"
        f" by two readers, {', '.join(f'{n} {what}' for what, n in outcomes.most_common())},"
        f" {interleaved(history)} G0 (allowed), anomalies {dict(wrong)}",
    )
    assert wrong == Counter()


COMMITTED = Writes("a", [1, 2], {1: (0, 0), 2: (0, 1)}, Outcome.COMMITTED, 5.0)
ABORTED = Writes("a", [3], {3: (0, 3)}, Outcome.ABORTED, 6.0)
LATER = Writes("a", [4], {4: (0, 5)}, Outcome.COMMITTED, 7.0)
UNKNOWN = Writes("b", [8, 9], {}, Outcome.UNKNOWN, 8.0)
LOG = {(0, 0): 1, (0, 1): 2, (0, 5): 4}
FIRST = Poll("r", 9.0, [((0, 0), 1), ((0, 1), 2)])
SECOND = Poll("r", 9.1, [((0, 5), 4)])


@pytest.mark.behaviour("Faults: the embedded broker", "The checker of histories notices each anomaly")
@pytest.mark.parametrize(
    ("writes", "polls", "log", "name"),
    [
        ([COMMITTED, ABORTED, LATER], [FIRST, SECOND], LOG, None),
        ([COMMITTED, LATER], [FIRST, SECOND], {**LOG, (0, 1): 7}, "inconsistent-offsets"),
        ([COMMITTED, LATER], [FIRST, SECOND], {**LOG, (0, 8): 4}, "duplicate"),
        ([COMMITTED, LATER], [FIRST], {(0, 0): 1, (0, 1): 2}, "lost-write"),
        ([COMMITTED, LATER], [FIRST], LOG, "unseen"),
        ([COMMITTED, ABORTED], [FIRST, Poll("r", 9.1, [((0, 3), 3)])], LOG, "G1a"),
        ([COMMITTED, LATER], [FIRST, Poll("r", 6.9, SECOND.found)], LOG, "precommitted-read"),
        ([COMMITTED, UNKNOWN], [FIRST], {**LOG, (1, 0): 8}, "torn transaction"),
        ([COMMITTED], [Poll("r", 9.0, [((0, 0), 1)]), SECOND], LOG, "poll-skip"),
        ([COMMITTED], [Poll("r", 9.0, [((0, 0), 1), ((0, 5), 4)])], LOG, "int-poll-skip"),
        ([COMMITTED], [FIRST, FIRST], LOG, "nonmonotonic-poll"),
        ([COMMITTED], [Poll("r", 9.0, [((0, 1), 2), ((0, 0), 1)])], LOG, "int-nonmonotonic-poll"),
        ([LATER, COMMITTED], [FIRST, SECOND], LOG, "nonmonotonic-send"),
        ([Writes("a", [2, 1], COMMITTED.places, Outcome.COMMITTED, 5.0)], [FIRST], LOG, "int-nonmonotonic-send"),
    ],
)
def test_each_anomaly_is_noticed(
    writes: list[Writes], polls: list[Poll], log: dict[tuple[int, int], int], name: str | None
) -> None:
    wrong = anomalies(History(writes, polls), log)
    assert wrong == Counter() if name is None else wrong[name] > 0, dict(wrong)
