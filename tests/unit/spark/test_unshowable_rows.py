"""A row with a value that Python cannot display is a dead letter like any other."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.formats.column_format import ColumnFormat
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.task.dead_letters import PREFIX
from kafka_sink.spark.task.task_writer import write_task
from tests.support.readback import read_topic

ENUM = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
SCHEMA = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "colour", "type": ENUM}]})


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(auto_create_topics=False) as cluster:
        for topic in ("rows", "rejected"):
            cluster.create_topic(topic, 1)
        yield cluster


def test_a_symbol_that_is_no_utf8_is_a_dead_letter(cluster: EmbeddedCluster) -> None:
    from dataclasses import replace

    servers = cluster.bootstrap_servers
    spec = parse_options({"kafka.bootstrap.servers": servers, "topic": "rows", "deadLetterTopic": "rejected"}).spec
    spec = replace(spec, formats=(ColumnFormat("value", "avro", SCHEMA),))
    colours = pa.array([b"RED", b"\xff", b"BLUE"], pa.binary()).view(pa.string())
    rows = pa.record_batch({"value": pa.StructArray.from_arrays([colours], names=["colour"])})
    outcome = write_task(iter([rows]), spec)
    assert (outcome.rows_acked, outcome.bad_rows) == (2, 1)
    assert [message.value for message in read_topic(servers, "rows")] == [b"\x00", b"\x02"]
    (letter,) = read_topic(servers, "rejected")
    assert dict(letter.headers)[f"{PREFIX}column"] == b"value.colour"
    assert json.loads(letter.value or b"") == {"colour": "\ufffd"}
