"""Converts one Avro datum to JSON text, with bounded memory for any bytes and any schema.

For showing records: any thread, one datum at a time. No objects are created for the datum: its text is created piece by
piece, on demand, so that neither a schema that contains itself nor a count of 2⁴⁰ items without bytes costs more than
the text that the caller reads.

Bytes are ``{"base64": "…"}``, as in the rest of the lines; decimals, dates, times and timestamps are texts, and so are
numbers that JSON does not have. A date or time outside of the calendar is shown as its number.

Source: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding, and #logical-types; the JSON is not Avro's
own JSON encoding, which names the types of unions.
"""

from __future__ import annotations

import base64
import decimal
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

from kafka_sink.common.bounded import Cursor
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.text import json_text
from kafka_sink.formats.avro.parsing import parse_schema
from kafka_sink.formats.avro.schema import (
    Array,
    AvroType,
    Decimal,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    TypeReference,
    Union,
)
from kafka_sink.formats.schema_text import MOST_DEPTH

#: Python converts no number with more digits to text.
_MOST_DECIMAL_BYTES: Final = 1_024
_INT64_MIN: Final = -(2**63)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1)


_Leaf: TypeAlias = Callable[[Cursor], str]
#: Returns the pieces of a value at a depth.
_Reader: TypeAlias = Callable[[Cursor, int], Iterable[str]]


class DatumReader:
    """Reads data by one *schema*, in JSON. :raises FormatError: if it is no valid schema, or exceeds the limits."""

    def __init__(self, schema: str) -> None:
        self._records: dict[str, _Reader] = {}
        self._root = self._reader(parse_schema(schema, is_read=True))

    def pieces(self, data: bytes) -> Iterator[str]:
        """The JSON of the datum in *data*, in pieces whose size is proportional to their bytes.

        :raises CorruptRecordError: if *data* is no datum of the schema, or nested too deeply.
        """
        source = Cursor(data, CorruptRecordError)
        yield from self._root(source, 0)
        if source.left:
            raise CorruptRecordError("bytes follow it")

    def _reader(self, avro: AvroType) -> _Reader:
        match avro:
            case Record():
                return self._record(avro)
            case TypeReference():
                # The reader of its record exists only after those of all its fields.
                return lambda source, depth: self._records[avro.name](source, depth)  # noqa: PLW0108
            case Union():
                branches = tuple(map(self._reader, avro.branches))
                return lambda source, depth: branches[_index(source, len(branches))](source, depth)
            case Array():
                return partial(_items, self._reader(avro.items), False)
            case Map():
                return partial(_items, self._reader(avro.values), True)
            case Enum():
                leaf: _Leaf = partial(_symbol, tuple(map(json_text, avro.symbols)))
            case Decimal():
                leaf = partial(_decimal, avro.scale, avro.size)
            case Fixed():
                leaf = partial(_fixed, avro.size)
            case Primitive():
                leaf = _LOGICAL.get(avro.logical or "") or _PRIMITIVES[avro.name]
        return lambda source, depth: (leaf(source),)

    def _record(self, record: Record) -> _Reader:
        if record.name not in self._records:
            names = [f"{', ' if index else '{'}{json_text(field.name)}: " for index, field in enumerate(record.fields)]
            fields = [self._reader(field.type) for field in record.fields]
            self._records[record.name] = partial(_fields, list(zip(names, fields, strict=True)))
        return self._records[record.name]


def _long(source: Cursor) -> int:
    return source.zigzag(_INT64_MIN)


def _text(source: Cursor) -> str:
    try:
        return source.take(_long(source)).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptRecordError(f"a string is not valid UTF-8 ({error.reason})") from None


def _check_depth(depth: int) -> None:
    if depth >= MOST_DEPTH:
        raise CorruptRecordError(f"it is nested more than {MOST_DEPTH} levels deep")


