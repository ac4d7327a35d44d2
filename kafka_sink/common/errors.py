"""Kafka's error codes and their exceptions.

There are two families: :class:`ApiError` is an error of the cluster, or of the connection to it; :class:`ConfigError`,
:class:`SerializationError` and the builtin ``ValueError``/``RuntimeError`` mean misuse on the client side.

Source: https://kafka.apache.org/protocol#protocol_error_codes (codes), apache/kafka ``Errors.java`` (retriable or not).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, ClassVar, Final, Self

from kafka_sink.common.text import printable, words


class ErrorCode(IntEnum):
    """Protocol error codes that this project sends or understands; other codes are mapped to UNKNOWN_SERVER_ERROR."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    TRANSACTION_ABORTABLE = 120
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """The member for *code*; a code from a newer broker becomes UNKNOWN_SERVER_ERROR."""
        return _BY_CODE.get(code, cls.UNKNOWN_SERVER_ERROR)

    @property
    def is_retriable(self) -> bool:
        """Whether a retry may succeed without any intervention."""
        return self in _RETRIABLE

    @property
    def is_invalid_metadata(self) -> bool:
        """Whether the client's metadata is outdated and must be refreshed before the next attempt."""
        return self in _INVALID_METADATA


_BY_CODE: dict[int, ErrorCode] = {int(code): code for code in ErrorCode}


def codes(names: str) -> frozenset[ErrorCode]:
    """The codes with these *names*, separated by blanks."""
    return frozenset(ErrorCode[name] for name in words(names))


_INVALID_METADATA = codes("""
    UNKNOWN_TOPIC_OR_PARTITION LEADER_NOT_AVAILABLE NOT_LEADER_OR_FOLLOWER REPLICA_NOT_AVAILABLE NETWORK_EXCEPTION
    KAFKA_STORAGE_ERROR LISTENER_NOT_FOUND FENCED_LEADER_EPOCH PREFERRED_LEADER_NOT_AVAILABLE
    ELIGIBLE_LEADERS_NOT_AVAILABLE ELECTION_NOT_NEEDED UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID
""")

_RETRIABLE = _INVALID_METADATA | codes("""
    CORRUPT_MESSAGE REQUEST_TIMED_OUT COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR
    NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND NOT_CONTROLLER CONCURRENT_TRANSACTIONS
    FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH FETCH_SESSION_TOPIC_ID_ERROR UNKNOWN_LEADER_EPOCH
    OFFSET_NOT_AVAILABLE UNSTABLE_OFFSET_COMMIT THROTTLING_QUOTA_EXCEEDED
""")


#: Every repetition gets the same answer, until rows, options, permissions or the cluster change.
_PERMANENT = codes("""
    MESSAGE_TOO_LARGE INVALID_TOPIC_EXCEPTION RECORD_LIST_TOO_LARGE INVALID_REQUIRED_ACKS TOPIC_AUTHORIZATION_FAILED
    GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED INVALID_TIMESTAMP
    INVALID_RECORD UNSUPPORTED_SASL_MECHANISM UNSUPPORTED_VERSION UNSUPPORTED_FOR_MESSAGE_FORMAT
    UNSUPPORTED_COMPRESSION_TYPE POLICY_VIOLATION INVALID_TRANSACTION_TIMEOUT SECURITY_DISABLED
    SASL_AUTHENTICATION_FAILED
""")


class KafkaError(Exception):
    """The class of all errors of kafkalite.

    *topic*, *partition*, *option* (as the user writes it) and *column* (such as ``value.price``) are the objects that
    an error concerns; None if it concerns none, or it is unknown. *remedy* is the remedy for the errors of a class.
    """

    remedy: ClassVar[str] = "the text names the problem and a remedy"

    topic: str | None = None
    partition: int | None = None
    option: str | None = None
    column: str | None = None
    __module__ = "kafka_sink.errors"

    def of_option(self, name: str) -> Self:
        """Set the option *name* that this error concerns, and return the error."""
        self.option = name
        return self

    def __init_subclass__(cls) -> None:
        # Python's traces show the name that users import, and Spark reports errors as such a trace.
        if cls.__module__.startswith("kafka_sink."):
            cls.__module__ = "kafka_sink.errors"


class ConfigError(KafkaError, ValueError):
    """An option is missing, unknown or malformed, or contradicts another one; the text names the expected value."""

    remedy = "the text names the option, the value and the allowed values; [Options](options.md) lists all options"

    def __init__(self, text: object = "", *, option: str | None = None) -> None:
        super().__init__(text)
        self.option = option

    @classmethod
    def of(cls, option: str, problem: str) -> Self:
        """The error about *option*, whose name *problem* continues."""
        return cls(f"option {option}{problem}", option=option)


