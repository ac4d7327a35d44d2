"""A cluster of three nodes whose process is killed and started again while leaders move and clients go on.

KAFKALITE_FAULT_RECORDS sets how many records the load sends.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_sink import KafkaProducer, ProducerRecord
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.model import TopicPartition
from tests.conftest import Figure
from tests.support import amounts
from tests.support.broker_process import BrokerProcess
from tests.support.ordered_load import OrderedLoad
from tests.support.readback import read_topic

RECORDS = amounts.FAULT_RECORDS
NODES = (1, 2, 3)
PARTITIONS = 6
LIMIT_S = 60.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", nodes=len(NODES))
    process.start()
    try:
        yield process
    finally:
        process.stop()


def strike(broker: BrokerProcess, admin: AdminClient, topic: str) -> int:
    """Kill and restart the cluster, and move leaders when it is back; returns how many leaders were moved."""
    moved = 0
    for node_id in NODES:
        broker.kill()
        time.sleep(0.3)
        broker.start()
        for partition in range(0, PARTITIONS, 2):
            admin.move_leader(TopicPartition(topic, partition), node_id)
            moved += 1
        time.sleep(0.2)
    return moved


@pytest.mark.behaviour("EmbeddedCluster", "Kills, restarts and moves of leaders lose, repeat and reorder nothing")
def test_kills_and_leader_moves_lose_repeat_and_reorder_nothing(broker: BrokerProcess, figure: Figure) -> None:
    over = threading.Event()
    moved: list[int] = []
    servers = broker.bootstrap_servers
    with (
        AdminClient(servers) as admin,
        KafkaProducer(
            {"bootstrap.servers": servers, "request.timeout.ms": 2_000, "reconnect.backoff.max.ms": 200}
        ) as producer,
    ):
        admin.create_topic("load", PARTITIONS, replication_factor=3)
        load = OrderedLoad(producer, "load")

        def blows() -> None:
            try:
                moved.append(strike(broker, admin, "load"))
            finally:
                over.set()

        thread = threading.Thread(target=blows, daemon=True)
        thread.start()
        while not over.is_set() or load.sent < RECORDS:
            load.send(max(RECORDS // 2_000, 1))
            time.sleep(0 if over.is_set() else 0.004)
        thread.join()
        producer.flush(timeout=60)
        retries = producer.metrics()["record-retry-total"]
    assert load.errors[:3] == [] and moved
    verdict = load.judge(read_topic(servers, "load"))
    figure("records", load.sent)
    figure("kills, moves of leaders", f"{len(NODES)}, {moved[0]}")
    figure("sent again", int(retries))
    figure("missing/twice/out of order", f"{verdict.missing}/{verdict.duplicates}/{verdict.out_of_order}")
    figure("longest stall", f"{load.longest_stall_s:.1f} s")
    assert verdict.is_clean, verdict


@pytest.mark.behaviour("EmbeddedCluster", "Transactions over a killed cluster are seen whole or not at all")
def test_transactions_over_killed_cluster_are_whole_or_unseen(broker: BrokerProcess, figure: Figure) -> None:
    rounds, in_each = 12, 5 * PARTITIONS
    servers = broker.bootstrap_servers
    with (
        AdminClient(servers) as admin,
        KafkaProducer({"bootstrap.servers": servers, "transactional.id": "writer"}) as producer,
    ):
        admin.create_topic("rounds", PARTITIONS, replication_factor=3)
        producer.init_transactions()
        started = time.monotonic()
        for number in range(rounds):
            producer.begin_transaction()
            for index in range(in_each):
                value = b"%d" % (number * in_each + index)
                producer.send(ProducerRecord("rounds", value, partition=index % PARTITIONS))
            producer.send_offsets_to_transaction({TopicPartition("rounds", 0): number}, "readers")
            if number == rounds // 2:
                broker.kill()
                broker.start()
            if number % 3 == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        figure("transactions, the cluster killed on the way", f"{rounds} in {time.monotonic() - started:.1f} s")
    found = sorted(int(message.value or b"") for message in read_topic(servers, "rounds"))
    assert found == [
        number * in_each + index for number in range(rounds) if number % 3 != 2 for index in range(in_each)
    ]


@pytest.mark.behaviour("EmbeddedCluster", "A data directory is in use by one process at a time")
def test_data_directory_in_use_is_refused(broker: BrokerProcess, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kafka_sink.cli", "broker", "--port", "0", "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 1 and "is in use by another broker process" in done.stderr
    assert "Traceback" not in done.stderr
