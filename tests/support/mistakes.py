"""Mistakes in a write, in each way to write: how long the text of the error is, and where its sentence stands.

    python -m tests.support.mistakes JARS [FILE]

makes each of them with kafkalite and with Spark's own sink, whose JARS are given, and writes the figures into FILE; by
default into tests/error_lines.json, and prints them into docs/from-spark.md.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

import kafka_sink
from kafka_sink import EmbeddedCluster
from kafka_sink.broker.faults.faults import set_fault
from scripts.pages import print_into
from tests.support.certificates import Authority
from tests.support.ports import free_ports
from tests.support.secure_cluster import address, guarded_cluster, secure_cluster

ROOT: Final = Path(__file__).parents[2]
FIGURES: Final = ROOT / "tests" / "error_lines.json"
PAGE: Final = ROOT / "docs" / "from-spark.md"


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
    "SchemaError": Mistake(columns=("value", "1 as price"), attributes={"column": "price"}),
    "FormatError": Mistake(options={"value.format": "avro", "value.schema": "{"}, attributes={"column": "value"}),
    "RegistryUnavailableError": Mistake(
        columns=("named_struct('a', 1) as value",),
        options={"value.format": "avro", "schema.registry.url": "http://127.0.0.1:1"},
        attributes={"column": "value"},
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
        options={"topic": "nowhere", "kafka.max.block.ms": "300"},
        attributes={"topic": "nowhere", "code": "UNKNOWN_TOPIC_OR_PARTITION"},
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
        fault="produce:drop=answer",
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

#: The mistakes in words.
WHAT: Final[Mapping[str, str]] = {
    "ConfigError": "a wrong value of an option",
    "SchemaError": "a column that would not be written",
    "FormatError": "an invalid schema",
    "RegistryUnavailableError": "no schema registry at the address",
    "UnresolvedReferenceError": "a reference to a file that is missing",
    "BrokersUnreachableError": "no broker at the address",
    "UnknownTopicOrPartitionError": "no such topic",
    "InvalidTopicError": "an invalid name of a topic",
    "RowSerializationError": "a negative partition",
    "RowPartitionError": "a partition that the topic does not have",
    "RowTooLargeError": "a row of 2 MB",
    "RowWithoutKeyError": "no key in a compacted topic",
    "TooManyBadRowsError": "more bad rows than allowed",
    "KafkaTimeoutError": "brokers that do not answer in time",
    "InvalidRecordError": "a record that the brokers refuse",
    "InvalidTimestampError": "a timestamp that the brokers refuse",
    "ApiError": "no permission to write",
    "AuthenticationError": "a wrong password",
    "SslAuthenticationError": "a certificate that is not trusted",
}
OF_SECURITY: Final = ("AuthenticationError", "SslAuthenticationError")


@contextmanager
def open_cluster() -> Iterator[EmbeddedCluster]:
    """The brokers of all mistakes but those of security."""
    with EmbeddedCluster(auto_create_topics=False) as cluster:
        cluster.create_topic("orders", 1)
        cluster.create_topic("compacted", 1, configs={"cleanup.policy": "compact"})
        yield cluster


@contextmanager
def refusing() -> Iterator[Mapping[str, Mapping[str, str]]]:
    """By the error: the options with which the brokers refuse a client, or the client the brokers."""
    chain = Authority("unknown").issue("127.0.0.1").pem()
    with guarded_cluster(alice="a") as with_users, secure_cluster(chain) as with_tls:
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required username=alice password=b;"
        yield {
            "AuthenticationError": {
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.jaas.config": login,
                "kafka.bootstrap.servers": address(with_users, "SASL_PLAINTEXT"),
                "kafka.security.protocol": "SASL_PLAINTEXT",
            },
            "SslAuthenticationError": {
                "kafka.bootstrap.servers": address(with_tls, "SSL"),
                "kafka.security.protocol": "SSL",
            },
        }


Way = Callable[..., None]


def by_format(
    spark: SparkSession, columns: tuple[str, ...], options: Mapping[str, str], folder: Path, sink: str = "kafkalite"
) -> None:
    df = spark.read.text(str(folder / "rows")).selectExpr(*columns)
    df.write.format(sink).mode("append").options(**options).save()


def by_write(spark: SparkSession, columns: tuple[str, ...], options: Mapping[str, str], folder: Path) -> None:
    kafka_sink.write(spark.read.text(str(folder / "rows")).selectExpr(*columns), options)


def by_stream(
    spark: SparkSession, columns: tuple[str, ...], options: Mapping[str, str], folder: Path, sink: str = "kafkalite"
) -> None:
    rows = spark.readStream.text(str(folder / "rows")).selectExpr(*columns)
    stream = rows.writeStream.format(sink).options(**options, checkpointLocation=str(folder / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination(120)


WAYS: Final[Mapping[str, Way]] = {"format": by_format, "write": by_write, "stream": by_stream}


def lines_of(error: BaseException) -> tuple[int, int]:
    """The number of lines of the text of *error*, and the number of the line with the sentence: that of kafkalite's
    error, or Java's last cause."""
    lines = str(error).rstrip().splitlines()
    cause = kafka_sink.cause_of(error)
    if cause is not None:
        sentence = str(cause)
        return len(lines), next(number for number, line in enumerate(lines, 1) if sentence in line)
    causes = [number for number, line in enumerate(lines, 1) if line.startswith("Caused by: ")]
    return len(lines), causes[-1] if causes else 1


