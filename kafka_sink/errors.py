"""Every error that users may catch. The tree says what to do about an error:

* :class:`ConfigError`: change the options, the columns' types, the schema or the versions of packages;
* :class:`RowError`, :class:`SerializationError`, :class:`TooManyBadRowsError`: correct the rows, or keep them as dead
  letters;
* :class:`AuthenticationError`, and an :class:`ApiError` whose ``code`` is an ``…_AUTHORIZATION_FAILED``: correct the
  credentials, or grant what is missing;
* :class:`ApiError`, :class:`SinkWriteError`, :class:`ProtocolError`: look at the brokers and the connection; most are
  worth another attempt (``error.code.is_retriable``);
* :class:`RegistryError`: look at the schema registry;
* :class:`ExactlyOnceError`: the text says whether to run the batch again, or what somebody has to decide.

All of them are a :class:`KafkaError`. Errors that Spark raises for a failed job, among them those of tasks, contain the
text of one of these.
"""

from __future__ import annotations

from kafka_sink.common.errors import (
    ApiError,
    AuthenticationError,
    BatchRefusedError,
    BrokersUnreachableError,
    BufferExhaustedError,
    ConfigError,
    CorruptRecordError,
    DisconnectError,
    ErrorCode,
    InvalidReceiveError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    NotConnectedError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    ProtocolError,
    RecordTooLargeError,
    RowError,
    RowPartitionError,
    RowSerializationError,
    RowTooLargeError,
    RowWithoutKeyError,
    SerializationError,
    SslAuthenticationError,
    TransactionAbortableError,
    TransactionStateError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafka_sink.common.references import UnresolvedReferenceError
from kafka_sink.common.requirements import RequirementError
from kafka_sink.exactly_once.lost_ends import LostEndError
from kafka_sink.exactly_once.model import (
    AttemptError,
    ExactlyOnceError,
    FencedError,
    OutdatedProgressError,
    ProgressError,
    TornBatchError,
    UndecidedError,
    UnwritableRowsError,
)
from kafka_sink.formats.errors import FormatError
from kafka_sink.producer.futures import PartlyStagedError
from kafka_sink.registry.errors import (
    IncompatibleSchemaError,
    RegistryDeniedError,
    RegistryError,
    RegistryUnavailableError,
    SchemaNotFoundError,
    UnusableSchemaError,
)
from kafka_sink.spark.errors import CancelledWriteError, PlanError, SchemaError, SinkWriteError, TooManyBadRowsError

__all__ = [
    "ApiError",
    "AttemptError",
    "AuthenticationError",
    "BatchRefusedError",
    "BrokersUnreachableError",
    "BufferExhaustedError",
    "CancelledWriteError",
    "ConfigError",
    "CorruptRecordError",
    "DisconnectError",
    "ErrorCode",
    "ExactlyOnceError",
    "FencedError",
    "FormatError",
    "IncompatibleSchemaError",
    "InvalidReceiveError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "KafkaError",
    "KafkaTimeoutError",
    "LostEndError",
    "NotConnectedError",
    "OutOfOrderSequenceError",
    "OutdatedProgressError",
    "PartlyStagedError",
    "PlanError",
    "ProducerFencedError",
    "ProgressError",
    "ProtocolError",
    "RecordTooLargeError",
    "RegistryDeniedError",
    "RegistryError",
    "RegistryUnavailableError",
    "RequirementError",
    "RowError",
    "RowPartitionError",
    "RowSerializationError",
    "RowTooLargeError",
    "RowWithoutKeyError",
    "SchemaError",
    "SchemaNotFoundError",
    "SerializationError",
    "SinkWriteError",
    "SslAuthenticationError",
    "TooManyBadRowsError",
    "TornBatchError",
    "TransactionAbortableError",
    "TransactionStateError",
    "UndecidedError",
    "UnknownTopicOrPartitionError",
    "UnresolvedReferenceError",
    "UnsupportedVersionError",
    "UnusableSchemaError",
    "UnwritableRowsError",
]
