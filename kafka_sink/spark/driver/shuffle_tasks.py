"""The number of tasks to which an atomic write moves its rows, where Spark does not choose it.

Used on the driver. Adaptive execution chooses it from the rows. It is off in streams before Spark 4.1 (SPARK-53941), in
streams with state, and where the user has disabled it: a shuffle then starts ``spark.sql.shuffle.partitions`` tasks
(200), however few rows there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafka_sink.spark.task.shared_client import shared_client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def shuffle_tasks(df: DataFrame, topic: str | None, properties: Mapping[str, str]) -> int | None:
    """The number of tasks for the rows of *df* once they are grouped by the partitions of *topic* (None: rows name
    their topics), in a cluster with a producer's *properties*; None if Spark chooses it."""
    conf = df.sparkSession.conf
    if conf.get("spark.sql.adaptive.enabled") == "true":
        return None
    largest = (None if topic is None else _partitions(topic, properties)) or _parallelism(df)
    return None if largest is None else min(int(conf.get("spark.sql.shuffle.partitions") or largest), largest)


def _partitions(topic: str, properties: Mapping[str, str]) -> int | None:
    """The number of partitions of *topic*, as more tasks would have no rows."""
    client = shared_client(properties)
    return client.run(client.partition_count(topic))


def _parallelism(df: DataFrame) -> int | None:
    """Spark's default parallelism, for rows that name their topics; None with Spark Connect, which does not tell it."""
    context = getattr(df.sparkSession, "_sc", None)
    return None if context is None else int(context.defaultParallelism)
