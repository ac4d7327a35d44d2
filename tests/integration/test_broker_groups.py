"""Consumer groups with third-party clients, on one node and on three."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_sink import EmbeddedCluster
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.client.blocking.group_admin import GroupAdmin
from kafka_sink.common.errors import ApiError
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from kafka_sink.protocol.messages.metadata import FindCoordinatorRequest
from kafka_sink.protocol.schema import Struct
from tests.conftest import Figure
from tests.support.broker_process import BrokerProcess
from tests.support.wire import Wire

TOPIC = "clicks"
PARTITIONS = 4
RECORDS = 200
PATIENCE_S = 90.0
#: The consumers without librdkafka.
READERS: Any = {
    "group_id": "readers",
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "session_timeout_ms": 20_000,
    "heartbeat_interval_ms": 100,
}
KILLS = 3
COMMITS = 30
#: The next heartbeat tells clients to rejoin, so it comes soon.
QUICK = {"session.timeout.ms": 20_000, "heartbeat.interval.ms": 100}
#: The broker gives members of this protocol their intervals. librdkafka does not repeat its owned partitions if a
#: response was lost on a stalled machine; after this interval the broker removes the member, which joins again.
KIP_848: dict[str, Any] = {"group.protocol": "consumer", "max.poll.interval.ms": 8_000}


@pytest.fixture(params=[1, 3], ids=["one node", "three nodes"])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    config = BrokerConfig(group_min_session_timeout_ms=100, group_consumer_heartbeat_interval_ms=100)
    with EmbeddedCluster(nodes=request.param, config=config) as started:
        started.create_topic(TOPIC, PARTITIONS)
        yield started


def produce(bootstrap_servers: str, first: int = 0, count: int = RECORDS) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(first, first + count):
        producer.produce(TOPIC, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def admin_of(bootstrap_servers: str) -> AdminClient:
    """Return an admin client with a connection: without one it may wait for a coordinator until it times out."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    admin.list_topics(timeout=PATIENCE_S)
    return admin


