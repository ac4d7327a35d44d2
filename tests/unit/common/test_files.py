"""Files that other processes read while they are written."""

from __future__ import annotations

from pathlib import Path

from kafka_sink.common.files import replace_text


def test_a_planted_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target, file = tmp_path / "precious", tmp_path / "kafka.prom"
    target.write_text("precious")
    (tmp_path / "kafka.prom.tmp").symlink_to(target)
    replace_text(file, "metrics")
    assert (file.read_text(), file.is_symlink(), target.read_text()) == ("metrics", False, "precious")
    replace_text(file, "more")
    assert [each.name for each in sorted(tmp_path.iterdir())] == ["kafka.prom", "precious"]
    assert file.read_text() == "more"