class SchemaError(ConfigError):
    """A column is missing, has another type, or would not be written."""

    remedy = "the text names the column and its type; [Columns](batch.md#columns)"


class UnresolvedReferenceError(ConfigError):
    """A reference to a secret, such as ``${file:/path:key}``, cannot be replaced in this process."""

    remedy = "the text names option, machine and reason; [secrets by reference](security.md#secrets-by-reference)"


class RequirementError(KafkaError, ImportError):
    """A package that is needed (Spark, Python, pyarrow, pandas, numpy) is too old, or missing."""

    remedy = "install the version that the text names, on the driver and on the executors"


class RegistryError(KafkaError):
    """The registry refused a request, sent an invalid answer, or could not be reached."""

    remedy = (
        "the text names the address, without credentials, and its answer; [With a schema "
        "registry](avro.md#with-a-schema-registry)"
    )


class RegistryUnavailableError(RegistryError):
    """The registry, or the token endpoint for it, could not be reached or failed. This affects every request."""

    remedy = (
        "the text names the address and its answer; start the registry, or correct the address. Readers retry after "
        "30 s"
    )


class RegistryDeniedError(RegistryError):
    """The registry refused the credentials, or they do not allow the request."""

    remedy = "check `basic.auth.user.info` or `bearer.auth.token`, and their permissions in the registry"


class IncompatibleSchemaError(RegistryError):
    """The registry refused a schema because it is not compatible with an earlier one of its subject."""

    remedy = "the text names the column, the subject and the registry's reason; [Change a schema](changing-a-schema.md)"


class SchemaNotFoundError(RegistryError):
    """The registry has no such subject, version or schema."""

    remedy = "register it, or set `auto.register.schemas=true`"


class UnusableSchemaError(RegistryError):
    """A schema has an unexpected type, or it refers to a schema that cannot be used."""

    remedy = "name the right format, or register it as one schema"


class SerializationError(KafkaError, ValueError):
    """A key, value or header could not be turned into bytes."""

    remedy = "the text names the serializer and the type"


class ProtocolError(KafkaError):
    """The peer sent bytes that violate the protocol; the connection cannot be used any more."""

    remedy = "check that the port is a Kafka listener with this `security.protocol`"


class InvalidReceiveError(ProtocolError):
    """A frame announced a size that is negative or exceeds the limit."""

    remedy = "check that the port is a Kafka listener with this `security.protocol`"


class CorruptRecordError(ProtocolError):
    """A record batch is damaged: wrong CRC, wrong lengths, or it does not decompress within its limit."""

    remedy = (
        "if the text names the offset of a record, its writer damaged it: `kafkalite consume` shows the record in "
        "hexadecimal digits, and continues with the next one"
    )


#: A string in the protocol has at most 32,767 bytes, and a character has at most four.
_LONGEST_TEXT: Final = 4000


class ApiError(KafkaError):
    """An error response of a broker, or a failure of the connection to it, with the protocol's error code."""

    remedy = "[by Kafka's name of the error](#errors-of-brokers), or Kafka's documentation of that name"
    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str, code: ErrorCode | None = None) -> None:
        # The message may contain data of a peer, which must not add lines to a log or control a terminal; and it has
        # to fit into a string of a response.
        message = printable(message)
        over = len(message) - _LONGEST_TEXT
        super().__init__(message if over <= 0 else f"{message[:_LONGEST_TEXT]}… ({over} characters more)")
        if code is not None:
            self.code = code

    @property
    def is_retriable(self) -> bool:
        return self.code.is_retriable


class KafkaTimeoutError(ApiError, TimeoutError):
    """A time-out of the client has expired (``max.block.ms``, ``delivery.timeout.ms``, that of a ``get``)."""

    remedy = "the text names the awaited event: metadata, memory or an acknowledgement"
    code = ErrorCode.REQUEST_TIMED_OUT


class BufferExhaustedError(KafkaTimeoutError):
    """``buffer.memory`` stayed full for the whole of ``max.block.ms``."""

    remedy = (
        "the brokers are slower than the rows: raise [`kafka.buffer.memory`](options.md#kafka.buffer.memory), or "
        "write fewer rows at a time"
    )


class DisconnectError(ApiError):
    """The connection was lost while a request was in flight."""

    remedy = "look into the broker's log; a busy broker may need a longer `request.timeout.ms` or higher quotas"
    code = ErrorCode.NETWORK_EXCEPTION


class NotConnectedError(DisconnectError):
    """There is no connection to the broker, so it has not seen the request."""

    remedy = "look into the broker's log; a busy broker may need a longer `request.timeout.ms` or higher quotas"


