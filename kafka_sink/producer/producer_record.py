"""ProducerRecord: a record as :meth:`KafkaProducer.send` and interceptors take it, and the checks of its fields.

Callers and interceptors create it on the calling thread, and the producer reads it there. It is a plain immutable value
that does not depend on how it is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kafka_sink.common.errors import SerializationError
from kafka_sink.common.model import Header

#: The headers of a record, as callers pass them: text is written in UTF-8.
Headers: TypeAlias = "Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]]"

#: The headers of a record without headers.
NO_HEADERS: Final[Sequence[Header]] = ()

_PARTITION_MAX: Final = 2**31 - 1
_TIMESTAMP_MAX: Final = 2**63 - 1


class ProducerRecord(NamedTuple):
    """A record to send.

    ``value`` and ``key`` are bytes or None, or objects that the producer's serializers accept. ``timestamp`` is in ms
    since the epoch; None means now. Without ``partition`` the partitioner chooses. ``headers`` are a mapping or pairs
    of a name and bytes, text or None. ``record._replace(…)`` makes a changed copy.
    """

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = NO_HEADERS


def check_topic(topic: object) -> None:
    """Check a topic name before it is used, because a wrong name would also spoil requests for other topics.

    :raises ValueError: if *topic* is not a str that a request can carry.
    """
    if not isinstance(topic, str):
        raise ValueError(f"the topic must be str, got {type(topic).__name__} ({topic!r:.50})")
    if not topic:
        raise ValueError("the topic must be a non-empty str, got ''")
    if not topic.isascii() and topic.encode(errors="replace").decode() != topic:
        raise ValueError(f"the topic must be text in UTF-8, got {topic!a:.100}")


def checked_headers(topic: object, partition: object, timestamp: object, headers: object) -> tuple[Header, ...]:
    """*headers* as they are written, after a check of the fields of a record whose errors would otherwise be found only
    when the whole batch is encoded, or never.

    :raises ValueError: if the topic, the partition or the timestamp has the wrong type or is out of range.
    :raises SerializationError: if the headers are wrong, see :func:`header_pairs`.
    """
    check_topic(topic)
    if partition is not None:
        _check_number("partition", partition, _PARTITION_MAX)
    if timestamp is not None:
        _check_number("timestamp", timestamp, _TIMESTAMP_MAX)
    return header_pairs(headers)


def _check_number(field: str, value: object, highest: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"the record's {field} must be int or None, got {type(value).__name__} ({value!r:.50})")
    if value < 0:
        raise ValueError(f"the record's {field} must not be negative, got {value}")
    if value > highest:
        raise ValueError(f"the record's {field} must be at most {highest}, got {value}")


def header_pairs(headers: object) -> tuple[Header, ...]:
    """*headers* as they are written.

    :raises SerializationError: if they are neither a mapping nor pairs, of text without surrogates and bytes, such text
        or None.
    """
    if headers is None:
        return ()
    if isinstance(headers, Mapping):
        headers = tuple(headers.items())
    if not isinstance(headers, Sequence) or isinstance(headers, str | bytes | bytearray | memoryview):
        raise SerializationError(
            "the record's headers must be a mapping or a sequence of pairs, such as {'trace': b'1'} or "
            f"[('trace', b'1')], got {type(headers).__name__}"
        )
    return tuple(_header(number, header) for number, header in enumerate(headers))


def _header(number: int, header: object) -> Header:
    if not isinstance(header, tuple | list) or len(header) != 2:
        raise SerializationError(
            f"header {number} must be a pair of str and bytes, str or None, got {type(header).__name__} "
            f"({header!r:.50})"
        )
    name, value = header
    if not isinstance(name, str):
        raise SerializationError(f"header {number}: the key must be str, got {type(name).__name__}")
    _utf8(name, f"header {number} ({name!r:.50}): the key")
    if isinstance(value, str):
        return name, _utf8(value, f"header {number} ({name}): the value")
    if value is not None and not isinstance(value, bytes):
        raise SerializationError(
            f"header {number} ({name}): the value must be bytes, str or None, got {type(value).__name__}"
        )
    return name, value


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise SerializationError(f"{what} cannot be written in UTF-8: surrogates") from None
