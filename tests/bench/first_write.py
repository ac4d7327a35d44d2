"""The first ``df.write`` of a session: a separate program, because every session must be a fresh one.

    python -m tests.bench.first_write SINK BOOTSTRAP_SERVERS TOPIC ROWS TASKS JARS CORES

Run by :mod:`tests.bench.bench_small`. Prints the seconds from the ready session to the last acknowledgement. They
include Spark's own search for Python data sources, for which the first use or registration of a data source waits.
"""

from __future__ import annotations

import sys
import time

from tests.bench.spark_sinks import SINKS, WITHOUT_RECORDS, register_null, rows, session


def main() -> None:
    sink, bootstrap_servers, topic, count, tasks, jars, cores = sys.argv[1:]
    spark = session(jars, int(cores), with_null=False)
    try:
        data = rows(spark, "keyed", int(count), int(tasks))
        started = time.perf_counter()
        if sink in WITHOUT_RECORDS:
            register_null(spark)
        SINKS[sink](data, topic, bootstrap_servers, {})
        print(time.perf_counter() - started)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
