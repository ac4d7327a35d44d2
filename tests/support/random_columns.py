"""Random columns of Spark's types as Arrow has them: all types within each other, with edges of each."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa

#: Seconds since 1970 of years -1000 to 12000.
_FIRST_S: Final = -93_700_000_000
_LAST_S: Final = 316_500_000_000
_TEXTS: Final = ("", 'quo"te', "back\\slash", "\b\t\n\f\r", "\x00\x1f\x7f/", "ünï ☃ \U0001f600", "\u2028", "plain" * 9)
_DOUBLES: Final = (
    *(0.0, -0.0, 1.0, 1e-3, 9.99e-4, 1e7, 9999999.999, 1e10, 123456789.125, 1e16, 1.5e-7, 1e22, 4.0e-5, math.pi),
    *(math.nan, math.inf, -math.inf, 1.7976931348623157e308, 2.2250738585072014e-308),
)


def _moment(rng: random.Random) -> int:
    """Microseconds since 1970: mostly of our time, sometimes of any year."""
    span = (_FIRST_S, _LAST_S) if rng.random() < 0.2 else (-3_000_000_000, 4_500_000_000)
    return rng.randrange(*span) * 1_000_000 + rng.choice((0, 1, 999, 1000, 123_456, 999_999))


def _double(rng: random.Random) -> float:
    if rng.random() < 0.4:
        return rng.choice(_DOUBLES)
    return rng.choice(
        (rng.random(), rng.uniform(-1e6, 1e6), float(rng.randrange(10**12)), 10 ** rng.uniform(-300, 300))
    )


def _text(rng: random.Random) -> str:
    return rng.choice(_TEXTS) if rng.random() < 0.6 else "x" * rng.randrange(40)


def _integer(bits: int) -> Callable[[random.Random], int]:
    high = (1 << (bits - 1)) - 1
    return lambda rng: rng.choice((0, -1, high, -high - 1, rng.randint(-high, high), rng.randint(-100, 100)))


def _decimal(precision: int, scale: int) -> Callable[[random.Random], Decimal]:
    limit = 10**precision - 1
    return lambda rng: Decimal(rng.choice((0, 1, -1, limit, -limit, rng.randint(-limit, limit)))).scaleb(
        -scale, Context(prec=60)
    )


LEAVES: Final[Mapping[pa.DataType, Callable[[random.Random], Any]]] = {
    pa.bool_(): lambda rng: rng.random() < 0.5,
    pa.int8(): _integer(8),
    pa.int16(): _integer(16),
    pa.int32(): _integer(32),
    pa.int64(): _integer(64),
    pa.float64(): _double,
    pa.decimal128(10, 2): _decimal(10, 2),
    pa.decimal128(38, 0): _decimal(38, 0),
    pa.decimal128(38, 20): _decimal(38, 20),
    pa.string(): _text,
    pa.binary(): lambda rng: rng.randbytes(rng.randrange(12)),
    pa.date32(): lambda rng: _moment(rng) // 86_400_000_000,
    pa.timestamp("us", "UTC"): _moment,
    pa.timestamp("us"): _moment,
}


def random_type(rng: random.Random, depth: int = 0) -> pa.DataType:
    """A type of Arrow, of up to three levels."""
    choice = rng.random()
    if depth > 2 or choice < 0.7:
        return rng.choice(list(LEAVES))
    if choice < 0.8:
        return pa.list_(random_type(rng, depth + 1))
    if choice < 0.9:
        return pa.map_(rng.choice((pa.string(), pa.int32(), pa.bool_())), random_type(rng, depth + 1))
    return random_struct(rng, depth + 1)


def random_struct(rng: random.Random, depth: int = 0) -> pa.DataType:
    """A struct of up to six fields, which may be null."""
    count = rng.randint(1, 6)
    return pa.struct(
        [(f'f{index} ü"' if rng.random() < 0.1 else f"f{index}", random_type(rng, depth)) for index in range(count)]
    )


def random_value(rng: random.Random, kind: pa.DataType, nulls: float = 0.2) -> Any:
    """A value of *kind* as Arrow takes it; null with the probability *nulls*."""
    if rng.random() < nulls:
        return None
    if pa.types.is_list(kind):
        return [random_value(rng, kind.value_type, nulls) for _ in range(rng.randrange(4))]
    if pa.types.is_map(kind):
        keys = {LEAVES[kind.key_type](rng) for _ in range(rng.randrange(4))}
        return [(key, random_value(rng, kind.item_type, nulls)) for key in keys]
    if pa.types.is_struct(kind):
        return {field.name: random_value(rng, field.type, nulls) for field in kind}
    return LEAVES[kind](rng)
