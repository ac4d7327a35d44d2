"""``kafkalite report --output … | head`` writes its page."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kafka_sink.cli.main import run
from kafka_sink.spark.driver.write_report import WriteSummary


def test_the_page_is_written_if_nobody_reads_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, page = tmp_path / "r.jsonl", tmp_path / "r.html"
    report.write_text("".join(f"{WriteSummary(number=n).to_json(n * 1_000 + 1)}\n" for n in range(5)))
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        code = run(["report", str(report), "--output", str(page)])
        monkeypatch.undo()
    assert (code, page.exists()) == (0, True)
