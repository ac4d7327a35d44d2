"""ProducerRecord: what a caller hands to :meth:`KafkaProducer.send`.

Made by callers and by interceptors on the calling thread, read by the producer there. It is a plain immutable value and
must never know how it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kafka_sink.common.errors import SerializationError
from kafka_sink.common.model import Header

#: What a record has that was given no headers.
NO_HEADERS: Final = ()

_PARTITION_MAX: Final = 2**31 - 1
_TIMESTAMP_MAX: Final = 2**63 - 1


class ProducerRecord(NamedTuple):
    """A record to send.

    ``value`` and ``key`` are bytes or None, or what the producer's serializers turn into that; ``timestamp`` in ms
    since the epoch, None for now; without ``partition`` the partitioner chooses. ``record._replace(…)`` makes a changed
    copy.
    """

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Sequence[Header] = NO_HEADERS


def check_topic(topic: object) -> None:
    """Before a name goes anywhere: a wrong one would spoil the requests that ask for others as well.

    :raises ValueError: *topic* is not a text that a request can carry.
    """
    if not isinstance(topic, str):
        raise ValueError(f"the topic must be str, got {type(topic).__name__} ({topic!r:.50})")
    if not topic:
        raise ValueError("the topic must be the name of one, got an empty str")


def check_record(topic: object, partition: object, timestamp: object, headers: object) -> None:
    """What of a record would otherwise be found out only when its whole batch is encoded, or never.

    :raises ValueError: topic, partition or timestamp is of the wrong type or out of its range.
    :raises SerializationError: the headers are not pairs of str and bytes or None.
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
    """:raises SerializationError: *headers* are not pairs of str, in characters that UTF-8 has, and bytes or None."""
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
