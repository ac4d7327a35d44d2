"""The broker's defaults are Kafka's, except those that the page of differences lists with their reasons."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.common.config import keys
from tests.golden.make_broker_defaults import defaults

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "differences.md"
#: Options whose text differs although the meaning is the same as Kafka's.
THE_SAME = {
    "listeners": "the default port is in the address with which the cluster is started",
    "listener.security.protocol.map": "the order of a map",
    "quota.window.size.seconds": "1.0 is 1",
    "log.roll.ms": "Kafka's is log.roll.hours, of a week",
    "log.flush.interval.ms": "never",
    "log.retention.ms": "Kafka's is log.retention.hours, of a week",
}


def text_of(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else "" if value is None else str(value)


@pytest.mark.behaviour("Same answers as Apache Kafka", "Every default is Kafka's, or on the page with its reason")
def test_other_defaults_than_kafkas_are_on_the_page() -> None:
    kafka = defaults()
    ours = {name: text_of(item.default) for name, (_, item) in keys(BrokerConfig).items()}
    differ = {name for name, text in ours.items() if text != kafka.get(name, text)} - THE_SAME.keys()
    table = PAGE.read_text(encoding="utf-8").partition("## Other defaults")[2].partition("\n## ")[0]
    rows = [row.split(" | ") for row in table.splitlines() if row.startswith("| `")]
    assert {name for row in rows for name in re.findall("`([^`]+)`", row[0])} == differ
    for names, here, there, _ in rows:
        (*_, last) = re.findall("`([^`]+)`", names)
        assert here in (ours[last], "none", "by the content", ours[last].replace(",", ", "))
        assert there in (kafka[last], "none", "never")
