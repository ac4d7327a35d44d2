"""Lineage of writes: the events for OpenLineage, which never fail a write."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.common.model import TopicPartition
from kafka_sink.reports.writes import PartitionRange
from kafka_sink.spark.driver import lineage
from kafka_sink.spark.driver.lineage import emit, file_name, is_configured
from kafka_sink.spark.driver.write_report import WriteSummary, publish
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.task.task_outcome import TaskOutcome
from tests.support.cases import with_each

RANGES = {
    TopicPartition("my-topic", 11): PartitionRange(20, 0, 19),
    TopicPartition("my-topic", 0): PartitionRange(10, 5, 14),
}

OPTIONS = parse_options({"kafka.bootstrap.servers": "b1:9092,b2:9092", "topic": "my-topic"})


def sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, summary: WriteSummary, inputs: tuple[str, ...] = ()
) -> list[Any]:
    """The events of a write, as written by OpenLineage's file transport."""
    file = tmp_path / "events.jsonl"
    # The first event waits for the import of OpenLineage, which takes long on a busy machine.
    monkeypatch.setattr(lineage, "LONGEST_S", 600.0)
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(file))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
    columns = (("key", "string"), ("value", "binary"))
    publish(summary, replace(OPTIONS.spec, columns=columns), inputs)
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.behaviour("Lineage", "A write is an event with its topics, columns, rows and offsets")
def test_a_write_is_one_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (event,) = sent(
        tmp_path,
        monkeypatch,
        WriteSummary(outcomes=[TaskOutcome(ranges=RANGES)]),
        ("file:/data/in.csv", "s3://lake/orders/a b.parquet"),
    )
    assert (event["eventType"], event["job"]["name"]) == ("COMPLETE", "kafkalite.my-topic")
    assert [(each["namespace"], each["name"]) for each in event["inputs"]] == [
        ("file", "/data/in.csv"),
        ("s3://lake", "orders/a b.parquet"),
    ]
    (output,) = event["outputs"]
    assert (output["namespace"], output["name"]) == ("kafka://b1:9092", "my-topic")
    fields = output["facets"]["schema"]["fields"]
    assert [(field["name"], field["type"]) for field in fields] == [("key", "string"), ("value", "binary")]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 30
    assert output["outputFacets"]["kafkalite_offsets"]["partitions"] == [
        {"partition": 0, "firstOffset": 5, "lastOffset": 14},
        {"partition": 11, "firstOffset": 0, "lastOffset": 19},
    ]


def test_a_failed_write_says_why_and_a_skipped_one_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sent(tmp_path, monkeypatch, WriteSummary(outcomes=[TaskOutcome(ranges=RANGES)], decision="skipped")) == []
    (event,) = sent(tmp_path, monkeypatch, WriteSummary(decision="failed", error="no broker"))
    assert (event["eventType"], event["outputs"]) == ("FAIL", [])
    assert event["run"]["facets"]["errorMessage"]["message"] == "no broker"


@pytest.mark.behaviour("Lineage", "It is off without OpenLineage's variables, and never fails a write")
def test_it_is_off_by_itself_and_harms_no_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for environment, on in (
        ({}, False),
        ({"OPENLINEAGE_URL": "http://127.0.0.1:1"}, True),
        ({"OPENLINEAGE_URL": "http://127.0.0.1:1", "OPENLINEAGE_DISABLED": "true"}, False),
        ({"OPENLINEAGE_DISABLED": "false"}, False),
    ):
        assert is_configured(environment) is on
    monkeypatch.setattr(lineage, "LONGEST_S", 1.0)
    spec = OPTIONS.spec
    with monkeypatch.context() as off:
        off.setattr(lineage, "start_thread", lambda *_: pytest.fail("nobody has asked for lineage"))
        emit(RANGES, spec)
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    with caplog.at_level(logging.WARNING):
        emit(RANGES, spec)
    assert "the event of this write" in caplog.text
    # The client retries for longer, and would log that in another test.
    for thread in threading.enumerate():
        if "openlineage" in thread.name:
            thread.join()


def test_transport_with_a_thread_has_sent_the_event_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event is sent before a driver may end, and no thread remains of the micro-batches."""
    received = []

    class Server(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    monkeypatch.setattr(lineage, "LONGEST_S", 600.0)
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "async_http")
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__URL", f"http://127.0.0.1:{server.server_port}")
        before = set(threading.enumerate())
        emit(RANGES, OPTIONS.spec)
        left = [thread.name for thread in set(threading.enumerate()) - before if "_setup_loop" in thread.name]
        server.shutdown()
    assert (len(received), left) == (1, [])


@pytest.mark.behaviour("Lineage", "A login in the address of a file is not sent")
@with_each(
    ("path", "namespace", "name"),
    [
        ("s3a://AKIAKEY:Q7/z+Secret@bucket/a@b.csv", "s3a://bucket", "a@b.csv"),
        ("sftp://u:Q7zSecret@host:22/x", "sftp://host:22", "x"),
        ("jdbc:postgresql://u:Q7zSecret@h/db", "jdbc://", "postgresql://h/db"),
        ("hdfs://nn:8020/x@y", "hdfs://nn:8020", "x@y"),
        ("wasbs://container@account.blob/x", "wasbs://container@account.blob", "x"),
        ("abfss://c@acct/x?sig=Q7zSecret", "abfss://c@acct", "x"),
    ],
)
def test_a_login_in_an_address_is_not_sent(path: str, namespace: str, name: str) -> None:
    assert file_name(path) == (namespace, name)
