"""The paths of the matrix, which write a payload: one function each, which returns after all acknowledgements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from kafka_sink import KafkaProducer, ProducerRecord
from kafka_sink.producer.futures import Delivery
from tests.matrix.payload import FILES, Payload

#: The number of rows in one of Spark's Arrow batches.
_CHUNK_ROWS = 10_000
_ROWS = "key string, value binary"
#: The number of micro-batches of a stream, and of versions that are written exactly once.
_BATCHES = 2
_STREAM_S = 120


@dataclass(frozen=True)
class Write:
    """A payload and its target: *properties* by Kafka's names, *scratch* an empty folder, *spark* for Spark's paths."""

    spark: SparkSession | None
    payload: Payload
    properties: Mapping[str, str]
    topic: str
    scratch: Path

    def options(self) -> dict[str, str]:
        return {"topic": self.topic, **{f"kafka.{name}": value for name, value in self.properties.items()}}


def _send(write: Write) -> None:
    outcome = _Outcome()
    columns = write.payload.table.to_batches(_CHUNK_ROWS)
    with KafkaProducer(write.properties) as producer:
        for chunk in columns:
            for key, value in zip(chunk["key"].to_pylist(), chunk["value"].to_pylist(), strict=True):
                producer.send(ProducerRecord(write.topic, value, key.encode()), on_delivery=outcome)
        producer.flush()
    outcome.check(write.payload.rows)


def _send_columns(write: Write) -> None:
    outcome = _Outcome()
    with KafkaProducer(write.properties) as producer:
        for chunk in write.payload.table.to_batches(_CHUNK_ROWS):
            producer.send_columns(write.topic, chunk, on_delivery=outcome)
        producer.flush()
    outcome.check(write.payload.rows)


class _Outcome:
    """Counts the deliveries on the sender's thread; read after the flush."""

    def __init__(self) -> None:
        self._acknowledged = 0
        self._errors: list[Exception] = []

    def __call__(self, delivery: Delivery) -> None:
        if delivery.error is None:
            self._acknowledged += delivery.count
        else:
            self._errors.append(delivery.error)

    def check(self, rows: int) -> None:
        assert self._errors[:3] == []
        assert self._acknowledged == rows


def _session(write: Write) -> SparkSession:
    assert write.spark is not None
    return write.spark


def _rows(write: Write, batch: int | None = None) -> DataFrame:
    files = write.payload.files
    if batch is not None:
        files = files[FILES * batch // _BATCHES : FILES * (batch + 1) // _BATCHES]
    return _session(write).read.schema(_ROWS).parquet(*map(str, files))


def _batch(write: Write) -> None:
    _rows(write).write.format("kafkalite").mode("append").options(**write.options()).save()


def _stream(write: Write) -> None:
    folder = write.payload.files[0].parent
    rows = _session(write).readStream.schema(_ROWS).option("maxFilesPerTrigger", FILES // _BATCHES).parquet(str(folder))
    writer = rows.writeStream.format("kafkalite").options(**write.options())
    writer = writer.option("checkpointLocation", str(write.scratch / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(_STREAM_S), f"the stream has not ended after {_STREAM_S} s"
    finally:
        query.stop()


def _exactly_once(write: Write, *, atomic: bool) -> None:
    for version in range(_BATCHES):
        report = kafka_sink.write(
            _rows(write, version), options=write.options(), app_id=write.topic, version=version, atomic=atomic
        )
        assert report.decision == "written"


WRITERS: Mapping[str, Callable[[Write], None]] = {
    "send": _send,
    "send_columns": _send_columns,
    "df.write": _batch,
    "writeStream": _stream,
    "exactly once parallel": lambda write: _exactly_once(write, atomic=False),
    "exactly once atomic": lambda write: _exactly_once(write, atomic=True),
}
#: The paths without Spark: one producer writes all rows, so that those of a partition keep their order.
ONE_PRODUCER = frozenset({"send", "send_columns"})
