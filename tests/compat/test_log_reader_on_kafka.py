"""Reading records of librdkafka from a real Kafka: codecs, transactions, deletions, and the command line."""

from __future__ import annotations

import json
import time
import uuid
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import AdminClient as RdAdminClient

from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.errors import ApiError, CorruptRecordError, ErrorCode, UnknownTopicOrPartitionError
from kafka_sink.consumer.log_reader import SHOW_DAMAGED, LogReader, PeekLimits, newest_records
from kafka_sink.records.compression import CompressionType
from tests.hostile.batches import DAMAGED, batch_of, record_of, store
from tests.support.command_line import run_command
from tests.support.waiting import until

pytestmark = pytest.mark.behaviour("Log reader", "The log of a real Kafka is read as it is")

if TYPE_CHECKING:
    from tests.support.real_kafka import RealKafka

LIMIT_S = 60


@pytest.fixture
def topic(real_kafka: RealKafka) -> str:
    name = f"read-{uuid.uuid4().hex[:12]}"
    with AdminClient(real_kafka.bootstrap_servers) as admin:
        admin.create_topic(name, partitions=2)
    return name


def reader(real_kafka: RealKafka, **properties: Any) -> LogReader:
    given = {"bootstrap.servers": real_kafka.bootstrap_servers, "default.api.timeout.ms": 20_000}
    return LogReader(given | {name.replace("_", "."): value for name, value in properties.items()})


def write(real_kafka: RealKafka, topic: str, values: list[bytes], partition: int = 0, **properties: Any) -> None:
    given = {name.replace("_", "."): value for name, value in properties.items()}
    # Without idempotence librdkafka reorders the records that it retries until a new topic has leaders.
    safe = {"enable.idempotence": True, "linger.ms": 50}
    producer = Producer({"bootstrap.servers": real_kafka.bootstrap_servers, **safe, **given})
    for value in values:
        producer.produce(topic, value=value, partition=partition)
    assert producer.flush(LIMIT_S) == 0


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_and_answers_smaller_than_the_data(real_kafka: RealKafka, topic: str, codec: str) -> None:
    values = [b"%06d" % number * 20 for number in range(5_000)]
    write(real_kafka, topic, values, 0, compression_type=codec, batch_num_messages=200)
    write(real_kafka, topic, values[:100], 1, compression_type=codec)
    with reader(real_kafka, fetch_max_bytes=50_000, max_partition_fetch_bytes=20_000) as log:
        records = list(log.read(topic))
    assert [record.value for record in records if record.partition == 0] == values
    assert [record.value for record in records if record.partition == 1] == values[:100]


def test_records_that_kafka_stores_although_they_are_damaged(real_kafka: RealKafka, topic: str) -> None:
    write(real_kafka, topic, [b"first"])
    damaged = {said: DAMAGED[said](0) for said in ("a header key is not UTF-8", "its offset is")}
    many = [record_of(number, b"") for number in range(100_000)]
    for batch in (*([record] for record in damaged.values()), many):
        codec = CompressionType.ZSTD if batch is many else CompressionType.NONE
        assert store(real_kafka.bootstrap_servers, topic, batch_of(batch, codec)) == 0
    # Kafka checks the offsets in a compressed batch, as the embedded broker does; 4.3.0 has no specific error for them.
    twice = batch_of([record_of(0), record_of(0)], CompressionType.ZSTD)
    assert store(real_kafka.bootstrap_servers, topic, twice) != ErrorCode.NONE
    with reader(real_kafka) as log:
        found = list(log.read(topic, [0], max_records=4, looking=SHOW_DAMAGED))
        with pytest.raises(
            CorruptRecordError, match=f"{topic}-0 at offset 1: the record of offset 1: a header key is not"
        ):
            list(log.read(topic, [0]))
    assert [record.offset for record in found] == [0, 1, 2, 3]
    for record, (said, data) in zip(found[1:], damaged.items(), strict=False):
        assert said in record.problem and record.value == data[1:]
    newest = newest_records({"bootstrap.servers": real_kafka.bootstrap_servers}, topic, 2, PeekLimits())
    assert [record.offset for record in newest] == [100_001, 100_002]


def transact(real_kafka: RealKafka, topic: str, values: list[bytes], *, commit: bool) -> None:
    producer = Producer({"bootstrap.servers": real_kafka.bootstrap_servers, "transactional.id": f"{topic}-{commit}"})
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value=value, partition=0)
    producer.flush(LIMIT_S)
    if commit:
        producer.commit_transaction(LIMIT_S)
    else:
        producer.abort_transaction(LIMIT_S)


