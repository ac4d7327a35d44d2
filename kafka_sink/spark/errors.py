"""The errors of the sink. Users import them from :mod:`kafka_sink.errors`."""

from __future__ import annotations

import pickle

from kafka_sink.common.errors import ConfigError, KafkaError
from kafka_sink.exactly_once.model import ExactlyOnceError


class SchemaError(ConfigError):
    """The DataFrame does not have the columns that the sink writes."""


class TooManyBadRowsError(KafkaError):
    """More rows cannot be written than the option maxBadRows allows; the text has the first of them."""


class SinkWriteError(KafkaError):
    """A task could not write all of its rows; the text gives the reason and the number of rows acknowledged before."""


class CancelledWriteError(KafkaError):
    """Somebody else has cancelled the Spark job of a write; the text says what stays in the topic."""


class PlanError(ExactlyOnceError, pickle.PicklingError):
    """The batch could not be begun. Spark passes on pickle's own errors when it pickles a writer, and hides all other
    errors in a second traceback."""
