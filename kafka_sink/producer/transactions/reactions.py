"""The meaning of each error for a producer with an id: one table for the answers to its requests, one for its batches,
and what the user can do about a refusal.

The transaction manager reads it on the sender thread. It has no state, and distinguishes errors by their codes only. A
driver of exactly-once writes takes the same errors differently: ``client/blocking/coordinator_requests.py`` says why.

Source: the handlers of apache/kafka ``TransactionManager``; KIP-1050 (classes of errors).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kafka_sink.client.requests.outcomes import CoordinatorRequest, Reaction
from kafka_sink.client.requests.transactional_requests import InitProducerId
from kafka_sink.common.errors import ErrorCode
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


def remedy(request: CoordinatorRequest[Any], code: ErrorCode, option_prefix: str) -> str:
    """What the user can do about the refusal of *request* with *code*, as the end of its text; empty if nothing is
    known.

    :param option_prefix: the prefix that the user writes before the names of options.
    """
    if not isinstance(request, InitProducerId):
        return ""
    if request.transactional_id is None:
        advice = _PRODUCER_ID_REMEDIES.get(code, _SEE_LOGS)
        return f": {advice}, or set {option_prefix}enable.idempotence=false"
    return f": {_TRANSACTIONAL_ID_REMEDIES.get(code, _SEE_LOGS)}"


_SEE_LOGS: Final = "see the brokers' logs"

_PRODUCER_ID_REMEDIES: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        "grant WRITE on the topic to this principal (before Kafka 2.8: IDEMPOTENT_WRITE on the cluster)"
    ),
    ErrorCode.UNSUPPORTED_VERSION: "idempotent writes need brokers of version 0.11 or newer; upgrade them",
}

_TRANSACTIONAL_ID_REMEDIES: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant WRITE on this transactional id to this principal",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "transaction.timeout.ms is more than the brokers' transaction.max.timeout.ms; lower the former or raise the "
        "latter"
    ),
    ErrorCode.PRODUCER_FENCED: "a newer producer with the same id has taken over",
    ErrorCode.INVALID_REQUEST: "these brokers do not support transactions",
    ErrorCode.UNSUPPORTED_VERSION: "transactions need brokers of version 0.11 or newer; upgrade them",
}
