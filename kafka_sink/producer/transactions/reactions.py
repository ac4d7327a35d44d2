"""The meaning of each error for a producer with an id: one table for the answers to its requests, and one for its
batches.

The requests and the transaction manager read it on the sender thread. It has no state, and distinguishes errors by
their codes only.

Source: the handlers of apache/kafka ``TransactionManager``; KIP-1050 (classes of errors).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.api_key import ApiKey


class Reaction(Enum):
    """The effect of an error code on the request and on the producer."""

    RETRY = "the request is sent again after a pause"
    LOOK_UP = "likewise, to the coordinator that is found anew"
    ABORT = "the transaction can only be aborted"
    BUMP = "likewise, and the next one needs a new epoch"
    UNINITIALIZE = "no id was given; asking for one may be tried again"
    FENCED = "another producer holds the transactional id: an error for good"
    FATAL = "an error for good"


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


def gravest(api_key: ApiKey, codes: Iterable[ErrorCode]) -> ErrorCode:
    """The most severe of *codes*. OPERATION_NOT_ATTEMPTED is only chosen if there is no other code."""
    order = list(Reaction)
    told = [code for code in codes if code is not ErrorCode.OPERATION_NOT_ATTEMPTED]
    return max(
        told, key=lambda code: order.index(reaction_to(api_key, code)), default=ErrorCode.OPERATION_NOT_ATTEMPTED
    )
