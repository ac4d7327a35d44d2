"""Differences between versions of Spark, whose version only this module reads, and of kafkalite within one write.

Imported by every process of the sink. The base classes of Python data sources are imported from here, because Spark 3.5
has none of them and Spark 4.0 has no Arrow writer for streams. Driver and workers each import the kafkalite that their
Python finds. Pickled objects of the driver contain its version, because a worker of another version would fail at names
that its version lacks, or, worse, interpret the same name differently.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyspark

from kafka_sink.common.bounded import Latest
from kafka_sink.common.errors import ConfigError, RequirementError
from kafka_sink.common.requirements import parse_version, require
from kafka_sink.common.version import VERSION

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
        """The base class of a task's message; only kafkalite's own tasks and driver exchange it here."""

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
    """*run* with the local properties of the calling thread, such as its job group, or, since Spark 4.0, with its tags
    of Spark Connect, for another thread."""
    from pyspark import inheritable_thread_target

    # PySpark annotates only one of its two forms.
    inheritable: Callable[..., Any] = inheritable_thread_target
    target: Callable[[], None] = inheritable(spark)(run) if SPARK >= (4, 0) else inheritable(run)
    return target


def require_local_checkpoint(df: DataFrame) -> None:
    """Check that the rows of *df* can be kept on the executors, as an atomic write requires.

    :raises ConfigError: if *df* belongs to Spark Connect of Spark 3.5, which has no ``localCheckpoint``.
    """
    if SPARK < (4, 0) and is_connect(df):
        raise ConfigError(
            f"atomic=True over Spark Connect needs Spark 4.0 or later, but this is PySpark {pyspark.__version__}: set "
            "atomic=False, which writes once too, with one transaction per task"
        )


class OfOneVersion:
    """A value that only the same version of kafkalite can unpickle; plain pickle can pickle it.

    Its own class and those of its fields are looked up after the versions were compared. If it *is_shared*, it never
    changes, and a process that receives it again reuses the first object.
    """

    is_shared: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Any, ...]:
        unpickle = _shared if self.is_shared else _unpickled
        return unpickle, (VERSION, pickle.dumps((type(self), self.__getstate__())))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def refuse_other_version(drivers: str) -> None:
    """:raises ConfigError: if this process has another version of kafkalite than *drivers*."""
    if drivers != VERSION:
        raise ConfigError(
            f"the driver has kafkalite {drivers}, and a Python worker has {VERSION} (imported from "
            f"{__file__.removesuffix('/spark/versions.py')} by {sys.executable}): install one version for both, or "
            "ship the driver's environment with spark.archives or --py-files"
        )


#: Shared values by the digest of their pickled form, which may contain secrets.
_values: Final[Latest[bytes, Any]] = Latest(10)


def _shared(drivers: str, pickled: bytes) -> Any:
    refuse_other_version(drivers)
    key = blake2b(pickled).digest()
    return _values.get(key) or _values.put(key, _unpickled(drivers, pickled))


def _unpickled(drivers: str, pickled: bytes) -> Any:
    refuse_other_version(drivers)
    kind, state = pickle.loads(pickled)
    made = kind.__new__(kind)
    made.__setstate__(state)
    return made
