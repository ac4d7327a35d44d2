"""Every error that users may catch. The class determines the remedy:

* :class:`ConfigError`: change the options, the columns' types, the schema or the versions of packages;
* :class:`RowError`, :class:`SerializationError`, :class:`UnwritableRowsError`, :class:`TooManyBadRowsError`: correct
  the rows, or keep them as dead letters;
* :class:`AuthenticationError`, and an :class:`ApiError` whose ``code`` is an ``…_AUTHORIZATION_FAILED``: correct the
  credentials, or grant what is missing;
* :class:`ApiError`, :class:`SinkWriteError`, :class:`ProtocolError`: check the brokers and the connection; most may
  be retried (``error.code.is_retriable``);
* :class:`RegistryError`: check the schema registry;
* :class:`ExactlyOnceError`: the text says whether to run the batch again, or what an operator has to decide.

All of them are a :class:`KafkaError`. Errors that Spark raises for a failed job contain one of these, which
:func:`kafka_sink.cause_of` returns; that of a task is a :class:`SinkWriteError`.
"""

from kafka_sink.common.errors import *  # noqa: F403
from kafka_sink.common.errors import ErrorCode, KafkaError
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

#: Each error that users may catch, and Kafka's codes.
__all__ = [
    name
    for name, value in list(globals().items())
    if isinstance(value, type) and (issubclass(value, KafkaError) or value is ErrorCode)
]
