"""``kill -9`` of a broker while a producer writes: what was acknowledged is there after the restart."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from kafka_sink.broker.embedded_broker import EmbeddedCluster
from tests.support.broker_process import BrokerProcess
from tests.support.readback import read_topic


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


@pytest.mark.parametrize("idempotent", [False, True])
def test_nothing_acknowledged_is_missing_after_kills(tmp_path: Path, idempotent: bool) -> None:
    broker = BrokerProcess(tmp_path)
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
    try:
        for _ in range(3):
            killer = threading.Timer(0.4, broker.kill)
            killer.start()
            end = time.monotonic() + 0.8
            while time.monotonic() < end:
                producer.produce("t", b"%d" % written, partition=written % 2, on_delivery=acknowledged.note)
                written += 1
                producer.poll(0 if len(producer) < 2000 else 0.01)
            killer.join()
            broker.start()
        assert producer.flush(30) == 0
        found = read_topic(broker.bootstrap_servers, "t")
    finally:
        broker.stop()
    stored = {(record.partition, record.offset): int(record.value or b"") for record in found}
    assert len(acknowledged.offsets) > 1000
    assert {number: stored.get(place) for number, place in acknowledged.offsets.items()} == {
        number: number for number in acknowledged.offsets
    }
    if idempotent:
        assert acknowledged.failed == set()
        for partition in range(2):
            values = [int(record.value or b"") for record in found if record.partition == partition]
            assert values == list(range(partition, written, 2)), "in order, nothing twice"


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
