"""The errors of the jobs in ``spark_jobs`` for wrong arguments, in a Spark that runs already."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.spark_version import HAS_DATA_SOURCES

ROOT = Path(__file__).parents[2]
STREAM_JOB = "stream_to_kafka.py" if HAS_DATA_SOURCES else "foreach_batch_to_kafka.py"


@pytest.mark.behaviour("Spark jobs", "Errors of the jobs are one line")
@pytest.mark.parametrize(
    ("job", "arguments", "says"),
    [
        (STREAM_JOB, ["--format", "json"], "a stream of json files needs --schema"),
        (STREAM_JOB, ["--source", "socket"], "--source socket needs HOST:PORT"),
        pytest.param(
            "stream_to_kafka.py",
            [],
            'format("kafkalite") needs Spark 4.0 or later, but this is PySpark 3.5',
            marks=pytest.mark.skipif(HAS_DATA_SOURCES, reason="this Spark has Python data sources"),
        ),
        ("foreach_batch_to_kafka.py", ["--key", "id"], "there is no column id; the columns are value"),
        (
            STREAM_JOB,
            ["--option", "kafka.compression.type=zip"],
            "option kafka.compression.type: 'zip' is not allowed",
        ),
        ("batch_to_kafka.py", ["--name", "orders"], "add --version, or remove --name to write at least once"),
    ],
)
def test_errors_are_one_line(
    spark: SparkSession,
    job: str,
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.txt").write_text("1\n")
    given = ["--bootstrap-servers", "127.0.0.1:1", "--topic", "t", "--input", str(tmp_path / "source"), *arguments]
    if job != "batch_to_kafka.py":
        given += ["--checkpoint", str(tmp_path / "checkpoint"), "--until-written"]
    monkeypatch.setattr(sys, "argv", [job, *given])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "spark_jobs" / job), run_name="__main__")
    # The interpreter prints a text in SystemExit.
    said = str(ended.value.code) if isinstance(ended.value.code, str) else capsys.readouterr().err
    assert says in said
    assert len(said.splitlines()) == 1
