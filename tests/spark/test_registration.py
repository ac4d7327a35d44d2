"""Spark finds the format by itself where the package is installed; no call to register()."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.readback import read_topic

ROOT = Path(__file__).parents[2]

JOB = """
import sys, threading
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()

def write(value):
    (
        spark.createDataFrame([(value,)], "value string").write.format("kafkalite").mode("append")
        .option("kafka.bootstrap.servers", sys.argv[1]).option("topic", sys.argv[2]).save()
    )

write("from the main thread")
other = threading.Thread(target=write, args=("from another thread",))
other.start()
other.join()
"""


def test_an_installed_package_registers_itself(cluster: Any, new_topic: Callable[..., str], tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    topic = new_topic(1)
    # What site-packages holds after an install: both packages side by side.
    site = tmp_path / "site"
    site.mkdir()
    (site / "kafka_sink").symlink_to(ROOT / "kafka_sink")
    (site / "pyspark_kafkalite").symlink_to(ROOT / "kafka_sink" / "spark" / "_autoload" / "pyspark_kafkalite")
    done = subprocess.run(
        [sys.executable, str(job), cluster.bootstrap_servers, topic],
        env={**os.environ, "PYTHONPATH": str(site), "PYSPARK_PYTHON": sys.executable},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    values = sorted(message.value or b"" for message in read_topic(cluster.bootstrap_servers, topic))
    assert values == [b"from another thread", b"from the main thread"]


def test_the_module_that_spark_imports_needs_nothing_heavy() -> None:
    """One pyspark_* module that fails or dawdles on import costs every Python data source of the machine."""
    code = (
        "import sys; import pyspark.sql.datasource; sparks_own = set(sys.modules); import pyspark_kafkalite; "
        "print(sorted({'pyarrow', 'numpy', 'pandas', 'lz4', 'zstandard'} & (set(sys.modules) - sparks_own)))"
    )
    autoload = ROOT / "kafka_sink" / "spark" / "_autoload"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(autoload)])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[]"
