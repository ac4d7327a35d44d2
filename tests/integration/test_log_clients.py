"""Records deleted, looked up by time and followed over leader epochs, by clients that we did not write."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kafka_sink.broker.embedded_broker import EmbeddedCluster

TIMEOUT_S = 60


def fill(cluster: EmbeddedCluster, times: list[int]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
    for number, time_ms in enumerate(times):
        producer.produce("t", b"%d" % number, partition=0, timestamp=time_ms)
        # A batch of its own for each.
        assert producer.flush(TIMEOUT_S) == 0


def read(consumer: Consumer, start: int, count: int) -> list[int]:
    consumer.assign([TopicPartition("t", 0, start)])
    messages = consumer.consume(count, TIMEOUT_S)
    assert all(message.error() is None for message in messages)
    return [int(message.value() or b"") for message in messages]


def close(consumer: Consumer) -> None:
    """Close *consumer*, or leave it: librdkafka can deadlock when it is closed while it validates a leader epoch."""
    closing = Thread(target=consumer.close, daemon=True)
    closing.start()
    closing.join(10)


@pytest.mark.behaviour("Log", "Clients delete and look up records over the network")
@pytest.mark.parametrize("restarted", [False, True])
def test_deleting_and_looking_up(tmp_path: Path, restarted: bool) -> None:
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("t", 1, configs={"segment.bytes": "300"})
        fill(cluster, [1000, 3000, 2000, 5000, 4000, 5000])
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        place = TopicPartition("t", 0, 2)
        (deleted,) = admin.delete_records([place], request_timeout=TIMEOUT_S).values()
        assert deleted.result(TIMEOUT_S).low_watermark == 2
        with pytest.raises(KafkaException) as caught:
            (future,) = admin.delete_records([TopicPartition("t", 0, 7)]).values()
            future.result(TIMEOUT_S)
        assert caught.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE
        if restarted:
            cluster.stop()
            cluster.start()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        try:
            assert consumer.get_watermark_offsets(TopicPartition("t", 0), TIMEOUT_S) == (2, 6)
            for time_ms, offset in {0: 2, 2001: 3, 4500: 3, 5001: -1}.items():
                (found,) = consumer.offsets_for_times([TopicPartition("t", 0, time_ms)], TIMEOUT_S)
                assert found.offset == offset, time_ms
            for spec, offset in {
                OffsetSpec.earliest(): 2,  # type: ignore[no-untyped-call]
                OffsetSpec.latest(): 6,  # type: ignore[no-untyped-call]
                OffsetSpec.max_timestamp(): 3,  # type: ignore[no-untyped-call]
                OffsetSpec.for_timestamp(2500): 3,
            }.items():
                (listed,) = admin.list_offsets({TopicPartition("t", 0): spec}).values()
                assert listed.result(TIMEOUT_S).offset == offset, spec
            # Asking for what is gone begins again where the log does.
            assert read(consumer, 0, 4) == [2, 3, 4, 5]
        finally:
            consumer.close()


@pytest.mark.behaviour("Log", "A reader that knows an older leader epoch goes on")
def test_a_reader_that_knows_an_older_leader_epoch_goes_on(tmp_path: Path) -> None:
    with EmbeddedCluster(nodes=2, data_dir=tmp_path) as cluster:
        cluster.create_topic("t", 1, replication_factor=2)
        fill(cluster, [1000, 2000])
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
        try:
            assert read(consumer, 0, 2) == [0, 1]
            for node in (1, 2):
                cluster.stop_node(node)
                cluster.start_node(node)
            fill(cluster, [3000])
            (message,) = consumer.consume(1, TIMEOUT_S)
            assert (message.offset(), message.error()) == (2, None)
            assert (message.leader_epoch() or 0) > 0
        finally:
            close(consumer)
