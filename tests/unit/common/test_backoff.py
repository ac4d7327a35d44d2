"""Exponential backoff: Kafka's formula, its maximum, its jitter."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.common.clock import ExponentialBackoff


def test_without_jitter_it_doubles_up_to_the_cap() -> None:
    backoff = ExponentialBackoff(100, 1_000, jitter=0.0)
    assert [backoff.backoff_ms(attempts) for attempts in range(6)] == [100, 200, 400, 800, 1_000, 1_000]


@given(
    initial=st.integers(1, 10_000),
    most=st.integers(1, 100_000),
    attempts=st.integers(0, 10**6),
    seed=st.integers(0, 2**32),
)
def test_it_stays_within_the_jitter_of_the_capped_term(initial: int, most: int, attempts: int, seed: int) -> None:
    backoff = ExponentialBackoff(initial, most, rng=random.Random(seed))
    term = min(initial * 2 ** min(attempts, 40), max(most, initial))
    assert int(term * 0.8) <= backoff.backoff_ms(attempts) <= term * 1.2


def test_a_fleet_at_the_cap_is_spread() -> None:
    backoff = ExponentialBackoff(100, 1_000, rng=random.Random(1))
    assert len({backoff.backoff_ms(50) for _ in range(50)}) > 10


@pytest.mark.parametrize("attempts", [0, 1, 100])
def test_no_initial_backoff_means_no_waiting(attempts: int) -> None:
    assert ExponentialBackoff(0, 1_000).backoff_ms(attempts) == 0


def test_a_cap_below_the_initial_backoff_is_lifted_to_it() -> None:
    backoff = ExponentialBackoff(500, 100, jitter=0.0)
    assert [backoff.backoff_ms(attempts) for attempts in (0, 1, 9)] == [500, 500, 500]
