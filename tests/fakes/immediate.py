"""Exchanges without network: they replace a client whose brokers are simulated by methods of the test."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from kafka_sink.client.blocking.blocking import Exchange
from kafka_sink.exactly_once.model import Remembered

P = ParamSpec("P")
T = TypeVar("T")


def immediate(answer: Callable[P, T]) -> Callable[P, Exchange[T]]:
    """Return an exchange that returns the result of *answer*, which is called when the exchange is run."""

    async def exchange(*args: P.args, **kwargs: P.kwargs) -> T:
        return answer(*args, **kwargs)

    return exchange


def returned(exchange: Exchange[T]) -> T:
    """Return the result of *exchange*, which must send no request."""
    try:
        exchange.send(None)
    except StopIteration as end:
        outcome: T = end.value
        return outcome
    raise AssertionError("this exchange asks somebody")


class ImmediateClient:
    """Runs exchanges that send no request; its state of each sink is always empty."""

    timeout_ms = 60_000

    @property
    def remembered(self) -> defaultdict[str, Remembered]:
        return defaultdict(Remembered)

    def run(self, exchange: Exchange[T]) -> T:
        return returned(exchange)

    def together(self, *exchanges: Exchange[Any]) -> tuple[Any, ...]:
        return tuple(map(returned, exchanges))
