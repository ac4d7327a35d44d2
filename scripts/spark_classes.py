"""Uses the parts of Spark that the tests use, so that the JVM can archive their classes when it exits (CDS).

Run once by ``scripts/test.sh``: with the classes from the archive, Spark starts with little more than half of the CPU
time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    import pyarrow as pa


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the batches unchanged."""
    yield from batches


def count(data: DataFrame, number: int) -> None:
    """Count the values of a micro-batch."""
    data.groupBy("value").count().collect()


def main() -> None:
    spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    rows = spark.createDataFrame([("a",), ("b",)], "value string")
    rows.mapInArrow(same, "value string").write.format("noop").mode("append").save()
    with tempfile.TemporaryDirectory() as folder:
        rows.write.text(f"{folder}/source")
        stream = spark.readStream.text(f"{folder}/source").writeStream.trigger(availableNow=True)
        stream.option("checkpointLocation", f"{folder}/checkpoint").foreachBatch(count).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
