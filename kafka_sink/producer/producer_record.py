"""ProducerRecord: the argument of :meth:`KafkaProducer.send`.

Callers and interceptors create it on the calling thread, and the producer reads it there. It is a plain immutable value
that does not depend on how it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kafka_sink.common.errors import SerializationError
from kafka_sink.common.model import Header

#: The headers of a record without headers.
NO_HEADERS: Final = ()

_PARTITION_MAX: Final = 2**31 - 1
_TIMESTAMP_MAX: Final = 2**63 - 1


class ProducerRecord(NamedTuple):
    """A record to send.

    ``value`` and ``key`` are bytes or None, or objects that the producer's serializers accept. ``timestamp`` is in ms
    since the epoch; None means now. Without ``partition`` the partitioner chooses. ``record._replace(…)`` makes a
    changed copy.
    """

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Sequence[Header] = NO_HEADERS


def check_topic(topic: object) -> None:
    """Check a topic name before it is used, because a wrong name would also spoil requests for other topics.

    :raises ValueError: if *topic* is not a str that a request can carry.
    """
    if not isinstance(topic, str):
        raise ValueError(f"the topic must be str, got {type(topic).__name__} ({topic!r:.50})")
    if not topic:
        raise ValueError("the topic must be a non-empty str, got ''")


def check_record(topic: object, partition: object, timestamp: object, headers: object) -> None:
    """Check a record's fields whose errors would otherwise be found only when the whole batch is encoded, or never.

    :raises ValueError: if the topic, the partition or the timestamp has the wrong type or is out of range.
    :raises SerializationError: if the headers are not pairs of str and bytes or None.
    """
    check_topic(topic)
    if partition is not None:
        _check_number("partition", partition, _PARTITION_MAX)
    if timestamp is not None:
        _check_number("timestamp", timestamp, _TIMESTAMP_MAX)
    if headers is not NO_HEADERS:
        check_headers(headers)


def _check_number(field: str, value: object, highest: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"the record's {field} must be int or None, got {type(value).__name__} ({value!r:.50})")
    if value < 0:
        raise ValueError(f"the record's {field} must not be negative, got {value}")
    if value > highest:
        raise ValueError(f"the record's {field} must be at most {highest}, got {value}")


def check_headers(headers: object) -> None:
    """:raises SerializationError: if *headers* are not pairs of str, without surrogates, and bytes or None."""
    if not isinstance(headers, Sequence) or isinstance(headers, str | bytes | bytearray | memoryview):
        raise SerializationError(
            f"the record's headers must be a sequence of (str, bytes or None), got {type(headers).__name__}"
        )
    for number, header in enumerate(headers):
        if not isinstance(header, tuple | list) or len(header) != 2:
            raise SerializationError(
                f"header {number} must be a pair of str and bytes or None, got {type(header).__name__} ({header!r:.50})"
            )
        name, value = header
        if not isinstance(name, str):
            raise SerializationError(f"header {number}: the key must be str, got {type(name).__name__}")
        if not _is_utf8(name):
            raise SerializationError(f"header {number} ({name!r:.50}): the key cannot be written in UTF-8: surrogates")
        if value is not None and not isinstance(value, bytes):
            raise SerializationError(
                f"header {number} ({name}): the value must be bytes or None, got {type(value).__name__}"
            )


def _is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
