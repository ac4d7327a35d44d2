"""A process that writes numbers to a topic, in one transaction per round, until it is done or killed.

Its progress is the offset of GROUP for partition 0 of TOPIC, which every transaction commits with its records: round n
writes RECORDS_PER_ROUND records ``n-0`` … ``n-19``, and commits offset n + 1. It prints each round.
"""

from __future__ import annotations

from multiprocessing.connection import Connection

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ForeignPartition

from kafka_sink import KafkaProducer, ProducerRecord
from kafka_sink.common.model import TopicPartition

RECORDS_PER_ROUND = 20


def progress(bootstrap_servers: str, topic: str, group: str) -> int:
    """Return the next round."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": group, "isolation.level": "read_committed"}
    )
    try:
        (place,) = consumer.committed([ForeignPartition(topic, 0)], timeout=30)
        return max(place.offset, 0)
    finally:
        consumer.close()


def main(bootstrap_servers: str, topic: str, group: str, transactional_id: str, rounds: int, told: Connection) -> None:
    producer = KafkaProducer({"bootstrap.servers": bootstrap_servers, "transactional.id": transactional_id})
    # The order matters: the progress is certain only when no older producer can commit any more.
    producer.init_transactions()
    told.send("ready")
    for number in range(progress(bootstrap_servers, topic, group), rounds):
        producer.begin_transaction()
        for item in range(RECORDS_PER_ROUND):
            producer.send(ProducerRecord(topic, f"{number}-{item}".encode()))
        producer.send_offsets_to_transaction({TopicPartition(topic, 0): number + 1}, group)
        producer.commit_transaction()
        told.send(number)
    producer.close()
