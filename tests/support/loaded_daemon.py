"""Spark's daemon with what tasks import, so that each of the many workers that it forks need not.

For the session that tests share (``spark.python.daemon.module``); programs of their own have few workers.
"""

from __future__ import annotations

from importlib import import_module

from pyspark import daemon

for module in ("pandas", "pyarrow", "kafka_sink.spark.task.task_writer", "kafka_sink.spark.task.transactional_task"):
    import_module(module)

if __name__ == "__main__":
    daemon.manager()
