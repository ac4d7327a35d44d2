"""Whose checkpoint a folder is."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_sink.spark.checkpoint import query_of


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_a_checkpoint_on_this_machine_says_which_query_it_is_of(tmp_path: Path, form: str) -> None:
    (tmp_path / "metadata").write_text('{"id":"5f0c8d7e-1"}')
    assert query_of(form.format(tmp_path)) == "5f0c8d7e-1"


@pytest.mark.parametrize("text", ["", "[]", "7", "{}", '{"id": 7}', "\udcff"])
def test_what_is_no_metadata_of_a_query_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "metadata").write_bytes(text.encode(errors="surrogateescape"))
    assert query_of(str(tmp_path)) is None


@pytest.mark.parametrize(
    "location", [None, "", "hdfs://nn:8020/checkpoints/orders", "s3a://bucket/x", "file://host/x", "/absent"]
)
def test_what_cannot_be_read_here_says_nothing(location: str | None) -> None:
    assert query_of(location) is None
