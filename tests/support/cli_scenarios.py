"""Scenarios of the commands for groups and transactions, for any cluster."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_sink import KafkaProducer, ProducerRecord
from kafka_sink.cli.main import run
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.errors import KafkaError
from tests.support.readback import read_topic

RECORDS = 10


class CommandLine:
    """Runs the command line against *bootstrap_servers*."""

    def __init__(self, bootstrap_servers: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._capsys = capsys

    def __call__(self, *arguments: str, fails: bool = False) -> str:
        """Run a command and return its output; with *fails*, its errors."""
        self._capsys.readouterr()
        code = run([*arguments, "--bootstrap-server", self.bootstrap_servers])
        printed = self._capsys.readouterr()
        assert code == (1 if fails else 0), printed
        return printed.err if fails else printed.out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


def new_topic(bootstrap_servers: str) -> str:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    with AdminClient(bootstrap_servers) as admin:
        admin.create_topic(name, 2, 1)
    return name


def groups_from_birth_to_end(kafkalite: CommandLine) -> None:
    topic = new_topic(kafkalite.bootstrap_servers)
    group = f"{topic}-readers"
    with KafkaProducer({"bootstrap.servers": kafkalite.bootstrap_servers}) as producer:
        for number in range(2 * RECORDS):
            producer.send(ProducerRecord(topic, b"v", partition=number % 2))
    consumer = Consumer(
        {
            "bootstrap.servers": kafkalite.bootstrap_servers,
            "group.id": group,
            "client.id": "reader-1",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    read = 0
    while read < 2 * RECORDS:
        read += len(consumer.consume(2 * RECORDS, timeout=1))
    consumer.commit(offsets=[TopicPartition(topic, number, RECORDS) for number in range(2)], asynchronous=False)

    assert {"group": group, "state": "Stable"} in kafkalite.json("groups", "list")
    (described,) = kafkalite.json("groups", "describe", group)
    assert (described["group"], described["state"], described["members"]) == (group, "Stable", 1)
    assert [
        (each["topic"], each["partition"], each["offset"], each["end_offset"], each["lag"], each["client"])
        for each in described["partitions"]
    ] == [(topic, number, RECORDS, RECORDS, 0, "reader-1") for number in range(2)]
    assert "has active members (reader-1): stop them first" in kafkalite(
        "groups", "reset-offsets", group, "--to-earliest", fails=True
    )
    assert "NON_EMPTY_GROUP" in kafkalite("groups", "delete", group, "--yes", fails=True)
    consumer.close()

    def changes(before: int, after: int, *partitions: int) -> list[dict[str, Any]]:
        return [{"topic": topic, "partition": each, "before": before, "after": after} for each in partitions]

    def offsets() -> list[int]:
        return [each["offset"] for each in kafkalite.json("groups", "describe", group)[0]["partitions"]]

    reset = ("groups", "reset-offsets", group, "--yes")
    assert kafkalite.json(*reset, "--to-earliest", "--dry-run") == changes(RECORDS, 0, 0, 1)
    assert offsets() == [RECORDS, RECORDS]
    assert kafkalite.json(*reset, "--to-earliest") == changes(RECORDS, 0, 0, 1)
    assert offsets() == [0, 0]
    assert kafkalite.json(*reset, "--to-offset", "4", "--topic", topic, "--partition", "1") == changes(0, 4, 1)
    assert offsets() == [0, 4]
    assert "none" not in kafkalite(*reset, "--to-offset", "9999", "--topic", topic)
    assert offsets() == [RECORDS, RECORDS]
    assert kafkalite("groups", "delete", group, "--yes") == f"deleted {group}\n"
    assert group not in {each["group"] for each in kafkalite.json("groups", "list")}
    assert "GROUP_ID_NOT_FOUND" in kafkalite("groups", "describe", group, fails=True)


def transactions_of_others(kafkalite: CommandLine) -> None:
    topic = new_topic(kafkalite.bootstrap_servers)
    producers = {}
    for name in ("a", "b", "c"):
        properties = {"bootstrap.servers": kafkalite.bootstrap_servers, "transactional.id": f"{topic}.{name}"}
        producers[name] = KafkaProducer({**properties, "transaction.timeout.ms": 50_000})
        producers[name].init_transactions()
        producers[name].begin_transaction()
        producers[name].send(ProducerRecord(topic, name.encode(), partition=1))
        producers[name].flush()
    prefix = ("--prefix", f"{topic}.")
    listed = kafkalite.json("txn", "list", *prefix, "--state", "Ongoing")
    assert [(each["transactional_id"], each["state"]) for each in listed] == [
        (f"{topic}.{name}", "Ongoing") for name in "abc"
    ]
    (described,) = kafkalite.json("txn", "describe", f"{topic}.b")
    assert described["state"] == "Ongoing" and described["timeout_ms"] == 50_000 and described["epoch"] >= 0
    assert described["partitions"] == [f"{topic}-1"] and described["age"].startswith("0:00:")
    assert f"{topic}-1" in kafkalite("txn", "describe", *prefix)

    assert kafkalite("txn", "abort", f"{topic}.a") == f"aborted {topic}.a\n"
    with pytest.raises(KafkaError):
        producers["a"].commit_transaction()
    assert kafkalite("txn", "commit", f"{topic}.b") == f"committed {topic}.b\n"
    # Only c is open now.
    assert kafkalite("txn", "commit", *prefix) == f"committed {topic}.c\n"
    values = {message.value for message in read_topic(kafkalite.bootstrap_servers, topic)}
    assert values == {b"b", b"c"}
    assert kafkalite.json("txn", "list", *prefix, "--state", "Ongoing") == []
    assert "nothing to abort" in kafkalite("txn", "abort", f"{topic}.b")
    assert "TRANSACTIONAL_ID_NOT_FOUND" in kafkalite("txn", "describe", f"{topic}.nobody", fails=True)
    for producer in producers.values():
        producer.close(timeout=0)


def a_transaction_that_hangs(kafkalite: CommandLine) -> None:
    topic = new_topic(kafkalite.bootstrap_servers)
    properties = {"bootstrap.servers": kafkalite.bootstrap_servers, "transactional.id": f"{topic}.lost"}
    producer = KafkaProducer(properties)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(ProducerRecord(topic, b"never", partition=1))
    producer.flush()
    with KafkaProducer({"bootstrap.servers": kafkalite.bootstrap_servers}) as other:
        other.send(ProducerRecord(topic, b"behind it", partition=1))
    assert read_topic(kafkalite.bootstrap_servers, topic) == []
    (found,) = kafkalite.json("txn", "hanging", topic, "1")
    assert found["start_offset"] == 0
    assert kafkalite.json("txn", "hanging", topic, "0") == []
    assert kafkalite.json("txn", "hanging", topic) == [found]
    assert found["partition"] == 1
    assert "begins at 5; open transactions begin at: 0." in kafkalite(
        "txn", "hanging", topic, "1", "--abort-at", "5", fails=True
    )
    assert f"use 'kafkalite txn abort {topic}.lost'" in kafkalite(
        "txn", "hanging", topic, "1", "--abort-at", "0", fails=True
    )
    kafkalite("txn", "abort", f"{topic}.lost")
    assert [message.value for message in read_topic(kafkalite.bootstrap_servers, topic)] == [b"behind it"]
    assert kafkalite.json("txn", "hanging", topic, "1") == []
    assert "UNKNOWN_TOPIC_OR_PARTITION" in kafkalite("txn", "hanging", topic, "7", fails=True)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in kafkalite("txn", "hanging", f"{topic}.none", fails=True)
    producer.close(timeout=0)
