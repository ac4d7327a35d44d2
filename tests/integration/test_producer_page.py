"""The programs of docs/producer.md do what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.client.blocking.group_admin import GroupAdmin
from kafka_sink.common.model import TopicPartition
from kafka_sink.consumer.log_reader import LogReader
from tests.support.pages import block

PAGE = Path(__file__).parents[2] / "docs" / "producer.md"


@pytest.mark.behaviour("Documentation", "The programs of the page of the producer run as they stand there")
def test_programs_of_the_page_run_as_they_stand_there(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedCluster() as cluster:
        for topic in ("orders", "clicks"):
            cluster.create_topic(topic, partitions=1)
        for having in ("producer.prometheus", "send_offsets_to_transaction"):
            exec(block(PAGE, having).replace("broker:9092", cluster.bootstrap_servers), {})
        config = {"bootstrap.servers": cluster.bootstrap_servers, "isolation.level": "read_committed"}
        with LogReader(config) as reader:
            # EndTxn is answered before the markers are written.
            records = reader.read("orders", stop_at_end=False, max_records=2)
            assert [(record.key, record.value) for record in records] == [
                (b"customer-7", b'{"total":12}'),
                (None, b"..."),
            ]
        with GroupAdmin(cluster.bootstrap_servers) as admin:
            assert admin.offsets("readers") == {TopicPartition("clicks", 0): 42}
    assert "record_send_total" in capsys.readouterr().out
