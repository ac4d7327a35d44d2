"""What to do when brokers refuse a request of a sink: most often to grant what it lacks.

A permission may be revoked at any time, so this is said wherever a sink asks: when it plans, writes and commits. A
batch that is not decided by then is not committed, and a decided one is completed by the next plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.exactly_once.model import ExactlyOnceError

_REMEDIES: Final = {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "grant WRITE and DESCRIBE on the transactional ids that begin with {sink!r} to this principal"
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        "the progress is kept in the consumer group {sink!r}; grant READ on it to this principal"
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        "the progress is kept as offsets of topic {topic!r}; grant READ on it to this principal"
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "transaction.timeout.ms is more than the brokers' transaction.max.timeout.ms; lower the former or raise the "
        "latter"
    ),
}


@contextmanager
def explained(sink: str) -> Iterator[None]:
    """Within, what brokers refuse says what to do. *sink* is the prefix of the sink's ids, ``name/topic``.

    :raises ExactlyOnceError: in the place of an ApiError for which that is known.
    """
    try:
        yield
    except ApiError as error:
        remedy = _REMEDIES.get(error.code)
        if remedy is None:
            raise
        name, topic = sink.rsplit("/", 1)
        raise ExactlyOnceError(f"{error}: {remedy.format(sink=name, topic=topic)}") from error
