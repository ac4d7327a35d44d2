"""Detection of the continuous trigger, with which Spark loses every row for a sink written in Python.

``refuse_continuous`` is for the driver program, which is the only process that can see the trigger and stop the query.
The commit of an epoch can only report the loss: Spark logs its error and continues.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from kafka_sink.common.errors import KafkaError
from kafka_sink.spark.versions import WriterCommitMessage

_WHAT_TO_DO: Final = (
    "trigger(continuous=…) does not pass rows to a sink that is written in Python, and they are LOST; stop the "
    "query and use trigger(processingTime=…) or trigger(availableNow=True)"
)

_log = logging.getLogger(__name__)


def is_continuous(query: StreamingQuery) -> bool:
    """Whether *query* runs with the continuous trigger; False if this is not visible (as with Spark Connect)."""
    java_query: Any = getattr(query, "_jsq", None)
    return java_query is not None and "Continuous" in java_query.streamingQuery().getClass().getSimpleName()


def refuse_continuous(query: StreamingQuery) -> None:
    """Stop *query* if it has the continuous trigger.

    :raises KafkaError: if it had that trigger.
    """
    if is_continuous(query):
        query.stop()
        raise KafkaError(f"query {query.id} was stopped: {_WHAT_TO_DO}")


def refuse_epoch(messages: Sequence[WriterCommitMessage | None], epoch: int) -> None:
    """Log an error if no task of *epoch* reported anything.

    :raises KafkaError: if no task reported anything; Spark logs it at every epoch and continues.
    """
    if messages and all(message is None for message in messages):
        text = f"no task of epoch {epoch} received any row: {_WHAT_TO_DO}"
        _log.error("ROWS ARE BEING LOST: %s", text)
        raise KafkaError(text)
