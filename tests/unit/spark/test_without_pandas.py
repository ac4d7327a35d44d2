"""The message of a task, of which Spark makes an array, does not import pandas."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
from pyspark.sql.worker import write_into_data_source

# Another process: pandas is imported in this one.
LAST_STEP = """
import sys
import pyarrow as pa
from kafka_sink.spark.task.without_pandas import spare_pandas

original = pa.array
spare_pandas()
spare_pandas()
messages = pa.array([b"message"])
assert pa.record_batch([messages], names=["m"]).to_pydict() == {"m": [b"message"]}
messages.validate(full=True)
assert "pandas" not in sys.modules and pa.array is original
spare_pandas()
assert pa.array(["text"], pa.large_string()).type == pa.large_string() and pa.array is original
assert "pandas" in sys.modules, "pyarrow imports it no more: without_pandas is needed no more"
spare_pandas()
assert pa.array is original
"""


@pytest.mark.behaviour("Tasks", "A task imports no pandas: 40 MB of each worker")
def test_array_of_a_message_imports_no_pandas() -> None:
    done = subprocess.run([sys.executable, "-c", LAST_STEP], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


def test_spark_makes_its_message_as_expected() -> None:
    assert "messages = pa.array([pickled])" in inspect.getsource(write_into_data_source)
