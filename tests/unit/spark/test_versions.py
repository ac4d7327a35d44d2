"""Older and other versions of Spark, Python and packages, as far as the installed ones can simulate them: each case
runs in a separate Python whose pyspark is changed before kafkalite is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from kafka_sink import register
from kafka_sink.common.errors import RequirementError
from kafka_sink.common.requirements import parse_version, require
from tests.support.cases import with_each

ROOT = Path(__file__).parents[3]

SPARK_3_5 = """
import sys
import pyspark.sql
pyspark.__version__ = "3.5.9"
sys.modules["pyspark.sql.datasource"] = None
"""

WITHOUT_SPARK = """
from importlib.machinery import PathFinder

found = PathFinder.find_spec
PathFinder.find_spec = lambda name, *where: None if name.partition(".")[0] == "pyspark" else found(name, *where)
"""

SPARK_4_0 = """
import pyspark.sql.datasource
pyspark.__version__ = "4.0.5"
del pyspark.sql.datasource.DataSourceStreamArrowWriter
"""

PYTHON_3_10 = """
import sys
sys.version_info = (3, 10)
sys.version = "3.10.12 (main)"
"""


def run(*lines: str) -> str:
    """The output of a Python that runs *lines*."""
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def error_of(*lines: str) -> str:
    """The type and the text of the error that the last of *lines* raises."""
    *before, last = lines
    return run(
        *before, f"try:\n    {last}\nexcept Exception as error:\n    print(type(error).__name__, error, sep=': ')"
    )


@pytest.mark.behaviour("Versions", "Spark 3.5 writes by kafka_sink.write and foreach_batch, and register names them")
def test_spark_3_5_has_every_way_but_the_format() -> None:
    names = "kafka_sink.write, kafka_sink.foreach_batch, kafka_sink.progress_listener, kafka_sink.run_until_stopped"
    assert run(SPARK_3_5, "import kafka_sink", f"print(all(map(callable, [{names}])))") == "True"
    text = error_of(SPARK_3_5, "import kafka_sink", "kafka_sink.register(None)")
    assert text.startswith('RequirementError: format("kafkalite") needs Spark 4.0 or later, but this is PySpark 3.5.9')
    assert "kafka_sink.write(df" in text
    assert "foreachBatch(kafka_sink.foreach_batch(" in text
    assert len(text.splitlines()) == 1


@pytest.mark.behaviour("Versions", "The module that Spark imports by itself never fails, but warns")
@pytest.mark.parametrize("too_old", [SPARK_3_5, PYTHON_3_10], ids=["spark", "python"])
def test_module_that_spark_imports_warns_of_old_versions(too_old: str) -> None:
    caught = "import warnings\nwith warnings.catch_warnings(record=True) as caught:\n    import pyspark_kafkalite"
    printed = run(too_old, caught, "print(hasattr(pyspark_kafkalite, 'DefaultSource'), caught[0].message)")
    assert printed.startswith("False ")
    assert " needs " in printed
    assert " or later, but this is Py" in printed


@pytest.mark.behaviour("Versions", "Without PySpark, what needs it says in one sentence how to get it")
@with_each(
    "needs_it", ["kafka_sink.write", "kafka_sink.register(None)", "kafka_sink.check", "import kafka_sink.spark.peek"]
)
def test_missing_pyspark_is_named(needs_it: str) -> None:
    text = error_of(WITHOUT_SPARK, "import kafka_sink", needs_it)
    assert text.startswith(
        "RequirementError: kafkalite writes from Spark with the package pyspark, which this Python ("
    )
    assert "pip install 'kafkalite[spark]'" in text
    assert len(text.splitlines()) == 1


def test_producer_broker_and_commands_need_no_pyspark() -> None:
    names = "kafka_sink.KafkaProducer, kafka_sink.EmbeddedCluster"
    commands = "main.run(['check', '--help']) == main.run(['broker', '--help']) == 0"
    printed = run(WITHOUT_SPARK, "import kafka_sink", "from kafka_sink.cli import main", f"print({names}, {commands})")
    assert printed.endswith("True")


@pytest.mark.behaviour("Versions", "A stream of Spark 4.0 receives Arrow batches")
def test_stream_writers_of_spark_4_0_are_arrow_writers() -> None:
    printed = run(
        SPARK_4_0,
        "from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter",
        "from kafka_sink.spark.data_source import KafkaliteExactlyOnceStreamWriter, KafkaliteStreamWriter",
        "made = KafkaliteStreamWriter(None)",
        "print(isinstance(made, DataSourceArrowWriter), isinstance(made, DataSourceStreamWriter))",
        "print(issubclass(KafkaliteExactlyOnceStreamWriter, DataSourceArrowWriter))",
    )
    assert printed.split() == ["True", "True", "True"]


@pytest.mark.behaviour("Versions", "A Spark, Python, pyarrow or numpy that is too old is named in one sentence")
@pytest.mark.parametrize(
    ("package", "found", "module"),
    [
        ("pyspark", "3.3.4", "spark.versions"),
        ("pyarrow", "9.0.0", "columns.record_columns"),
        ("numpy", "1.22.4", "columns.record_columns"),
    ],
)
def test_package_that_is_too_old_is_named(package: str, found: str, module: str) -> None:
    # pyarrow itself requires a version of numpy when it is imported.
    text = error_of(
        "import pyarrow", f"import {package}", f"{package}.__version__ = '{found}'", f"import kafka_sink.{module}"
    )
    assert f"but this Python has {package} {found}" in text
    assert "or later" in text
    assert len(text.splitlines()) == 1


@pytest.mark.behaviour("Versions", "A Spark, Python, pyarrow or numpy that is too old is named in one sentence")
def test_python_that_is_too_old_is_named() -> None:
    text = error_of(PYTHON_3_10, "import kafka_sink")
    assert text.startswith("ImportError: kafkalite needs Python 3.11 or later, but this is Python 3.10.12 (")
    assert "PYSPARK_PYTHON" in text
    assert len(text.splitlines()) == 1


def test_version_is_its_leading_numbers() -> None:
    assert parse_version("4.1.0.dev1") == (4, 1, 0)
    assert parse_version("3.5.9+vendor.7") == (3, 5, 9)
    assert parse_version("2.0rc1") == (2, 0)
    require("pyspark", "3.5.0")
    with pytest.raises(RequirementError):
        require("pyspark", "3.4.4")


class SessionThatRefuses:
    """A fake session of Spark Connect and its registry of data sources, which refuses them."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self, condition: str) -> None:
        self.dataSource = self
        self._condition = condition

    def register(self, source: object) -> None:
        raise PySparkException(f"[{self._condition}] Data source 'kafkalite' is refused.")


@pytest.mark.behaviour("Versions", "register accepts a Spark that has found the format by itself")
def test_register_accepts_a_format_that_spark_has_found() -> None:
    session: Any = SessionThatRefuses("DATA_SOURCE_ALREADY_EXISTS")
    register(session)
    other: Any = SessionThatRefuses("INTERNAL_ERROR")
    with pytest.raises(PySparkException, match="INTERNAL_ERROR"):
        register(other)
