"""``kafkalite txn hanging --abort-at`` leaves what a coordinator still ends alone."""

from __future__ import annotations

import io
import os
import sys

import pytest

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.cli.main import run
from tests.support.readback import read_topic


def test_no_part_of_a_running_transaction_is_aborted(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders", 2)
        to = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "payments"}
        with KafkaProducer(to) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for number in range(2):
                producer.send(ProducerRecord("orders", b"%d" % number, partition=number))
            producer.flush()
            words = ["txn", "hanging", "orders", "0", "--abort-at", "0"]
            code = run([*words, "--bootstrap-server", cluster.bootstrap_servers])
            said = capsys.readouterr().err
            producer.commit_transaction()
        assert {record.value for record in read_topic(cluster.bootstrap_servers, "orders")} == {b"0", b"1"}
        assert code == 1 and "use 'kafkalite txn abort payments'" in said


def test_all_is_done_also_if_nobody_reads_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedCluster() as cluster:
        names = [f"t{number}" for number in range(5)]
        for name in names:
            cluster.create_topic(name, 1)
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as closed:
            monkeypatch.setattr(sys, "stdout", closed)
            code = run(["topics", "delete", *names, "--yes", "--bootstrap-server", cluster.bootstrap_servers])
            monkeypatch.undo()
        assert (code, left(cluster)) == (0, [])


def left(cluster: EmbeddedCluster) -> list[str]:
    from kafka_sink.client.blocking.admin import AdminClient

    with AdminClient(cluster.bootstrap_servers) as admin:
        return admin.list_topics()


def test_a_verdict_keeps_its_code_if_nobody_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"no json\n")))
    with EmbeddedCluster() as cluster:
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as closed:
            monkeypatch.setattr(sys, "stdout", closed)
            code = run(["produce", "t", "--json", "--bootstrap-server", cluster.bootstrap_servers])
            monkeypatch.undo()
        assert code == 1
