"""Each row of docs/errors.md: its error is raised in each way to write, as the page names it, with its attributes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

import kafka_sink
from kafka_sink import EmbeddedCluster
from kafka_sink.broker.faults.faults import set_fault
from kafka_sink.common.errors import KafkaError, SinkWriteError
from tests.support.certificates import Authority
from tests.support.ports import free_ports
from tests.support.secure_cluster import address, guarded_cluster, secure_cluster
from tests.support.spark_version import requires_data_sources

PAGE: Final = Path(__file__).parents[2] / "docs" / "errors.md"


@dataclass(frozen=True)
class Mistake:
    """A write of one row with these *columns* and *options*, while the brokers have this *fault*. The error is of the
    row's class; of a task it is an error whose ``cause_class`` is that, and which has these *attributes*."""

    columns: tuple[str, ...] = ("value",)
    options: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    in_task: str = ""


ROW: Final = "UnwritableRowsError"
TASK: Final = "SinkWriteError"
FINAL: Final = {"is_permanent": True}
OF_PARTITION: Final = {**FINAL, "topic": "orders", "column": "partition"}
RAISED: Final[Mapping[str, Mistake]] = {
    "ConfigError": Mistake(options={"kafka.acks": "7"}, attributes={"option": "kafka.acks"}),
    "SchemaError": Mistake(columns=("value", "1 as price")),
    "FormatError": Mistake(options={"value.format": "avro", "value.schema": "{"}),
    "RegistryUnavailableError": Mistake(
        columns=("named_struct('a', 1) as value",),
        options={"value.format": "avro", "schema.registry.url": "http://127.0.0.1:1"},
    ),
    "UnresolvedReferenceError": Mistake(
        options={
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "alice",
            "kafka.sasl.password": "${file:/no/such/file:key}",
        },
        in_task=TASK,
        attributes=FINAL,
    ),
    "BrokersUnreachableError": Mistake(
        options={"kafka.bootstrap.servers": f"127.0.0.1:{free_ports()}", "kafka.max.block.ms": "300"},
        attributes={"option": "kafka.max.block.ms"},
    ),
    "UnknownTopicOrPartitionError": Mistake(
        options={"topic": "nowhere", "kafka.max.block.ms": "300"}, attributes={"topic": "nowhere"}
    ),
    "InvalidTopicError": Mistake(options={"topic": "a b"}, attributes={"topic": "a b"}),
    "RowSerializationError": Mistake(
        columns=("value", "-4 as partition"),
        in_task=ROW,
        attributes=OF_PARTITION,
    ),
    "RowPartitionError": Mistake(
        columns=("value", "99 as partition"),
        in_task=ROW,
        attributes=OF_PARTITION,
    ),
    "RowTooLargeError": Mistake(
        columns=("repeat('x', 2000000) as value",), in_task=ROW, attributes={**FINAL, "topic": "orders"}
    ),
    "RowWithoutKeyError": Mistake(
        options={"topic": "compacted"}, in_task=ROW, attributes={**FINAL, "topic": "compacted", "column": "key"}
    ),
    "TooManyBadRowsError": Mistake(
        columns=("value", "-4 as partition"),
        options={"onBadRow": "drop", "maxBadRows": "0"},
        in_task="TooManyBadRowsError",
        attributes={**FINAL, "option": "maxBadRows"},
    ),
    "KafkaTimeoutError": Mistake(
        options={"kafka.delivery.timeout.ms": "400", "kafka.request.timeout.ms": "300", "kafka.linger.ms": "0"},
        fault="produce:error=not_leader_or_follower",
        in_task=TASK,
        attributes={
            "is_permanent": False,
            "topic": "orders",
            "partition": 0,
            "option": "kafka.delivery.timeout.ms",
        },
    ),
    "InvalidRecordError": Mistake(
        fault="produce:error=invalid_record", in_task=ROW, attributes={**FINAL, "topic": "orders", "partition": 0}
    ),
    "InvalidTimestampError": Mistake(
        fault="produce:error=invalid_timestamp", in_task=ROW, attributes={**FINAL, "topic": "orders", "partition": 0}
    ),
    "ApiError": Mistake(
        fault="produce:error=topic_authorization_failed",
        in_task=TASK,
        attributes={**FINAL, "topic": "orders", "partition": 0, "code": "TOPIC_AUTHORIZATION_FAILED"},
    ),
}

#: Why a row is not raised here.
ELSEWHERE: Final[Mapping[str, str]] = {
    "RequirementError": "only another version of a package raises it",
    **dict.fromkeys(
        (
            "RegistryError",
            "IncompatibleSchemaError",
            "RegistryDeniedError",
            "UnusableSchemaError",
            "SchemaNotFoundError",
        ),
        "by tests/spark/test_registry_write.py and tests/unit/registry: each needs a registry",
    ),
    "UnsupportedVersionError": "by test_refused_writes.py: no broker of ours is so old",
    "CancelledWriteError": "by tests/spark/test_stop.py: somebody has to cancel the job",
    "BufferExhaustedError": "the producer's, by tests/unit/producer: a task that waits has a time-out of its own",
    "RecordTooLargeError": "a RowTooLargeError in each write; the producer's own, by tests/unit/producer",
    "OutOfOrderSequenceError": "tried again until the time-out, which is raised and names it",
    "BatchRefusedError": "in a task the error of the record that is to blame stands for it",
    **dict.fromkeys(("DisconnectError", "NotConnectedError"), "the time-out that follows is raised"),
    **dict.fromkeys(
        ("ProtocolError", "CorruptRecordError", "InvalidReceiveError"), "by tests/hostile: no broker of ours answers so"
    ),
    **dict.fromkeys(("KafkaError", "SinkWriteError", "UnwritableRowsError", "RowError"), "the class of others"),
    **dict.fromkeys(
        (
            *("FencedError", "ProducerFencedError", "ProgressError", "UndecidedError", "OutdatedProgressError"),
            *("TornBatchError", "LostEndError", "AttemptError", "ExactlyOnceError"),
        ),
        "by tests/exactly_once: each needs a second driver, or a fault between two steps",
    ),
    **dict.fromkeys(
        ("SerializationError", "PartlyStagedError", "TransactionAbortableError", "TransactionStateError"),
        "the producer's in plain Python",
    ),
}
OF_SECURITY: Final = ("AuthenticationError", "SslAuthenticationError")


