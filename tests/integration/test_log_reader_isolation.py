"""The log reader and the embedded broker's transactions: who asks for what was committed sees that and nothing else."""

from __future__ import annotations

import pytest

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.consumer.fetched_partition import ABORTED, OPEN
from kafka_sink.consumer.log_reader import LogReader, PeekLimits, newest_records, records_from


def read(cluster: EmbeddedCluster, isolation: str) -> list[bytes | None]:
    with LogReader({"bootstrap.servers": cluster.bootstrap_servers, "isolation.level": isolation}) as reader:
        return [record.value for record in reader.read("t")]


@pytest.mark.behaviour("Log reader", "Readers of committed records skip aborted transactions and stop before open ones")
def test_read_committed_skips_aborted_and_stops_at_open_ones() -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", partitions=1)
        servers = cluster.bootstrap_servers
        with (
            KafkaProducer({"bootstrap.servers": servers, "transactional.id": "one"}) as one,
            KafkaProducer({"bootstrap.servers": servers, "transactional.id": "two"}) as two,
        ):

            def write(producer: KafkaProducer, value: bytes) -> None:
                producer.send(ProducerRecord("t", value))
                producer.flush()

            for producer in (one, two):
                producer.init_transactions()
                producer.begin_transaction()
            write(one, b"committed")
            write(two, b"aborted")
            write(one, b"committed too")
            two.abort_transaction()
            two.begin_transaction()
            write(two, b"aborted again")
            one.commit_transaction()
            two.abort_transaction()
            two.begin_transaction()
            write(two, b"open")
            one.begin_transaction()
            write(one, b"committed behind an open one")
            one.commit_transaction()
            assert read(cluster, "read_committed") == [b"committed", b"committed too"]
            assert len(read(cluster, "read_uncommitted")) == 6
            properties = {"bootstrap.servers": servers}
            newest = newest_records(properties, "t", 100, PeekLimits())
            assert [(each.value, each.transaction) for each in newest] == [
                (b"committed", ""),
                (b"aborted", ABORTED),
                (b"committed too", ""),
                (b"aborted again", ABORTED),
                (b"open", OPEN),
                # Readers of committed records do not get it before the one that is open.
                (b"committed behind an open one", OPEN),
            ]
            assert [each.value for each in newest_records(properties, "t", 1, PeekLimits())] == [newest[-1].value]
            late = records_from(properties, "t", 2, 9, PeekLimits(), lambda each: True)
            assert [each.transaction for each in late] == ["", ABORTED, OPEN, OPEN]
            two.commit_transaction()
        assert read(cluster, "read_committed")[2:] == [b"open", b"committed behind an open one"]
