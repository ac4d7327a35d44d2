"""Exchanges that ask nobody: what stands for a client whose brokers are played by the test's own methods."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from kafka_sink.client.blocking.blocking import Exchange
from kafka_sink.exactly_once.model import Remembered

P = ParamSpec("P")
T = TypeVar("T")


def immediate(answer: Callable[P, T]) -> Callable[P, Exchange[T]]:
    """What *answer* returns, as an exchange; it is called when the exchange is run."""

    async def exchange(*args: P.args, **kwargs: P.kwargs) -> T:
        return answer(*args, **kwargs)

    return exchange


def returned(exchange: Exchange[T]) -> T:
    """What *exchange*, which asks nobody, returns."""
    try:
        exchange.send(None)
    except StopIteration as end:
        outcome: T = end.value
        return outcome
    raise AssertionError("this exchange asks somebody")


class ImmediateClient:
    """Runs exchanges that ask nobody; remembers nothing of a sink."""

    timeout_ms = 60_000

    @property
    def remembered(self) -> defaultdict[str, Remembered]:
        return defaultdict(Remembered)

    def run(self, exchange: Exchange[T]) -> T:
        return returned(exchange)

    def together(self, *exchanges: Exchange[Any]) -> tuple[Any, ...]:
        return tuple(map(returned, exchanges))
