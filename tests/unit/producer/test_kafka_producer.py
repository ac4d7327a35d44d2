"""The producer's public interface, against brokers in this process."""

from __future__ import annotations

import inspect
import itertools
import logging
import multiprocessing
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.columns.record_columns import BinaryColumn, ColumnChunk
from kafka_sink.common.errors import (
    ApiError,
    ConfigError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    RowError,
    RowPartitionError,
    RowSerializationError,
    RowTooLargeError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, RecordMetadata
from kafka_sink.consumer.fetched_partition import ConsumedRecord
from kafka_sink.consumer.log_reader import LogReader
from kafka_sink.producer import config as producer_config
from kafka_sink.producer import kafka_producer
from kafka_sink.producer.futures import Delivery
from kafka_sink.producer.task_producer import TaskProducer
from tests.fakes.plugins import Failing, Recorder, UpperSerializer
from tests.support.cases import with_each
from tests.support.waiting import until

PLUGINS = "tests.fakes.plugins"
TOPIC = "orders"


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(auto_create_topics=False) as running:
        running.create_topic(TOPIC, partitions=4)
        yield running


def make(cluster: EmbeddedCluster, properties: dict[str, Any] | None = None, **plugins: Any) -> KafkaProducer:
    return KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers, **(properties or {})}, **plugins)


def stored(cluster: EmbeddedCluster, topic: str = TOPIC) -> list[ConsumedRecord]:
    with LogReader({"bootstrap.servers": cluster.bootstrap_servers}) as reader:
        return sorted(reader.read(topic), key=lambda record: (record.partition, record.offset))


def sender_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kafka-producer-network")]


# --- sending ---------------------------------------------------------------------------------------------------------


def test_many_records_arrive_once_and_in_order(cluster: EmbeddedCluster) -> None:
    count = 3000
    with make(cluster, {"batch.size": 2000}) as producer:
        futures = [
            producer.send(ProducerRecord(TOPIC, b"%d" % number, None if number % 3 else b"k%d" % (number % 7)))
            for number in range(count)
        ]
        places = [future.result(30) for future in futures]
    found = {(record.partition, record.offset): record.value for record in stored(cluster)}
    assert len(found) == count
    assert [found[place.partition, place.offset] for place in places] == [b"%d" % number for number in range(count)]
    for key in range(7):
        offsets = [places[n].offset for n in range(0, count, 3) if n % 7 == key]
        assert offsets == sorted(offsets)


@pytest.mark.behaviour("KafkaProducer", "A full batch moves records without a key on to another partition")
def test_records_without_key_fill_batches_before_they_move_on(cluster: EmbeddedCluster) -> None:
    with make(cluster, {"batch.size": 1000, "linger.ms": 10_000}) as producer:
        futures = [producer.send(ProducerRecord(TOPIC, b"x" * 90)) for _ in range(200)]
        producer.flush()
        turns = [
            (partition, len(list(turn))) for partition, turn in itertools.groupby(f.result().partition for f in futures)
        ]
    # Nine records fill a batch. A turn may be longer: an open batch is sent with a full one to the same node, and two
    # consecutive turns may use the same partition.
    assert all(length >= 9 for _, length in turns[:-1])
    assert len(dict(turns)) > 1


@pytest.mark.behaviour("KafkaProducer", "Wrong arguments are raised at once")
@pytest.mark.parametrize(
    ("record", "error", "text"),
    [
        (ProducerRecord(TOPIC, "text"), SerializationError, r"value \(str\).*bytes \(value.serializer\)"),
        (ProducerRecord(TOPIC, b"", 7), SerializationError, r"key \(int\).*bytes \(key.serializer\)"),
        (ProducerRecord(TOPIC, b"", headers={"h": "\ud800"}), SerializationError, r"header 0 \(h\)"),
        (ProducerRecord(TOPIC, b"", partition=-1), ValueError, "partition must not be negative, got -1"),
        (ProducerRecord(TOPIC, b"", timestamp=-2), ValueError, "timestamp must not be negative, got -2"),
    ],
)
def test_send_raises_for_wrong_arguments_at_once(
    cluster: EmbeddedCluster, record: ProducerRecord, error: type[Exception], text: str
) -> None:
    with make(cluster) as producer, pytest.raises(error, match=text):
        producer.send(record)


