"""The data source with the name ``kafkalite``.

Instantiated by Spark in processes on the driver's machine, never in the user's own Python process. It validates options
and columns, asks the brokers what its topics refuse, and creates a missing topic for option topicPartitions.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql.types import StructType

from kafka_sink.common.bounded import Latest
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.log_context import Said, once
from kafka_sink.spark.driver.before_write import VALID_IN_STREAM_MS, prepared
from kafka_sink.spark.errors import short
from kafka_sink.spark.options import FORMAT, ONLY_WRITES, parse_options
from kafka_sink.spark.producer_spec import digest_of
from kafka_sink.spark.task import worker_logging
from kafka_sink.spark.task.worker_process import worker_process
from kafka_sink.spark.versions import DataSource
from kafka_sink.spark.writers import (
    KafkaliteBatchWriter,
    KafkaliteExactlyOnceStreamWriter,
    KafkaliteNumberedBatchWriter,
    KafkaliteStreamWriter,
)

#: What this process has said of the options of a stream, by their digest: it plans every micro-batch.
_said_of_streams: Final[Latest[bytes, Said]] = Latest(50)


class KafkaliteDataSource(DataSource):
    """The sink of ``df.write`` and ``df.writeStream``: writes value, key, topic, partition, headers and timestamp to
    Kafka."""

    #: Spark has passed this object on to the process that commits micro-batches: another one has planned them.
    _is_passed_on = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _is_passed_on=True)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @short
    def schema(self) -> StructType:
        """Called by Spark for a read, which is not supported.

        :raises ConfigError: always.
        """
        raise ConfigError(ONLY_WRITES)

    @short
    def writer(self, schema: StructType, overwrite: bool) -> KafkaliteBatchWriter | KafkaliteNumberedBatchWriter:
        """Check options and columns before any task starts.

        :raises ConfigError: if the mode is overwrite, an option is unknown or invalid, or a column is missing or has
            the wrong type.
        """
        if overwrite:
            raise ConfigError(
                'mode("overwrite") is not supported: a topic is a log and cannot be replaced; use mode("append"), '
                "or delete the topic first"
            )
        worker_logging.configure()
        options = parse_options(self.options)
        with worker_process.task(tuned=options.tune_python_workers):
            write = prepared(schema, options, asks_brokers=True)
            numbered = write.exactly_once
            if numbered is None or numbered.version is None:
                return KafkaliteBatchWriter(write)
            writer = KafkaliteNumberedBatchWriter(write, numbered, numbered.version)
        writer.plan()
        return writer

    def _said(self) -> Said:
        key = digest_of(self.options)
        return _said_of_streams.get(key) or _said_of_streams.put(key, Said())

    @short
    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> KafkaliteStreamWriter | KafkaliteExactlyOnceStreamWriter:
        """Check options and columns; *overwrite* is Spark's complete mode, which writes the complete result in every
        batch.

        :raises ConfigError: if an option is unknown or invalid, or a column is missing or has the wrong type.
        """
        worker_logging.configure()
        # The process that commits needs neither warnings nor the limits of topics, as no task begins there.
        with once(Said(all_of_it=True) if self._is_passed_on else self._said()):
            options = parse_options(self.options, is_stream=True)
            with worker_process.task(tuned=options.tune_python_workers):
                write = prepared(
                    schema, options, asks_brokers=not self._is_passed_on, settings_valid_ms=VALID_IN_STREAM_MS
                )
                if write.exactly_once is None:
                    return KafkaliteStreamWriter(write)
                writer = KafkaliteExactlyOnceStreamWriter(write, write.exactly_once)
        if not self._is_passed_on:
            writer.plan()
        return writer
