"""Spark's own Kafka connector reads and writes what a test has prepared: a program, for its jars come with the JVM.

    python -m tests.support.spark_connector JARS BOOTSTRAP_SERVERS TOPIC TIMESTAMP_MS SCRATCH

TOPIC holds what a producer with transactions wrote. It is read by queries and by a stream, as a whole, committed only,
and from TIMESTAMP_MS on; prints one JSON object with the rows by the name of the reading. What was committed is written
by Spark's own sink to TOPIC-query and TOPIC-stream.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.bench.spark_sinks import session


def plain(row: Any) -> list[Any]:
    headers = [[header.key, bytes(header.value).decode()] for header in row.headers or ()]
    key = None if row.key is None else bytes(row.key).decode()
    return [row.partition, row.offset, key, bytes(row.value).decode(), int(row.timestamp.timestamp() * 1000), headers]


class Connector:
    """One session and one topic."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, topic: str) -> None:
        self._spark = spark
        self._options = {"kafka.bootstrap.servers": bootstrap_servers, "includeHeaders": "true"}
        self._topic = topic

    def query(self, **options: str) -> DataFrame:
        options = {"subscribe": self._topic, "startingOffsets": "earliest", **self._options, **options}
        return self._spark.read.format("kafka").options(**options).load()

    def stream(self, **options: str) -> list[Any]:
        options = {"subscribe": self._topic, "startingOffsets": "earliest", **self._options, **options}
        rows = self._spark.readStream.format("kafka").options(**options).load()
        rows.writeStream.format("memory").queryName("rows").trigger(availableNow=True).start().awaitTermination()
        return self._spark.table("rows").collect()

    def write(self, scratch: str) -> None:
        committed = {"kafka.isolation.level": "read_committed"}
        columns = ("key", "value", "headers", "partition")
        self.query(**committed).select(*columns).write.format("kafka").options(**self._options).option(
            "topic", f"{self._topic}-query"
        ).save()
        options = {"subscribe": self._topic, "startingOffsets": "earliest", **self._options, **committed}
        rows = self._spark.readStream.format("kafka").options(**options).load().select(*columns)
        sink = rows.writeStream.format("kafka").options(**self._options).option("topic", f"{self._topic}-stream")
        sink.option("checkpointLocation", scratch).trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    jars, bootstrap_servers, topic, timestamp_ms, scratch = sys.argv[1:]
    connector = Connector(session(jars, 2), bootstrap_servers, topic)
    committed = {"kafka.isolation.level": "read_committed"}
    since = {"startingTimestamp": timestamp_ms}
    read = {
        "query": connector.query().collect(),
        "query, committed": connector.query(**committed).collect(),
        "query, since": connector.query(**since).collect(),
        "stream, committed, since": connector.stream(**committed, **since),
    }
    connector.write(scratch)
    print(json.dumps({name: sorted(map(plain, rows), key=lambda row: row[:2]) for name, rows in read.items()}))


if __name__ == "__main__":
    main()