def test_read_committed_skips_aborted_and_open_transactions(real_kafka: RealKafka, topic: str) -> None:
    transact(real_kafka, topic, [b"a1", b"a2"], commit=True)
    transact(real_kafka, topic, [b"x1", b"x2"], commit=False)
    write(real_kafka, topic, [b"plain"])
    transact(real_kafka, topic, [b"x3"], commit=False)
    transact(real_kafka, topic, [b"a3"], commit=True)
    undecided = Producer({"bootstrap.servers": real_kafka.bootstrap_servers, "transactional.id": f"{topic}-open"})
    undecided.init_transactions(LIMIT_S)
    undecided.begin_transaction()
    undecided.produce(topic, value=b"open", partition=0)
    undecided.flush(LIMIT_S)
    try:
        with reader(real_kafka, isolation_level="read_committed") as log:
            committed = [record.value for record in log.read(topic, [0])]
        with reader(real_kafka) as log:
            everything = [record.value for record in log.read(topic, [0])]
        assert committed == [b"a1", b"a2", b"plain", b"a3"]
        assert everything == [b"a1", b"a2", b"x1", b"x2", b"plain", b"x3", b"a3", b"open"]
    finally:
        undecided.abort_transaction(LIMIT_S)


def test_deleted_records_are_not_there_any_more(real_kafka: RealKafka, topic: str) -> None:
    write(real_kafka, topic, [b"%d" % number for number in range(10)])
    admin = RdAdminClient({"bootstrap.servers": real_kafka.bootstrap_servers})
    (deleted,) = admin.delete_records([RdTopicPartition(topic, 0, 4)]).values()
    deleted.result(LIMIT_S)
    with reader(real_kafka) as log:
        assert [record.offset for record in log.read(topic, [0])] == [4, 5, 6, 7, 8, 9]
        with pytest.raises(
            ApiError, match=f"{topic}-0 has no offset 2: its log begins at 4 and ends before 10"
        ) as caught:
            list(log.read(topic, [0], start=2))
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_latest_and_following(real_kafka: RealKafka, topic: str) -> None:
    write(real_kafka, topic, [b"before"])
    with reader(real_kafka, fetch_max_wait_ms=100) as log:
        records = log.read(topic, [0], start="latest", stop_at_end=False)
        write(real_kafka, topic, [b"after"])
        assert next(records).value == b"after"
        write(real_kafka, topic, [b"later"])
        assert [record.offset for record in islice(records, 1)] == [2]


def test_an_unknown_topic_is_not_made(real_kafka: RealKafka) -> None:
    name = f"no-such-{uuid.uuid4().hex[:8]}"
    with reader(real_kafka) as log, pytest.raises(UnknownTopicOrPartitionError, match=f"topic '{name}' does not exist"):
        log.read(name)
    with AdminClient(real_kafka.bootstrap_servers) as admin:
        assert name not in admin.list_topics()


def test_topic_deleted_while_followed_raises_error(real_kafka: RealKafka, topic: str) -> None:
    write(real_kafka, topic, [b"only"])
    with reader(real_kafka, fetch_max_wait_ms=100, default_api_timeout_ms=3_000) as log:
        records = log.read(topic, stop_at_end=False)
        assert next(records).value == b"only"
        with AdminClient(real_kafka.bootstrap_servers) as admin:
            admin.delete_topics([topic])
        started = time.monotonic()
        with pytest.raises(ApiError, match=topic):
            next(records)
        assert time.monotonic() - started < LIMIT_S


def kafkalite(real_kafka: RealKafka, *arguments: str) -> str:
    """Run the command, which must succeed; return its output."""
    done = run_command([*arguments, "--bootstrap-server", real_kafka.bootstrap_servers])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line_speaks_to_it(real_kafka: RealKafka, topic: str) -> None:
    write(real_kafka, topic, [b"one", b"\xff"])
    lines = [json.loads(line) for line in kafkalite(real_kafka, "consume", topic).splitlines()]
    assert [line["value"] for line in lines] == ["one", {"base64": "/w=="}]
    (described,) = json.loads(kafkalite(real_kafka, "topics", "describe", topic, "--json"))
    assert [part["end_offset"] for part in described["partitions"]] == [2, 0]
    made = f"{topic}-made"
    kafkalite(real_kafka, "topics", "create", made, "--partitions", "3", "--config", "retention.ms=60000")
    until("the topic", lambda: made in kafkalite(real_kafka, "topics", "list").splitlines())
    kafkalite(real_kafka, "topics", "delete", made, "--yes")
