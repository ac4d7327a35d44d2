"""The requests of transactions: the effect of each error, their versions, and their fields."""

from __future__ import annotations

from kafka_sink.client.requests.outcomes import Reaction
from kafka_sink.common.errors import ErrorCode
from kafka_sink.producer.transactions.request_queue import reaction_to
from kafka_sink.protocol.api_key import ApiKey
from tests.support.cases import with_each

R = Reaction
E = ErrorCode
FIND, INIT, PARTITIONS, OFFSETS, COMMIT, END = (
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)
ALL = (FIND, INIT, PARTITIONS, OFFSETS, COMMIT, END)

#: Error → its effect in (FIND, INIT, PARTITIONS, OFFSETS, COMMIT, END), by the handlers of Kafka's TransactionManager.
TABLE = {
    E.COORDINATOR_LOAD_IN_PROGRESS: (R.RETRY,) * 6,
    E.CONCURRENT_TRANSACTIONS: (R.RETRY,) * 6,
    E.UNKNOWN_TOPIC_OR_PARTITION: (R.RETRY,) * 6,
    E.NETWORK_EXCEPTION: (R.RETRY,) * 6,
    E.REQUEST_TIMED_OUT: (R.RETRY, R.RETRY, R.RETRY, R.RETRY, R.LOOK_UP, R.RETRY),
    E.COORDINATOR_NOT_AVAILABLE: (R.RETRY, R.LOOK_UP, R.LOOK_UP, R.LOOK_UP, R.LOOK_UP, R.LOOK_UP),
    E.NOT_COORDINATOR: (R.RETRY, R.LOOK_UP, R.LOOK_UP, R.LOOK_UP, R.LOOK_UP, R.LOOK_UP),
    E.INVALID_PRODUCER_EPOCH: (R.FENCED,) * 6,
    E.PRODUCER_FENCED: (R.FENCED,) * 6,
    E.INVALID_TXN_STATE: (R.FATAL,) * 6,
    E.INVALID_PRODUCER_ID_MAPPING: (R.FATAL,) * 6,
    E.UNKNOWN_PRODUCER_ID: (R.FATAL, R.FATAL, R.BUMP, R.BUMP, R.BUMP, R.BUMP),
    E.TRANSACTION_ABORTABLE: (R.ABORT, R.UNINITIALIZE, R.ABORT, R.ABORT, R.ABORT, R.ABORT),
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (R.FATAL, R.UNINITIALIZE, R.FATAL, R.FATAL, R.FATAL, R.FATAL),
    E.CLUSTER_AUTHORIZATION_FAILED: (R.FATAL, R.UNINITIALIZE, R.ABORT, R.FATAL, R.FATAL, R.FATAL),
    E.GROUP_AUTHORIZATION_FAILED: (R.ABORT, R.FATAL, R.ABORT, R.ABORT, R.ABORT, R.FATAL),
    E.TOPIC_AUTHORIZATION_FAILED: (R.FATAL, R.FATAL, R.ABORT, R.FATAL, R.FATAL, R.FATAL),
    E.OPERATION_NOT_ATTEMPTED: (R.FATAL, R.FATAL, R.ABORT, R.FATAL, R.FATAL, R.FATAL),
    E.UNKNOWN_MEMBER_ID: (R.FATAL, R.FATAL, R.ABORT, R.FATAL, R.ABORT, R.FATAL),
    E.ILLEGAL_GENERATION: (R.FATAL, R.FATAL, R.ABORT, R.FATAL, R.ABORT, R.FATAL),
    E.FENCED_INSTANCE_ID: (R.FATAL, R.FATAL, R.ABORT, R.FATAL, R.ABORT, R.FATAL),
    E.OFFSET_METADATA_TOO_LARGE: (R.FATAL, R.FATAL, R.ABORT, R.FATAL, R.FATAL, R.FATAL),
    E.INVALID_TRANSACTION_TIMEOUT: (R.FATAL, R.FATAL, R.ABORT, R.FATAL, R.FATAL, R.FATAL),
    E.UNSUPPORTED_VERSION: (R.FATAL,) * 6,
    E.UNKNOWN_SERVER_ERROR: (R.FATAL, R.FATAL, R.ABORT, R.FATAL, R.FATAL, R.FATAL),
}


@with_each("code", TABLE)
def test_errors_are_taken_as_kafka_takes_them(code: ErrorCode) -> None:
    assert tuple(reaction_to(api, code) for api in ALL) == TABLE[code]


@with_each("api", ALL)
def test_no_retriable_error_ends_anything(api: ApiKey) -> None:
    lenient = (R.RETRY, R.LOOK_UP)
    assert all(reaction_to(api, code) in lenient for code in ErrorCode if code.is_retriable)
