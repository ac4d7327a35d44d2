"""The sinks and the rows of the comparisons inside Spark: one session, the same rows, the same broker for all.

Each sink writes a DataFrame to a topic and returns when every row is acknowledged. The competitors have the settings
below, with which they were fastest in trials with this kind of load.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import array, col, concat, encode, lit, struct, timestamp_micros, when
from pyspark.sql.types import StructType

from kafka_sink import write
from kafka_sink.spark.versions import SPARK

#: Properties of the peers that are loops in ``foreachPartition``; the two formats get the same properties.
CONFLUENT: Final[Mapping[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 262_144,
    "log_level": 3,
}
#: The settings with which Spark's own sink is fastest; its defaults are those of Kafka's Java producer.
KAFKA_TUNED: Final[Mapping[str, str]] = {
    "kafka.batch.size": "262144",
    "kafka.linger.ms": "10",
    "kafka.send.buffer.bytes": "-1",
}
KAFKA_PYTHON: Final[Mapping[str, Any]] = {"acks": "all", "linger_ms": 5, "batch_size": 262_144}

_FLUSH_S: Final = 300.0


def session(jars: str, cores: int, *, with_null: bool = True) -> SparkSession:
    """Return a session with the sink that does nothing, unless it is registered later (:func:`register_null`) or this
    Spark is older than 4.1 and has no streams of Arrow batches."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("kafkalite-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        # Spark's own sink logs an error with a stack trace if its stream is stopped during a batch.
        .config("spark.log.level", "OFF")
    )
    if jars:
        builder = builder.config("spark.jars", jars)
    spark = builder.getOrCreate()
    if with_null and SPARK >= (4, 1):
        register_null(spark)
    return spark


def register_null(spark: SparkSession) -> None:
    # The import is local because older Sparks lack the base classes; workers import the module by PYTHONPATH.
    from tests.bench.null_source import NullSource, TunedNullSource

    spark.dataSource.register(NullSource)
    spark.dataSource.register(TunedNullSource)


# --- rows ------------------------------------------------------------------------------------------------------------


def _value(characters: int) -> Column:
    """Return a value of *characters* at little cost: lpad, which copies each character, took as long as the sinks."""
    return concat(lit("x" * (characters - _DIGITS)), col("id").cast("string")).alias("value")


def _key() -> Column:
    return col("id").cast("string").alias("key")


def _headers() -> Column:
    header = [struct(lit(name).alias("key"), encode(lit(text), "UTF-8").alias("value")) for name, text in _HEADERS]
    return array(*header).alias("headers")


def _struct(times: int) -> Column:
    """Return a struct with the five columns of ``encoding``, repeated *times*."""
    columns = {
        "id": col("id"),
        "customer": concat(lit("customer-"), (col("id") % 1_000_000).cast("string")),
        "price": col("id") * 0.25,
        "quantity": (col("id") % 100).cast("int"),
        "at": timestamp_micros(col("id")),
    }
    return struct(*(each.alias(f"{name}_{turn}") for turn in range(times) for name, each in columns.items())).alias(
        "value"
    )


#: The number of digits in the numbers of most rows.
_DIGITS: Final = 7
_HEADERS: Final = (("source", "bench"), ("content-type", "text/plain"))

#: Shape of the rows → its columns, made from a column ``id`` with the rows' numbers.
SHAPES: Final[Mapping[str, Callable[[], list[Column]]]] = {
    "keyed": lambda: [_key(), _value(100)],
    "1 kB": lambda: [_key(), _value(1_000)],
    "10 kB": lambda: [_key(), _value(10_000)],
    "headers": lambda: [_key(), _value(100), _headers()],
    "no key": lambda: [_value(100)],
    "5 columns": lambda: [_key(), _struct(1)],
    "40 columns": lambda: [_key(), _struct(8)],
    "skewed": lambda: [when(col("id") % 10 < 8, lit("hot")).otherwise(_key()).alias("key"), _value(100)],
}


def rows(spark: SparkSession, shape: str, count: int, tasks: int) -> DataFrame:
    return spark.range(0, count, 1, tasks).select(*SHAPES[shape]())


# --- sinks -----------------------------------------------------------------------------------------------------------


