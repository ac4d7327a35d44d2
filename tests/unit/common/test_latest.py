"""A long-lived process keeps only the latest keys."""

from __future__ import annotations

from kafka_sink.common.bounded import Latest
from kafka_sink.common.log_context import Said


def test_the_keys_that_were_used_last_are_kept() -> None:
    kept: Latest[str, int] = Latest(2)
    assert kept.put("a", 1) == 1
    kept.put("b", 2)
    assert kept.get("a") == 1, "and it is now the latest"
    kept.put("c", 3)
    assert [kept.get(key) for key in "abc"] == [1, None, 3]
    kept.put("a", 4)
    kept.put("d", 5)
    assert [kept.get(key) for key in "acd"] == [4, None, 5]


def test_what_was_said_is_kept_of_the_latest_texts_only() -> None:
    said = Said()
    assert all(said.is_new(f"topic {number}") for number in range(1000))
    assert not said.is_new("topic 0")
    assert said.is_new("topic 1000")
    assert not said.is_new("topic 0")
    assert said.is_new("topic 1"), "nobody had said it for a thousand texts"
