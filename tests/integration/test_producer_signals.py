"""Real signals, at moments of their own, on the thread that sends to a real broker."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.common.errors import KafkaError
from tests.conftest import Figure
from tests.support import amounts
from tests.support.readback import read_topic

TOPIC = "signals"
_SECONDS = amounts.SIGNAL_SECONDS


@pytest.fixture
def alarms() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.behaviour("Faults: interrupts and signals", "Real signals at any moment corrupt nothing and hang nothing")
@pytest.mark.usefixtures("alarms")
@pytest.mark.parametrize("handler", ["interrupts", "sends"])
def test_signals_at_any_moment_corrupt_and_hang_nothing(handler: str, figure: Figure) -> None:
    signals = closed = 0
    futures: list[tuple[bytes, Any]] = []
    with EmbeddedCluster(nodes=1) as cluster:
        cluster.create_topic(TOPIC, 1)
        properties = {"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 1000, "linger.ms": 0}
        producer = KafkaProducer(properties)

        def send(what: bytes) -> None:
            value = b"%s %d" % (what, len(futures))
            futures.append((value, producer.send(ProducerRecord(TOPIC, value * 20, partition=0))))

        def handle(number: int, frame: object) -> None:
            nonlocal signals
            signals += 1
            if handler == "interrupts":
                raise KeyboardInterrupt
            with suppress(KafkaError):
                send(b"handler")

        signal.signal(signal.SIGALRM, handle)
        rng = random.Random(1)
        ends = time.monotonic() + _SECONDS

        def send_until_signal() -> None:
            before = signals
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0003, 0.003))
            while signals == before:
                send(b"program")

        while time.monotonic() < ends:
            # Around a call: CPython 3.13 leaves the jump of a loop within the body of with unprotected.
            with suppress(KeyboardInterrupt):
                send_until_signal()
            try:
                send(b"next")
            except KafkaError as error:
                assert "can only be closed, because KeyboardInterrupt ended send half-way" in str(error)
                closed += 1
                producer.close(timeout=60)
                producer = KafkaProducer(properties)
        producer.flush(timeout=60)
        memory = producer.metrics()
        assert memory["buffer-available-bytes"] == memory["buffer-total-bytes"]
        producer.close()
        stored = {record.offset: record.value for record in read_topic(cluster.bootstrap_servers, TOPIC)}
        assert all(stored[future.result(0).offset] == value * 20 for value, future in futures)
    figure("signals", f"{signals}, {closed} of them within a call, {len(futures)} records")