def _fields(fields: Sequence[tuple[str, _Reader]], source: Cursor, depth: int) -> Iterator[str]:
    _check_depth(depth)
    for name, read in fields:
        yield name
        yield from read(source, depth + 1)
    yield "}" if fields else "{}"


def _items(read: _Reader, is_map: bool, source: Cursor, depth: int) -> Iterator[str]:
    _check_depth(depth)
    yield "{" if is_map else "["
    separator = ""
    while count := _long(source):
        if count < 0:
            # The size of the block in bytes follows, which is only needed to skip it.
            _long(source)
        for _ in range(abs(count)):
            yield f"{separator}{json_text(_text(source))}: " if is_map else separator
            yield from read(source, depth + 1)
            separator = ", "
    yield "}" if is_map else "]"


def _index(source: Cursor, count: int) -> int:
    index = _long(source)
    if not 0 <= index < count:
        raise CorruptRecordError(f"index {index} is declared, and there are {count} items")
    return index


def _symbol(symbols: tuple[str, ...], source: Cursor) -> str:
    return symbols[_index(source, len(symbols))]


def _number(layout: struct.Struct, source: Cursor) -> str:
    (value,) = layout.unpack(source.take(layout.size))
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _fixed(size: int, source: Cursor) -> str:
    return f'{{"base64": "{base64.b64encode(source.take(size)).decode("ascii")}"}}'


def _decimal(scale: int, size: int | None, source: Cursor) -> str:
    data = source.take(_long(source) if size is None else size)
    if len(data) > _MOST_DECIMAL_BYTES:
        raise CorruptRecordError(f"a decimal has {len(data)} bytes, more than {_MOST_DECIMAL_BYTES}")
    unscaled = decimal.Decimal(int.from_bytes(data, "big", signed=True))
    return f'"{unscaled.scaleb(-scale, _EXACT):f}"'


_EXACT: Final = decimal.Context(prec=3 * _MOST_DECIMAL_BYTES)


def _date(source: Cursor) -> str:
    days = _long(source)
    try:
        return f'"{date.fromordinal(_EPOCH_DAY + days).isoformat()}"'
    except (ValueError, OverflowError):
        return str(days)


def _time(per_second: int, source: Cursor) -> str:
    count = _long(source)
    if not 0 <= count < 86_400 * per_second:
        return str(count)
    return f'"{(_EPOCH + _duration(count, per_second)).time().isoformat()}"'


def _timestamp(per_second: int, is_utc: bool, source: Cursor) -> str:
    count = _long(source)
    try:
        moment = _EPOCH + _duration(count, per_second)
    except OverflowError:
        return str(count)
    return f'"{(moment.replace(tzinfo=UTC) if is_utc else moment).isoformat()}"'


def _duration(count: int, per_second: int) -> timedelta:
    """:raises OverflowError: if it exceeds the range of timedelta."""
    return timedelta(microseconds=count * (1_000_000 // per_second))


_PRIMITIVES: Final[Mapping[str, _Leaf]] = {
    "null": lambda source: "null",
    "boolean": lambda source: "true" if source.take(1) != b"\0" else "false",
    "int": lambda source: str(_long(source)),
    "long": lambda source: str(_long(source)),
    "float": partial(_number, struct.Struct("<f")),
    "double": partial(_number, struct.Struct("<d")),
    "bytes": lambda source: _fixed(_long(source), source),
    "string": lambda source: json_text(_text(source)),
}
_LOGICAL: Final[Mapping[str, _Leaf]] = {
    "date": _date,
    "time-millis": partial(_time, 1_000),
    "time-micros": partial(_time, 1_000_000),
    "timestamp-millis": partial(_timestamp, 1_000, True),
    "timestamp-micros": partial(_timestamp, 1_000_000, True),
    "local-timestamp-millis": partial(_timestamp, 1_000, False),
    "local-timestamp-micros": partial(_timestamp, 1_000_000, False),
}
