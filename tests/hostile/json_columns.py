"""JSON by columns against Python's own parser, for rows of random types."""

from __future__ import annotations

import base64
import decimal
import json
import math
import random
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.json.column import JsonEncoder

_TEXTS: Final = ("", "a", 'é"\\', "☃\n\t\x01", "\U0001f600", "</script>", "\u2028", "x" * 127, "\ufffe")
_FLOATS: Final = (0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 1e7, 1e-3, 9999999.0, 1e22)


@dataclass(frozen=True)
class Number:
    """The text of a number."""

    text: str


def json_columns(rng: random.Random) -> None:
    """The encoder writes valid JSON with the values of the rows."""
    kind = _kind(rng, 0)
    rows = [None if rng.random() < 0.2 else _value(rng, kind) for _ in range(rng.randrange(9))]
    array = pa.array([*rows, *rows[:2]], kind)[: len(rows)]
    try:
        encoded = JsonEncoder(kind, "value").encode(array, b"\0\0\0\0\1")
    except FormatError:
        return
    encoded.validate(full=True)
    for row, payload in zip(rows, encoded.to_pylist(), strict=True):
        if row is None:
            assert payload is None
            continue
        assert payload.startswith(b"\0\0\0\0\1")
        found = json.loads(payload[5:].decode(), parse_int=Number, parse_float=Number, parse_constant=Number)
        assert _is(found, row, kind), (kind, row, payload)


def _kind(rng: random.Random, depth: int) -> pa.DataType:
    if depth < 3 and rng.random() < 0.45:
        match rng.randrange(3):
            case 0:
                names = rng.sample(["a", "b c", 'é"', "", "\n", "__proto__"], rng.randrange(4))
                return pa.struct([(name, _kind(rng, depth + 1)) for name in names])
            case 1:
                return rng.choice([pa.list_, pa.large_list])(_kind(rng, depth + 1))
            case _:
                return pa.map_(rng.choice([pa.string(), pa.int64(), pa.bool_()]), _kind(rng, depth + 1))
    precision = rng.randint(1, 38)
    return rng.choice(
        [
            *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.null()),
            *(pa.string(), pa.large_string(), pa.binary(), pa.decimal128(precision, rng.randint(0, precision))),
        ]
    )


def _value(rng: random.Random, kind: pa.DataType) -> Any:
    is_of = pa.types
    if is_of.is_struct(kind):
        return {field.name: None if rng.random() < 0.3 else _value(rng, field.type) for field in kind}
    if is_of.is_list(kind) or is_of.is_large_list(kind):
        return [None if rng.random() < 0.3 else _value(rng, kind.value_type) for _ in range(rng.randrange(4))]
    if is_of.is_map(kind):
        keys = {_value(rng, kind.key_type) for _ in range(rng.randrange(4))}
        return [(key, None if rng.random() < 0.3 else _value(rng, kind.item_type)) for key in keys]
    if is_of.is_boolean(kind):
        return rng.random() < 0.5
    if is_of.is_integer(kind):
        return rng.choice([0, 1, -1, rng.randint(-(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1)])
    if is_of.is_floating(kind):
        chosen = rng.choice([*_FLOATS, rng.uniform(-1e9, 1e9)])
        with np.errstate(over="ignore"):
            return chosen if kind.bit_width == 64 else float(np.float32(chosen))
    if is_of.is_decimal(kind):
        most = 10**kind.precision - 1
        unscaled = rng.choice([0, 1, -1, most, -most, rng.randint(-most, most)])
        return decimal.Decimal(unscaled).scaleb(-kind.scale, decimal.Context(prec=40))
    if is_of.is_binary(kind):
        return rng.randbytes(rng.randrange(9))
    return None if is_of.is_null(kind) else rng.choice(_TEXTS)


def _is(found: Any, row: Any, kind: pa.DataType) -> bool:
    is_of = pa.types
    if row is None:
        return found is None
    if is_of.is_struct(kind):
        given = {field.name: (row[field.name], field.type) for field in kind if row[field.name] is not None}
        return list(found) == list(given) and all(_is(found[name], *given[name]) for name in given)
    if isinstance(row, bool):
        return found is row
    if isinstance(row, list) and is_of.is_map(kind):
        names = [str(key).lower() if isinstance(key, bool) else str(key) for key, _ in row]
        values = [value for _, value in row]
        return list(found) == names and all(map(_is, found.values(), values, [kind.item_type] * len(values)))
    if isinstance(row, list):
        return len(found) == len(row) and all(map(_is, found, row, [kind.value_type] * len(row)))
    if isinstance(row, bytes):
        return bool(found == base64.b64encode(row).decode())
    if isinstance(row, str):
        return bool(found == row)
    if isinstance(row, float) and not math.isfinite(row):
        return bool(found == ("NaN" if math.isnan(row) else "Infinity" if row > 0 else "-Infinity"))
    if isinstance(row, float):
        with np.errstate(over="ignore"):
            read = float(found.text) if kind.bit_width == 64 else float(np.float32(float(found.text)))
        return math.copysign(1, read) == math.copysign(1, row) and read == row
    return bool(decimal.Decimal(found.text) == row)
