"""The page of differences names the clients of each API; an API that no client requests is not served."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafka_sink.broker.handlers.dispatch import HANDLERS
from kafka_sink.broker.network.request_metrics import kafka_name

PAGE = Path(__file__).parents[3] / "docs" / "internals" / "differences.md"


@pytest.mark.behaviour("Same answers as Apache Kafka", "For each API that is served, the page names who asks for it")
def test_each_served_api_has_a_line_with_who_asks() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Served APIs")[2].partition("| feature |")[0]
    rows = re.findall(r"^\| (\w+) \| (.{3,}) \|$", section, re.MULTILINE)
    assert sorted(name for name, _ in rows if name != "API") == sorted(map(kafka_name, HANDLERS))