class BrokersUnreachableError(KafkaTimeoutError):
    """No broker, or not the required one, could be reached in time at its advertised address."""

    remedy = "the text has each address with its cause; run [`kafkalite check`](troubleshooting.md#check-before-a-job)"


class UnsupportedVersionError(ApiError):
    """The broker and this client have no version of an API in common."""

    remedy = (
        "upgrade the brokers: at least 3.3, or 3.6 for exactly once ([Versions](versions.md)); a "
        "[service](versions.md#hosted-kafkas) without transactions supports at-least-once writes only"
    )
    code = ErrorCode.UNSUPPORTED_VERSION


class InvalidRecordError(ApiError):
    """The brokers refuse records because of topic settings; *numbers* are the records' positions in their batch, if
    known."""

    remedy = (
        "the text has topic, partition, the record's position in its batch, the setting and the brokers' reason; grant "
        "DESCRIBE_CONFIGS on the topic, so that the sink finds such rows before it sends them"
    )
    code = ErrorCode.INVALID_RECORD

    def __init__(self, message: str, code: ErrorCode | None = None, numbers: Sequence[int] = ()) -> None:
        super().__init__(message, code)
        self.numbers = numbers


class InvalidTimestampError(ApiError):
    """A timestamp is too far from the time of the write for the settings of its topic."""

    remedy = "as for `InvalidRecordError`"
    code = ErrorCode.INVALID_TIMESTAMP


class RecordTooLargeError(ApiError):
    """A record is larger than ``max.request.size``, ``buffer.memory`` or the broker's limit."""

    remedy = "raise [`kafka.max.request.size`](options.md#kafka.max.request.size) and the topic's `max.message.bytes`"
    code = ErrorCode.MESSAGE_TOO_LARGE


class UnknownTopicOrPartitionError(ApiError):
    """The topic or the partition does not exist (and is not created automatically)."""

    remedy = "create it (`kafkalite topics create`), or set `topicPartitions`"
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class InvalidTopicError(ApiError):
    """The name of the topic is invalid."""

    remedy = "correct the name"
    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class AuthenticationError(ApiError):
    """The broker refused the client's credentials."""

    remedy = "the text names the mechanism and what to check; [Security](security.md)"
    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class SslAuthenticationError(AuthenticationError):
    """TLS failed: a certificate is not trusted, or the peers share no version or cipher. A retry does not help."""

    remedy = "the text names the certificate and the reason; [Security](security.md)"
    code = ErrorCode.UNKNOWN_SERVER_ERROR


class OutOfOrderSequenceError(ApiError):
    """There is a gap before this batch on the broker: data of this producer may have been lost."""

    remedy = "look into the brokers' logs; the task is tried again"
    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class ProducerFencedError(ApiError):
    """A newer producer took over this producer's id."""

    remedy = "run one producer for each `transactional.id`, and one query for each name"
    code = ErrorCode.PRODUCER_FENCED


class TransactionAbortableError(ApiError):
    """The transaction failed and can only be aborted; the producer can be used afterwards."""

    remedy = "`abort_transaction()`, then begin again"
    code = ErrorCode.TRANSACTION_ABORTABLE


class TransactionStateError(KafkaError):
    """A transactional method was called in the wrong state: before a required method, or after a fatal error."""

    remedy = "the text names the state and the call that is missing"


class RowError(KafkaError):
    """Rows of columns cannot be written: ``row`` is the index of the first of them, and ``problem`` completes the text
    "row N …".

    ``rows`` are the indices of the rows that are known to have this problem, in ascending order; rows with other
    problems are not among them. ``column`` is the path of the invalid column, such as ``value.price``; empty if the
    whole row is invalid.
    """

    remedy = (
        "the text names the row, the column and the setting; correct or filter such rows, keep them as [dead "
        "letters](dead-letters.md), or change the setting"
    )

    def __init__(self, row: int, problem: str, column: str = "") -> None:
        super().__init__(f"row {row} {problem}")
        self.row = row
        self.problem = problem
        self.column: str = column
        self.rows: Sequence[int] = (row,)
        self._problem_of: Callable[[int], str] | None = None

    @classmethod
    def about(cls, rows: Sequence[int], problem_of: Callable[[int], str], column: str = "") -> Self:
        """The error about all of *rows*, in ascending order; *problem_of* is called for the text of a row on demand."""
        error = cls(rows[0], problem_of(rows[0]), column)
        error.rows, error._problem_of = rows, problem_of
        return error

    def problem_of(self, row: int) -> str:
        """The ``problem`` of one of ``rows``."""
        return self.problem if self._problem_of is None else self._problem_of(row)

    def at(self, places: Sequence[int]) -> Self:
        """This error with the indices *places* instead of ``rows``; equal indices become one row."""
        origins: dict[int, int] = {}
        for place, row in zip(places, self.rows, strict=True):
            origins.setdefault(place, row)
        return type(self).about(list(origins), lambda place: self.problem_of(origins[place]), self.column)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.row, self.problem, self.column)


