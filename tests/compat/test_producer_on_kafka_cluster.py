"""The idempotent producer on three Kafka nodes that stop, crash, lose topics and move leaders while it sends.

The records of a key are ordered, and librdkafka reads all records at the end: none may be missing, duplicated, or out
of order. KAFKALITE_LOAD_RECORDS sets the number of records of the two long tests.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_sink import KafkaProducer, ProducerRecord
from kafka_sink.common.errors import ApiError, KafkaTimeoutError, UnknownTopicOrPartitionError
from tests.compat.kafka_cluster import NODES, KafkaCluster
from tests.compat.kafka_version import requires_kafka
from tests.conftest import Figure
from tests.support import amounts
from tests.support.amounts import only_long
from tests.support.ordered_load import OrderedLoad
from tests.support.readback import read_topic
from tests.support.securities import PLAINTEXT, SASL_SSL, Security, create_scram_user

RECORDS = amounts.LOAD_RECORDS
KILLS = amounts.LEADER_KILLS
RESTARTS = amounts.RESTARTS
MOVES = amounts.LEADER_MOVES
#: The load is sent in this many portions, a tenth of a second apart, and continues until the faults end.
PORTIONS = 100
PARTITIONS = 6

pytestmark = pytest.mark.timeout(1800 if amounts.LONG else 280)


@pytest.fixture
def cluster(kafka_of_three: KafkaCluster) -> KafkaCluster:
    return kafka_of_three


@pytest.fixture
def topic(cluster: KafkaCluster) -> str:
    name = f"ours-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, PARTITIONS)
    cluster.await_replicas(name)
    return name


def make_producer(cluster: KafkaCluster, **properties: object) -> KafkaProducer:
    return KafkaProducer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "request.timeout.ms": 10_000,
            "compression.type": "lz4",
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
    )


def send_through(trouble: Callable[[], None], load: OrderedLoad, records: int = RECORDS) -> None:
    """Run *trouble*, and send *records* or more until it ends."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            trouble()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    portion = max(records // PORTIONS, 1)
    while (thread.is_alive() or load.sent < records) and not failures:
        load.send(portion)
        time.sleep(0.1 if thread.is_alive() else 0)
    thread.join()
    if failures:
        raise failures[0]


def check(cluster: KafkaCluster, topic: str, load: OrderedLoad, figure: Figure) -> None:
    """Check that every record was acknowledged, and is stored once and in order."""
    assert load.errors[:3] == []
    assert load.acknowledged == load.sent
    verdict = load.judge(read_topic(cluster.bootstrap_servers, topic))
    figure("records", load.sent)
    figure("missing/twice/out of order", f"{verdict.missing}/{verdict.duplicates}/{verdict.out_of_order}")
    figure("longest stall", f"{load.longest_stall_s:.1f} s")
    assert verdict.is_clean, verdict


@pytest.mark.behaviour("Faults: a real cluster", "A rolling restart loses, repeats and reorders nothing")
def test_a_rolling_restart_loses_and_repeats_nothing(cluster: KafkaCluster, topic: str, figure: Figure) -> None:
    def restart_all() -> None:
        for node in NODES[:RESTARTS]:
            cluster.stop(node)
            time.sleep(1)
            cluster.start(node)
            cluster.await_replicas(topic)

    with make_producer(cluster) as producer:
        load = OrderedLoad(producer, topic)
        send_through(restart_all, load)
        producer.flush(timeout=60)
        retries = producer.metrics()["record-retry-total"]
    check(cluster, topic, load, figure)
    figure("records sent again", int(retries))


@pytest.mark.behaviour(
    "Security under load", "Leaders that are killed lose and repeat nothing, over PLAINTEXT and SASL_SSL"
)
@pytest.mark.behaviour(
    "Faults: a real cluster", "Leaders that are killed (-9) under load lose, repeat and reorder nothing"
)
@pytest.mark.parametrize(
    "security",
    [
        pytest.param(PLAINTEXT, id="PLAINTEXT", marks=only_long),
        pytest.param(SASL_SSL, id="SASL_SSL", marks=requires_kafka("3.5", "SCRAM without ZooKeeper (KIP-900)")),
    ],
)
def test_killed_leaders_lose_and_repeat_nothing(
    cluster: KafkaCluster, security: Security, topic: str, figure: Figure
) -> None:
    def kill_leaders() -> None:
        for round_number in range(KILLS):
            with cluster.admin() as admin:
                victim = cluster.leaders(topic, admin)[round_number % PARTITIONS]
            cluster.kill(victim)
            time.sleep(2)
            cluster.start(victim)
            cluster.await_replicas(topic)

    if security.mechanism:
        create_scram_user(cluster.bootstrap_servers, cluster.server.client_properties(security))
    with make_producer(cluster, **cluster.server.client_properties(security)) as producer:
        load = OrderedLoad(producer, topic)
        send_through(kill_leaders, load)
        producer.flush(timeout=60)
        retries = producer.metrics()["record-retry-total"]
    check(cluster, topic, load, figure)
    figure("kills", KILLS)
    figure("records sent again", int(retries))


