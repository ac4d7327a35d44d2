"""A real Kafka and the embedded broker answer the same requests about groups in the same way."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_sink import EmbeddedCluster
from tests.compat.kafka_version import requires_kafka
from tests.support.group_script import SECTIONS, Script
from tests.support.real_kafka import RealKafka

PARTITIONS = 3
SETTLE_S = 60


def play(bootstrap_servers: str, section: str) -> dict[str, Any]:
    run = uuid.uuid4().hex[:8]
    topic = f"script-{run}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    deadline = time.monotonic() + SETTLE_S
    while topic not in admin.list_topics(topic).topics and time.monotonic() < deadline:
        time.sleep(0.05)
    answers = Script(bootstrap_servers, topic, run).run({section: SECTIONS[section]})
    text = json.dumps(answers).replace(topic, "TOPIC").replace(topic.encode().hex(), "TOPIC")
    told: dict[str, Any] = json.loads(text)
    return told


@pytest.mark.behaviour("Same answers as Apache Kafka", "Requests of groups are answered as Kafka does")
@requires_kafka("4.3", "the APIs and answers that the embedded broker is modelled on")
@pytest.mark.parametrize("section", SECTIONS)
def test_groups_are_answered_as_kafka_does(real_kafka: RealKafka, section: str, figure: Any) -> None:
    theirs = play(real_kafka.bootstrap_servers, section)
    with EmbeddedCluster() as cluster:
        ours = play(cluster.bootstrap_servers, section)

    assert list(ours) == list(theirs)
    assert {label: (ours[label], theirs[label]) for label in theirs if ours[label] != theirs[label]} == {}
    figure(f"{section}, answers that are equal", len(theirs))
