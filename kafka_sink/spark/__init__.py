"""The Spark sink: the data source, its writers, ``write`` and ``foreach_batch``.

Its code runs in Spark's processes, on Spark's threads. No other package imports pyspark.
"""

from importlib.util import find_spec

from kafka_sink.common.requirements import require_installed

require_installed("pyspark", is_there=find_spec("pyspark") is not None)