def fits(found: tuple[int, int] | None, recorded: tuple[int, int] | None, most: int = 2) -> bool:
    """Whether the two differ by *most* lines at most: other versions of Spark and Java have a few more or less."""
    if found is None or recorded is None:
        return found is recorded
    return all(abs(each - known) <= most for each, known in zip(found, recorded, strict=True))


def table(figures: Mapping[str, Mapping[str, tuple[int, int] | None]]) -> str:
    """The table of the page."""
    columns = ("kafkalite format", "kafkalite write", "kafkalite stream", "kafka format", "kafka stream")
    lines = [
        "| mistake | kafkalite: `df.write` | `kafka_sink.write` | `writeStream` | Spark: `df.write` | `writeStream` |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, of_ways in figures.items():
        cells = ["accepted" if (cell := of_ways[each]) is None else f"{cell[0]} ({cell[1]})" for each in columns]
        lines.append(f"| {WHAT[name]} (`{name}`) | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def recorded(file: Path = FIGURES) -> dict[str, dict[str, tuple[int, int] | None]]:
    """The figures in *file*."""
    texts = json.loads(file.read_text(encoding="utf-8"))
    return {
        name: {way: None if cell is None else (cell[0], cell[1]) for way, cell in of_ways.items()}
        for name, of_ways in texts.items()
    }


def measured(spark: SparkSession, sinks: tuple[str, ...]) -> dict[str, dict[str, tuple[int, int] | None]]:
    """The figures of *sinks*, in a *spark* that has them."""
    figures: dict[str, dict[str, tuple[int, int] | None]] = {}
    with open_cluster() as cluster, refusing() as refused:
        # Spark's own sink waits for a minute by default.
        common = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "orders", "kafka.max.block.ms": "2000"}
        for name in (*RAISED, *OF_SECURITY):
            mistake = RAISED.get(name, Mistake())
            options = {**common, **refused.get(name, {}), **mistake.options}
            for sink in sinks:
                for way in WAYS if sink == "kafkalite" else ("format", "stream"):
                    with set_fault(cluster.faults, mistake.fault) if mistake.fault else nullcontext():
                        figures.setdefault(name, {})[f"{sink} {way}"] = _lines(spark, mistake, options, sink, way)
    return figures


def _lines(
    spark: SparkSession, mistake: Mistake, options: Mapping[str, str], sink: str, way: str
) -> tuple[int, int] | None:
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows"
        rows.mkdir()
        (rows / "one.txt").write_text("a row\n")
        given = {} if way == "write" else {"sink": sink}
        try:
            WAYS[way](spark, mistake.columns, options, Path(folder), **given)
        except Exception as error:
            return lines_of(error)
    return None


def main() -> None:
    jars, *files = sys.argv[1:]
    spark = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    session = spark.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    kafka_sink.register(session)
    figures = measured(session, ("kafkalite", "kafka"))
    (Path(files[0]) if files else FIGURES).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if not files:
        print_into(PAGE, "mistakes", table(figures))


if __name__ == "__main__":
    main()
