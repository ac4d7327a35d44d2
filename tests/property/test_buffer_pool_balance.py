"""After any sequence of operations on a pool, the allocated and the available bytes add up to its total."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka_sink.common.errors import BufferExhaustedError
from kafka_sink.producer.batching.buffer_pool import BufferPool
from tests.fakes.clock import FakeClock
from tests.support.amounts import examples

_TOTAL = 100


class PoolMachine(RuleBasedStateMachine):
    """Actions that run while the thread under test waits take the place of other threads."""

    @initialize(poolable=st.sampled_from([1, 7, 10, 33, 100]))
    def make(self, poolable: int) -> None:
        self.clock = FakeClock()
        self.pool = BufferPool(_TOTAL, poolable, self.clock, on_wait=lambda: None)
        self.poolable = poolable
        self.out: list[bytearray] = []

    def _give_back(self, index: int) -> None:
        if self.out:
            self.pool.deallocate(self.out.pop(index % len(self.out)))

    @rule(size=st.integers(1, _TOTAL), is_poolable=st.booleans(), others=st.lists(st.integers(0, 100), max_size=4))
    def allocate(self, size: int, is_poolable: bool, others: list[int]) -> None:
        size = self.poolable if is_poolable else size
        enough = _TOTAL - sum(map(len, self.out)) >= size
        for index in others:
            self.clock.actions.append(lambda index=index: self._give_back(index))  # type: ignore[misc]
        try:
            buffer = self.pool.allocate(size, 10)
        except BufferExhaustedError:
            assert not enough
        else:
            assert len(buffer) == size
            self.out.append(buffer)
        if enough:
            assert len(self.clock.actions) == len(others), "waited although there was enough"
        self.clock.actions.clear()

    @rule(size=st.integers(1, _TOTAL), is_poolable=st.booleans())
    def try_to_allocate(self, size: int, is_poolable: bool) -> None:
        size = self.poolable if is_poolable else size
        buffer = self.pool.try_allocate(size)
        if buffer is None:
            assert _TOTAL - sum(map(len, self.out)) < size
        else:
            assert len(buffer) == size
            self.out.append(buffer)

    @rule(index=st.integers(0, 100))
    def give_back(self, index: int) -> None:
        self._give_back(index)

    @rule(size=st.integers(_TOTAL + 1, 1000))
    def ask_for_too_much(self, size: int) -> None:
        with pytest.raises(ValueError, match="cannot allocate"):
            self.pool.allocate(size, 10)

    @invariant()
    def balanced(self) -> None:
        if hasattr(self, "pool"):
            assert self.pool.available_memory + sum(map(len, self.out)) == _TOTAL
            assert self.pool.queued == 0

    def teardown(self) -> None:
        if hasattr(self, "pool"):
            while self.out:
                self._give_back(0)
            assert self.pool.available_memory == _TOTAL
            assert len(self.pool.allocate(_TOTAL, 0)) == _TOTAL


TestPool: Any = PoolMachine.TestCase
TestPool.settings = settings(max_examples=examples(240), stateful_step_count=30, deadline=None)
