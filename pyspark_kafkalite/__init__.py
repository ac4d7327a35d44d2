"""Imported by Spark automatically: Spark registers a data source in each top-level module named ``pyspark_*``.

If one such module fails to import, Spark disables all Python data sources of the machine, so a version that is too old
only causes a warning, and nothing optional is imported here.
"""

import warnings

try:
    from kafka_sink.spark.data_source import KafkaliteDataSource as DefaultSource
except ImportError as error:
    warnings.warn(str(error), stacklevel=2)
else:
    __all__ = ["DefaultSource"]
