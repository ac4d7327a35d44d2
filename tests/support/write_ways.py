"""The ways to write, for tests that apply to each of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from tests.support import ways
from tests.support.amounts import only_long
from tests.support.spark_version import requires_data_sources

TIMEOUT_S = 120


@dataclass(frozen=True)
class WriteJob:
    """The data to write: *rows* of *count* numbers in the column ``id``. *sink* is the name of the sink, and
    *exactly_once_options* are further options of the ways that write exactly once.
    """

    rows: Callable[[DataFrame], DataFrame]
    count: int
    options: Mapping[str, str]
    sink: str
    folder: Path
    exactly_once_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_options(self) -> dict[str, str]:
        return {**self.options, **self.exactly_once_options}


Way = Callable[[SparkSession, WriteJob], None]


def _frame(spark: SparkSession, job: WriteJob) -> DataFrame:
    return job.rows(spark.range(0, job.count, numPartitions=2))


def _df_write(spark: SparkSession, job: WriteJob) -> None:
    _frame(spark, job).write.format("kafkalite").mode("append").options(**job.options).save()


def _df_write_exactly_once(spark: SparkSession, job: WriteJob) -> None:
    options = {**job.all_options, "txnAppId": job.sink, "txnVersion": "0"}
    _frame(spark, job).write.format("kafkalite").mode("append").options(**options).save()


def _write(spark: SparkSession, job: WriteJob) -> None:
    report = kafka_sink.write(_frame(spark, job), options=dict(job.options))
    assert report.rows + report.bad_rows == job.count


def _write_exactly_once(spark: SparkSession, job: WriteJob, *, atomic: bool) -> None:
    report = kafka_sink.write(_frame(spark, job), options=job.all_options, app_id=job.sink, version=0, atomic=atomic)
    assert report.rows + report.bad_rows == job.count


def _stream(spark: SparkSession, job: WriteJob) -> None:
    _run(_stream_of(spark, job).format("kafkalite").options(**job.options))


def _stream_exactly_once(spark: SparkSession, job: WriteJob) -> None:
    named = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": job.sink}
    _run(_stream_of(spark, job).format("kafkalite").options(**job.all_options, **named))


def _foreach_batch(spark: SparkSession, job: WriteJob) -> None:
    _run(_stream_of(spark, job).foreachBatch(kafka_sink.foreach_batch(options=job.all_options, app_id=job.sink)))


def _stream_of(spark: SparkSession, job: WriteJob) -> Any:
    """Return the writer of a stream of two micro-batches."""
    source = job.folder / "source"
    source.mkdir()
    for part in range(2):
        ids = range(part * job.count // 2, (part + 1) * job.count // 2)
        (source / f"{part}.json").write_text("".join(json.dumps({"id": each}) + "\n" for each in ids))
    numbers = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(source))
    return job.rows(numbers).writeStream.option("checkpointLocation", str(job.folder / "checkpoint"))


def _run(stream: Any) -> None:
    stream.trigger(availableNow=True).start().awaitTermination(TIMEOUT_S)


DF_WRITE: Final = "df.write"
DF_WRITE_EXACTLY_ONCE: Final = "df.write-exactly-once"
WRITE: Final = "write"
WRITE_ATOMIC: Final = "write-atomic"
WRITE_PARALLEL: Final = "write-parallel"
STREAM: Final = "stream"
STREAM_EXACTLY_ONCE: Final = "stream-exactly-once"
FOREACH_BATCH: Final = "foreach_batch"

_MARKED: Final[Mapping[str, tuple[Way, list[pytest.MarkDecorator]]]] = {
    DF_WRITE: (_df_write, [requires_data_sources, pytest.mark.way(ways.DF_WRITE)]),
    DF_WRITE_EXACTLY_ONCE: (_df_write_exactly_once, [requires_data_sources, pytest.mark.way(ways.DF_WRITE)]),
    WRITE: (_write, [pytest.mark.way(ways.AT_LEAST_ONCE)]),
    WRITE_ATOMIC: (lambda spark, job: _write_exactly_once(spark, job, atomic=True), [pytest.mark.way(ways.ATOMIC)]),
    WRITE_PARALLEL: (
        lambda spark, job: _write_exactly_once(spark, job, atomic=False),
        [pytest.mark.way(ways.PARALLEL)],
    ),
    STREAM: (_stream, [requires_data_sources, pytest.mark.way(ways.AT_LEAST_ONCE_STREAM)]),
    STREAM_EXACTLY_ONCE: (_stream_exactly_once, [requires_data_sources, pytest.mark.way(ways.EXACTLY_ONCE_STREAM)]),
    FOREACH_BATCH: (_foreach_batch, [pytest.mark.way(ways.FOREACH_BATCH)]),
}


def in_ways(*names: str, long: Collection[str] = ()) -> pytest.MarkDecorator:
    """Parametrize ``write``, a :data:`Way`, with these *names* (by default all), in the normal run without those in
    *long*.
    """
    return pytest.mark.parametrize(
        "write",
        [
            pytest.param(way, marks=[*marks, only_long] if name in long else marks, id=name)
            for name, (way, marks) in _MARKED.items()
            if name in (names or _MARKED)
        ],
    )


#: In the normal run only a batch, an atomic batch and an exactly-once stream.
in_few_ways: Final = in_ways(long=(DF_WRITE_EXACTLY_ONCE, WRITE, WRITE_PARALLEL, STREAM, FOREACH_BATCH))