def test_each_row_is_raised_here_or_says_why_not() -> None:
    anchors = re.findall(r'<a id="(\w+)"></a>', PAGE.read_text())
    assert sorted([*RAISED, *ELSEWHERE, *OF_SECURITY]) == sorted(anchors)


@pytest.fixture(scope="module")
def open_cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(auto_create_topics=False) as cluster:
        cluster.create_topic("orders", 1)
        cluster.create_topic("compacted", 1, configs={"cleanup.policy": "compact"})
        yield cluster


Way = Callable[[SparkSession, tuple[str, ...], Mapping[str, str], Path], None]


def by_format(spark: SparkSession, columns: tuple[str, ...], options: Mapping[str, str], folder: Path) -> None:
    df = spark.read.text(str(folder / "rows")).selectExpr(*columns)
    df.write.format("kafkalite").mode("append").options(**options).save()


def by_write(spark: SparkSession, columns: tuple[str, ...], options: Mapping[str, str], folder: Path) -> None:
    kafka_sink.write(spark.read.text(str(folder / "rows")).selectExpr(*columns), options)


def by_stream(spark: SparkSession, columns: tuple[str, ...], options: Mapping[str, str], folder: Path) -> None:
    rows = spark.readStream.text(str(folder / "rows")).selectExpr(*columns)
    stream = rows.writeStream.format("kafkalite").options(**options, checkpointLocation=str(folder / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination(120)


def raised(way: Way, spark: SparkSession, columns: tuple[str, ...], options: Mapping[str, str], folder: Path) -> Any:
    """The error of kafkalite; and one that is raised in a program is that error."""
    (folder / "rows").mkdir(exist_ok=True)
    (folder / "rows" / "one.txt").write_text("a row\n")
    with pytest.raises(Exception) as caught:
        way(spark, columns, options, folder)
    cause = kafka_sink.cause_of(caught.value)
    if not isinstance(cause, SinkWriteError):
        # Of the driver: the sentence follows one frame of ours, if any.
        said = str(caught.value)
        assert said.count("/kafka_sink/") == (way is not by_write)
        assert str(cause) in said.partition("\n SQLSTATE")[0].splitlines()[-1]
    assert way is not by_write or caught.value is cause
    assert "kafkalite failure" not in str(cause)
    return cause


WAYS: Final = pytest.mark.parametrize(
    "way",
    [
        pytest.param(by_format, marks=requires_data_sources),
        by_write,
        pytest.param(by_stream, marks=requires_data_sources),
    ],
)


@pytest.mark.behaviour("Documentation", "Each error of docs/errors.md is raised as the page says, in each way to write")
@WAYS
@pytest.mark.parametrize("name", RAISED)
def test_row_is_raised_as_the_page_says(
    name: str, way: Way, spark: SparkSession, open_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    mistake = RAISED[name]
    options = {"kafka.bootstrap.servers": open_cluster.bootstrap_servers, "topic": "orders", **mistake.options}
    with set_fault(open_cluster.faults, mistake.fault) if mistake.fault else nullcontext():
        error = raised(way, spark, mistake.columns, options, tmp_path)
    assert isinstance(error, KafkaError)
    assert type(error).__name__ == (mistake.in_task or name)
    if isinstance(error, SinkWriteError):
        assert error.cause_class == name
    elif way is not by_write:
        # Spark passes on class and text alone.
        return
    found = {each: getattr(error, each) for each in mistake.attributes}
    assert {**found, **({"code": found["code"].name} if "code" in found else {})} == mistake.attributes


@pytest.fixture(scope="module")
def refusing() -> Iterator[Mapping[str, Mapping[str, str]]]:
    """By the error: the options with which the brokers refuse a client, or the client the brokers."""
    chain = Authority("unknown").issue("127.0.0.1").pem()
    with guarded_cluster(alice="a") as with_users, secure_cluster(chain) as with_tls:
        password = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "alice", "kafka.sasl.password": "b"}
        yield {
            "AuthenticationError": {
                **password,
                "kafka.bootstrap.servers": address(with_users, "SASL_PLAINTEXT"),
                "kafka.security.protocol": "SASL_PLAINTEXT",
            },
            "SslAuthenticationError": {
                "kafka.bootstrap.servers": address(with_tls, "SSL"),
                "kafka.security.protocol": "SSL",
            },
        }


@WAYS
@pytest.mark.parametrize("name", OF_SECURITY)
def test_refused_client_is_told_so_in_each_way(
    name: str, way: Way, spark: SparkSession, refusing: Mapping[str, Mapping[str, str]], tmp_path: Path
) -> None:
    error = raised(way, spark, ("value",), {**refusing[name], "topic": "orders"}, tmp_path)
    assert type(error).__name__ == name
