"""Make golden Avro: rows of many types, with the schema and the payloads of spark-avro's ``to_avro``.

    python tests/golden/make_avro_golden.py --jar spark-avro_2.13-4.1.1.jar

The jar is that of org.apache.spark:spark-avro_2.13 in Maven Central. The rows go to ``tests/golden/avro.json`` as an
Arrow stream. spark-avro's ``from_avro`` also reads kafkalite's payloads of the same rows: the script fails if they
differ.
"""

from __future__ import annotations

import argparse
import base64
import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro, to_avro

from kafka_sink.formats.avro.column import derive_schema
from tests.support.encoders import avro_encoder

TARGET = Path(__file__).parent / "avro.json"


def make_rows(spark: SparkSession) -> DataFrame:
    """Rows with each type, in nullable fields and in required fields."""
    number = f.col("id")
    named = {
        "yes": number % 2 == 0,
        "tiny": number.cast("byte"),
        "small": (number * -800).cast("short"),
        "count": (number * -1_000_000).cast("int"),
        "total": number * 10**15,
        "share": (number / 3).cast("float"),
        "weight": number / 7,
        "text": f.concat(f.lit("größe-"), f.repeat("id", 5)),
        "data": f.unhex(f.lpad(f.hex("id"), 20, "A7")),
        "price": (number * -128).cast("decimal(9,2)"),
        "sum": (number * 10**12).cast("decimal(38,10)"),
        "day": f.date_add(f.lit(dt.date(1969, 12, 1)), (number * 11).cast("int")),
        "at": f.timestamp_micros(number * 86_400_000_001 - 10**11),
        "local": f.timestamp_micros(number * 3_600_000_001).cast("timestamp_ntz"),
    }
    columns = [column.alias(name) for name, column in named.items()]
    nullable = f.when(number % 4 > 0, f.struct(*columns))
    inner = f.struct(number.alias("number"), f.when(number % 3 > 0, f.col("id").cast("string")).alias("text"))
    parts = [
        *columns,
        nullable.alias("maybe"),
        f.when(number % 5 > 0, f.array(inner, inner)).alias("list"),
        f.array(f.array(number), f.array(number, number)).alias("lists"),
        f.create_map(f.lit("key"), inner).alias("map"),
    ]
    return spark.range(40).select(f.struct(*parts).alias("value"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jar", type=Path, required=True, help="spark-avro")
    jar: Path = parser.parse_args().jar
    local: dict[str, bool | float | int | str | None] = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    builder = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", str(jar))
        .config("spark.sql.session.timeZone", "UTC")
    )
    spark = builder.config(map=local).getOrCreate()
    rows = make_rows(spark)
    payloads = [bytes(row.payload) for row in rows.select(to_avro("value").alias("payload")).collect()]
    converters = spark._jvm.org.apache.spark.sql.avro.SchemaConverters  # type: ignore[union-attr]
    kind = rows._jdf.schema().fields()[0].dataType()
    schema = converters.toAvroType(kind, False, "topLevelRecord", "").toString()
    stream = bytes(rows.coalesce(1).mapInArrow(_as_stream, "stream binary").collect()[0].stream)
    with pa.ipc.open_stream(stream) as batches:
        _check_reading(spark, rows, batches.read_all().column("value").combine_chunks())
    golden = {
        "made by": f"{jar.name}, PySpark {pyspark.__version__}",
        "schema": json.loads(schema),
        "rows": base64.b64encode(stream).decode(),
        "payloads": [payload.hex() for payload in payloads],
    }
    TARGET.write_text(json.dumps(golden, indent=1) + "\n")
    spark.stop()


def _as_stream(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the rows as Spark passes them to the sink, as one value."""
    for batch in batches:
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.record_batch([pa.array([stream.getvalue().to_pybytes()], pa.binary())], names=["stream"])


def _check_reading(spark: SparkSession, rows: DataFrame, values: pa.Array) -> None:
    """Raise RuntimeError if from_avro does not read the values that kafkalite writes."""
    schema = derive_schema(values.type, "value")
    payloads = avro_encoder(schema, values.type, "value").encode(values).to_pylist()
    read = spark.createDataFrame([(each,) for each in payloads], "payload binary")
    found = read.select(from_avro("payload", schema).alias("value")).collect()
    if found != rows.collect():
        raise RuntimeError("from_avro reads other rows than were written")


if __name__ == "__main__":
    main()
