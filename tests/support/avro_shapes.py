"""Random types with their rows, as columns of Arrow and as fastavro takes them: the oracle's side of property tests."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import fastavro
import pyarrow as pa
from hypothesis import strategies as st

SYMBOLS: Final = ("RED", "GREEN", "BLUE")
_EPOCH: Final = dt.datetime(1970, 1, 1)
_MANY: Final = dt.timedelta(days=300_000)


@dataclass(frozen=True)
class Shape:
    """A type in Arrow and in Avro, its values as Arrow takes them, and how fastavro takes one of them."""

    arrow: pa.DataType
    avro: Any
    values: st.SearchStrategy[Any]
    told: Callable[[Any], Any] = lambda value: value
    nullable: bool = False


def minimal_bytes(unscaled: int) -> bytes:
    """As java.math.BigInteger.toByteArray: fastavro takes a byte more for -128, -32768 and so on."""
    bits = unscaled.bit_length() if unscaled >= 0 else (unscaled + 1).bit_length()
    return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)


def unscaled(value: decimal.Decimal, scale: int) -> int:
    return int(value.scaleb(scale, decimal.Context(prec=60)))


def _integers(bits: int) -> st.SearchStrategy[int]:
    edges = [edge + step for edge in (0, 63, -64, 8191, 1 << 20, 1 << 27, 1 << 41, 1 << 55) for step in (-1, 0, 1)]
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return st.sampled_from([low, high, *(edge for edge in edges if low <= edge <= high)]) | st.integers(low, high)


def _texts() -> st.SearchStrategy[str]:
    return st.text(max_size=6) | st.integers(0, 200).map(lambda size: ("0123456789é" * 30)[:size])


def _timestamps(zone: dt.tzinfo | None) -> st.SearchStrategy[dt.datetime]:
    return st.datetimes(_EPOCH - _MANY, _EPOCH + _MANY).map(lambda moment: moment.replace(tzinfo=zone))


def _millis(moment: dt.datetime) -> int:
    return (moment.replace(tzinfo=None) - _EPOCH) // dt.timedelta(milliseconds=1)


@st.composite
def _decimals(draw: st.DrawFn) -> Shape:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    limit = 10**precision - 1
    powers = [sign * (1 << bits) + step for bits in range(7, 128, 8) for sign in (1, -1) for step in (-1, 0)]
    numbers = st.sampled_from([0, limit, -limit, *(each for each in powers if abs(each) <= limit)])
    values = (numbers | st.integers(-limit, limit)).map(lambda number: decimal.Decimal(number).scaleb(-scale, _EXACT))
    logical = {"logicalType": "decimal", "precision": precision, "scale": scale}
    least = len(minimal_bytes(-limit))
    size = draw(st.none() | st.integers(least, 24))
    if size is None:
        return Shape(
            pa.decimal128(precision, scale),
            {"type": "bytes", **logical},
            values,
            lambda value: minimal_bytes(unscaled(value, scale)),
        )
    avro = {"type": "fixed", "name": "fixed", "size": size, **logical}
    return Shape(
        pa.decimal128(precision, scale),
        avro,
        values,
        lambda value: unscaled(value, scale).to_bytes(size, "big", signed=True),
    )


_EXACT: Final = decimal.Context(prec=60)

_LEAVES: Final = [
    Shape(pa.bool_(), "boolean", st.booleans()),
    Shape(pa.int8(), "int", _integers(8)),
    Shape(pa.int16(), "int", _integers(16)),
    Shape(pa.int32(), "int", _integers(32)),
    Shape(pa.int32(), "long", _integers(32)),
    Shape(pa.int64(), "long", _integers(64)),
    Shape(pa.int16(), "double", _integers(16), float),
    Shape(pa.float32(), "float", st.floats(width=32, allow_nan=False)),
    Shape(pa.float32(), "double", st.floats(width=32, allow_nan=False)),
    Shape(pa.float64(), "double", st.floats(allow_nan=False)),
    Shape(pa.string(), "string", _texts()),
    Shape(pa.large_string(), "string", _texts()),
    Shape(pa.string(), {"type": "enum", "name": "enum", "symbols": list(SYMBOLS)}, st.sampled_from(SYMBOLS)),
    Shape(pa.binary(), "bytes", st.binary(max_size=20)),
    Shape(pa.binary(), {"type": "fixed", "name": "fixed", "size": 5}, st.binary(min_size=5, max_size=5)),
    Shape(pa.date32(), {"type": "int", "logicalType": "date"}, st.dates(dt.date(1600, 1, 1), dt.date(2600, 1, 1))),
    Shape(pa.time64("us"), {"type": "long", "logicalType": "time-micros"}, st.times()),
    Shape(pa.timestamp("us", "UTC"), {"type": "long", "logicalType": "timestamp-micros"}, _timestamps(dt.UTC)),
    Shape(pa.timestamp("us", "UTC"), {"type": "long", "logicalType": "timestamp-millis"}, _timestamps(dt.UTC), _millis),
    Shape(pa.timestamp("us"), {"type": "long", "logicalType": "local-timestamp-micros"}, _timestamps(None)),
    Shape(pa.timestamp("us"), {"type": "long", "logicalType": "local-timestamp-millis"}, _timestamps(None), _millis),
]


def shapes() -> st.SearchStrategy[Shape]:
    """Any type, of a few levels, nullable or not."""
    leaves = (st.sampled_from(_LEAVES) | _decimals()).flatmap(_maybe_nullable)
    return st.recursive(
        leaves,
        lambda inner: (inner.map(_array) | inner.map(_map) | records(inner)).flatmap(_maybe_nullable),
        max_leaves=6,
    )


def _maybe_nullable(shape: Shape) -> st.SearchStrategy[Shape]:
    def nullable(position: int) -> Shape:
        if position < 0:
            return shape
        union = [shape.avro, "null"] if position else ["null", shape.avro]
        told = shape.told
        return Shape(
            shape.arrow, union, st.none() | shape.values, lambda value: None if value is None else told(value), True
        )

    return st.sampled_from([-1, 0, 1]).map(nullable)


def _array(items: Shape) -> Shape:
    return Shape(
        pa.list_(pa.field("item", items.arrow, items.nullable)),
        {"type": "array", "items": items.avro},
        st.lists(items.values, max_size=4),
        lambda value: [items.told(each) for each in value],
    )


def _map(values: Shape) -> Shape:
    return Shape(
        pa.map_(pa.string(), pa.field("value", values.arrow, values.nullable)),
        {"type": "map", "values": values.avro},
        st.dictionaries(_texts(), values.values, max_size=3).map(lambda value: list(value.items())),
        lambda value: {name: values.told(each) for name, each in value},
    )


def records(inner: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
    """Records of up to four fields."""
    return st.lists(inner, min_size=1, max_size=4).map(_record)


def _record(fields: Sequence[Shape]) -> Shape:
    named = {f"f{index}": field for index, field in enumerate(fields)}
    return Shape(
        pa.struct([pa.field(name, field.arrow, field.nullable) for name, field in named.items()]),
        {
            "type": "record",
            "name": "record",
            "fields": [{"name": name, "type": field.avro} for name, field in named.items()],
        },
        st.fixed_dictionaries({name: field.values for name, field in named.items()}),
        lambda value: {name: field.told(value[name]) for name, field in named.items()},
    )


def with_own_names(avro: Any, path: str = "top") -> Any:
    """*avro* with another name for each named type, as Avro demands."""
    if isinstance(avro, list):
        return [with_own_names(each, path) for each in avro]
    if not isinstance(avro, dict):
        return avro
    named = {**avro, "name": path} if "name" in avro else dict(avro)
    for part in ("items", "values"):
        if part in avro:
            named[part] = with_own_names(avro[part], f"{path}_{part}")
    if "fields" in avro:
        named["fields"] = [
            {**field, "type": with_own_names(field["type"], f"{path}_{field['name']}")} for field in avro["fields"]
        ]
    return named


def by_fastavro(schema: str, rows: Sequence[Any]) -> list[bytes | None]:
    """The payload of each row; a null row has none."""
    parsed = fastavro.parse_schema(json.loads(schema))
    found: list[bytes | None] = []
    for row in rows:
        target = io.BytesIO()
        if row is not None:
            fastavro.schemaless_writer(target, parsed, row)
        found.append(None if row is None else target.getvalue())
    return found


def read_by_fastavro(schema: str, payload: bytes) -> Any:
    """The row that *payload* holds; all of it has to be read."""
    source = io.BytesIO(payload)
    found = fastavro.schemaless_reader(source, fastavro.parse_schema(json.loads(schema)), None)
    assert source.read() == b""
    return found
