"""Many threads send while the producer is flushed and closed: every future completes, acknowledged data is stored."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.common.errors import KafkaError, KafkaTimeoutError
from kafka_sink.common.model import RecordMetadata
from kafka_sink.consumer.log_reader import LogReader
from kafka_sink.producer.futures import Delivery, DeliveryFuture
from tests.support.waiting import until

TOPIC = "orders"
SENDERS = 4


class Sender:
    """Sends numbered values until the producer is closed."""

    def __init__(self, producer: KafkaProducer, name: int) -> None:
        self._producer = producer
        self._name = name
        self.sent: list[tuple[bytes, DeliveryFuture[RecordMetadata]]] = []
        self.told: list[Delivery] = []
        self.refusal: KafkaError | None = None

    def run(self) -> None:
        number = 0
        while True:
            value = b"%d-%d" % (self._name, number)
            key = None if number % 2 else value
            try:
                future = self._producer.send(ProducerRecord(TOPIC, value, key), on_delivery=self.told.append)
            except KafkaError as error:
                self.refusal = error
                return
            self.sent.append((value, future))
            number += 1


@pytest.mark.behaviour(
    "Threads", "Records that many threads send each end once, and those acknowledged are stored once"
)
@pytest.mark.parametrize("timeout_s", [0, 30])
def test_concurrent_sends_store_acknowledged_records_once(timeout_s: int) -> None:
    with EmbeddedCluster(num_partitions=3) as cluster:
        cluster.create_topic(TOPIC, partitions=3)
        producer = KafkaProducer(
            {"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 500, "buffer.memory": 20_000}
        )
        senders = [Sender(producer, name) for name in range(SENDERS)]
        threads = [threading.Thread(target=sender.run, daemon=True) for sender in senders]
        for thread in threads:
            thread.start()
        until("records of every thread", lambda: all(len(sender.sent) >= 100 for sender in senders))
        producer.flush()
        if timeout_s:
            producer.close(timeout=timeout_s)
        else:
            # Records sent since the flush are dropped, and counted.
            with suppress(KafkaTimeoutError):
                producer.close(timeout=0)
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        with LogReader({"bootstrap.servers": cluster.bootstrap_servers}) as reader:
            stored = [record.value for record in reader.read(TOPIC)]
    acknowledged: list[bytes] = []
    for sender in senders:
        assert sender.refusal is not None
        assert len(sender.told) == len(sender.sent)
        for value, future in sender.sent:
            assert future.done()
            try:
                future.result(0)
            except KafkaError:
                continue
            acknowledged.append(value)
    assert acknowledged
    assert len(stored) == len(set(stored))
    assert set(acknowledged) <= set(stored)
    if timeout_s:
        assert len(acknowledged) == sum(len(sender.sent) for sender in senders) == len(stored)
