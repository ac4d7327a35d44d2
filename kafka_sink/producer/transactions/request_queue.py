"""The queued requests of a transactional producer, in the order in which they may be sent.

Belongs to the transaction manager, which holds its lock at every call. It never sends a request and knows nothing of
answers.

Source: apache/kafka ``TransactionManager`` (pendingRequests, TxnRequestHandler.Priority).
"""

from __future__ import annotations

import itertools
from bisect import insort
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

from kafka_sink.client.requests.outcomes import Attempts, CoordinatorKey, CoordinatorRequest, FindCoordinator
from kafka_sink.common.errors import KafkaError
from kafka_sink.producer.transactions.reactions import reaction_to
from kafka_sink.producer.transactions.state import TransactionalResult
from kafka_sink.protocol.api_key import ApiKey


class Priority(IntEnum):
    """The priority of a queued request: each kind depends on the results of those before it."""

    FIND_COORDINATOR = 0
    INIT_PRODUCER_ID = 1
    ADD_PARTITIONS_OR_OFFSETS = 2
    END_TXN = 3


_PRIORITIES: Final = {
    ApiKey.FIND_COORDINATOR: Priority.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID: Priority.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN: Priority.ADD_PARTITIONS_OR_OFFSETS,
    ApiKey.ADD_OFFSETS_TO_TXN: Priority.ADD_PARTITIONS_OR_OFFSETS,
    ApiKey.TXN_OFFSET_COMMIT: Priority.ADD_PARTITIONS_OR_OFFSETS,
    ApiKey.END_TXN: Priority.END_TXN,
}


class QueuedRequest:
    """One request that is queued, in flight, or sent again; *result* is completed with its outcome.

    :param then: a request that follows when this one has succeeded, with the same result.
    """

    def __init__(
        self,
        request: CoordinatorRequest[Any],
        result: TransactionalResult,
        *,
        then: CoordinatorRequest[Any] | None = None,
        not_before_ms: int = 0,
    ) -> None:
        self.attempts = Attempts(request, reaction_to)
        self.result = result
        self.then = then
        #: Earliest time to send the request, monotonic ms.
        self.not_before_ms = not_before_ms

    @property
    def request(self) -> CoordinatorRequest[Any]:
        """The request to send in the next attempt."""
        return self.attempts.request

    @property
    def priority(self) -> Priority:
        return _PRIORITIES[self.request.api_key]


class RequestQueue:
    """The queued requests, ordered by priority, then by arrival."""

    def __init__(self) -> None:
        self._entries: list[tuple[Priority, int, QueuedRequest]] = []
        self._numbers = itertools.count()

    @property
    def head(self) -> QueuedRequest | None:
        """The next request."""
        return self._entries[0][2] if self._entries else None

    def add(self, queued: QueuedRequest) -> None:
        insort(self._entries, (queued.priority, next(self._numbers), queued))

    def has_for(self, result: TransactionalResult) -> bool:
        """Whether a queued request will complete *result*."""
        return any(queued.result is result for _, _, queued in self._entries)

    def remove(self, queued: QueuedRequest) -> None:
        self._entries = [entry for entry in self._entries if entry[2] is not queued]

    def drop(self, error: KafkaError, is_dropped: Callable[[QueuedRequest], bool]) -> None:
        """Remove the requests that *is_dropped* selects, and fail their results with *error*."""
        dropped = [entry[2] for entry in self._entries if is_dropped(entry[2])]
        for queued in dropped:
            self.remove(queued)
            queued.result.fail(error)

    def is_sought(self, key: CoordinatorKey) -> bool:
        """Whether a request for that coordinator is queued already."""
        sought = (queued.request for _, _, queued in self._entries)
        return any(isinstance(each, FindCoordinator) and key in each.keys for each in sought)
