"""What differs between the versions of Spark that the sink works on: the only module that asks for the version.

Imported by every process of the sink. The base classes of Python data sources are imported from here, because Spark 3.5
has none of them and Spark 4.0 has no Arrow writer for streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pyspark

from kafka_sink.common.errors import ConfigError
from kafka_sink.common.requirements import RequirementError, parse_version, require

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

require("pyspark", pyspark.__version__)

SPARK: Final = parse_version(pyspark.__version__)

if TYPE_CHECKING or SPARK >= (4, 1):
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceStreamArrowWriter,
        WriterCommitMessage,
    )
elif SPARK >= (4, 0):
    from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """Spark 4.0 passes Arrow batches to each writer that is an Arrow writer of batches, also in a stream."""

else:

    class WriterCommitMessage:
        """The base class of a task's message; here it only travels between kafkalite's own tasks and driver."""

    def __getattr__(name: str) -> Any:
        if name.startswith("DataSource"):
            raise RequirementError(
                f'format("kafkalite") needs Spark 4.0 or later, but this is PySpark {pyspark.__version__}: write with '
                "kafka_sink.write(df, options=…), and a stream with "
                "df.writeStream.foreachBatch(kafka_sink.foreach_batch(options=…, app_id=…))"
            )
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "SPARK",
    "DataSource",
    "DataSourceArrowWriter",
    "DataSourceStreamArrowWriter",
    "WriterCommitMessage",
    "inheriting",
    "is_connect",
    "require_local_checkpoint",
]


def is_connect(of_spark: object) -> bool:
    """Whether a session or a DataFrame belongs to Spark Connect."""
    return type(of_spark).__module__.startswith("pyspark.sql.connect.")


def inheriting(spark: SparkSession, run: Callable[[], None]) -> Callable[[], None]:
    """*run* with the local properties of the calling thread, such as its job group, or with its tags of Spark Connect,
    for another thread. Spark 3.5 takes a session with Spark Connect only."""
    from pyspark import inheritable_thread_target

    # PySpark has types for only one of its two forms.
    inheritable: Callable[..., Any] = inheritable_thread_target
    target: Callable[[], None] = inheritable(spark)(run) if is_connect(spark) or SPARK >= (4, 0) else inheritable(run)
    return target


def require_local_checkpoint(df: DataFrame) -> None:
    """Check that the rows of *df* can be kept on the executors, as an atomic write needs.

    :raises ConfigError: if *df* belongs to Spark Connect of Spark 3.5, which has no ``localCheckpoint``.
    """
    if SPARK < (4, 0) and is_connect(df):
        raise ConfigError(
            f"atomic=True over Spark Connect needs Spark 4.0 or later, but this is PySpark {pyspark.__version__}: set "
            "atomic=False, which writes once too, with one transaction per task"
        )
