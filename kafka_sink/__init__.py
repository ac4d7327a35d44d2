"""kafkalite: a Kafka sink for PySpark and an embedded broker, without a jar.

In a Spark session: ``df.write.format("kafkalite")`` (registered automatically if installed with pip, otherwise call
:func:`register`), or :func:`write` and :func:`foreach_batch`, which also work on Spark 3.5. Without Spark:
:class:`KafkaProducer`. Without Kafka: :class:`EmbeddedCluster`.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

# Everything below is written for this Python: without the check an older one would stop at its first unknown syntax.
if sys.version_info < (3, 11):  # noqa: UP036
    raise ImportError(
        "kafkalite needs Python 3.11 or later, but this is Python "
        f"{sys.version.split()[0]} ({sys.executable}): set PYSPARK_PYTHON to an interpreter that is new enough"
    )

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_sink.broker.config import BrokerConfig
    from kafka_sink.broker.embedded_broker import EmbeddedCluster
    from kafka_sink.preflight.findings import CheckReport
    from kafka_sink.producer.kafka_producer import KafkaProducer, ProducerRecord
    from kafka_sink.reports.writes import SinkProgress, WriteReport
    from kafka_sink.spark.check import check
    from kafka_sink.spark.dataframe_writer import foreach_batch, write
    from kafka_sink.spark.errors import cause_of
    from kafka_sink.spark.peek import peek
    from kafka_sink.spark.streaming.progress import progress_listener
    from kafka_sink.spark.streaming.stopping import run_until_stopped

    __version__: str

__all__ = [
    "BrokerConfig",
    "CheckReport",
    "EmbeddedCluster",
    "KafkaProducer",
    "ProducerRecord",
    "SinkProgress",
    "WriteReport",
    "__version__",
    "cause_of",
    "check",
    "foreach_batch",
    "peek",
    "progress_listener",
    "register",
    "run_until_stopped",
    "write",
]

_HOMES = {
    "BrokerConfig": "kafka_sink.broker.config",
    "CheckReport": "kafka_sink.preflight.findings",
    "EmbeddedCluster": "kafka_sink.broker.embedded_broker",
    "KafkaProducer": "kafka_sink.producer.kafka_producer",
    "ProducerRecord": "kafka_sink.producer.kafka_producer",
    "SinkProgress": "kafka_sink.reports.writes",
    "WriteReport": "kafka_sink.reports.writes",
    "cause_of": "kafka_sink.spark.errors",
    "check": "kafka_sink.spark.check",
    "foreach_batch": "kafka_sink.spark.dataframe_writer",
    "peek": "kafka_sink.spark.peek",
    "progress_listener": "kafka_sink.spark.streaming.progress",
    "run_until_stopped": "kafka_sink.spark.streaming.stopping",
    "write": "kafka_sink.spark.dataframe_writer",
}


def register(spark: SparkSession) -> None:
    """Make ``df.write.format("kafkalite")`` and ``df.writeStream.format("kafkalite")`` work with *spark*, in every
    thread of this process and after any interrupt.

    Spark finds the format without this call only in the thread that created the session, and only if the interpreter
    that PYSPARK_PYTHON named at the start of Spark has the package. The call is safe in every case.

    :raises RequirementError: on Spark 3.5, which has no Python data sources; the text says what to call instead.
    """
    from kafka_sink.spark.data_source import KafkaliteDataSource
    from kafka_sink.spark.format_lookup import register_format

    register_format(spark, KafkaliteDataSource)


def __getattr__(name: str) -> Any:
    # A Spark worker imports this package for every task, so other modules are imported on demand.
    if name == "__version__":
        return importlib.import_module("kafka_sink.common.version").VERSION
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
