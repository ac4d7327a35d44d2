"""Every error that users may catch. The tree says what to do about an error:

* :class:`ConfigError`: change the options, the columns' types, the schema or the versions of packages;
* :class:`RowError`, :class:`SerializationError`, :class:`UnwritableRowsError`, :class:`TooManyBadRowsError`: correct
  the rows, or keep them as dead letters;
* :class:`AuthenticationError`, and an :class:`ApiError` whose ``code`` is an ``…_AUTHORIZATION_FAILED``: correct the
  credentials, or grant what is missing;
* :class:`ApiError`, :class:`SinkWriteError`, :class:`ProtocolError`: look at the brokers and the connection; most are
  worth another attempt (``error.code.is_retriable``);
* :class:`RegistryError`: look at the schema registry;
* :class:`ExactlyOnceError`: the text says whether to run the batch again, or what somebody has to decide.

All of them are a :class:`KafkaError`. Errors that Spark raises for a failed job contain one of these, which
:func:`kafka_sink.cause_of` returns; that of a task is a :class:`SinkWriteError`.
"""

from kafka_sink.common.errors import ApiError as ApiError
from kafka_sink.common.errors import AuthenticationError as AuthenticationError
from kafka_sink.common.errors import BatchRefusedError as BatchRefusedError
from kafka_sink.common.errors import BrokersUnreachableError as BrokersUnreachableError
from kafka_sink.common.errors import BufferExhaustedError as BufferExhaustedError
from kafka_sink.common.errors import CancelledWriteError as CancelledWriteError
from kafka_sink.common.errors import ConfigError as ConfigError
from kafka_sink.common.errors import CorruptRecordError as CorruptRecordError
from kafka_sink.common.errors import DisconnectError as DisconnectError
from kafka_sink.common.errors import ErrorCode as ErrorCode
from kafka_sink.common.errors import InvalidReceiveError as InvalidReceiveError
from kafka_sink.common.errors import InvalidRecordError as InvalidRecordError
from kafka_sink.common.errors import InvalidTimestampError as InvalidTimestampError
from kafka_sink.common.errors import InvalidTopicError as InvalidTopicError
from kafka_sink.common.errors import KafkaError as KafkaError
from kafka_sink.common.errors import KafkaTimeoutError as KafkaTimeoutError
from kafka_sink.common.errors import NotConnectedError as NotConnectedError
from kafka_sink.common.errors import OutOfOrderSequenceError as OutOfOrderSequenceError
from kafka_sink.common.errors import ProducerFencedError as ProducerFencedError
from kafka_sink.common.errors import ProtocolError as ProtocolError
from kafka_sink.common.errors import RecordTooLargeError as RecordTooLargeError
from kafka_sink.common.errors import RowError as RowError
from kafka_sink.common.errors import RowPartitionError as RowPartitionError
from kafka_sink.common.errors import RowSerializationError as RowSerializationError
from kafka_sink.common.errors import RowTooLargeError as RowTooLargeError
from kafka_sink.common.errors import RowWithoutKeyError as RowWithoutKeyError
from kafka_sink.common.errors import SchemaError as SchemaError
from kafka_sink.common.errors import SerializationError as SerializationError
from kafka_sink.common.errors import SinkWriteError as SinkWriteError
from kafka_sink.common.errors import SslAuthenticationError as SslAuthenticationError
from kafka_sink.common.errors import TooManyBadRowsError as TooManyBadRowsError
from kafka_sink.common.errors import TransactionAbortableError as TransactionAbortableError
from kafka_sink.common.errors import TransactionStateError as TransactionStateError
from kafka_sink.common.errors import UnknownTopicOrPartitionError as UnknownTopicOrPartitionError
from kafka_sink.common.errors import UnsupportedVersionError as UnsupportedVersionError
from kafka_sink.common.errors import UnwritableRowsError as UnwritableRowsError
from kafka_sink.common.references import UnresolvedReferenceError as UnresolvedReferenceError
from kafka_sink.common.requirements import RequirementError as RequirementError
from kafka_sink.exactly_once.model import AttemptError as AttemptError
from kafka_sink.exactly_once.model import ExactlyOnceError as ExactlyOnceError
from kafka_sink.exactly_once.model import FencedError as FencedError
from kafka_sink.exactly_once.model import LostEndError as LostEndError
from kafka_sink.exactly_once.model import OutdatedProgressError as OutdatedProgressError
from kafka_sink.exactly_once.model import ProgressError as ProgressError
from kafka_sink.exactly_once.model import TornBatchError as TornBatchError
from kafka_sink.exactly_once.model import UndecidedError as UndecidedError
from kafka_sink.formats.errors import FormatError as FormatError
from kafka_sink.producer.futures import PartlyStagedError as PartlyStagedError
from kafka_sink.registry.errors import IncompatibleSchemaError as IncompatibleSchemaError
from kafka_sink.registry.errors import RegistryDeniedError as RegistryDeniedError
from kafka_sink.registry.errors import RegistryError as RegistryError
from kafka_sink.registry.errors import RegistryUnavailableError as RegistryUnavailableError
from kafka_sink.registry.errors import SchemaNotFoundError as SchemaNotFoundError
from kafka_sink.registry.errors import UnusableSchemaError as UnusableSchemaError
