"""The data source that Spark finds under the name ``kafkalite``.

Instantiated by Spark in processes on the driver's machine, never in the user's own Python process. It validates, and
connects to nothing.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from kafka_sink.common.errors import ConfigError
from kafka_sink.spark.batch_writer import KafkaliteBatchWriter
from kafka_sink.spark.options import check_report_path, parse_options
from kafka_sink.spark.row_schema import check_schema


class KafkaliteDataSource(DataSource):
    """``df.write.format("kafkalite")``: writes value, key, topic, partition, headers and timestamp to Kafka."""

    @classmethod
    def name(cls) -> str:
        return "kafkalite"

    def writer(self, schema: StructType, overwrite: bool) -> KafkaliteBatchWriter:
        """Check options and columns before any task starts.

        :raises ConfigError: overwrite mode, an unknown or wrong option, a missing or wrongly typed column.
        """
        if overwrite:
            raise ConfigError(
                'mode("overwrite") is not possible: a topic is a log and cannot be replaced; use mode("append"), '
                "or delete the topic first"
            )
        options = parse_options(self.options)
        check_report_path(options)
        return KafkaliteBatchWriter(options, check_schema(schema, options))