WRONG_FIELDS: list[dict[str, Any]] = [
    *({"topic": wrong} for wrong in (5, None, "", [TOPIC], "\ud800", "x" * 40_000)),
    *({"partition": 1.5}, {"partition": True}, {"timestamp": 1.5}, {"timestamp": 2**63}),
    *({"headers": {5: b"x"}}, {"headers": [("h", b"x"), None]}),
]


@pytest.mark.behaviour("KafkaProducer", "An error of one record goes to the future of that record alone")
@pytest.mark.parametrize("wrong", WRONG_FIELDS)
def test_a_wrong_record_fails_alone(cluster: EmbeddedCluster, wrong: dict[str, Any]) -> None:
    with make(cluster, {"linger.ms": 50, "max.block.ms": 5000}) as producer:
        before = producer.send(ProducerRecord(TOPIC, b"before", partition=1))
        with pytest.raises(ValueError, match=rf"{next(iter(wrong)).rstrip('s')}|surrogates"):
            producer.send(ProducerRecord(**{"topic": TOPIC, "value": b"wrong", **wrong}))
        after = producer.send(ProducerRecord(TOPIC, b"after", partition=1))
        assert [before.result(60).offset, after.result(5).offset] == [0, 1]
        cluster.create_topic("later", partitions=1)
        assert producer.send(ProducerRecord("later", b"v")).result(60).offset == 0


def test_a_wrong_topic_is_refused_wherever_one_is_named(cluster: EmbeddedCluster) -> None:
    chunk = ColumnChunk(BinaryColumn.from_arrow(pa.array([b"v"])))
    wrong: Any
    with make(cluster, {"max.block.ms": 5000}) as producer:
        for wrong in (5, None, "", b"orders"):
            with pytest.raises(ValueError, match="topic must be"):
                producer.partitions_for(wrong)
            with pytest.raises(ValueError, match="topic must be"):
                producer.send_columns(wrong, chunk)
        assert len(producer.partitions_for(TOPIC)) == 4


# --- serializers -----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("Interceptors and serializers", "Serializers are given by name, by path or as objects")
def test_serializers_by_name_path_and_object(cluster: EmbeddedCluster) -> None:
    upper = UpperSerializer()
    properties = {"key.serializer": "org.apache.kafka.common.serialization.IntegerSerializer"}
    with make(cluster, properties, value_serializer=upper) as producer:
        producer.send(ProducerRecord(TOPIC, "text", 258, headers=[("own", None)])).result()
        producer.send(ProducerRecord(TOPIC, None, None, 0)).result()
    assert [(record.key, record.value, record.headers) for record in stored(cluster) if record.value] == [
        (b"\x00\x00\x01\x02", b"TEXT", (("own", None), ("upper", TOPIC.encode())))
    ]
    ((configs, is_key),) = upper.configured
    assert (configs["batch.size"], is_key, upper.closed) == (16384, False, 1)


def test_json_and_path(cluster: EmbeddedCluster) -> None:
    properties = {"key.serializer": f"{PLUGINS}.UpperSerializer", "value.serializer": "json"}
    with make(cluster, properties) as producer:
        producer.send(ProducerRecord(TOPIC, {"ü": [1, None]}, "k"))
        with pytest.raises(SerializationError, match=r"value \(float\) for topic orders.*json"):
            producer.send(ProducerRecord(TOPIC, float("nan")))
    assert [(record.key, record.value) for record in stored(cluster)] == [(b"K", '{"ü":[1,null]}'.encode())]


