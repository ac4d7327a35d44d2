"""All that is checked and prepared on the driver before the tasks of a write begin.

Called in Spark's planner process or in the user's. Nothing is written, except for a missing topic that is asked for.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.types import StructType

from kafka_sink.spark.driver import lineage
from kafka_sink.spark.driver.column_formats import with_formats
from kafka_sink.spark.driver.missing_topic import ensure_topics_of
from kafka_sink.spark.options import SinkOptions, check_report_path
from kafka_sink.spark.row_schema import check_schema


def prepared(schema: StructType, options: SinkOptions) -> SinkOptions:
    """*options* as the tasks need them to write rows of *schema*.

    :raises ConfigError: if a column is missing or has the wrong type, or an option does not fit the columns.
    :raises ApiError: if a missing topic could not be created.
    """
    check_report_path(options)
    check_schema(schema, options)
    ready = with_formats(schema, options)
    ensure_topics_of(ready)
    if lineage.is_configured():
        columns = tuple((item.name, item.dataType.simpleString()) for item in schema.fields)
        ready = replace(ready, lineage_columns=columns)
    return ready
