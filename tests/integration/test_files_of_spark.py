"""``kafkalite verify`` reads files as Spark writes them, and ``report`` a file that a full disk has torn."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from kafka_sink.cli.comparing import Comparable, ExpectedRows
from kafka_sink.cli.main import run
from kafka_sink.spark.driver.write_report import WriteSummary
from kafka_sink.spark.task.task_outcome import TaskOutcome

TABLE = pa.table({"key": [None, "gone", "empty"], "value": ["v", None, ""]})
ROWS = [(None, b"v"), (b"gone", None), (b"empty", b"")]


def rows_of(path: Path) -> list[tuple[bytes | None, bytes | None]]:
    keys, values = Comparable(None, "key", None), Comparable(None, "value", None)
    return list(ExpectedRows(None, None, "value", keys, values).read([path]))


def test_a_null_of_csv_is_a_null(tmp_path: Path) -> None:
    pa.csv.write_csv(TABLE, tmp_path / "r.csv")
    assert rows_of(tmp_path / "r.csv") == ROWS


def test_rows_of_an_attempt_that_failed_are_not_expected(tmp_path: Path) -> None:
    for folder in ("", "_temporary/0/task_1", "_spark_metadata", ".hidden", "_id=7"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        pq.write_table(TABLE, tmp_path / folder / "part-0.parquet")
    assert rows_of(tmp_path) == ROWS * 2


def test_a_torn_line_hides_no_other_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = TaskOutcome(0, 1, 1, 1, 1, 1, 250, {}, {3: 1})
    lines = [WriteSummary(outcomes=[outcome], number=n).to_json(n * 1_000 + 1) + "\n" for n in range(5)]
    path = tmp_path / "r.jsonl"
    path.write_text("".join([*lines[:2], lines[2][:40], *lines[3:]]))
    assert run(["report", str(path), "--json"]) == 0
    assert [write["batch"] for write in json.loads(capsys.readouterr().out)] == [0, 1, 4]