def until(reached: Callable[[], bool], step: Callable[[], Any]) -> None:
    """Repeat *step* until *reached* is true; the test fails if that takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, "it was not reached in time"
        step()


class Reader:
    """A confluent consumer in a group, and the records that it has read."""

    def __init__(self, bootstrap_servers: str, group: str = "readers", *, topic: str = TOPIC, **config: Any) -> None:
        self.seen: list[int] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **(config if "group.protocol" in config else {**QUICK, **config}),
            }
        )
        self.consumer.subscribe([topic])

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.seen.append(int(message.value() or b""))

    def assigned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


@pytest.mark.behaviour("Groups of other clients", "Two members of confluent-kafka share a topic, and one takes over")
def test_two_confluent_members_share_a_topic_and_one_takes_over(cluster: EmbeddedCluster) -> None:
    produce(cluster.bootstrap_servers)
    one, two = Reader(cluster.bootstrap_servers), Reader(cluster.bootstrap_servers)

    def poll() -> None:
        one.poll()
        two.poll()

    until(lambda: len(one.assigned()) == len(two.assigned()) == PARTITIONS // 2, poll)
    until(lambda: set(one.seen) | set(two.seen) == set(range(RECORDS)), poll)
    assert one.assigned() | two.assigned() == set(range(PARTITIONS))
    assert not one.assigned() & two.assigned()

    two.close()
    until(lambda: len(one.assigned()) == PARTITIONS, one.poll)
    one.close()


@pytest.mark.behaviour(
    "Groups of other clients", "Members of confluent-kafka with group.protocol=consumer share, come and go"
)
def test_members_of_the_consumer_protocol_share_a_topic(cluster: EmbeddedCluster) -> None:
    produce(cluster.bootstrap_servers)
    one = Reader(cluster.bootstrap_servers, **KIP_848)
    until(lambda: len(set(one.seen)) == RECORDS, one.poll)
    one.consumer.commit(asynchronous=False)
    # A pattern, which the broker evaluates; and a static member.
    two = Reader(cluster.bootstrap_servers, topic="^cl.cks$", **KIP_848, **{"group.instance.id": "two"})

    def poll() -> None:
        one.poll()
        two.poll()

    until(lambda: len(one.assigned()) == len(two.assigned()) == PARTITIONS // 2, poll)
    assert not one.assigned() & two.assigned()
    admin = admin_of(cluster.bootstrap_servers)
    described = admin.describe_consumer_groups(["readers"])["readers"].result()
    assert (described.type, described.partition_assignor) == (ConsumerGroupType.CONSUMER, "uniform")
    assert {each.group_instance_id for each in described.members} == {None, "two"}
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result().valid
    assert [(each.group_id, each.type) for each in listed] == [("readers", ConsumerGroupType.CONSUMER)]
    with GroupAdmin(cluster.bootstrap_servers) as ours:
        group = ours.describe("readers")
        assert (group.state, group.assignor) == ("Stable", "uniform")
        owned = [partition for member in group.members for partition in member.partitions]
        assert sorted(owned) == [(TOPIC, index) for index in range(PARTITIONS)]
        with pytest.raises(ApiError, match="there is no group 'nobody'"):
            ours.describe("nobody")

    one.close()
    until(lambda: len(two.assigned()) == PARTITIONS, two.poll)
    # It resumes at the committed offset of the other one.
    produce(cluster.bootstrap_servers, first=RECORDS)
    until(lambda: len(set(two.seen)) == RECORDS, two.poll)
    assert set(two.seen) == set(range(RECORDS, 2 * RECORDS))
    two.close()


@pytest.mark.behaviour("Groups of other clients", "Admin clients list, describe, change and delete groups")
def test_administrators_see_list_change_and_delete_groups(cluster: EmbeddedCluster) -> None:
    produce(cluster.bootstrap_servers)
    reader = Reader(cluster.bootstrap_servers)
    until(lambda: len(reader.seen) == RECORDS, reader.poll)
    reader.consumer.commit(asynchronous=False)
    admin = admin_of(cluster.bootstrap_servers)

    listed = {each.group_id: each.state for each in admin.list_consumer_groups().result().valid}
    assert listed == {"readers": ConsumerGroupState.STABLE}
    described = admin.describe_consumer_groups(["readers"])["readers"].result()
    (member,) = described.members
    assert (described.state, member.host) == (ConsumerGroupState.STABLE, "/127.0.0.1")
    assert {each.partition for each in member.assignment.topic_partitions} == set(range(PARTITIONS))
    with pytest.raises(Exception, match=r"NON_EMPTY_GROUP|not empty"):
        admin.delete_consumer_groups(["readers"])["readers"].result()
    reader.close()

    (described,) = (admin.describe_consumer_groups(["readers"])["readers"].result(),)
    assert described.state == ConsumerGroupState.EMPTY
    request = [ConsumerGroupTopicPartitions("readers")]
    found = admin.list_consumer_group_offsets(request)["readers"].result().topic_partitions
    assert {each.partition: each.offset for each in found} == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
    back = [ConsumerGroupTopicPartitions("readers", [TopicPartition(TOPIC, 0, 1)])]
    admin.alter_consumer_group_offsets(back)["readers"].result()
    found = admin.list_consumer_group_offsets(request)["readers"].result().topic_partitions
    assert {each.partition: each.offset for each in found}[0] == 1
    admin.delete_consumer_groups(["readers"])["readers"].result()
    assert admin.list_consumer_groups().result().valid == []


@pytest.mark.behaviour("Groups of other clients", "A member that is killed is replaced after its session")
def test_a_member_that_is_killed_is_replaced_after_its_session(cluster: EmbeddedCluster) -> None:
    produce(cluster.bootstrap_servers)
    one = Reader(cluster.bootstrap_servers)
    until(lambda: len(one.assigned()) == PARTITIONS, one.poll)
    # A short session, so that the broker detects its death soon.
    script = (
        "import sys\nfrom confluent_kafka import Consumer\n"
        "consumer = Consumer({'bootstrap.servers': sys.argv[1], 'group.id': 'readers', 'session.timeout.ms': 1000,"
        " 'heartbeat.interval.ms': 100})\n"
        f"consumer.subscribe(['{TOPIC}'])\n"
        "while True: consumer.poll(0.05)\n"
    )
    other = subprocess.Popen([sys.executable, "-c", script, cluster.bootstrap_servers], stderr=subprocess.DEVNULL)
    try:
        until(lambda: len(one.assigned()) == PARTITIONS // 2, one.poll)
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
    until(lambda: len(one.assigned()) == PARTITIONS, one.poll)
    one.close()


@pytest.mark.behaviour("Groups of other clients", "A static member that restarts causes no rebalance")
def test_a_static_member_that_restarts_causes_no_rebalance(cluster: EmbeddedCluster) -> None:
    one = Reader(cluster.bootstrap_servers, **{"group.instance.id": "one"})
    two = Reader(cluster.bootstrap_servers, **{"group.instance.id": "two"})

    def poll() -> None:
        one.poll()
        two.poll()

    until(lambda: len(one.assigned()) == len(two.assigned()) == PARTITIONS // 2, poll)
    before = one.assigned()
    two.close()
    two = Reader(cluster.bootstrap_servers, **{"group.instance.id": "two"})
    until(lambda: len(two.assigned()) == PARTITIONS // 2, poll)
    assert one.assigned() == before
    one.close()
    two.close()


@pytest.mark.behaviour("Groups of other clients", "Offsets and members outlive a restart of the broker")
def test_offsets_and_members_outlive_a_restart_of_the_broker(tmp_path: Path) -> None:
    config = BrokerConfig(group_min_session_timeout_ms=100)
    with EmbeddedCluster(data_dir=tmp_path, config=config) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        produce(cluster.bootstrap_servers)
        port = int(cluster.bootstrap_servers.rpartition(":")[2])
        reader = Reader(cluster.bootstrap_servers)
        until(lambda: len(reader.seen) == RECORDS, reader.poll)
        reader.consumer.commit(asynchronous=False)
        before = reader.consumer.memberid()

    with EmbeddedCluster(data_dir=tmp_path, config=config, port=port) as cluster:
        produce(cluster.bootstrap_servers, RECORDS)
        until(lambda: len(reader.seen) == 2 * RECORDS, reader.poll)
        # The same member in the same generation: it has only lost a connection.
        assert sorted(reader.seen) == list(range(2 * RECORDS)) and reader.consumer.memberid() == before
        reader.consumer.commit(asynchronous=False)
        reader.close()
        late = Reader(cluster.bootstrap_servers)
        produce(cluster.bootstrap_servers, 2 * RECORDS, PARTITIONS)
        until(lambda: len(late.seen) == PARTITIONS, late.poll)
        assert sorted(late.seen) == list(range(2 * RECORDS, 2 * RECORDS + PARTITIONS))
        late.close()


@pytest.mark.behaviour("Groups of other clients", "A group follows its coordinator to another node")
def test_a_group_follows_its_coordinator_to_another_node(tmp_path: Path) -> None:
    config = BrokerConfig(group_min_session_timeout_ms=100, default_replication_factor=3)
    with EmbeddedCluster(nodes=3, config=config) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        produce(cluster.bootstrap_servers)
        reader = Reader(cluster.bootstrap_servers)
        until(lambda: len(reader.seen) == RECORDS, reader.poll)
        reader.consumer.commit(asynchronous=False)
        admin = admin_of(cluster.bootstrap_servers)
        coordinator = admin.describe_consumer_groups(["readers"])["readers"].result().coordinator.id

        cluster.stop_node(coordinator)

        produce(cluster.bootstrap_servers, RECORDS)
        until(lambda: len(reader.seen) >= 2 * RECORDS, reader.poll)
        reader.consumer.commit(asynchronous=False)
        # A new client: the old one has cached the coordinator, and waits for that node.
        admin = admin_of(cluster.bootstrap_servers)
        described = admin.describe_consumer_groups(["readers"])["readers"].result()
        assert described.coordinator.id != coordinator and len(described.members) == 1
        reader.close()


def ask_coordinator(broker: BrokerProcess, key: ApiKey, version: int, body: Struct) -> Any:
    """Return the response of the group's coordinator; retries until a coordinator responds."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), contextlib.closing(Wire(f"127.0.0.1:{broker.port}")) as wire:
            found = wire.ask(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key="readers"))
            with contextlib.closing(Wire(f"{found.host}:{found.port}")) as there:
                answer = there.ask(key, version, body)
            errors = [each.error_code for topic in answer.topics for each in topic.partitions]
            if getattr(answer, "error_code", 0) == 0 and errors == [0]:
                return answer
        time.sleep(0.02)
    raise AssertionError("nobody coordinates the group")


