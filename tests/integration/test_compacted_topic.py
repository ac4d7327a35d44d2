"""A compacted topic under the hands of clients that we did not write, while it is compacted."""

from __future__ import annotations

import random

import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.common.clock import SYSTEM_CLOCK

TIMEOUT_S = 20
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "2000",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "86400000",
}
PLACE = TopicPartition("t", 0)
Table = dict[bytes, bytes | None]


def written(address: str, transactions: int) -> Table:
    """The last value of each key, of *transactions* that are committed or, each third, aborted."""
    chance = random.Random(1)
    producer = Producer({"bootstrap.servers": address, "transactional.id": "writer", "linger.ms": 0})
    producer.init_transactions(TIMEOUT_S)
    table: Table = {}
    for number in range(transactions):
        producer.begin_transaction()
        rows = {b"k%d" % chance.randrange(40): None if chance.random() < 0.1 else b"%d" % number for _ in range(10)}
        for key, value in rows.items():
            producer.produce("t", value, key, partition=0, timestamp=1000 + number)
        if number % 3 == 1:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
            table |= rows
    return table


def read(consumer: Consumer, start: int = 0) -> list[Message]:
    """All records from *start* to the end."""
    consumer.assign([TopicPartition("t", 0, start)])
    found: list[Message] = []
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            return found
        found.append(message)


def table_of(messages: list[Message]) -> Table:
    return {message.key() or b"": message.value() for message in messages}


def offsets_of(messages: list[Message]) -> list[int]:
    return [offset for message in messages if (offset := message.offset()) is not None]


@pytest.mark.behaviour("Compaction", "Clients of others read a compacted topic while it is compacted, and afterwards")
def test_other_clients_read_a_topic_that_is_compacted() -> None:
    config = BrokerConfig(log_cleaner_backoff_ms=1)
    with EmbeddedCluster(config=config) as cluster:
        cluster.create_topic("t", 1, configs=SETTINGS)
        address = cluster.bootstrap_servers
        options = {"group.id": "g", "enable.partition.eof": "true", "fetch.wait.max.ms": "1"}
        consumer = Consumer({"bootstrap.servers": address, **options})
        try:
            table = written(address, 45)
            end = consumer.get_watermark_offsets(PLACE, TIMEOUT_S)[1]
            # Each look reads from the first offset while the log is compacted, until much is gone: of some 300 records
            # 40 are the last ones of their keys, and as many more may be in the active segment.
            found, deadline = read(consumer), SYSTEM_CLOCK.monotonic_ms() + 60_000
            while len(found) > 150:
                assert SYSTEM_CLOCK.monotonic_ms() < deadline
                found = read(consumer)
                assert table_of(found) == table
            offsets = offsets_of(found)
            assert offsets == sorted(set(offsets))
            assert consumer.position([PLACE])[0].offset == end == offsets[-1] + 2
            # It may go on: what stays in any case are the last records of the keys.
            last = {message.key(): message for message in found}
            last_offsets = set(offsets_of(list(last.values())))

            def check(read_offsets: list[int], start: int) -> None:
                assert {offset for offset in last_offsets if offset >= start} <= set(read_offsets)
                assert {*read_offsets} <= {offset for offset in offsets if offset >= start}

            # From within gaps, and by time, where markers count, too.
            for start in range(0, end, 37):
                check(offsets_of(read(consumer, start)), start)
            for message in [*last.values()][::9]:
                (at,) = consumer.offsets_for_times([TopicPartition("t", 0, message.timestamp()[1])], TIMEOUT_S)
                assert at.offset <= (message.offset() or 0)
        finally:
            consumer.close()
        python = kafka.KafkaConsumer(bootstrap_servers=address, isolation_level="read_committed")
        python.assign([kafka.TopicPartition("t", 0)])
        python.seek_to_beginning()
        read_by_python: list[int] = []
        while python.position(kafka.TopicPartition("t", 0)) < end:
            for records in python.poll(100).values():
                read_by_python += [record.offset for record in records]
        check(read_by_python, 0)
        python.close()


def refused(producer: Producer) -> list[KafkaError | None]:
    errors: list[KafkaError | None] = []
    producer.produce("t", b"no key", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return errors


@pytest.mark.behaviour("Compaction", "A topic is made a compacted one and back by clients of others")
def test_other_clients_change_the_policy_of_a_topic() -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", 1)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})

        def alter(name: str, value: str, operation: AlterConfigOpType) -> None:
            entry = ConfigEntry(name, value, incremental_operation=operation)
            resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])
            (future,) = admin.incremental_alter_configs([resource]).values()
            future.result(TIMEOUT_S)

        def policy() -> str:
            (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "t")]).values()
            return str(future.result(TIMEOUT_S)["cleanup.policy"].value)

        assert refused(producer) == [None]
        alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
        assert policy() == "delete,compact"
        (error,) = refused(producer)
        assert error is not None and error.code() == KafkaError.INVALID_RECORD
        alter("cleanup.policy", "compact", AlterConfigOpType.SUBTRACT)
        assert policy() == "delete"
        assert refused(producer) == [None]
        with pytest.raises(KafkaException) as caught:
            alter("min.cleanable.dirty.ratio", "2", AlterConfigOpType.SET)
        assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG
