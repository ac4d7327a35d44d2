"""Records as JSON lines: the text format that ``produce`` reads and ``consume`` writes.

Pure functions. Bytes that are valid UTF-8 are written as text, other bytes as ``{"base64": "…"}``, which cannot be
confused with text. null stays null. ``produce`` accepts the output of ``consume``: the fields ``topic`` and ``offset``
contain the previous position of a record, so they are allowed and ignored. No data is ever replaced or dropped.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from kafka_sink.common.config import nearest
from kafka_sink.common.errors import SerializationError
from kafka_sink.common.model import NO_TIMESTAMP, Header
from kafka_sink.common.text import json_text
from kafka_sink.consumer.fetched_partition import ConsumedRecord
from kafka_sink.producer.producer_record import ProducerRecord

#: The JSON of a key or a value.
Shown = Callable[[bytes | None], str]
#: The bytes of a key or a value in JSON; its second argument is the name of the field.
Read = Callable[[Any, str], bytes | None]

_BASE64: Final = "base64"
_HEX: Final = "hex"
_USED_FIELDS: Final = ("key", "value", "headers", "partition", "timestamp")
_FIELDS: Final = frozenset((*_USED_FIELDS, "topic", "offset"))


def bytes_text(data: bytes | None) -> str:
    """*data* as JSON: a text, or base64."""
    return json_text(bytes_to_json(data))


def to_json_line(
    record: ConsumedRecord,
    key: Shown = bytes_text,
    value: Shown = bytes_text,
    *,
    report: Callable[[str], None] = lambda reason: None,
) -> bytes:
    """*record* as one line of JSON in UTF-8, with its line feed; the timestamp is null if the record has none.

    *key* and *value* convert the record's to JSON. Bytes that they refuse are written as ``{"hex": "…"}``; the field
    ``error`` then has place and reason, which *report* gets, too. A damaged record has all its bytes as such a value.
    """
    reasons: list[str] = []

    def shown(form: Shown, payload: bytes | None, problem: str = "") -> str:
        try:
            if problem:
                raise SerializationError(f"the record is damaged: {problem}")
            return form(payload)
        except SerializationError as error:
            reasons.append(str(undecodable(record, error)))
            return json_text({_HEX: (payload or b"").hex()})

    fields = {
        "topic": json_text(record.topic),
        "partition": json_text(record.partition),
        "offset": json_text(record.offset),
        "timestamp": json_text(None if record.timestamp == NO_TIMESTAMP else record.timestamp),
        "key": shown(key, record.key),
        "value": shown(value, record.value, record.problem),
        "headers": json_text([[name, bytes_to_json(content)] for name, content in record.headers]),
    }
    if reasons:
        fields["error"] = json_text("; ".join(reasons))
        report("; ".join(reasons))
    # Fields are encoded one by one: in one text a single field may make each character take four bytes.
    encoded = (b'"%s": %s' % (name.encode(), text.encode("utf-8")) for name, text in fields.items())
    return b"{" + b", ".join(encoded) + b"}\n"


def json_object(line: bytes, expected: str) -> dict[str, Any]:
    """The JSON object in *line*. :raises SerializationError: if there is none; the text says what was *expected*."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise SerializationError(f"expected {expected}")
    return value


def bytes_from_json(value: Any, field: str) -> bytes | None:
    """The bytes of *value*, a text or base64.

    :raises SerializationError: if *value* is neither; the text names the *field*.
    """
    if value is None:
        return None
    try:
        if isinstance(value, str):
            return value.encode("utf-8")
        if isinstance(value, dict) and list(value) == [_BASE64] and isinstance(value[_BASE64], str):
            return base64.b64decode(value[_BASE64], validate=True)
    except ValueError as error:
        raise SerializationError(f"field {field}: {error}") from None
    raise SerializationError(f'field {field}: expected text, null or {{"{_BASE64}": "…"}}')


def from_json_line(
    topic: str, line: bytes, key: Read = bytes_from_json, value: Read = bytes_from_json
) -> ProducerRecord:
    """The record that *line* describes, for *topic*; *key* and *value* convert its key and value to bytes.

    :raises SerializationError: if the line is not JSON or not an object, or if a field is unknown or has the wrong
        type.
    """
    fields = json_object(line, 'an object such as {"key": "k", "value": "v"}')
    for name in fields:
        if name not in _FIELDS:
            raise SerializationError(f"unknown field {name!r}{nearest(name, _USED_FIELDS)}")
    if "value" not in fields:
        # A missing value must not silently become a tombstone.
        raise SerializationError("field value is missing; use null for a record without a value")
    return ProducerRecord(
        topic,
        value(fields["value"], "value"),
        key=key(fields.get("key"), "key"),
        partition=_int_from_json(fields.get("partition"), "partition", bits=31),
        timestamp=_int_from_json(fields.get("timestamp"), "timestamp", bits=63),
        headers=_headers_from_json(fields.get("headers")),
    )


def bytes_to_json(data: bytes | None) -> str | dict[str, str] | None:
    """*data* as text, or as base64."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {_BASE64: base64.b64encode(data).decode("ascii")}


def undecodable(record: ConsumedRecord, error: SerializationError) -> SerializationError:
    """*error* with the place of *record*, whose key or value is not in its format."""
    return SerializationError(f"{record.topic}-{record.partition} at offset {record.offset}: {error}")


def _int_from_json(value: Any, field: str, bits: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << bits:
        return value
    raise SerializationError(f"field {field}: expected null or a whole number from 0 to {(1 << bits) - 1}")


def _headers_from_json(value: Any) -> Sequence[Header]:
    headers: list[Header] = []
    problem = SerializationError('field headers: expected pairs such as [["name", "value"]]')
    if not isinstance(value, list | None):
        raise problem
    for pair in value or ():
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise problem
        bytes_from_json(pair[0], "headers")
        headers.append((pair[0], bytes_from_json(pair[1], "headers")))
    return tuple(headers)
