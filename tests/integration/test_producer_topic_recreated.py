"""A topic that is deleted and recreated repeatedly, while our producer sends to it and to another one.

KAFKALITE_RECREATIONS sets how often. The log files of each topic of that name are kept and read afterwards: only they
show which of these topics a record was written to.
"""

from __future__ import annotations

import collections
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.broker.log.filesystem import OsFileSystem
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.errors import KafkaTimeoutError, UnknownTopicOrPartitionError
from kafka_sink.producer.futures import Delivery
from kafka_sink.records.reader import read_batches
from tests.conftest import Figure
from tests.support import amounts

RECREATIONS = amounts.RECREATIONS
#: After this many recreations, the topic is missing for longer than records may wait.
LONG_ABSENCE_EVERY = 5
DELIVERY_TIMEOUT_MS = 1_500
PARTITIONS = 3


class KeepingFileSystem(OsFileSystem):
    """Moves deleted logs to a folder of their own: ``directory of the log → number of its incarnation``."""

    def __init__(self, kept: Path) -> None:
        super().__init__()
        self._kept = kept
        self._names: dict[Path, str] = {}
        self._incarnations: collections.Counter[str] = collections.Counter()
        kept.mkdir()

    def rename(self, source: Path, target: Path) -> None:
        self._names[target] = source.name
        super().rename(source, target)

    def remove_tree(self, path: Path) -> None:
        name = self._names.pop(path)
        self._incarnations[name] += 1
        path.rename(self._kept / f"{self._incarnations[name]}.{name}")


def stored(*folders: Path) -> dict[bytes, list[tuple[str, int]]]:
    """Return each (directory of a log, offset) of each value."""
    found: dict[bytes, list[tuple[str, int]]] = collections.defaultdict(list)
    for folder in folders:
        for directory in folder.iterdir():
            for segment in sorted(directory.glob("*.log")):
                for batch in read_batches(segment.read_bytes()):
                    for record in batch.records():
                        found[record.value or b""].append((directory.name, record.offset))
    return found


class Traffic:
    """Sends to both topics until it is stopped, and records each outcome."""

    def __init__(self, producer: KafkaProducer) -> None:
        self._producer = producer
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0
        self.acknowledged: dict[bytes, Delivery] = {}
        self.errors: list[tuple[bytes, Exception]] = []
        self.recreated_at: float | None = None
        self.recovered_after: list[float] = []

    def _run(self) -> None:
        while not self._over.is_set():
            for topic in ("came-again", "stayed"):
                value = f"{topic} {self.sent}".encode()
                self._producer.send(
                    ProducerRecord(topic, value, partition=self.sent % PARTITIONS),
                    on_delivery=partial(self._told, value),
                )
            self.sent += 1
            time.sleep(0.001)

    def _told(self, value: bytes, delivery: Delivery) -> None:
        if delivery.error is not None:
            self.errors.append((value, delivery.error))
            return
        self.acknowledged[value] = delivery
        if self.recreated_at is not None and value.startswith(b"came-again"):
            self.recovered_after.append(time.monotonic() - self.recreated_at)
            self.recreated_at = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.behaviour(
    "Faults: errors of records",
    "A topic that is deleted and created again and again has exactly what was acknowledged for it",
)
def test_recreated_topic_has_exactly_what_was_acknowledged(tmp_path: Path, figure: Figure) -> None:
    filesystem = KeepingFileSystem(tmp_path / "kept")
    with EmbeddedCluster(data_dir=tmp_path / "data", filesystem=filesystem, auto_create_topics=False) as cluster:
        cluster.create_topic("came-again", PARTITIONS)
        cluster.create_topic("stayed", PARTITIONS)
        properties = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "max.block.ms": DELIVERY_TIMEOUT_MS,
            "request.timeout.ms": 1_000,
            "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
            "linger.ms": 0,
        }
        with AdminClient(cluster.bootstrap_servers) as admin, KafkaProducer(properties) as producer:
            traffic = Traffic(producer)
            traffic.start()
            for number in range(1, RECREATIONS + 1):
                before = len(traffic.recovered_after)
                time.sleep(0.1)
                admin.delete_topics(["came-again"])
                time.sleep(DELIVERY_TIMEOUT_MS / 500 if number % LONG_ABSENCE_EVERY == 0 else 0.02 * (number % 5))
                admin.create_topic("came-again", PARTITIONS)
                traffic.recreated_at = time.monotonic()
                deadline = time.monotonic() + 60
                while len(traffic.recovered_after) == before and time.monotonic() < deadline:
                    time.sleep(0.01)
            traffic.stop()
            producer.flush(timeout=30)
    found = stored(tmp_path / "kept", tmp_path / "data" / "logs")
    wrong_place = missing = twice = 0
    for value, places in found.items():
        twice += len(places) > 1
        wrong_place += any(not name.rpartition("-")[0].endswith(value.split()[0].decode()) for name, _ in places)
    for value, delivery in traffic.acknowledged.items():
        at = [(name.rpartition(".")[2], offset) for name, offset in found.get(value, [])]
        missing += at != [(str(delivery.topic_partition), delivery.base_offset)]
    figure("topic made again", RECREATIONS)
    figure("acknowledged/failed", f"{len(traffic.acknowledged)}/{len(traffic.errors)}")
    figure("not where acknowledged/twice/in a wrong topic", f"{missing}/{twice}/{wrong_place}")
    recoveries = sorted(traffic.recovered_after)
    figure("back after", f"{recoveries[len(recoveries) // 2]:.2f} s, {recoveries[-1]:.2f} s at most")
    assert len(recoveries) == RECREATIONS
    # Each topic of that name had logs of its own, with records.
    incarnations = {path.name.split(".")[0] for path in (tmp_path / "kept").iterdir() if any(path.glob("*.log"))}
    assert len(incarnations) == RECREATIONS
    assert (missing, twice, wrong_place) == (0, 0, 0)
    assert len(traffic.acknowledged) + len(traffic.errors) == 2 * traffic.sent
    # Records fail only if the topic was missing for longer than they may wait.
    assert {type(error) for _, error in traffic.errors} <= {KafkaTimeoutError, UnknownTopicOrPartitionError}
    assert bool(traffic.errors) == (RECREATIONS >= LONG_ABSENCE_EVERY)
    assert all(value.startswith(b"came-again") for value, _ in traffic.errors)
