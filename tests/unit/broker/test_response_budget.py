"""The bound on the memory of responses that wait to be sent."""

from __future__ import annotations

import pytest

from kafka_sink.broker.network.quotas import ResponseBudget


@pytest.mark.behaviour("Request memory", "All fetch answers together have a bound (queued.max.response.bytes)")
def test_reserving_may_exceed_the_limit_until_released() -> None:
    budget = ResponseBudget(100)
    budget.reserve(60)
    assert budget.available_bytes == 40
    budget.reserve(60)
    assert budget.available_bytes == 0
    budget.release(60)
    assert budget.available_bytes == 40


def test_releasing_what_was_not_reserved_is_refused() -> None:
    with pytest.raises(ValueError, match="5 bytes released, 0 are reserved"):
        ResponseBudget(100).release(5)
