"""The Spark sink: the data source, its writers, ``write`` and ``foreach_batch``.

It owns what happens in Spark's processes, on the threads that Spark gives. No other package imports pyspark.
"""
