"""The pages of ``kafkalite ui`` on a real Kafka."""

from __future__ import annotations

import os
import urllib.request
from typing import TYPE_CHECKING

import pytest

from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.client.blocking.group_admin import GroupAdmin
from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.kafka_producer import KafkaProducer, ProducerRecord
from kafka_sink.ui.pages import PageServer

if TYPE_CHECKING:
    from tests.support.real_kafka import RealKafka


@pytest.mark.behaviour("Pages in the browser", "Topics, records, groups and transactions of a real Kafka are shown")
def test_pages_show_a_real_kafka(real_kafka: RealKafka) -> None:
    name, servers = f"pages-{os.urandom(4).hex()}", real_kafka.bootstrap_servers
    with AdminClient(servers) as admin:
        admin.create_topic(name, 2, 1)
    with (
        KafkaProducer({"bootstrap.servers": servers, "transactional.id": name}) as producer,
        GroupAdmin(servers) as groups,
        PageServer(servers, 0) as pages,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(ProducerRecord(name, b"value", key=b"key", partition=1))
        producer.flush()
        groups.set_offsets(f"{name}-readers", {TopicPartition(name, 1): 0})

        def page(path: str) -> str:
            with urllib.request.urlopen(f"{pages.url}{path}", timeout=60) as answer:
                return str(answer.read().decode())

        assert f'<tr data-key="{name}">' in page("topics")
        assert f'<td><a href="/topics/{name}">{name}</a></td><td class="n">2</td><td class="n">1</td>' in page("topics")
        assert "<code>value</code>" in page(f"topics/{name}?key=ke")
        assert (
            '<td class="word">Empty</td><td class="n">0</td><td class="n">1</td>'
            in page("groups").partition(f">{name}-readers<")[2]
        )
        assert "Ongoing" in page("transactions").partition(f'"id">{name}<')[2]
        producer.abort_transaction()