@only_long
@pytest.mark.behaviour("Faults: a real cluster", "Leaders that are moved are followed")
def test_leaders_that_are_moved_are_followed(cluster: KafkaCluster, topic: str, figure: Figure, tmp_path: Path) -> None:
    moved = 0

    def move() -> None:
        nonlocal moved
        for shift in range(1, MOVES + 1):
            moved += cluster.move_leaders(topic, shift, tmp_path)

    with make_producer(cluster) as producer:
        load = OrderedLoad(producer, topic)
        send_through(move, load, records=20_000)
        producer.flush(timeout=30)
    check(cluster, topic, load, figure)
    figure("leaders moved", moved)
    assert moved >= PARTITIONS


@pytest.mark.behaviour("Metadata", "Partitions that a topic gains are found while records are sent")
@pytest.mark.behaviour("Faults: a real cluster", "Partitions that are added are used after metadata.max.age.ms")
def test_partitions_that_are_added_are_used_while_sending(cluster: KafkaCluster, figure: Figure) -> None:
    topic = f"grows-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, 2)
    sent = 0
    started = time.monotonic()
    seen: set[int] = set()
    with make_producer(cluster, metadata_max_age_ms=1_000) as producer:
        grown_at = None
        while 4 not in seen:
            assert time.monotonic() - started < 60, seen
            futures = [producer.send(ProducerRecord(topic, b"%d" % n, b"%d" % n)) for n in range(sent, sent + 200)]
            sent += 200
            seen.update(future.result(30).partition for future in futures)
            if grown_at is None:
                assert seen == {0, 1}
                cluster.grow(topic, 5)
                grown_at = time.monotonic()
    assert grown_at is not None
    figure("new partitions used after", f"{time.monotonic() - grown_at:.1f} s")
    found = sorted(int(message.value or b"") for message in read_topic(cluster.bootstrap_servers, topic))
    assert found == list(range(sent))


@only_long
@pytest.mark.behaviour("Faults: a real cluster", "Fewer replicas in sync than min.insync.replicas are waited for")
def test_too_few_replicas_in_sync_are_waited_for(cluster: KafkaCluster, figure: Figure) -> None:
    topic = f"strict-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, 1, min_insync_replicas="3")
    cluster.await_replicas(topic)
    with cluster.admin() as admin:
        follower = next(node for node in NODES if node != cluster.leaders(topic, admin)[0])
    with make_producer(cluster) as patient:
        patient.send(ProducerRecord(topic, b"before")).result(30)
        cluster.stop(follower)
        with make_producer(cluster, delivery_timeout_ms=4_000, request_timeout_ms=3_000) as hasty:
            late = hasty.send(ProducerRecord(topic, b"never"))
            began = time.monotonic()
            with pytest.raises(KafkaTimeoutError, match="expiring 1 record"):
                late.result(60)
            figure("gave up after", f"{time.monotonic() - began:.1f} s of delivery.timeout.ms 4 s")
        waiting = patient.send(ProducerRecord(topic, b"after"))
        time.sleep(1)
        assert not waiting.done()
        cluster.start(follower)
        assert waiting.result(60).offset == 1
        assert patient.metrics()["record-retry-total"] > 0
    found = [message.value for message in read_topic(cluster.bootstrap_servers, topic)]
    assert found == [b"before", b"after"]


@pytest.mark.behaviour(
    "Faults: a real cluster", "A topic that is deleted while sending fails its records and no others"
)
def test_topic_deleted_while_sending_fails_only_its_records(cluster: KafkaCluster, topic: str, figure: Figure) -> None:
    doomed = f"doomed-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(doomed, 3)
    with make_producer(
        cluster, delivery_timeout_ms=10_000, request_timeout_ms=5_000, max_block_ms=10_000, metadata_max_age_ms=2_000
    ) as producer:
        for number in range(300):
            producer.send(ProducerRecord(doomed, b"%d" % number))
        producer.flush(timeout=20)
        with cluster.admin() as admin:
            admin.delete_topics([doomed])
        deadline = time.monotonic() + 60
        error: Exception | None = None
        while error is None:
            assert time.monotonic() < deadline
            future = producer.send(ProducerRecord(doomed, b"late"))
            began = time.monotonic()
            try:
                future.result(60)
            except ApiError as refusal:
                error = refusal
        assert isinstance(error, KafkaTimeoutError | UnknownTopicOrPartitionError), error
        figure("failed after", f"{time.monotonic() - began:.1f} s with {type(error).__name__}")
        assert producer.send(ProducerRecord(topic, b"other")).result(60).topic == topic
        cluster.create_topic(doomed, 3)
        began = time.monotonic()
        while True:
            assert time.monotonic() < began + 60
            try:
                assert producer.send(ProducerRecord(doomed, b"again")).result(60).topic == doomed
                break
            except ApiError:
                continue
        figure("back after it was made again", f"{time.monotonic() - began:.1f} s")