@pytest.mark.behaviour("Group offsets", "No commit is lost when coordinators are killed")
def test_no_commit_is_lost_when_coordinators_are_killed(tmp_path: Path, figure: Figure) -> None:
    """All nodes are killed at once, and every acknowledged commit is there afterwards."""
    broker = BrokerProcess(tmp_path / "data", nodes=3)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_metadata="")
    commit = OffsetCommitRequest(group_id="readers", topics=[OffsetCommitRequestTopic(TOPIC, partitions=[partition])])
    fetch = OffsetFetchRequest(group_id="readers", topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])])
    try:
        broker.start()
        admin = admin_of(broker.bootstrap_servers)
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result()
        for number in range(KILLS):
            for step in range(COMMITS):
                partition.committed_offset = number * COMMITS + step + 1
                ask_coordinator(broker, ApiKey.OFFSET_COMMIT, 8, commit)
            broker.kill()
            broker.start()
            answer = ask_coordinator(broker, ApiKey.OFFSET_FETCH, 5, fetch)
            assert answer.topics[0].partitions[0].committed_offset == partition.committed_offset
    finally:
        broker.stop()
    figure("commits answered", partition.committed_offset)
    figure("kills of the coordinator", KILLS)
    figure("commits lost", 0)


@pytest.mark.behaviour("Groups of other clients", "Two members of kafka-python share a topic")
def test_two_members_of_kafka_python(cluster: EmbeddedCluster) -> None:
    from kafka import KafkaConsumer

    produce(cluster.bootstrap_servers)

    def consumer() -> Any:
        return KafkaConsumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers, **READERS)

    one, two = consumer(), consumer()
    seen: set[int] = set()
    stop = threading.Event()
    reading = threading.Lock()

    def read(each: Any) -> None:
        # It loses its assignment if a poll times out within its join or sync.
        for records in each.poll(timeout_ms=2000).values():
            with reading:
                seen.update(int(record.value) for record in records)

    # Its join blocks until the first one has joined again, which polls on this thread.
    def keep_reading() -> None:
        while not stop.is_set():
            read(two)

    other = threading.Thread(target=keep_reading, daemon=True)
    other.start()
    try:
        until(lambda: len(one.assignment()) == len(two.assignment()) == PARTITIONS // 2, lambda: read(one))
        until(lambda: seen == set(range(RECORDS)), lambda: read(one))
    finally:
        stop.set()
        other.join(PATIENCE_S)
    one.commit()
    two.commit()
    one.close()
    two.close()
    admin = admin_of(cluster.bootstrap_servers)
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("readers")])["readers"].result()
    assert sum(each.offset for each in found.topic_partitions) == RECORDS


@pytest.mark.behaviour("Groups of other clients", "Two members of aiokafka share a topic")
def test_two_members_of_aiokafka(cluster: EmbeddedCluster) -> None:
    from aiokafka import AIOKafkaConsumer

    produce(cluster.bootstrap_servers)

    async def share() -> None:
        def consumer() -> Any:
            return AIOKafkaConsumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers, **READERS)

        one, two = consumer(), consumer()
        await one.start()
        await two.start()
        seen: set[int] = set()
        deadline = time.monotonic() + PATIENCE_S
        try:
            while not (
                seen == set(range(RECORDS)) and len(one.assignment()) == len(two.assignment()) == PARTITIONS // 2
            ):
                assert time.monotonic() < deadline
                for each in (one, two):
                    for records in (await each.getmany(timeout_ms=50)).values():
                        seen.update(int(record.value) for record in records)
            await one.commit()
            await two.commit()
        finally:
            await one.stop()
            await two.stop()

    asyncio.run(share())
    admin = admin_of(cluster.bootstrap_servers)
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("readers")])["readers"].result()
    assert sum(each.offset for each in found.topic_partitions) == RECORDS
