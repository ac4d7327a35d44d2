"""Imported by Spark automatically: Spark registers a data source in each top-level module named ``pyspark_*``.

If one such module fails to import, Spark disables all Python data sources of the machine, so nothing optional is
imported here.
"""

from kafka_sink.spark.data_source import KafkaliteDataSource as DefaultSource

__all__ = ["DefaultSource"]