def _write_format(name: str, data: DataFrame, topic: str, bootstrap_servers: str, options: Mapping[str, str]) -> None:
    writer = data.write.format(name).option("kafka.bootstrap.servers", bootstrap_servers).option("topic", topic)
    writer.options(**options).mode("append").save()


def _write_kafka(data: DataFrame, topic: str, bootstrap_servers: str, options: Mapping[str, str]) -> None:
    """Write with Spark's own sink, which has no options for formats; ``to_avro`` encodes structs."""
    from pyspark.sql.avro.functions import to_avro

    if isinstance(data.schema["value"].dataType, StructType):
        data = data.withColumn("value", to_avro("value"))
    own = {name: value for name, value in options.items() if name.startswith("kafka.")}
    _write_format("kafka", data, topic, bootstrap_servers, own)


def _write_kafkalite(data: DataFrame, topic: str, bootstrap_servers: str, options: Mapping[str, str]) -> None:
    if SPARK >= (4, 0):
        _write_format("kafkalite", data, topic, bootstrap_servers, options)
    else:
        write(data, options={"kafka.bootstrap.servers": bootstrap_servers, **options}, topic=topic)


def _write_null(data: DataFrame, topic: str, bootstrap_servers: str, options: Mapping[str, str]) -> None:
    data.write.format("null-arrow").mode("append").save()


def _write_null_tuned(data: DataFrame, topic: str, bootstrap_servers: str, options: Mapping[str, str]) -> None:
    data.write.format("null-arrow-tuned").mode("append").save()


def _write_confluent(data: DataFrame, topic: str, bootstrap_servers: str, options: Mapping[str, str]) -> None:
    settings = {**CONFLUENT, **_properties(options), "bootstrap.servers": bootstrap_servers}

    def send(partition: Iterable[Any]) -> None:
        import confluent_kafka

        failed: list[Any] = []
        producer = confluent_kafka.Producer(settings)

        def outcome(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error)

        for number, row in enumerate(partition):
            value = row.value.encode()
            key = row.key.encode() if "key" in row else None
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=outcome)
                    break
                except BufferError:
                    producer.poll(0.01)
            if not number & 1023:
                producer.poll(0)
        if producer.flush(_FLUSH_S) or failed:
            raise RuntimeError(f"not everything was delivered: {failed[:3]}")

    data.foreachPartition(send)


def _write_kafka_python(data: DataFrame, topic: str, bootstrap_servers: str, options: Mapping[str, str]) -> None:
    compression = _properties(options).get("compression.type")
    settings = {**KAFKA_PYTHON, "bootstrap_servers": bootstrap_servers, "compression_type": compression}

    def send(partition: Iterable[Any]) -> None:
        import kafka

        producer = kafka.KafkaProducer(**settings)
        sent = [
            producer.send(topic, row.value.encode(), row.key.encode() if "key" in row else None) for row in partition
        ]
        producer.flush(_FLUSH_S)
        for future in sent:
            future.get(0)
        producer.close()

    data.foreachPartition(send)


def _properties(options: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix("kafka."): value for name, value in options.items()}


def _write_kafka_tuned(data: DataFrame, topic: str, bootstrap_servers: str, options: Mapping[str, str]) -> None:
    _write_kafka(data, topic, bootstrap_servers, {**KAFKA_TUNED, **options})


Sink = Callable[[DataFrame, str, str, Mapping[str, str]], None]
SINKS: Final[Mapping[str, Sink]] = {
    "kafkalite": _write_kafkalite,
    "kafka": _write_kafka,
    "kafka-tuned": _write_kafka_tuned,
    "confluent": _write_confluent,
    "kafka-python": _write_kafka_python,
    "null": _write_null,
    "null-tuned": _write_null_tuned,
}
#: Sinks that write nothing, so that there is nothing to count.
WITHOUT_RECORDS: Final = frozenset({"null", "null-tuned"})
#: Descriptions, in tables, of the sinks whose names need one.
LABELS: Final[Mapping[str, str]] = {
    "kafka": "Spark's own sink",
    "null": "a Python sink that does nothing",
    "null-tuned": "the same, tuned (tunePythonWorkers)",
}
