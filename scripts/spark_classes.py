"""Use the parts of Spark that the tests use, so that the JVM can archive their classes at its exit (CDS).

Run by ``scripts/test.sh`` once: a Spark that takes its classes from the archive starts with little more than half of the
processor's time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    import pyarrow as pa


def same(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Hand on what comes."""
    yield from batches


def count(data: DataFrame, number: int) -> None:
    """Use a micro-batch."""
    data.groupBy("value").count().collect()


def main() -> None:
    spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    rows = spark.createDataFrame([("a",), ("b",)], "value string")
    rows.mapInArrow(same, "value string").write.format("noop").mode("append").save()
    with tempfile.TemporaryDirectory() as folder:
        rows.write.text(f"{folder}/source")
        stream = spark.readStream.text(f"{folder}/source").writeStream.option("checkpointLocation", f"{folder}/checkpoint")
        stream.trigger(availableNow=True).foreachBatch(count).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
