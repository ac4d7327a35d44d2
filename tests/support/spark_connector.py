"""Spark's own Kafka connector reads and writes the topics of a test: a program, since its jars need a JVM of their own.

    python -m tests.support.spark_connector JARS BOOTSTRAP_SERVERS TOPIC TIMESTAMP_MS SCRATCH

A transactional producer has written TOPIC. Queries and a stream read it: all records, only committed ones, and those
from TIMESTAMP_MS on; the program prints one JSON object with the rows by the name of the reading. Spark's own sink
writes the committed records to TOPIC-query and TOPIC-stream. Spark's own sink and kafkalite alternately write a stream
of files with one checkpoint to TOPIC-turns.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
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

    def write_in_turns(self, scratch: Path) -> None:
        """Write files of ten lines, the numbers from 0 on, each in a separate run of the query."""
        folder = scratch / "files"
        folder.mkdir(parents=True)
        servers = {name: value for name, value in self._options.items() if name.startswith("kafka.")}
        for number, sink in enumerate(("kafka", "kafkalite", "kafkalite", "kafka", "kafkalite")):
            (folder / f"{number}.txt").write_text("".join(f"{number * 10 + line}\n" for line in range(10)))
            writer = self._spark.readStream.text(str(folder)).writeStream.format(sink).options(**servers)
            writer = writer.option("topic", f"{self._topic}-turns").option("checkpointLocation", str(scratch / "turns"))
            writer.trigger(availableNow=True).start().awaitTermination()


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
    connector.write_in_turns(Path(f"{scratch}-turns"))
    print(json.dumps({name: sorted(map(plain, rows), key=lambda row: row[:2]) for name, rows in read.items()}))


if __name__ == "__main__":
    main()
