"""Our producer while the embedded broker, a process of its own, is killed, stopped in its tracks, and full.

KAFKALITE_FAULT_RECORDS sets how many records the loads send, KAFKALITE_PAUSES how often and how long the broker pauses,
KAFKALITE_REUSE_RECORDS how many records are sent in little memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.columns.record_columns import BinaryColumn, ColumnChunk
from kafka_sink.common.errors import BufferExhaustedError, KafkaTimeoutError, RecordTooLargeError
from kafka_sink.producer.futures import Delivery
from tests.conftest import Figure
from tests.support import amounts
from tests.support.broker_process import BrokerProcess
from tests.support.fault_proxy import Delay, FaultProxy, every
from tests.support.ordered_load import OrderedLoad
from tests.support.readback import read_topic

RECORDS = amounts.FAULT_RECORDS
#: Records sent in little memory.
ROWS_AT_ONCE = 50
REUSES = amounts.REUSE_RECORDS // ROWS_AT_ONCE
KILLS = amounts.KILLS_UNDER_LOAD
PAUSES, PAUSE_S = amounts.PAUSES.split("x")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data")
    process.start()
    with AdminClient(process.bootstrap_servers) as admin:
        admin.create_topic("t", 4)
    try:
        yield process
    finally:
        process.stop()


def strike(broker: BrokerProcess, blows: int, blow: Callable[[], None], figure: Figure) -> None:
    """Send a load while *blow* falls so many times, and prove that the topic holds it."""
    over = threading.Event()

    def fall() -> None:
        for _ in range(blows):
            time.sleep(0.3)
            blow()
        over.set()

    with KafkaProducer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "request.timeout.ms": 1_000,
            "reconnect.backoff.max.ms": 200,
            "max.block.ms": 60_000,
        }
    ) as producer:
        load = OrderedLoad(producer, "t")
        thread = threading.Thread(target=fall, daemon=True)
        thread.start()
        while not over.is_set() or load.sent < RECORDS:
            # Little by little, so that something is under way whenever a blow falls.
            load.send(max(RECORDS // 2_000, 1))
            time.sleep(0 if over.is_set() else 0.004)
        thread.join()
        producer.flush(timeout=60)
        retries = producer.metrics()["record-retry-total"]
    assert load.errors[:3] == []
    verdict = load.judge(read_topic(broker.bootstrap_servers, "t"))
    figure("records", load.sent)
    figure("sent again", int(retries))
    figure("missing/twice/out of order", f"{verdict.missing}/{verdict.duplicates}/{verdict.out_of_order}")
    figure("longest stall", f"{load.longest_stall_s:.1f} s")
    assert verdict.is_clean, verdict


@pytest.mark.behaviour("Faults: the embedded broker", "Kills of the broker under load lose, repeat and reorder nothing")
def test_kills_of_the_broker_lose_and_repeat_nothing(broker: BrokerProcess, figure: Figure) -> None:
    def kill() -> None:
        broker.kill()
        broker.start()

    strike(broker, KILLS, kill, figure)


@pytest.mark.behaviour(
    "Faults: the embedded broker", "Pauses of the broker beyond request.timeout.ms lose, repeat and reorder nothing"
)
def test_pauses_of_the_broker_lose_and_repeat_nothing(broker: BrokerProcess, figure: Figure) -> None:
    def pause() -> None:
        with broker.paused():
            time.sleep(float(PAUSE_S))

    strike(broker, int(PAUSES), pause, figure)


@pytest.mark.behaviour("Faults: errors of records", "Memory is never used again while a request points into it")
def test_memory_is_never_reused_while_a_request_points_into_it(figure: Figure) -> None:
    """Batches expire while their requests are under way, in little memory: no record may end in another's place."""
    topics = [f"topic-{number}" for number in range(4)]
    told: list[Delivery] = []
    with EmbeddedCluster() as cluster:
        for topic in topics:
            cluster.create_topic(topic, partitions=3)
        with (
            FaultProxy(cluster.bootstrap_servers, every(15, Delay(0.3))) as proxy,
            KafkaProducer(
                {
                    "bootstrap.servers": proxy.bootstrap_servers,
                    "request.timeout.ms": 200,
                    "delivery.timeout.ms": 205,
                    "linger.ms": 5,
                    "batch.size": 4_000,
                    "buffer.memory": 100_000,
                    "retry.backoff.ms": 10,
                }
            ) as producer,
        ):
            # A fast machine needs few requests for these rows: on, until some have met the delay.
            turns = 0
            while turns < REUSES or (turns < 20 * REUSES and all(delivery.error is None for delivery in told)):
                send_all_over(producer, topics, turns, told)
                turns += 1
            producer.flush(timeout=60)
        misplaced = stored = 0
        for topic in topics:
            for message in read_topic(cluster.bootstrap_servers, topic):
                name, partition = (message.value or b"").split()
                stored += 1
                misplaced += (name.decode(), int(partition)) != (topic, message.partition)
    acknowledged = sum(delivery.count for delivery in told if delivery.error is None)
    failed = sum(delivery.count for delivery in told if delivery.error is not None)
    figure("acknowledged/failed/stored", f"{acknowledged}/{failed}/{stored}")
    figure("in a wrong place", misplaced)
    assert misplaced == 0
    assert acknowledged + failed == turns * ROWS_AT_ONCE
    assert failed > 0
    assert acknowledged <= stored


