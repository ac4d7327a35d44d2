"""One cluster of several processes over one data directory: brokers die, come back, and leaders move.

KAFKALITE_FAULT_RECORDS sets how many records the load sends.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.client.admin import AdminClient
from kafka_sink.common.errors import ErrorCode, KafkaError
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
PAUSE_S = 2.0

Brokers = dict[int, BrokerProcess]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster") / "data"


@pytest.fixture(scope="module")
def processes(data_dir: Path) -> Iterator[Brokers]:
    made = {node_id: BrokerProcess(data_dir, node_id=node_id) for node_id in NODES}
    try:
        yield made
    finally:
        for process in made.values():
            process.stop()


@pytest.fixture
def brokers(processes: Brokers) -> Brokers:
    """All of them, running; what a test stopped is started for the next one."""
    for process in processes.values():
        if not process.is_running:
            process.start()
    return processes


def bootstrap(brokers: Brokers) -> str:
    return ",".join(broker.bootstrap_servers for broker in brokers.values())


def leaders(admin: AdminClient, topic: str) -> list[int | None]:
    return [
        None if info.leader is None else info.leader.id for info in admin.describe_topics([topic])[topic].partitions
    ]


def strike(brokers: Brokers, admin: AdminClient, topic: str) -> int:
    """Kill and restart each broker, and move leaders to it when it is back; returns how many leaders were moved."""
    moved = 0
    for node_id, broker in brokers.items():
        broker.kill()
        time.sleep(0.3)
        broker.start()
        for partition in range(0, PARTITIONS, 2):
            admin.move_leader(TopicPartition(topic, partition), node_id)
            moved += 1
        time.sleep(0.2)
    return moved


@pytest.mark.behaviour(
    "Nodes in several processes", "Kills, restarts and moves of leaders lose, repeat and reorder nothing"
)
def test_kills_and_leader_moves_lose_repeat_and_reorder_nothing(brokers: Brokers, figure: Figure) -> None:
    over = threading.Event()
    moved: list[int] = []
    with (
        AdminClient(bootstrap(brokers)) as admin,
        KafkaProducer(
            {"bootstrap.servers": bootstrap(brokers), "request.timeout.ms": 2_000, "reconnect.backoff.max.ms": 200}
        ) as producer,
    ):
        admin.create_topic("load", PARTITIONS, replication_factor=3)
        load = OrderedLoad(producer, "load")

        def blows() -> None:
            try:
                moved.append(strike(brokers, admin, "load"))
            finally:
                over.set()

        thread = threading.Thread(target=blows, daemon=True)
        thread.start()
        while not over.is_set() or load.sent < RECORDS:
            load.send(max(RECORDS // 2_000, 1))
            time.sleep(0 if over.is_set() else 0.004)
        thread.join()
        producer.flush(60_000)
        retries = producer.metrics()["record-retry-total"]
    assert load.errors[:3] == [] and moved
    verdict = load.judge(read_topic(bootstrap(brokers), "load"))
    figure("records", load.sent)
    figure("kills, moves of leaders", f"{len(NODES)}, {moved[0]}")
    figure("sent again", int(retries))
    figure("missing/twice/out of order", f"{verdict.missing}/{verdict.duplicates}/{verdict.out_of_order}")
    figure("longest stall", f"{load.longest_stall_s:.1f} s")
    assert verdict.is_clean, verdict


@pytest.mark.behaviour("Nodes in several processes", "Transactions over all processes are seen whole or not at all")
def test_transactions_over_all_processes_are_seen_whole_or_not(brokers: Brokers, figure: Figure) -> None:
    rounds, in_each = 12, 5 * PARTITIONS
    with (
        AdminClient(bootstrap(brokers)) as admin,
        KafkaProducer({"bootstrap.servers": bootstrap(brokers), "transactional.id": "writer"}) as producer,
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
            if number % 3 == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
            if number == rounds // 2:
                brokers[2].kill()
        figure("transactions, a broker killed on the way", f"{rounds} in {time.monotonic() - started:.1f} s")
        assert leaders(admin, "rounds").count(None) == 0
    found = sorted(int(message.value or b"") for message in read_topic(bootstrap(brokers), "rounds"))
    assert found == [
        number * in_each + index for number in range(rounds) if number % 3 != 2 for index in range(in_each)
    ]


@pytest.mark.behaviour(
    "Nodes in several processes", "A process that stands still while leaders move and another dies tears no transaction"
)
def test_frozen_process_during_leader_moves_tears_no_transaction(brokers: Brokers, figure: Figure) -> None:
    rounds, in_each = 6, 2 * PARTITIONS
    with (
        AdminClient(bootstrap(brokers)) as admin,
        KafkaProducer({"bootstrap.servers": bootstrap(brokers), "transactional.id": "patient"}) as producer,
    ):
        admin.create_topic("stood", PARTITIONS, replication_factor=3)
        producer.init_transactions()
        with contextlib.ExitStack() as still:
            for number in range(rounds):
                producer.begin_transaction()
                for index in range(in_each):
                    value = b"%d" % (number * in_each + index)
                    producer.send(ProducerRecord("stood", value, partition=index % PARTITIONS))
                producer.send_offsets_to_transaction({TopicPartition("stood", 0): number}, "readers")
                if number == 1:
                    # It has the logs that it led until it goes on: nobody else may write to them before.
                    still.enter_context(brokers[3].paused())
                    brokers[2].kill()
                    threading.Timer(PAUSE_S, still.close).start()
                if number % 3 == 2:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
                if number == 2:
                    for partition in range(PARTITIONS):
                        admin.move_leader(TopicPartition("stood", partition), 1)
        figure("transactions, a broker that stood still and one killed", f"{rounds}, {PAUSE_S:.0f} s")
    found = sorted(int(message.value or b"") for message in read_topic(bootstrap(brokers), "stood"))
    assert found == [
        number * in_each + index for number in range(rounds) if number % 3 != 2 for index in range(in_each)
    ]


def until(holds: Callable[[], bool]) -> float:
    """Wait until *holds*; returns the milliseconds that took. A node that has not heard of a topic says it is unknown,
    in Kafka as here, and a client cannot know which node that is.
    """
    started = time.monotonic()
    while True:
        try:
            if holds():
                return (time.monotonic() - started) * 1000
        except KafkaError as error:
            if getattr(error, "code", None) is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        assert time.monotonic() - started < LIMIT_S
        time.sleep(0.002)


@pytest.mark.behaviour("Nodes in several processes", "Every process soon hears of topics, settings and leaders")
def test_every_process_hears_of_topics_settings_and_leaders_soon(brokers: Brokers, figure: Figure) -> None:
    with AdminClient(brokers[1].bootstrap_servers) as first, AdminClient(brokers[3].bootstrap_servers) as last:

        def altered() -> bool:
            last.alter_topic_configs("heard", {"retention.ms": "2000"})
            return True

        def is_altered() -> bool:
            return first.topic_configs(["heard"])["heard"]["retention.ms"].value == "2000"

        first.create_topic("heard", PARTITIONS, replication_factor=2, configs={"retention.ms": "1000"})
        figure("a topic is known in another process after", f"{until(lambda: 'heard' in last.list_topics()):.0f} ms")
        until(altered)
        until(is_altered)
        until(lambda: set(leaders(first, "heard")) == set(NODES))
        brokers[2].kill()
        figure("a killed leader is replaced after", f"{until(lambda: 2 not in leaders(first, 'heard')):.0f} ms")
        until(lambda: not {2, None} & set(leaders(last, "heard")))
        last.delete_topics(["heard"])
        until(lambda: "heard" not in first.list_topics())


@pytest.mark.behaviour("Nodes in several processes", "A topic that was created again has nothing of its predecessor")
def test_a_topic_made_anew_has_nothing_of_its_predecessor(brokers: Brokers, data_dir: Path) -> None:
    with AdminClient(bootstrap(brokers)) as admin:
        admin.create_topic("anew", PARTITIONS, replication_factor=1)
        with KafkaProducer({"bootstrap.servers": bootstrap(brokers)}) as producer:
            for number in range(600):
                producer.send(ProducerRecord("anew", b"old", partition=number % PARTITIONS))
        # Nobody leads its partitions now, so nobody has their logs.
        brokers[2].kill()
        admin.delete_topics(["anew"])
        admin.create_topic("anew", PARTITIONS, replication_factor=1)
        brokers[2].start()
        found = read_topic(bootstrap(brokers), "anew")
        assert found == []
        admin.delete_topics(["anew"])
    logs = data_dir / "logs"
    deadline = time.monotonic() + LIMIT_S
    while any(entry.name.startswith("anew-") for entry in logs.iterdir()):
        assert time.monotonic() < deadline, sorted(entry.name for entry in logs.iterdir())
        time.sleep(0.02)


@pytest.mark.behaviour("Nodes in several processes", "A node runs once")
def test_a_node_runs_once_and_a_cluster_is_shared_or_not(brokers: Brokers, data_dir: Path, tmp_path: Path) -> None:
    assert brokers[2].is_running
    data = str(data_dir)
    command = [sys.executable, "-m", "kafka_sink.cli", "broker", "--port", "0", "--data-dir", data]
    for options, text in (
        (["--node-id", "2"], "broker 2 is already running in another process"),
        ([], "is in use by another broker process"),
    ):
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 1 and text in done.stderr and "Traceback" not in done.stderr
    alone = tmp_path / "alone"
    with EmbeddedCluster(data_dir=alone), pytest.raises(OSError, match="to run a cluster of several processes there"):
        EmbeddedCluster(data_dir=alone, node_id=2).start()


@pytest.mark.behaviour("Nodes in several processes", "A broker that stops hands over its partitions")
def test_stopped_broker_hands_over_and_a_single_one_opens_all(brokers: Brokers, data_dir: Path) -> None:
    with AdminClient(bootstrap(brokers)) as admin:
        admin.create_topic("left", PARTITIONS, replication_factor=3)
        with KafkaProducer({"bootstrap.servers": bootstrap(brokers)}) as producer:
            for number in range(600):
                producer.send(ProducerRecord("left", b"%d" % number, partition=number % PARTITIONS))
            producer.flush()
            brokers[1].stop()
            brokers[2].stop()
            for number in range(600, 1200):
                producer.send(ProducerRecord("left", b"%d" % number, partition=number % PARTITIONS))
        with pytest.raises(KafkaError) as refused:
            admin.move_leader(TopicPartition("left", 0), 1)
        assert getattr(refused.value, "code", None) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert set(leaders(admin, "left")) == {3}
    brokers[3].stop()
    with EmbeddedCluster(data_dir=data_dir) as cluster:
        found = read_topic(cluster.bootstrap_servers, "left")
    assert sorted(int(message.value or b"") for message in found) == list(range(1200))
