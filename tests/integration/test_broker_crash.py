"""``kill -9`` of a broker while a producer writes: what was acknowledged is there after the restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from kafka_sink.broker.embedded_broker import EmbeddedCluster
from tests.support import amounts
from tests.support.broker_process import BrokerProcess
from tests.support.readback import read_topic

KILLS = amounts.BROKER_KILLS


class Acknowledged:
    """Everything a producer was told is stored."""

    def __init__(self) -> None:
        self.offsets: dict[int, tuple[int, int]] = {}
        self.failed: set[int] = set()

    def note(self, error: object, message: Message) -> None:
        number = int(message.value() or b"")
        if error is None:
            self.offsets[number] = (message.partition() or 0, message.offset() or 0)
        else:
            self.failed.add(number)


@pytest.mark.behaviour(
    "Faults: the embedded broker",
    "Nothing acknowledged is missing after kills in the middle of writes, rolls and seals",
)
@pytest.mark.parametrize("idempotent", [False, True])
def test_nothing_acknowledged_is_missing_after_kills(
    tmp_path: Path, idempotent: bool, figure: Callable[[str, object], None]
) -> None:
    # Small segments, tended often: kills come while they are rolled and sealed as well.
    broker = BrokerProcess(
        tmp_path / "data",
        config={"num.partitions": 2, "log.segment.bytes": 100_000, "log.retention.check.interval.ms": 100},
    )
    broker.start()
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": idempotent,
            "acks": "all",
            "linger.ms": 1,
            "batch.num.messages": 200,
            "retry.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "compression.type": "lz4",
        }
    )
    acknowledged = Acknowledged()
    written = 0
    slowest_start = 0.0
    try:
        for _ in range(KILLS):
            enough, deadline = len(acknowledged.offsets) + 5000, time.monotonic() + 60
            while len(acknowledged.offsets) < enough:
                producer.produce("t", b"%d" % written, partition=written % 2, on_delivery=acknowledged.note)
                written += 1
                assert time.monotonic() < deadline, "the producer gets no further"
                producer.poll(0 if len(producer) < 2000 else 0.01)
            broker.kill()
            begun = time.monotonic()
            broker.start()
            slowest_start = max(slowest_start, time.monotonic() - begun)
        assert producer.flush(30) == 0
        found = read_topic(broker.bootstrap_servers, "t")
    finally:
        broker.stop()
    stored = {(record.partition, record.offset): int(record.value or b"") for record in found}
    assert len(acknowledged.offsets) >= 5000 * KILLS
    assert {number: stored.get(place) for number, place in acknowledged.offsets.items()} == {
        number: number for number in acknowledged.offsets
    }
    if idempotent:
        assert acknowledged.failed == set()
        for partition in range(2):
            values = [int(record.value or b"") for record in found if record.partition == partition]
            assert values == list(range(partition, written, 2)), "in order, nothing twice"
    repeated = len(found) - len({record.value for record in found})
    text = f"{len(acknowledged.offsets)} acknowledged, 0 missing, {repeated} twice, back after {slowest_start:.1f} s"
    figure(f"kill -9, {KILLS} times, {'idempotent' if idempotent else 'plain'}", text)


def test_a_data_directory_serves_one_broker_at_a_time(tmp_path: Path) -> None:
    with (
        EmbeddedCluster(data_dir=tmp_path),
        pytest.raises(OSError, match="in use by another broker"),
        EmbeddedCluster(data_dir=tmp_path),
    ):
        raise AssertionError("a second broker got in")
    with EmbeddedCluster(data_dir=tmp_path):
        pass


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = set(threading.enumerate())
    for _ in range(3):
        with EmbeddedCluster(nodes=2) as cluster:
            cluster.create_topic("t", 4)
            assert list(tmp_path.iterdir())
        assert list(tmp_path.iterdir()) == []
    assert set(threading.enumerate()) == before


def test_a_port_that_is_taken_is_named_and_nothing_stays_open(tmp_path: Path) -> None:
    with EmbeddedCluster() as first:
        port = int(first.bootstrap_servers.rpartition(":")[2])
        before = threading.active_count()
        with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
            EmbeddedCluster(nodes=2, port=port, data_dir=tmp_path).start()
        assert threading.active_count() == before
    with EmbeddedCluster(data_dir=tmp_path):
        pass