# --- interceptors ----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(
    "Interceptors and serializers",
    "Interceptors change records in their order, and hear of outcomes before the caller's callback",
)
def test_interceptors_change_records_and_hear_outcomes_first(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    first, last = Recorder("first"), Recorder("last")
    seen: list[tuple[int, int]] = []
    caplog.set_level(logging.WARNING)
    with make(cluster, {"client.id": "me"}, interceptors=[first, Failing(), last]) as producer:
        future = producer.send(
            ProducerRecord(TOPIC, b"v", partition=2, timestamp=77),
            on_delivery=lambda delivery: seen.append((len(first.acknowledged), len(last.acknowledged))),
        )
        assert future.result() == RecordMetadata(TOPIC, 2, 0, 77, -1, 12)
    assert [record.value for record in stored(cluster)] == [b"v+first+last"]
    assert first.acknowledged == last.acknowledged == [(RecordMetadata(TOPIC, 2, 0, 77, -1, 12), None)]
    assert seen == [(1, 1)]
    assert (first.configs["client.id"], first.closed, last.closed) == ("me", 1, 1)
    assert [record.getMessage() for record in caplog.records if "Failing" in record.getMessage()] == [
        "[producer client.id=me] on_send of Failing raised; its record is sent as if the interceptor were absent",
        "[producer client.id=me] on_acknowledgement of Failing raised RuntimeError('on_acknowledgement')",
        "[producer client.id=me] closing Failing failed",
    ]


@pytest.mark.behaviour("Interceptors and serializers", "An interceptor hears once of a record that is never staged")
def test_a_record_that_is_never_staged_is_told_once(cluster: EmbeddedCluster) -> None:
    recorder = Recorder()
    told: list[Delivery] = []
    with make(cluster, {"max.block.ms": 400, "max.request.size": 300}, interceptors=[recorder]) as producer:
        producer.send(ProducerRecord("nowhere", b""), on_delivery=told.append)
        producer.send(ProducerRecord(TOPIC, b"x" * 300, partition=3), on_delivery=told.append)
        with pytest.raises(SerializationError):
            producer.send(ProducerRecord(TOPIC, b"", 5))
    assert [metadata for metadata, _ in recorder.acknowledged] == [
        RecordMetadata("nowhere", -1, NO_OFFSET, NO_TIMESTAMP, -1, -1),
        RecordMetadata(TOPIC, 3, NO_OFFSET, NO_TIMESTAMP, -1, -1),
        RecordMetadata(TOPIC, -1, NO_OFFSET, NO_TIMESTAMP, -1, -1),
    ]
    assert [type(error) for _, error in recorder.acknowledged] == [
        UnknownTopicOrPartitionError,
        RecordTooLargeError,
        SerializationError,
    ]
    assert len(told) == 2


def test_an_interceptor_must_return_a_record(cluster: EmbeddedCluster) -> None:
    recorder = Recorder()
    recorder.on_send = lambda record: None  # type: ignore[method-assign,assignment,return-value]
    text = "on_send returned NoneType instead of a ProducerRecord"
    with make(cluster, interceptors=[recorder]) as producer, pytest.raises(KafkaError, match=text):
        producer.send(ProducerRecord(TOPIC, b""))
    assert len(recorder.acknowledged) == 1


def test_columns_and_interceptors_do_not_go_together(cluster: EmbeddedCluster) -> None:
    chunk = ColumnChunk(BinaryColumn.from_arrow(pa.array([b"v"])))
    properties = {"interceptor.classes": f"{PLUGINS}.Recorder"}
    with make(cluster, properties) as producer, pytest.raises(KafkaError, match="interceptors process single records"):
        producer.send_columns(TOPIC, chunk)


# --- partitioners ----------------------------------------------------------------------------------------------------


class ByRoute:
    """Has only the method that a partitioner requires."""

    def partition(self, topic: str, key: Any, key_bytes: Any, value: Any, value_bytes: Any, cluster: Any) -> int:
        return len(value_bytes)


def test_a_partitioner_needs_one_method_for_records_and_columns(cluster: EmbeddedCluster) -> None:
    with make(cluster, partitioner=ByRoute()) as producer:
        assert producer.send(ProducerRecord(TOPIC, b"ab")).result(60).partition == 2
        rows = pa.table({"value": [b"", b"a", b"ab", b"a"]})
        places = {(d.topic_partition.partition, d.count) for d in producer.send_columns(TOPIC, rows).result(60)}
        assert places == {(0, 1), (1, 2), (2, 1)}
        with pytest.raises(ValueError, match=r"ByRoute \(partitioner.class\) chose partition 9 of topic orders, which"):
            producer.send_columns(TOPIC, pa.table({"value": [b"a", b"x" * 9]}))
    assert len(stored(cluster)) == 5


def test_unknown_properties_reach_a_named_plugin(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Mapping[str, Any]] = []
    monkeypatch.setattr(UpperSerializer, "configure", lambda self, configs, is_key: given.append(configs))
    make(cluster, {"value.serializer": f"{PLUGINS}.UpperSerializer", "my.routing.table": "x"}).close()
    assert [each["my.routing.table"] for each in given] == ["x"]
    assert "passed to the plugins only: my.routing.table" in caplog.text
    with pytest.raises(ConfigError, match=r"unknown option my\.routing\.table"):
        make(cluster, {"my.routing.table": "x"})


def test_a_partitioner_by_path_serves_records_and_columns(cluster: EmbeddedCluster) -> None:
    with make(cluster, {"partitioner.class": f"{PLUGINS}.LengthPartitioner"}) as producer:
        assert [producer.send(ProducerRecord(TOPIC, b"x" * size)).result().partition for size in (0, 3, 1)] == [0, 3, 1]
        with pytest.raises(ValueError, match=r"LengthPartitioner \(partitioner.class\) chose partition 4 of topic"):
            producer.send(ProducerRecord(TOPIC, b"long"))
        assert producer.send(ProducerRecord(TOPIC, b"long", partition=1)).result().partition == 1
        producer.send_columns(TOPIC, ColumnChunk(BinaryColumn.from_arrow(pa.array([b"ab", b"", b"c"]))))
        producer.flush()
    by_partition = [[r.value for r in stored(cluster) if r.partition == partition] for partition in range(4)]
    assert by_partition == [[b"", b""], [b"x", b"long", b"c"], [b"ab"], [b"xxx"]]


def test_partitioners_of_kafka_by_name(cluster: EmbeddedCluster) -> None:
    def chosen(*keys: bytes | None, **options: str) -> list[int]:
        given = {"linger.ms": 10_000, **{name.replace("_", "."): value for name, value in options.items()}}
        with make(cluster, given) as producer:
            futures = [producer.send(ProducerRecord(TOPIC, b"x" * 100, key)) for key in keys]
            producer.flush()
            return [future.result().partition for future in futures]

    assert chosen(*[b"same key"] * 8, partitioner_class="round-robin") == [0, 1, 2, 3] * 2
    assert len(set(chosen(*(b"%d" % key for key in range(50)), partitioner_ignore_keys="true"))) == 1
    former = "org.apache.kafka.clients.producer.internals.DefaultPartitioner"
    keys = [b"%d" % key for key in range(50)]
    assert chosen(*keys, partitioner_class=former) == chosen(*keys)


# --- construction ----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("KafkaProducer", "A producer that cannot be constructed leaves nothing behind")
@with_each(
    ("properties", "text"),
    [
        ({"key.serializer": "strin"}, r"key\.serializer.*did you mean string"),
        ({"value.serializer": "no.such.Module"}, r"value\.serializer: no\.such\.Module cannot be imported"),
        ({"value.serializer": "tests.fakes.plugins.Nope"}, "module tests.fakes.plugins has no class Nope"),
        ({"partitioner.class": f"{PLUGINS}.NeedsArguments"}, "NeedsArguments could not be created without arguments"),
        ({"partitioner.class": f"{PLUGINS}.Recorder"}, "Recorder has no method partition"),
        ({"bootstrap.servers": "no.such.host.invalid:1"}, "no usable address"),
    ],
)
def test_a_producer_that_cannot_be_made_leaves_nothing_behind(properties: dict[str, str], text: str) -> None:
    before = sender_threads()
    with pytest.raises(ConfigError, match=f"Failed to construct kafka producer: .*{text}"):
        KafkaProducer({"bootstrap.servers": "127.0.0.1:1", **properties})
    assert sender_threads() == before


def test_what_was_made_before_a_failure_is_closed() -> None:
    upper, recorder = UpperSerializer(), Recorder()
    with pytest.raises(ConfigError, match="no usable address"):
        KafkaProducer({"bootstrap.servers": "no.such.host.invalid:1"}, key_serializer=upper, interceptors=[recorder])
    assert (upper.closed, recorder.closed) == (1, 1)


def test_a_plugin_that_fails_to_configure_is_the_reason(cluster: EmbeddedCluster) -> None:
    upper = UpperSerializer()
    upper.configure = lambda configs, is_key: 1 / 0  # type: ignore[method-assign,assignment]
    with pytest.raises(KafkaError, match="Failed to construct kafka producer: division by zero") as caught:
        make(cluster, key_serializer=upper)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


# --- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("KafkaProducer", "close() sends what is buffered, is final, and may be repeated")
def test_close_is_final_and_may_be_repeated(cluster: EmbeddedCluster) -> None:
    recorder = Recorder()
    producer = make(cluster, {"linger.ms": 10_000}, interceptors=[recorder])
    future = producer.send(ProducerRecord(TOPIC, b"v"))
    for wrong in (-1, True, "1", float("nan")):
        with pytest.raises(ValueError, match="timeout must be a number of seconds, 0 or more, or None"):
            producer.close(timeout=wrong)  # type: ignore[arg-type]
    producer.close()
    producer.close(timeout=0)
    assert future.result(0).offset == 0
    assert recorder.closed == 1
    for use in (
        lambda: producer.send(ProducerRecord(TOPIC, b"")),
        lambda: producer.send_columns(TOPIC, pa.table({"value": [b"v"]})),
        lambda: producer.partitions_for(TOPIC),
        producer.flush,
    ):
        with pytest.raises(KafkaError, match="after the producer has been closed"):
            use()
    assert producer.metrics()["record-send-total"] == 1


@pytest.mark.behaviour("KafkaProducer", "A producer goes on after a rest")
def test_a_producer_goes_on_after_a_rest(cluster: EmbeddedCluster) -> None:
    with TaskProducer(producer_config.read({"bootstrap.servers": cluster.bootstrap_servers})) as producer:
        for number in range(3):
            assert producer.send(ProducerRecord(TOPIC, b"%d" % number, partition=0)).result(60).offset == number
            producer.rest()
            assert producer.can_go_on(60_000)
        # To the bootstrap address and to the node, by the first call.
        assert producer.metrics()["connection-creation-total"] == 2
        assert producer.batch_totals() == (3, producer.metrics()["batch-byte-total"])
    assert not producer.can_go_on(60_000)


@pytest.mark.parametrize("is_resting", [False, True])
def test_a_resting_producer_warns_of_no_lost_connection(is_resting: bool, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), EmbeddedCluster() as gone:
        producer = TaskProducer(producer_config.read({"bootstrap.servers": gone.bootstrap_servers}))
        producer.send(ProducerRecord("rested", b"v", partition=0)).result(60)
        if is_resting:
            producer.rest()
        gone.stop()
        until("the loss is noticed", lambda: any("other side" in record.getMessage() for record in caplog.records))
        producer.close(timeout=0)
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert any("other side" in text for text in warnings) is not is_resting


@pytest.mark.behaviour("KafkaProducer", "close() in a callback does not wait for itself")
def test_close_in_a_callback_does_not_wait_for_itself(cluster: EmbeddedCluster) -> None:
    producer = make(cluster)
    closed = threading.Event()

    def close(delivery: Delivery) -> None:
        producer.close()
        closed.set()

    producer.send(ProducerRecord(TOPIC, b"v"), on_delivery=close)
    assert closed.wait(30)
    producer.close()


@pytest.mark.behaviour("KafkaProducer", "What would wait for the sender in a delivery callback raises an error instead")
def test_what_would_wait_in_a_callback_is_refused(cluster: EmbeddedCluster) -> None:
    calls: dict[str, Callable[[], object]] = {
        "flush": lambda: producer.flush(timeout=60),
        "result() of a future": lambda: producer.send(ProducerRecord(TOPIC, b"v")).result(),
        "result() of a future ": lambda: producer.send(ProducerRecord(TOPIC, b"v")).result(60),
        "result() of a future  ": lambda: producer.send_columns(TOPIC, pa.table({"value": [b"v"]})).result(),
        "send": lambda: producer.send(ProducerRecord("another", b"v")),
        "send ": lambda: producer.partitions_for("a third"),
    }
    refusals: dict[str, str] = {}

    def wait(delivery: Delivery) -> None:
        for name, call in calls.items():
            with pytest.raises(KafkaError) as error:
                call()
            refusals[name] = str(error.value)
        # Calls that need not wait return.
        assert not producer.send(ProducerRecord(TOPIC, b"v")).done()
        assert producer.partitions_for(TOPIC)
        with pytest.raises(KafkaTimeoutError):
            producer.send(ProducerRecord(TOPIC, b"v")).result(0)
        refusals["end"] = ""

    with make(cluster) as producer:
        producer.send(ProducerRecord(TOPIC, b"v"), on_delivery=wait).result(30)
        assert list(refusals) == [*calls, "end"]
        for name in calls:
            assert refusals[name].startswith(f"{name.strip()} in a delivery callback would deadlock")
        with make(cluster) as other:
            got: list[int] = []
            waits = producer.send(
                ProducerRecord(TOPIC, b"v"),
                on_delivery=lambda _: got.append(other.send(ProducerRecord(TOPIC, b"v")).result().offset),
            )
            waits.result(30)
            assert got


@pytest.mark.behaviour("KafkaProducer", "close() with a time-out returns though a callback never does")
def test_close_does_not_wait_for_a_callback(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kafka_producer, "LAST_STEP_S", 0.01)
    inside, leave = threading.Event(), threading.Event()

    def stay(delivery: Delivery) -> None:
        inside.set()
        leave.wait()

    producer = make(cluster)
    producer.send(ProducerRecord(TOPIC, b"v"), on_delivery=stay)
    assert inside.wait(30)
    with pytest.raises(KafkaTimeoutError, match="a delivery callback or a plugin that does not return"):
        producer.close(timeout=0.01)
    assert any("a delivery callback or a plugin that does not return" in each for each in caplog.messages)
    leave.set()
    producer.close()


@pytest.mark.behaviour("Faults: interrupts and signals", "A producer can be neither pickled nor taken across a fork")
def test_producer_cannot_be_pickled_or_used_after_a_fork(cluster: EmbeddedCluster) -> None:
    with make(cluster) as producer:
        with pytest.raises(TypeError, match="create one in the process that sends"):
            pickle.dumps(producer)
        producer.send(ProducerRecord(TOPIC, b"v")).result()
        context = multiprocessing.get_context("fork")
        answers: Any = context.SimpleQueue()

        def use() -> None:
            try:
                producer.send(ProducerRecord(TOPIC, b"v"))
            except KafkaError as error:
                answers.put(str(error))
            producer.close()

        child = context.Process(target=use)
        child.start()
        child.join(30)
        assert "created before a fork" in answers.get()
        assert producer.send(ProducerRecord(TOPIC, b"v")).result().offset >= 0


# --- metrics ---------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("Metrics", "A producer has metrics of its own, by node and by topic")
def test_figures_of_the_producer_its_nodes_and_topics(cluster: EmbeddedCluster) -> None:
    with make(cluster, {"client.id": "me", "compression.type": "gzip"}) as producer:
        for _ in range(100):
            producer.send(ProducerRecord(TOPIC, b"x" * 100, partition=1))
        producer.flush()
        values = pa.array([b"y" * 1000] * 5)
        producer.send_columns(TOPIC, ColumnChunk(BinaryColumn.from_arrow(values)), np.zeros(5, dtype=np.int32))
        producer.flush()
        figures = producer.metrics()
        text = producer.prometheus()
        groups = {(metric.group, metric.tags[1:]) for metric in producer.all_metrics()}
    assert figures["record-send-total"] == 105
    assert figures["record-error-total"] == figures["record-retry-total"] == figures["requests-in-flight"] == 0
    assert figures["record-size-max"] > 1000
    assert 0 < figures["compression-rate-avg"] < 1
    assert figures["buffer-available-bytes"] == figures["buffer-total-bytes"] == 33554432
    assert figures["connection-count"] == 2
    assert figures["outgoing-byte-total"] > figures["batch-byte-total"] > 0
    assert figures["response-total"] == figures["request-total"]
    assert figures["io-wait-ratio"] <= 1
    assert {("producer-metrics", ()), ("producer-topic-metrics", (("topic", TOPIC),))} < groups
    assert any(group == "producer-node-metrics" and tags[0][0] == "node-id" for group, tags in groups)
    assert f'kafka_producer_topic_metrics_record_send_total{{client_id="me",topic="{TOPIC}"}} 105.0' in text


def test_an_error_of_columns_carries_the_row(cluster: EmbeddedCluster) -> None:
    def chunk(values: list[bytes], timestamps: list[int] | None = None) -> ColumnChunk:
        stamps = None if timestamps is None else np.array(timestamps, dtype=np.int64)
        return ColumnChunk(BinaryColumn.from_arrow(pa.array(values)), timestamps=stamps)

    small, large = [b"v"] * 4, [b"", b"", b"x" * 900, b"x" * 950]
    wrong: list[tuple[ColumnChunk, list[int] | None, type[RowError], str]] = [
        (chunk(large), None, RowTooLargeError, r"row 2 for topic orders needs up to 9\d\d bytes"),
        (chunk(small, [0, 5, -3, -9]), None, RowSerializationError, r"row 2 has the timestamp -3"),
        (chunk(small), [0, 1, 9, 8], RowPartitionError, r"row 2 names partition 9 of topic orders, which has only 4"),
        (chunk(small), [0, 1, -2, -7], RowSerializationError, r"row 2 names partition -2"),
    ]
    with make(cluster, {"max.request.size": 500, "batch.size": 400}) as producer:
        for columns, partitions, kind, text in wrong:
            given = None if partitions is None else np.array(partitions, dtype=np.int32)
            with pytest.raises(kind, match=text) as caught:
                producer.send_columns(TOPIC, columns, given)
            assert (caught.value.row, list(caught.value.rows)) == (2, [2, 3])
            again = pickle.loads(pickle.dumps(caught.value))
            assert (type(again), again.row, str(again)) == (kind, 2, str(caught.value))
    assert stored(cluster) == []


@pytest.mark.behaviour("Transactions", "Rows that columns are refused for do not end the transaction of the others")
def test_refused_rows_leave_the_transaction_as_it_is(cluster: EmbeddedCluster) -> None:
    rows = ColumnChunk(BinaryColumn.from_arrow(pa.array([b"good", b"x" * 900, b"good", b"x" * 900])))
    with make(cluster, {"max.request.size": 500, "batch.size": 400, "transactional.id": "t"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(RowTooLargeError) as large:
            producer.send_columns(TOPIC, rows)
        with pytest.raises(RowPartitionError):
            producer.send_columns(TOPIC, rows.take(np.array([0])), np.array([99], dtype=np.int32))
        producer.send_columns(TOPIC, rows.take(np.delete(np.arange(4), large.value.rows)))
        producer.commit_transaction()
    assert [record.value for record in stored(cluster)] == [b"good"] * 2


def test_keyword_arguments_are_told_how_options_are_passed() -> None:
    untyped: Any = KafkaProducer
    with pytest.raises(TypeError) as caught:
        untyped(bootstrap_servers="a:1", linger_ms=5, value_serializer=None, qqq=1)
    assert str(caught.value) == (
        "options are passed as one mapping with Kafka's names, as in KafkaProducer({'bootstrap.servers': "
        "'localhost:9092'}), and not as keyword arguments: bootstrap_servers: set bootstrap.servers, linger_ms: set "
        "linger.ms, qqq"
    )
    assert next(iter(inspect.signature(KafkaProducer).parameters)) == "properties"


def test_messages_name_options_as_the_user_wrote_them(cluster: EmbeddedCluster) -> None:
    def named(**properties: Any) -> KafkaProducer:
        given = {name.replace("_", "."): value for name, value in properties.items()}
        return KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers, **given}, option_prefix="kafka.")

    with pytest.raises(ConfigError, match=r"unknown option kafka\.linger \(did you mean kafka\.linger\.ms"):
        named(linger=5)
    with pytest.raises(ConfigError, match=r"option kafka\.bootstrap\.servers: no usable address"):
        named(bootstrap_servers="no-such-host.invalid:9092")
    with pytest.raises(ConfigError, match=r"option kafka\.partitioner\.class"):
        named(partitioner_class="nothing")
    with (
        named(max_request_size=500) as producer,
        pytest.raises(ApiError, match=r"more than kafka\.max\.request\.size .*raise kafka\.max\.request\.size"),
    ):
        producer.send(ProducerRecord(TOPIC, b"x" * 600)).result()
    with named(max_block_ms=50) as producer, pytest.raises(ApiError, match=r"\(kafka\.max\.block\.ms\)"):
        # Independent of the speed of the machine: this topic does not exist.
        producer.send(ProducerRecord("nowhere", b"v")).result()
