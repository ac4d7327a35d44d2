"""What Spark imports by itself: a data source in a top-level module named ``pyspark_*`` registers without being asked.

Spark gives up on every Python data source of the machine when one such module fails to import, so nothing optional is
imported here.
"""

from kafka_sink.spark.data_source import KafkaliteDataSource as DefaultSource

__all__ = ["DefaultSource"]
