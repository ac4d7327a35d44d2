"""A job of Spark in a process of its own, which prints what a test looks at. Its tasks are tried four times, as on a
cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_BEGIN = """
import json, sys
from pyspark.sql import SparkSession
from kafka_sink import register

spark = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
given = json.load(open(sys.argv[1]))
"""


def run_spark_job(code: str, given: object, directory: Path, timeout_s: int = 240) -> subprocess.CompletedProcess[str]:
    """Run *code*, for which ``spark`` and ``given`` are there; the test fails with its last words when it fails.

    *given*, which may hold passwords, goes through a file in *directory*.
    """
    file = directory / "given.json"
    file.write_text(json.dumps(given))
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + code, str(file)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done