class RowSerializationError(RowError, SerializationError):
    """A key, value, header, timestamp or partition of a row is invalid."""

    remedy = "correct or filter such rows, or keep them as [dead letters](dead-letters.md)"


class BatchRefusedError(KafkaError):
    """A record is not stored because others in its batch were invalid; *reason* is the error of the first of them."""

    remedy = "correct the record whose error the text has, and send the others again"

    def __init__(self, reason: ApiError) -> None:
        super().__init__(
            "not stored, because other records in its batch were invalid, and a batch is stored as a whole; send it "
            f"again without those ({reason})"
        )
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason,)


class RowWithoutKeyError(RowSerializationError):
    """A row has no key, and its topic needs one."""

    remedy = "give each row a key: `cleanup.policy` of the topic is `compact`"


class RowTooLargeError(RowError, RecordTooLargeError):
    """A row would be a record that is too large."""

    remedy = (
        "raise [`kafka.max.request.size`](options.md#kafka.max.request.size) and the topic's `max.message.bytes`, or "
        "write smaller rows"
    )


class RowPartitionError(RowError, UnknownTopicOrPartitionError):
    """A row names a partition that its topic does not have."""

    remedy = "correct the column `partition`, or add partitions to the topic"


class SinkWriteError(KafkaError):
    """A task could not write all of its rows; the text gives the reason and the number of rows acknowledged before.

    *cause_class* is the name in :mod:`kafka_sink.errors` (or in Python) of the class of the error within the task, and
    *code* Kafka's error code, if the brokers refused a request. *topic*, *partition*, *option* and *column* (a path
    such as ``value.price``) are the objects that it concerns; None if it concerns none, or it is unknown.
    *is_permanent*: every repetition would fail in the same way, until rows, options, permissions or the cluster change.
    """

    remedy = "see `cause_class`, one of the classes of this page; Spark tries the task again"

    def __init__(
        self,
        text: str,
        *,
        cause_class: str = "",
        code: ErrorCode | None = None,
        topic: str | None = None,
        partition: int | None = None,
        option: str | None = None,
        column: str | None = None,
        is_permanent: bool = False,
    ) -> None:
        super().__init__(text)
        self.cause_class = cause_class or type(self).__name__
        self.code = code
        self.topic, self.partition = topic, partition
        self.option, self.column = option, column
        self.is_permanent = is_permanent


class UnwritableRowsError(SinkWriteError):
    """A row cannot be written as it is, and a repetition would fail in the same way."""

    remedy = "`cause_class` is one of the classes of rows: see there"


class TooManyBadRowsError(SinkWriteError):
    """More rows cannot be written than the option ``maxBadRows`` allows."""

    remedy = "the text has the first problem: correct the rows, or raise the limit; [Dead letters](dead-letters.md)"


class CancelledWriteError(KafkaError):
    """Another program or user cancelled the Spark job of a write (its group, stage or tag, or all jobs), or stopped
    Spark."""

    remedy = "the text says which rows remain in the topic; [Stop a write](batch.md#stop-a-write)"


_EXCEPTIONS: dict[ErrorCode, type[ApiError]] = {
    kind.code: kind
    for kind in (
        DisconnectError,
        UnsupportedVersionError,
        InvalidRecordError,
        InvalidTimestampError,
        RecordTooLargeError,
        UnknownTopicOrPartitionError,
        InvalidTopicError,
        AuthenticationError,
        OutOfOrderSequenceError,
        ProducerFencedError,
        TransactionAbortableError,
    )
}


def is_permanent(error: BaseException) -> bool:
    """Whether every repetition would fail with *error*, until rows, options, permissions or the cluster change."""
    if isinstance(error, SinkWriteError):
        return error.is_permanent
    if isinstance(error, ApiError) and error.code in _PERMANENT:
        return True
    return isinstance(error, (ConfigError, SerializationError, RowError, AuthenticationError))


def error_for(code: int, message: str | None = None) -> ApiError:
    """The exception for a protocol error *code*; *message* (of the broker or the client) follows the code's name."""
    known = ErrorCode.of(code)
    name = known.name if int(known) == code else f"error code {code}"
    text = f"{name}: {message}" if message else name
    return _EXCEPTIONS.get(known, ApiError)(text, known)
