"""The bound on the memory of all logins together, and the logins that are possible beyond it."""

from __future__ import annotations

import pytest

from kafka_sink.network.frames import LoginMemoryPool


@pytest.mark.behaviour("SASL", "All logins together hold a bounded memory, and small ones are always granted")
def test_small_frames_are_granted_when_nothing_is_left() -> None:
    pool = LoginMemoryPool(1_000, free_bytes=100)
    assert pool.try_reserve(999)
    assert pool.try_reserve(500)
    assert not pool.try_reserve(101)
    assert pool.try_reserve(100)
    pool.release(100)
    pool.release(999)
    assert pool.try_reserve(101)
