"""``kafkalite report``: the file of reportPath as a chart."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.cli.main import run
from kafka_sink.reports.chart import chart_of
from kafka_sink.reports.writes import SinkProgress, with_before
from kafka_sink.spark.driver.write_report import WriteSummary
from kafka_sink.spark.task.task_outcome import TaskOutcome


def line(bad_rows: int = 0, **more: Any) -> str:
    more.setdefault("timestamp_ms", 1_700_000_000_000 + more.get("batch", 0) * 2_000)
    commit = TaskOutcome(0, 1000 + bad_rows, 1000, 1, 1, 1, 250, {}, {3: 980, 40: 20}, bad_rows=bad_rows)
    return json.dumps({**json.loads(WriteSummary(outcomes=[commit]).to_json(0)), **more})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "orders.jsonl"
    numbers = [*range(7), 9]
    path.write_text("".join(line(batch=number, commit_ms=250) + "\n" for number in numbers))
    return path


@pytest.mark.behaviour("Progress and continuous triggers", "A report is shown as a chart of rates, times and gaps")
def test_last_writes_are_shown_with_rates_and_gaps(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(file), "--last", "3"]) == 0
    printed = capsys.readouterr().out
    assert "orders.jsonl: the last 3 of 8 writes" in printed
    assert "250 rows/s of the stream in its last minute" in printed
    rows = [row.split() for row in printed.splitlines() if row.strip().startswith("22:13:")]
    first, *others = ([*row[:5], *(part for part in row[5:] if "█" not in part)] for row in rows)
    # The write before the first row is not among the three rows.
    assert first == ["22:13:30", "5", "1,000", "0", "-", "2,000", "250", "250", "3", "40"]
    assert others[0][:5] == ["22:13:32", "6", "1,000", "0", "500"]
    assert others[1][:5] == ["22:13:38", "9", "1,000", "0", "167"]
    assert "2 before it missing from the file" in " ".join(printed.split())


def test_the_last_writes_as_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(file), "--last", "2", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["batch"], first["rows"], first["stream_rows_per_s"], first["write_rows_per_s"]) == (
        6,
        1000,
        None,
        2000,
    )
    assert (second["batch"], second["end_ms"], second["ack_p99_ms"], second["behind"]) == (
        9,
        1_700_000_018_000,
        40,
        None,
    )
    assert second["remark"] == "2 before it missing from the file"
    assert run(["report", str(file), "--json", "--output", "x.html"]) == 2


def test_skipped_writes_and_writes_without_number_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.jsonl"
    skipped = json.loads(WriteSummary(decision="skipped", sink="s", number=17).to_json(0))
    del skipped["timestamp_ms"]
    path.write_text(line() + "\n" + json.dumps(skipped) + "\n")
    assert run(["report", str(path)]) == 0
    first, second = (row.split() for row in capsys.readouterr().out.splitlines()[-3:-1])
    assert first[:6] == ["22:13:20", "-", "1,000", "0", "-", "4,000"]
    # A line of an earlier release has no timestamp.
    assert second[:6] == ["-", "17", "0", "0", "-", "0"] and second[-3:] == ["skipped:", "committed", "before"]


def test_chart_can_be_saved(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = file.with_suffix(".html")
    assert run(["report", str(file), "--output", str(target)]) == 0
    page = target.read_text()
    assert page.startswith("<!DOCTYPE html>") and "Plotly.newPlot" in page and "2,000" in page
    # The page loads no external resource.
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)


def test_time_without_writes_is_folded() -> None:
    def write(batch: int, end_ms: int) -> SinkProgress:
        return SinkProgress.of_report(json.loads(line(batch=batch, timestamp_ms=end_ms, commit_ms=100)))

    begin, hour = 1_700_000_000_000, 3_600_000
    ends = [begin + number * 1_000 + (hour if number > 4 else 0) for number in range(10)]
    chart = chart_of([write(number, end) for number, end in enumerate(ends)])
    assert chart is not None
    # From a typical interval after the last write to the start of the next one.
    assert chart["layout"]["xaxis"]["rangebreaks"] == [{"bounds": [ends[4] + 1_000, ends[5] - 350]}]
    assert [shape["x0"] for shape in chart["layout"]["shapes"]] == [ends[4] + 1_000]
    # A clock that goes backwards hides no part of the axis.
    back = chart_of([write(number, begin - number * 1_000) for number in range(10)])
    assert back is not None and back["layout"]["xaxis"]["rangebreaks"] == []


@pytest.mark.behaviour("Progress and continuous triggers", "A report shows and marks the bad rows of each write")
def test_bad_rows_have_a_column_and_are_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(line(batch=0) + "\n" + line(batch=1, bad_rows=4567) + "\n")
    assert run(["report", str(path), "--output", str(path.with_suffix(".html"))]) == 0
    rows = [row.split()[1:4] for row in capsys.readouterr().out.splitlines()[-3:-1]]
    assert rows == [["0", "1,000", "0"], ["1", "1,000", "4,567"]]
    page = path.with_suffix(".html").read_text()
    (style,) = re.findall(r'class="(r\d+)">4,567<', page)
    assert f".{style} {{color: #800000" in page, "dark red"


@pytest.mark.parametrize(
    ("text", "arguments", "code", "said"),
    [
        ("", [], 1, "is empty: no write with this reportPath has been committed yet"),
        ('{"rows": 1}\n', [], 1, "line 1 is not a report of a write: '{\"rows\": 1}'; give the file"),
        ("nonsense\n", [], 1, "line 1 is not a report of a write: 'nonsense'"),
        ("[]\n", [], 1, "line 1 is not a report of a write: '[]'"),
        ("", ["--output", "chart.svg"], 2, "expected a name that ends with .html"),
    ],
)
def test_files_that_are_no_reports_are_named(
    text: str, arguments: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    assert run(["report", str(path), *arguments]) == code
    assert said in capsys.readouterr().err


@pytest.mark.behaviour("Progress and continuous triggers", "What a report says cannot control a terminal")
def test_errors_in_a_report_control_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(line(batch=0) + "\n" + line(batch=1, decision="failed", error="\x1b[2J gone") + "\n")
    assert run(["report", str(path), "--output", str(path.with_suffix(".html"))]) == 0
    said = capsys.readouterr().out + path.with_suffix(".html").read_text()
    assert "\x1b" not in said and "u001b[2J" in "".join(said.split())
    for time in (-1, 10**30, "soon"):
        path.write_text(line(batch=0, timestamp_ms=time) + "\n")
        assert run(["report", str(path)]) == 1
        assert "line 1 is not a report of a write" in capsys.readouterr().err


def test_a_write_after_a_failed_one_follows_the_last_good_one() -> None:
    begin = 1_700_000_000_000
    lines = [line(batch=0), line(batch=1, decision="failed", timestamp_ms=begin + 1_999), line(batch=1), line(batch=2)]
    writes = [SinkProgress.of_report(json.loads(each)) for each in lines]
    pairs = with_before(writes)
    assert [before and before.batch for _, before in pairs] == [None, 0, 0, 1]
    assert [pair.rows_per_s for pair in pairs] == [None, None, 500, 500]
    assert [pair.remark for pair in pairs] == ["", "failed", "", ""]
