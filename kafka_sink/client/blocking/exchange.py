"""Exchanges with brokers as coroutines, so that several can run concurrently on one thread.

An :data:`Exchange` awaits the answers to a :class:`Round` of requests, or a :class:`Pause`. It neither sends nor waits
itself, and its own requests keep their order. :func:`run_together` runs any number of exchanges on the calling thread;
the requests of one round are in flight together. There is no event loop: nothing else can be awaited in an exchange.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from kafka_sink.client.blocking.blocking import BlockingClient, RequestSpec
from kafka_sink.common.clock import Clock, ExponentialBackoff, end_of
from kafka_sink.common.errors import ApiError, BrokersUnreachableError, KafkaTimeoutError, NotConnectedError
from kafka_sink.common.model import Node
from kafka_sink.protocol.schema import Struct


@dataclass(frozen=True)
class Round:
    """Independent requests; those with node None may go to any broker.

    A request without an answer has an error in its place, as in :meth:`BlockingClient.request_all`.
    """

    requests: Sequence[tuple[Node | None, RequestSpec]]
    timeout_ms: int

    def __await__(self) -> Generator[Round, Answers, Answers]:
        """The answers, in the order of the requests."""
        return (yield self)


@dataclass(frozen=True)
class Pause:
    """A pause without requests."""

    duration_ms: int

    def __await__(self) -> Generator[Pause, Answers, None]:
        yield self


#: The answers to a :class:`Round`, in its order.
Answers: TypeAlias = Sequence[Struct | ApiError]

T = TypeVar("T")
#: What an ``async def`` function of requests returns.
Exchange: TypeAlias = Coroutine[Any, Any, T]


#: The errors of requests that no broker has seen.
UNREACHABLE: Final = (NotConnectedError, BrokersUnreachableError)


class Tries:
    """The tries of something that is repeated until it succeeds: how much time is left for the next one, and the pauses
    between them. They begin when this is made.

    :param timeout_ms: the most that all of them take together.
    """

    def __init__(self, clock: Clock, backoff: ExponentialBackoff, timeout_ms: int) -> None:
        self._clock = clock
        self._backoff = backoff
        self._timeout_ms = timeout_ms
        self._deadline_ms = end_of(timeout_ms, clock)
        self._pauses = 0

    @property
    def left_ms(self) -> int:
        """The time of the next try, at least 1 ms."""
        return max(self._deadline_ms - self._clock.monotonic_ms(), 1)

    def part(self) -> Tries:
        """The tries of a part, with the same deadline and pauses that begin anew."""
        part = copy(self)
        part._pauses = 0
        return part

    def next_pause(self) -> Pause | None:
        """The pause before the next try; None if the deadline would pass."""
        backoff_ms = self._backoff.backoff_ms(self._pauses)
        self._pauses += 1
        return Pause(backoff_ms) if self._clock.monotonic_ms() + backoff_ms < self._deadline_ms else None

    def pause(self, what: str, why: ApiError) -> Pause:
        """The pause before *what*, which failed with *why*, is tried again.

        :raises BrokersUnreachableError: if the deadline would pass, and the broker could not be reached at last.
        :raises KafkaTimeoutError: if the deadline would pass otherwise.
        """
        pause = self.next_pause()
        if pause is None:
            kind = BrokersUnreachableError if isinstance(why, UNREACHABLE) else KafkaTimeoutError
            raise kind(f"{what} did not complete within {self._timeout_ms} ms: {why}") from why
        return pause


def run_together(client: BlockingClient, clock: Clock, exchanges: Sequence[Exchange[Any]]) -> list[Any]:
    """Run *exchanges* and return their results. An error raised by one ends all of them."""
    results: list[Any] = [None] * len(exchanges)
    rounds: dict[int, Round] = {}
    due_ms: dict[int, int] = {}

    def go_on(index: int, answers: Answers | None) -> None:
        """Resume an exchange up to its next step; *answers* is None at its start."""
        try:
            step = exchanges[index].send(answers)
        except StopIteration as end:
            results[index] = end.value
            return
        if isinstance(step, Round):
            rounds[index] = step
        else:
            due_ms[index] = clock.monotonic_ms() + step.duration_ms

    try:
        for index in range(len(exchanges)):
            go_on(index, None)
        while rounds or due_ms:
            if rounds:
                pending, rounds = rounds, {}
                for index, answers in zip(pending, _ask(client, clock, list(pending.values())), strict=True):
                    go_on(index, answers)
            else:
                client.idle(max(min(due_ms.values()) - clock.monotonic_ms(), 0))
            for index in [index for index, at_ms in due_ms.items() if at_ms <= clock.monotonic_ms()]:
                del due_ms[index]
                go_on(index, ())
    finally:
        for exchange in exchanges:
            exchange.close()
    return results


def _ask(client: BlockingClient, clock: Clock, rounds: Sequence[Round]) -> list[Answers]:
    """The answers to all *rounds*; the requests to known brokers are in flight together, those to any broker follow one
    by one in what is left of the time."""
    started_ms = clock.monotonic_ms()

    def of_any(spec: RequestSpec, timeout_ms: int) -> Struct | ApiError:
        left_ms = max(started_ms + timeout_ms - clock.monotonic_ms(), 1)
        try:
            return client.ask(None, spec, timeout_ms=left_ms)
        except ApiError as error:
            return error

    of_brokers = [(node, spec) for each in rounds for node, spec in each.requests if node is not None]
    timeout_ms = max(each.timeout_ms for each in rounds)
    answers = iter(client.request_all(of_brokers, timeout_ms=timeout_ms) if of_brokers else ())
    return [
        [of_any(spec, each.timeout_ms) if node is None else next(answers) for node, spec in each.requests]
        for each in rounds
    ]
