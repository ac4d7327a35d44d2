"""The queued requests of a transactional producer, in the order in which they may be sent.

Belongs to the transaction manager, which holds its lock at every call. It never sends a request.

Also the meaning of each error for a producer with an id: one table for the answers to its requests, one for its
batches, and the remedies for refusals. Errors are distinguished by their codes only. A driver of exactly-once writes
reacts differently to the same errors: ``client/blocking/coordinator_requests.py`` explains why.

Source: apache/kafka ``TransactionManager`` (pendingRequests, TxnRequestHandler and its handlers); KIP-1050 (classes of
errors).
"""

from __future__ import annotations

import itertools
from bisect import insort
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final

from kafka_sink.client.requests.outcomes import Attempts, CoordinatorKey, CoordinatorRequest, FindCoordinator, Reaction
from kafka_sink.client.requests.transactional_requests import InitProducerId
from kafka_sink.common.errors import ErrorCode, KafkaError
from kafka_sink.common.remedies import Situation, remedy
from kafka_sink.producer.transactions.state_machine import TransactionalResult
from kafka_sink.protocol.api_key import ApiKey

_COMMON: Final[Mapping[ErrorCode, Reaction]] = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.LOOK_UP,
    ErrorCode.NOT_COORDINATOR: Reaction.LOOK_UP,
    ErrorCode.INVALID_PRODUCER_EPOCH: Reaction.FENCED,
    ErrorCode.PRODUCER_FENCED: Reaction.FENCED,
    ErrorCode.TRANSACTION_ABORTABLE: Reaction.ABORT,
}

_OWN: Final[Mapping[ApiKey, Mapping[ErrorCode, Reaction]]] = {
    ApiKey.FIND_COORDINATOR: {
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.RETRY,
        ErrorCode.NOT_COORDINATOR: Reaction.RETRY,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Reaction.ABORT,
    },
    ApiKey.INIT_PRODUCER_ID: {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Reaction.UNINITIALIZE,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Reaction.UNINITIALIZE,
        ErrorCode.TRANSACTION_ABORTABLE: Reaction.UNINITIALIZE,
    },
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        ErrorCode.UNKNOWN_PRODUCER_ID: Reaction.BUMP,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: Reaction.FATAL,
        ErrorCode.INVALID_TXN_STATE: Reaction.FATAL,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Reaction.FATAL,
        ErrorCode.UNSUPPORTED_VERSION: Reaction.FATAL,
    },
    ApiKey.ADD_OFFSETS_TO_TXN: {
        ErrorCode.UNKNOWN_PRODUCER_ID: Reaction.BUMP,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Reaction.ABORT,
    },
    ApiKey.TXN_OFFSET_COMMIT: {
        ErrorCode.REQUEST_TIMED_OUT: Reaction.LOOK_UP,
        ErrorCode.UNKNOWN_PRODUCER_ID: Reaction.BUMP,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Reaction.ABORT,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.ABORT,
        ErrorCode.ILLEGAL_GENERATION: Reaction.ABORT,
        ErrorCode.FENCED_INSTANCE_ID: Reaction.ABORT,
    },
    ApiKey.END_TXN: {ErrorCode.UNKNOWN_PRODUCER_ID: Reaction.BUMP},
}

#: Errors of a batch after which this producer cannot write anything any more.
FATAL_FOR_BATCHES: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


def reaction_to(api_key: ApiKey, code: ErrorCode) -> Reaction:
    """The reaction to the error *code* in an answer to *api_key*."""
    reaction = _OWN[api_key].get(code) or _COMMON.get(code)
    if reaction is not None:
        return reaction
    if code.is_retriable:
        return Reaction.RETRY
    # A partition that cannot be added affects this transaction only.
    return Reaction.ABORT if api_key is ApiKey.ADD_PARTITIONS_TO_TXN else Reaction.FATAL


def advice(request: CoordinatorRequest[Any], code: ErrorCode, option_prefix: str) -> str:
    """The remedy for the refusal of *request* with *code*, as the end of its text; empty if nothing is
    known.

    :param option_prefix: the prefix that the user writes before the names of options.
    """
    if not isinstance(request, InitProducerId):
        return ""
    if request.transactional_id is None:
        return f": {remedy(Situation.IDEMPOTENCE, code) or _SEE_LOGS}, or set {option_prefix}enable.idempotence=false"
    return f": {remedy(Situation.TRANSACTIONAL_ID, code) or _SEE_LOGS}"


_SEE_LOGS: Final = "see the brokers' logs"


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
        """Whether a FindCoordinator for *key* is queued already."""
        sought = (queued.request for _, _, queued in self._entries)
        return any(isinstance(request, FindCoordinator) and key in request.keys for request in sought)
