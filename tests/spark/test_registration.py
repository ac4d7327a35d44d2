"""Spark finds the format automatically if the package is installed, without a call to register()."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import ways
from tests.support.amounts import only_long
from tests.support.installed import ROOT, Environment, copy_checkout
from tests.support.readback import read_topic
from tests.support.spark_version import requires_data_sources

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


@requires_data_sources
@pytest.mark.way(ways.DF_WRITE)
@pytest.mark.behaviour("Package", "Spark finds the format after pip install -e without any help")
@only_long
def test_an_editable_install_registers_itself(cluster: Any, new_topic: Callable[..., str], tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    topic = new_topic(1)
    environment = Environment(tmp_path / "environment")
    environment.install("--editable", copy_checkout(tmp_path / "checkout"))
    environment.run(environment.python, job, cluster.bootstrap_servers, topic)
    values = sorted(message.value or b"" for message in read_topic(cluster.bootstrap_servers, topic))
    assert values == [b"from another thread", b"from the main thread"]


@requires_data_sources
def test_the_module_that_spark_imports_needs_nothing_heavy() -> None:
    """A pyspark_* module that fails or takes long on import affects all Python data sources of the machine."""
    code = (
        "import sys; import pyspark.sql.datasource; sparks_own = set(sys.modules); import pyspark_kafkalite; "
        "print(sorted({'pyarrow', 'numpy', 'pandas', 'lz4', 'zstandard'} & (set(sys.modules) - sparks_own)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[]"
