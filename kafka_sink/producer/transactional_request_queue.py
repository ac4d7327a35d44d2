"""The requests of a transaction manager that wait to be sent, most urgent first.

Belongs to the transaction manager, which holds its lock at every call. It never sends anything.
"""

from __future__ import annotations

import itertools
from bisect import insort
from collections.abc import Callable

from kafka_sink.common.errors import KafkaError
from kafka_sink.producer.transaction_requests import CoordinatorKey, FindCoordinator, TransactionalRequest
from kafka_sink.producer.transaction_state import Priority, TransactionalResult


class TransactionalRequestQueue:
    """In order of their priority; within one, in the order in which they came."""

    def __init__(self) -> None:
        self._entries: list[tuple[Priority, int, TransactionalRequest]] = []
        self._numbers = itertools.count()

    @property
    def head(self) -> TransactionalRequest | None:
        """The one that goes first."""
        return self._entries[0][2] if self._entries else None

    def add(self, request: TransactionalRequest) -> None:
        insort(self._entries, (request.priority, next(self._numbers), request))

    def has_for(self, result: TransactionalResult) -> bool:
        """Whether a request waits that will bring *result*."""
        return any(request.result is result for _, _, request in self._entries)

    def remove(self, request: TransactionalRequest) -> None:
        self._entries = [entry for entry in self._entries if entry[2] is not request]

    def drop(self, error: KafkaError, is_dropped: Callable[[TransactionalRequest], bool]) -> None:
        """Forget the requests that *is_dropped* names; whoever waits for them is told *error*."""
        dropped = [entry[2] for entry in self._entries if is_dropped(entry[2])]
        for request in dropped:
            self.remove(request)
            request.result.fail(error)

    def is_sought(self, key: CoordinatorKey) -> bool:
        """A request for that coordinator waits already."""
        return any(isinstance(request, FindCoordinator) and request.sought == key for _, _, request in self._entries)
