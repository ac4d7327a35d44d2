"""The files of a folder that the page of streams shows."""

from __future__ import annotations

import os
from pathlib import Path

from kafka_sink.ui.pages import Reports


def test_only_files_that_lie_in_the_folder_are_shown(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    (tmp_path / "secret").write_text("root:x:0:0\n")
    (folder / "passwd.json").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe.json")
    (folder / "folder.json").mkdir()
    (folder / "r.jsonl").write_text("")
    (folder / "r.txt").write_text("")
    assert Reports(folder).names() == ["r.jsonl"]
    assert {metric.tags for metric in Reports(folder).metrics()} == {(("report", "r.jsonl"),)}
