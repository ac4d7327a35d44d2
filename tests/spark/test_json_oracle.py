"""JSON by columns against Spark's own ``to_json``: equal bytes, for random types and rows, in several time zones."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from kafka_sink.formats.json.column import JsonEncoder
from tests.support.amounts import JSON_FRAMES
from tests.support.random_columns import random_struct, random_value
from tests.support.spark_version import requires_spark

pytestmark = [
    pytest.mark.behaviour("JSON", "Payloads are those of to_json, byte by byte, for rows of random types"),
    requires_spark("4.0", "tables of Arrow as DataFrames, and back"),
]

ROWS = 200
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "+05:30", "Africa/Monrovia")
#: A number with a fraction and possibly an exponent, with or without quotes.
_FLOAT = re.compile(r"-?\d+\.\d+(?:E-?\d+)?")


def same_doubles(ours: str, theirs: str) -> str:
    """Return *theirs* with kafkalite's texts of doubles where both are the same number and kafkalite's is not longer:
    before version 19 Java prints more digits in rare cases (JDK-4511638)."""
    texts = iter(_FLOAT.findall(ours))

    def nearest(match: re.Match[str]) -> str:
        found = next(texts, match[0])
        return found if float(found) == float(match[0]) and len(found) <= len(match[0]) else match[0]

    return _FLOAT.sub(nearest, theirs)


def by_columns(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Encode rows in a task, where timestamps have the session's time zone."""
    for batch in batches:
        rows = batch.column("value")
        payloads = JsonEncoder(rows.type, "value").encode(rows).cast(pa.string())
        yield pa.RecordBatch.from_arrays([payloads, batch.column("theirs")], ["ours", "theirs"])


@pytest.mark.parametrize("seed", range(JSON_FRAMES))
def test_payloads_equal_those_of_to_json(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    kind = random_struct(rng)
    rows = pa.array([random_value(rng, kind, rng.choice((0.0, 0.1, 0.5))) or {} for _ in range(ROWS)], kind)
    spark.conf.set("spark.sql.session.timeZone", rng.choice(ZONES))
    try:
        frame = spark.createDataFrame(pa.table({"value": rows})).select("value", f.to_json("value").alias("theirs"))
        found = frame.mapInArrow(by_columns, "ours string, theirs string").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert len(found) == ROWS
    different = [
        (ours, theirs)
        for ours, theirs in found
        if ours != theirs and (ours is None or theirs is None or ours != same_doubles(ours, theirs))
    ]
    assert not different, (seed, kind, different[:3])
