"""The embedded broker, judged by clients that we did not write: librdkafka, kafka-python, aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.records import reader
from tests.support.deliveries import noting
from tests.support.readback import read_topic, read_values

Written = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
#: key, value, headers: what is easy to get wrong.
RECORDS: list[Written] = [
    (b"key", b"value", []),
    (None, b"no key", []),
    (b"no value", None, []),
    (b"", b"", [("", b"")]),
    (b"headers", b"v", [("a", b"1"), ("a", b"2"), ("empty", b"")]),
    (b"large", bytes(range(256)) * 3000, []),
    (b"k" * 300, b"x", [("long", b"h" * 2000)]),
    *((b"%d" % number, b"v" * (number % 200), []) for number in range(200)),
]

Content = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
#: The Python clients refuse to write it; librdkafka does.
NOTHING: Written = (None, None, [("null", None)])
EXPECTED: list[Content] = [(key, value, tuple(headers)) for key, value, headers in RECORDS]


@pytest.fixture(scope="module", params=[1, 3], ids=["1 node", "3 nodes"])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=request.param) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


def librdkafka(cluster: EmbeddedCluster, **options: object) -> Producer:
    return Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5, **options})


def produce_with_librdkafka(cluster: EmbeddedCluster, topic: str, **options: object) -> None:
    producer = librdkafka(cluster, **options)
    failures: list[KafkaError] = []
    for key, value, headers in [NOTHING, *RECORDS]:
        producer.produce(topic, value, key, 0, headers=[*headers], on_delivery=noting(failures))
    assert producer.flush(60) == 0
    assert failures == []


BY_LIBRDKAFKA: list[Content] = [(None, None, (("null", None),)), *EXPECTED]


def read_with_librdkafka(cluster: EmbeddedCluster, topic: str) -> list[Content]:
    return [(found.key, found.value, found.headers) for found in read_topic(cluster.bootstrap_servers, topic)]


def read_with_kafka_python(cluster: EmbeddedCluster, topic: str, count: int) -> list[Content]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers.split(","), consumer_timeout_ms=60_000, check_crcs=True
    )
    try:
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        found: list[Content] = []
        while len(found) < count:
            record = next(consumer)
            found.append((record.key, record.value, tuple(tuple(header) for header in record.headers)))
        return found
    finally:
        consumer.close(autocommit=False)


@pytest.mark.parametrize("codec", CODECS)
def test_what_librdkafka_writes_both_read(cluster: EmbeddedCluster, topic: str, codec: str) -> None:
    cluster.create_topic(topic, 1)
    produce_with_librdkafka(cluster, topic, **{"compression.type": codec})
    assert read_with_librdkafka(cluster, topic) == BY_LIBRDKAFKA
    assert read_with_kafka_python(cluster, topic, len(BY_LIBRDKAFKA)) == BY_LIBRDKAFKA


@pytest.mark.parametrize("codec", CODECS)
def test_what_kafka_python_writes_both_read(cluster: EmbeddedCluster, topic: str, codec: str) -> None:
    cluster.create_topic(topic, 1)
    producer = kafka.KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers.split(","),
        compression_type=None if codec == "none" else codec,
        acks="all",
        linger_ms=5,
    )
    try:
        sent = [producer.send(topic, value, key, headers=list(headers), partition=0) for key, value, headers in RECORDS]
        assert [future.get(60).offset for future in sent] == list(range(len(RECORDS)))
    finally:
        producer.close()
    assert read_with_librdkafka(cluster, topic) == EXPECTED
    assert read_with_kafka_python(cluster, topic, len(EXPECTED)) == EXPECTED


def test_aiokafka_writes_and_reads(cluster: EmbeddedCluster, topic: str) -> None:
    cluster.create_topic(topic, 1)

    async def round_trip() -> list[Content]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True, compression_type="lz4"
        )
        await producer.start()
        try:
            for key, value, headers in RECORDS:
                await producer.send(topic, value, key, partition=0, headers=headers)
            await producer.flush()
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            await consumer.seek_to_beginning()
            found: list[Content] = []
            while len(found) < len(RECORDS):
                record = await asyncio.wait_for(consumer.getone(), 10)
                found.append((record.key, record.value, tuple(record.headers)))
            return found
        finally:
            await consumer.stop()

    assert asyncio.run(round_trip()) == EXPECTED


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(cluster: EmbeddedCluster, topic: str, acks: str) -> None:
    cluster.create_topic(topic, 1)
    produce_with_librdkafka(cluster, topic, acks=acks)
    assert read_with_librdkafka(cluster, topic) == BY_LIBRDKAFKA


def test_an_idempotent_producer_over_many_partitions(cluster: EmbeddedCluster, topic: str) -> None:
    cluster.create_topic(topic, 12)
    producer = librdkafka(cluster, **{"enable.idempotence": True, "compression.type": "zstd"})
    failures: list[KafkaError] = []
    for number in range(20_000):
        producer.produce(topic, b"%d" % number, partition=number % 12, on_delivery=noting(failures))
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    assert failures == []
    found = read_topic(cluster.bootstrap_servers, topic)
    for partition in range(12):
        values = [int(record.value or b"") for record in found if record.partition == partition]
        assert values == list(range(partition, 20_000, 12))


def test_leaders_are_spread_and_every_node_answers(cluster: EmbeddedCluster, topic: str) -> None:
    cluster.create_topic(topic, 6)
    servers = cluster.bootstrap_servers.split(",")
    for server in servers:
        metadata = AdminClient({"bootstrap.servers": server}).list_topics(topic, timeout=60)
        assert sorted(f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()) == sorted(servers)
        leaders = [partition.leader for partition in metadata.topics[topic].partitions.values()]
        assert {leaders.count(node) for node in metadata.brokers} == {6 // len(servers)}


def test_topics_are_created_and_deleted_by_an_admin_client(cluster: EmbeddedCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

    def create(name: str, partitions: int, replicas: int = 1) -> None:
        admin.create_topics([NewTopic(name, partitions, replicas)], operation_timeout=60)[name].result(60)

    create(topic, 3)
    assert len(admin.list_topics(topic, timeout=60).topics[topic].partitions) == 3
    for arguments, code in (
        ((topic, 3), KafkaError.TOPIC_ALREADY_EXISTS),
        ((f"{topic}-2", 1, 9), KafkaError.INVALID_REPLICATION_FACTOR),
        (("a/b", 1), KafkaError.TOPIC_EXCEPTION),
        (("..", 1), KafkaError.TOPIC_EXCEPTION),
        (("x" * 250, 1), KafkaError.TOPIC_EXCEPTION),
    ):
        with pytest.raises(KafkaException) as caught:
            create(*arguments)
        assert caught.value.args[0].code() == code
    produce_with_librdkafka(cluster, topic)
    admin.delete_topics([topic], operation_timeout=60)[topic].result(60)
    assert topic not in admin.list_topics(timeout=60).topics
    create(topic, 1)
    produce_with_librdkafka(cluster, topic)
    assert read_with_librdkafka(cluster, topic) == BY_LIBRDKAFKA, "nothing of the first life is left"


def test_an_unknown_topic_is_created_when_asked_for(cluster: EmbeddedCluster, topic: str) -> None:
    producer = librdkafka(cluster)
    producer.produce(topic, b"first")
    assert producer.flush(60) == 0
    assert [found.value for found in read_topic(cluster.bootstrap_servers, topic)] == [b"first"]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    assert len(admin.list_topics(topic, timeout=60).topics[topic].partitions) == 1


def test_offsets_by_time(cluster: EmbeddedCluster, topic: str) -> None:
    cluster.create_topic(topic, 1)
    producer = librdkafka(cluster, **{"compression.type": "lz4"})
    for number in range(100):
        producer.produce(topic, b"v", partition=0, timestamp=1_000_000 + 10 * number)
    assert producer.flush(60) == 0
    consumer = kafka.KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers.split(","))
    try:
        partition = kafka.TopicPartition(topic, 0)
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 100}
        found = consumer.offsets_for_times({partition: 1_000_000 + 501})[partition]
        assert (found.offset, found.timestamp) == (51, 1_000_510)
        assert consumer.offsets_for_times({partition: 2_000_000})[partition] is None
    finally:
        consumer.close(autocommit=False)


def test_a_consumer_that_waits_gets_what_is_written_later(cluster: EmbeddedCluster, topic: str) -> None:
    cluster.create_topic(topic, 1)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "waits",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10_000,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert consumer.poll(0.3) is None
        producer = librdkafka(cluster)
        producer.produce(topic, b"late", partition=0)
        assert producer.flush(60) == 0
        # Far less than the fetch would wait: the append itself wakes it.
        message = consumer.poll(3.0)
        assert message is not None and message.value() == b"late"
    finally:
        consumer.close()


def test_a_batch_that_is_too_large_is_refused(cluster: EmbeddedCluster, topic: str) -> None:
    cluster.create_topic(topic, 1, configs={"max.message.bytes": "10000"})
    producer = librdkafka(cluster, **{"message.max.bytes": 1_000_000})
    codes: list[int] = []
    producer.produce(topic, b"x" * 20_000, on_delivery=lambda error, _: codes.append(error.code() if error else 0))
    producer.flush(60)
    producer.produce(topic, b"x" * 5_000, on_delivery=lambda error, _: codes.append(error.code() if error else 0))
    producer.flush(60)
    assert codes == [KafkaError.MSG_SIZE_TOO_LARGE, 0]


def test_a_topic_that_may_not_be_created_stays_unknown() -> None:
    with EmbeddedCluster(auto_create_topics=False) as closed:
        producer = librdkafka(closed, **{"message.timeout.ms": 1000})
        codes: list[int] = []
        producer.produce("unknown", b"x", on_delivery=lambda error, _: codes.append(error.code() if error else 0))
        producer.flush(5)
        assert codes in ([KafkaError._UNKNOWN_TOPIC], [KafkaError._MSG_TIMED_OUT])
        assert (
            "unknown" not in AdminClient({"bootstrap.servers": closed.bootstrap_servers}).list_topics(timeout=60).topics
        )


def test_a_stopped_node_is_replaced_by_another_replica() -> None:
    with EmbeddedCluster(nodes=3) as three:
        three.create_topic("t", 6, replication_factor=2)
        producer = librdkafka(three, **{"enable.idempotence": True, "retry.backoff.ms": 50})
        failures: list[KafkaError] = []

        def write(first: int) -> None:
            for number in range(first, first + 300):
                producer.produce("t", b"%d" % number, on_delivery=noting(failures))
            producer.flush(60)

        write(0)
        three.stop_node(2)
        write(300)
        three.start_node(2)
        three.stop_node(3)
        write(600)
        assert failures == []
        found = read_topic(three.bootstrap_servers, "t")
        assert sorted(int(record.value or b"") for record in found) == list(range(900))


def test_data_and_topics_are_there_after_a_restart(tmp_path: Path) -> None:
    expected = []
    for life in range(2):
        with EmbeddedCluster(nodes=2, data_dir=tmp_path) as cluster:
            if life == 0:
                cluster.create_topic("kept", 3, configs={"segment.bytes": "20000"})
            expected += [b"%d-%d" % (life, number) for number in range(500)]
            producer = librdkafka(cluster, **{"enable.idempotence": True, "batch.num.messages": 50})
            for value in expected[-500:]:
                producer.produce("kept", value)
            assert producer.flush(60) == 0
            found = read_values(cluster.bootstrap_servers, "kept")
            assert sorted(found) == sorted(expected)


def test_an_append_does_not_look_at_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a batch must not depend on how many records it has."""

    def forbidden(*_: object) -> None:
        raise AssertionError("records were decoded")

    monkeypatch.setattr(reader.RecordBatchView, "records", forbidden)
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", 1)
        produce_with_librdkafka(cluster, "t", **{"compression.type": "gzip"})
        assert read_with_librdkafka(cluster, "t") == BY_LIBRDKAFKA
