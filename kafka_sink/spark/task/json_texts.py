"""JSON of any type, for dead letters: what the JSON format does not have becomes a text.

Used in a Spark Python worker, on the task's thread, for rows that are refused only. Where a type, or a value, keeps the
JSON format from writing a column, its parts are written one by one, so that the others look as in any other record.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa

from kafka_sink.common.errors import RowError
from kafka_sink.formats.by_name import format_of
from kafka_sink.formats.column_format import JSON, ColumnFormat
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.kinds import is_list, is_text

_NULL = b"null"


def json_column(column: pa.Array, name: str) -> pa.Array:
    """Each row of *column* as JSON; a null row is null. *name* is the column's, for the JSON format."""
    texts = _texts(column, name)
    return pa.array([text if text != _NULL else None for text in texts], pa.large_binary())


def _texts(column: pa.Array, name: str) -> list[bytes]:
    try:
        payloads = format_of(JSON).encoder(ColumnFormat(name, JSON, ""), column.type).encode(column)
    except (FormatError, RowError):
        # A single type or a single value is enough for that.
        return _of_parts(column, name)
    return [_NULL if text is None else text for text in payloads.to_pylist()]


def _of_parts(column: pa.Array, name: str) -> list[bytes]:
    kind = column.type
    if pa.types.is_struct(kind):
        fields = [json.dumps(field.name).encode() for field in kind]
        parts = [_texts(column.field(index), name) for index in range(kind.num_fields)]
        # As in the JSON format, a field that is null is left out.
        rows: list[list[bytes]] = [
            [b":".join(each) for each in zip(fields, row, strict=True) if each[1] != _NULL]
            for row in zip(*parts, strict=True)
        ]
        return _nulls_of(column, lambda row: b"{" + b",".join(rows[row]) + b"}")
    if pa.types.is_map(kind):
        names, values = _texts(column.keys, name), _texts(column.items, name)
        entries = [(_quoted(key) + b":" + value) for key, value in zip(names, values, strict=True)]
        return _of_items(column, entries, b"{%s}")
    if is_list(kind):
        return _of_items(column, _texts(column.values, name), b"[%s]")
    return _nulls_of(column, lambda row: json.dumps(_text_of(column[row])).encode())


def _of_items(column: pa.Array, items: list[bytes], around: bytes) -> list[bytes]:
    offsets: list[int] = column.offsets.to_pylist()
    return _nulls_of(column, lambda row: around % b",".join(items[offsets[row] : offsets[row + 1]]))


def _nulls_of(column: pa.Array, text_of: Callable[[int], bytes]) -> list[bytes]:
    """What *text_of* says of each row of *column* that is not null."""
    return [text_of(row) if valid else _NULL for row, valid in enumerate(column.is_valid().to_pylist())]


def _quoted(text: bytes) -> bytes:
    """*text*, which is JSON, as the name of a field."""
    return text if text.startswith(b'"') else json.dumps(text.decode()).encode()


def _text_of(value: pa.Scalar) -> str:
    if is_text(value.type):
        # Not UTF-8, or the JSON format would have it.
        content: bytes = value.as_buffer().to_pybytes()
        return content.decode(errors="replace")
    try:
        plain = value.as_py()
    except (ValueError, OverflowError):
        # Python has no such date.
        return str(value.cast(pa.int64()))
    return _interval(plain) if isinstance(plain, timedelta) else str(plain)


def _interval(span: timedelta) -> str:
    """As Spark's ``to_json`` writes it."""
    size = abs(span)
    hours, seconds = divmod(size.seconds, 3600)
    fraction = f".{size.microseconds:06}".rstrip("0").rstrip(".")
    text = f"{size.days} {hours:02}:{seconds // 60:02}:{seconds % 60:02}{fraction}"
    return f"INTERVAL '{'-' if span < timedelta() else ''}{text}' DAY TO SECOND"
