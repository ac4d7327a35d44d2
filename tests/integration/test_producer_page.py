"""The programs of docs/producer.md and docs/from-python-clients.md do what the pages say."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka.serialization import StringSerializer

from kafka_sink import EmbeddedCluster, KafkaProducer
from kafka_sink.client.blocking.group_admin import GroupAdmin
from kafka_sink.common.model import TopicPartition
from kafka_sink.consumer.log_reader import LogReader
from scripts.pages import printed
from tests.support.pages import block

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "producer.md"
OTHERS = DOCS / "from-python-clients.md"


@pytest.mark.behaviour("Documentation", "The programs of the page of the producer run as they stand there")
def test_programs_of_the_page_run_as_they_stand_there(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedCluster() as cluster:
        for topic in ("orders", "clicks"):
            cluster.create_topic(topic, partitions=1)
        for having in ("producer.prometheus", "send_offsets_to_transaction"):
            exec(block(PAGE, having).replace("broker:9092", cluster.bootstrap_servers), {})
        config = {"bootstrap.servers": cluster.bootstrap_servers, "isolation.level": "read_committed"}
        with LogReader(config) as reader:
            # The response to EndTxn comes before the markers are written.
            records = reader.read("orders", stop_at_end=False, max_records=2)
            assert [(record.key, record.value) for record in records] == [
                (b"customer-7", b'{"total":12}'),
                (None, b"..."),
            ]
        with GroupAdmin(cluster.bootstrap_servers) as admin:
            assert admin.offsets("readers") == {TopicPartition("clicks", 0): 42}
    assert "record_send_total" in capsys.readouterr().out


def calls() -> dict[str, list[str]]:
    """Return the rows of the table: the calls of kafka-python, of confluent-kafka, and ours; empty if there is none."""
    _, _, *rows = printed(OTHERS, "calls").strip().splitlines()
    cells = ([cell.strip() for cell in row.strip("|").split(" | ")] for row in rows)
    return {name: [cell.strip("`") if cell.startswith("`") else "" for cell in each] for name, *each in cells}


#: The global names for the calls of each client.
CLIENTS: dict[str, dict[str, Any]] = {
    "kafka-python": {"KafkaProducer": kafka.KafkaProducer},
    "confluent-kafka": {
        "Producer": confluent_kafka.Producer,
        "SerializingProducer": confluent_kafka.SerializingProducer,
        "StringSerializer": StringSerializer,
    },
    "kafkalite": {"KafkaProducer": KafkaProducer, "partial": partial, "StringSerializer": StringSerializer},
}


@pytest.mark.behaviour("Documentation", "The calls of kafka-python and confluent-kafka do what those beside them do")
def test_calls_beside_those_of_other_clients_do_the_same() -> None:
    rows = calls()
    with EmbeddedCluster(num_partitions=1) as cluster:
        for number, (client, names) in enumerate(CLIENTS.items()):
            scope: dict[str, Any] = {**names, "json": json, "print": lambda *_: None}
            made: list[Any] = []
            for name, cells in rows.items():
                code = cells[number].replace("broker:9092", cluster.bootstrap_servers)
                try:
                    exec(code.replace('"orders"', f'"{client}"'), scope)
                except Exception as error:
                    raise AssertionError(f"{client}, {name}") from error
                if scope["producer"] not in made:
                    made.append(scope["producer"])
                if name not in ("begin a transaction", "close"):
                    scope["producer"].flush(timeout=10)
            for producer in made:
                getattr(producer, "close", producer.flush)()
        with LogReader({"bootstrap.servers": cluster.bootstrap_servers}) as reader:
            written = {client: list(map(seen, reader.read(client))) for client in CLIENTS}
    ours = written["kafkalite"]
    assert len(ours) == 11
    assert written["confluent-kafka"] == ours
    # kafka-python has no call for a serializer of Confluent.
    assert written["kafka-python"] == [*ours[:9], *ours[10:]]


def seen(record: Any) -> tuple[Any, ...]:
    """Return a record without its timestamp, unless its call sets one."""
    timestamp = record.timestamp if record.timestamp == 1_700_000_000_000 else None
    return record.key, record.value, tuple(record.headers), timestamp


@pytest.mark.behaviour("Documentation", "A future of the producer can be awaited")
def test_the_program_with_asyncio_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedCluster(num_partitions=1) as cluster:
        exec(block(OTHERS, "asyncio").replace("broker:9092", cluster.bootstrap_servers), {})
    assert capsys.readouterr().out == "[0]\n"


@pytest.mark.behaviour("KafkaProducer", "The error for a method of another client says what to call")
@pytest.mark.parametrize(
    ("method", "advice"),
    [("produce", "send(topic, value, key)"), ("poll", "nothing has to be called"), ("send_and_wait", "await send")],
)
def test_methods_of_other_clients_are_answered_with_ours(method: str, advice: str) -> None:
    with (
        KafkaProducer({"bootstrap.servers": "127.0.0.1:1"}) as producer,
        pytest.raises(AttributeError, match=f"no attribute '{method}': .*{re.escape(advice)}"),
    ):
        getattr(producer, method)