def send_all_over(producer: KafkaProducer, topics: list[str], number: int, told: list[Delivery]) -> None:
    """Some records to one of the topics, as columns or one by one; each says where it belongs."""
    topic = topics[number % len(topics)]
    partitions = [row % 3 for row in range(ROWS_AT_ONCE)]
    values = [f"{topic} {partition}".encode() for partition in partitions]
    if number % 8 < 4:
        chunk = ColumnChunk(key=None, value=BinaryColumn.from_arrow(pa.array(values)))
        producer.send_columns(topic, chunk, np.array(partitions, dtype=np.int32), on_delivery=told.append)
    else:
        for partition, value in zip(partitions, values, strict=True):
            producer.send(ProducerRecord(topic, value, partition=partition), on_delivery=told.append)


@pytest.mark.behaviour(
    "Faults: errors of records",
    "A record that is too large, or finds no memory, fails alone, and all others are stored",
)
def test_an_error_is_the_records_own(figure: Figure) -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", partitions=1)
        with KafkaProducer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "max.request.size": 10_000,
                "buffer.memory": 40_000,
                "max.block.ms": 20_000,
                "delivery.timeout.ms": 30_000,
                "request.timeout.ms": 20_000,
                "linger.ms": 1_000,
            }
        ) as producer:
            fine = [producer.send(ProducerRecord("t", b"%d" % number)) for number in range(10)]
            with pytest.raises(RecordTooLargeError, match="more than max"):
                producer.send(ProducerRecord("t", b"x" * 10_001)).result(0)
            fine += [producer.send(ProducerRecord("t", b"%d" % number)) for number in range(10, 20)]
            assert [future.result(60).offset for future in fine] == list(range(20))
        with (
            FaultProxy(cluster.bootstrap_servers, every(1, Delay(1.0))) as proxy,
            KafkaProducer(
                {
                    "bootstrap.servers": proxy.bootstrap_servers,
                    "batch.size": 5_000,
                    "buffer.memory": 10_000,
                    "max.block.ms": 200,
                    "max.request.size": 9_000,
                    "linger.ms": 0,
                }
            ) as producer,
        ):
            await_metadata(producer, "t")
            futures = [producer.send(ProducerRecord("t", b"y" * 4_900)) for _ in range(4)]
            outcomes = []
            for future in futures:
                try:
                    future.result(60)
                    outcomes.append("stored")
                except BufferExhaustedError:
                    outcomes.append("no memory")
            figure("with full memory", outcomes)
            assert set(outcomes) == {"stored", "no memory"}
        assert len(read_topic(cluster.bootstrap_servers, "t")) == 20 + outcomes.count("stored")


def await_metadata(producer: KafkaProducer, topic: str) -> None:
    """Whatever max.block.ms says."""
    deadline = time.monotonic() + 60
    while True:
        try:
            producer.partitions_for(topic)
            return
        except KafkaTimeoutError:
            assert time.monotonic() < deadline
