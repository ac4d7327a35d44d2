"""Rates of partitions, from end offsets at given times."""

from __future__ import annotations

from kafka_sink.common.model import TopicPartition
from kafka_sink.ui.cluster_view import Rates

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_rate_is_known_once_a_partition_was_seen_twice() -> None:
    rates = Rates()
    rates.note(0, {A: 100})
    assert rates.per_s([A]) is None
    rates.note(2_000, {A: 300, B: 5})
    assert rates.per_s([A]) == 100
    assert rates.per_s([A, B]) is None


def test_rate_is_that_of_the_last_ten_seconds() -> None:
    rates = Rates()
    for second in range(31):
        rates.note(second * 1_000, {A: 50 * min(second, 20), B: 0})
    assert rates.per_s([A, B]) == 0
    rates.note(31_000, {A: 1_000, B: 110})
    assert rates.per_s([A, B]) == 11


def test_rate_begins_anew_with_a_topic_that_was_created_again() -> None:
    rates = Rates()
    for now_ms, end in ((0, 900), (1_000, 1_000), (2_000, 10)):
        rates.note(now_ms, {A: end})
    assert rates.per_s([A]) is None
    rates.note(3_000, {A: 20})
    assert rates.per_s([A]) == 10


def test_partitions_that_are_gone_are_forgotten() -> None:
    rates = Rates()
    for now_ms in (0, 1_000):
        rates.note(now_ms, {A: 1, B: 1})
    rates.keep([A])
    assert (rates.per_s([A]), rates.per_s([B])) == (0, None)
