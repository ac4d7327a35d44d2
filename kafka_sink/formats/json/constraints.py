"""The keywords of a JSON Schema about numbers, texts and lists, as checks of rows: each with a constant number of numpy
and Arrow passes. Numbers are compared as readers parse them, and patterns are matched by RE2.

Source: https://json-schema.org/draft/2020-12/json-schema-validation; the package jsonschema, by which confluent-kafka's
serializer validates; https://github.com/google/re2/wiki/Syntax, https://docs.python.org/3/library/re.html.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.columns.binary_column import Bools, Int64s
from kafka_sink.common.bounded import INT64_MAX
from kafka_sink.formats.errors import FormatError, shown_type
from kafka_sink.formats.fields import Absent, is_bytes, is_list, is_text, nulls_of, numbers
from kafka_sink.formats.json.parsing import shown_json
from kafka_sink.formats.payloads import Check, refuse_rows

#: Returns the mask of the wrong values of an array; arbitrary for null rows.
Wrong: TypeAlias = Callable[[pa.Array], Bools]

_SHOWN: Final = 100
_MOST_DIGITS: Final = 38


def refusing(wrong: Wrong, path: str, problem: str) -> Check:
    """Refuses the rows of column *path* that are *wrong*."""

    def check(array: pa.Array, absent: Absent) -> None:
        if len(array):
            refuse_rows(wrong(array), absent, array, path, f"{problem}; correct it")

    return check


def constraints(schema: Mapping[str, Any], keywords: frozenset[str], kind: pa.DataType, path: str) -> list[Check]:
    """The checks of the *keywords* in *schema* that apply to the values of column *path*, of the type *kind*; keywords
    for other types do not apply to it.

    :raises FormatError: if rows cannot be checked against a keyword; the text names it and the column.
    """
    checks = []
    for name, make in (_OF_ALL | _OF_TYPES.get(json_type(kind), {})).items():
        if name not in schema or name not in keywords:
            continue
        wrong = make(schema[name], kind, schema)
        if wrong is None:
            raise FormatError(
                f"column '{path}' is {shown_type(kind)}, which kafkalite cannot validate against the JSON Schema's "
                f"'{name}' ({shown_json(schema[name], _SHOWN)}); cast the column to string, or remove the keyword from "
                "the schema"
            )
        problem = f"which is against the JSON Schema's {name} ({shown_json(schema[name], _SHOWN)})"
        checks.append(refusing(wrong, path, problem))
    return checks


def json_type(kind: pa.DataType) -> str:
    """JSON Schema's name of the type as which columns of the type *kind* are written."""
    is_of = pa.types
    if is_of.is_struct(kind) or is_of.is_map(kind):
        return "object"
    if is_list(kind):
        return "array"
    if is_of.is_integer(kind) or is_of.is_boolean(kind):
        return "boolean" if is_of.is_boolean(kind) else "integer"
    return (
        "number" if is_of.is_floating(kind) or is_of.is_decimal(kind) else "null" if is_of.is_null(kind) else "string"
    )


def _none(array: pa.Array) -> Bools:
    return np.zeros(len(array), np.bool_)


def all_rows(array: pa.Array) -> Bools:
    """The mask of all rows, for a check that no value passes."""
    return np.ones(len(array), np.bool_)


def _bools(array: pa.Array) -> Bools:
    wrong: Bools = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    return wrong


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0))


def _as_read(array: pa.Array) -> Any:
    """The values as readers parse them, as float64[rows]."""
    if pa.types.is_float64(array.type):
        return numbers(array, np.float64)
    # A float is written with as few digits as it needs, which a reader parses as the nearest double.
    texts = array.cast(pa.string()).cast(pa.float64())
    return pc.fill_null(texts, 0.0).to_numpy(zero_copy_only=False)


def whole(array: pa.Array) -> Bools:
    """The mask of the numbers that are not whole."""
    values = _as_read(array)
    wrong: Bools = np.trunc(values) != values
    return wrong


def _bound(bound: Any, kind: pa.DataType, *, is_lower: bool, is_strict: bool) -> Wrong:
    if not _is_whole(kind):
        compare: Any = {
            (True, True): np.less_equal,
            (True, False): np.less,
            (False, True): np.greater_equal,
            (False, False): np.greater,
        }[is_lower, is_strict]
        return lambda array: compare(_as_read(array), _nearest(bound))
    # The first whole number beyond the bound.
    if is_lower:
        limit = math.floor(bound) if is_strict else math.ceil(bound) - 1
    else:
        limit = math.ceil(bound) if is_strict else math.floor(bound) + 1
    most = INT64_MAX if pa.types.is_integer(kind) else 10**_MOST_DIGITS - 1
    if not -most - pa.types.is_integer(kind) <= limit <= most:
        return _none if (limit < 0) is is_lower else all_rows
    wide = pa.int64() if pa.types.is_integer(kind) else pa.decimal128(_MOST_DIGITS, 0)
    value = pa.scalar(limit if pa.types.is_integer(kind) else Decimal(limit), wide)
    ask = pc.less_equal if is_lower else pc.greater_equal
    return lambda array: _bools(ask(array.cast(wide), value))


def _nearest(bound: Any) -> float:
    try:
        return float(bound)
    except OverflowError:
        return math.inf if bound > 0 else -math.inf


def _limit(bound: Any, kind: pa.DataType, schema: Mapping[str, Any], *, is_lower: bool, is_strict: bool) -> Wrong:
    if isinstance(bound, bool):
        # In draft 4 this keyword is a boolean that modifies minimum or maximum.
        return _none
    strict_here = schema.get("exclusiveMinimum" if is_lower else "exclusiveMaximum") is True
    return _bound(bound, kind, is_lower=is_lower, is_strict=is_strict or strict_here)


def _multiple(divisor: Any, kind: pa.DataType, schema: Mapping[str, Any]) -> Wrong | None:
    if _is_whole(kind) and isinstance(divisor, int):
        if pa.types.is_decimal(kind) and kind.precision > 18:
            return None
        if divisor > INT64_MAX:
            return lambda array: _bools(pc.not_equal(array.cast(pa.int64(), safe=False), 0))
        return lambda array: np.mod(numbers(array.cast(pa.int64(), safe=False), np.int64), divisor) != 0
    if isinstance(divisor, int):
        return lambda array: np.mod(_as_read(array), _nearest(divisor)) != 0
    return lambda array: _no_multiples(_as_read(array), divisor)


@np.errstate(over="ignore", invalid="ignore")
def _no_multiples(values: Any, divisor: float) -> Bools:
    quotients = values / divisor
    wrong: Bools = np.trunc(quotients) != quotients
    for row in np.flatnonzero(np.isinf(quotients) & np.isfinite(values)):
        wrong[row] = (Fraction(float(values[row])) / Fraction(divisor)).denominator != 1
    return wrong


def _among(values: list[Any], kind: pa.DataType, schema: Mapping[str, Any]) -> Wrong | None:
    if is_text(kind) or pa.types.is_date32(kind):
        texts = pa.array([value for value in values if isinstance(value, str)], pa.string())
        return lambda array: ~_bools(pc.is_in(array.cast(pa.string()), value_set=texts))
    if pa.types.is_boolean(kind):
        flags = pa.array([value for value in values if isinstance(value, bool)], kind)
        return lambda array: ~_bools(pc.is_in(array, value_set=flags))
    listed = [number for number in values if isinstance(number, int | float) and not isinstance(number, bool)]
    if _is_whole(kind):
        wide = pa.int64() if pa.types.is_integer(kind) else pa.decimal128(_MOST_DIGITS, 0)
        most = INT64_MAX if pa.types.is_integer(kind) else 10**_MOST_DIGITS - 1
        whole_ones = [
            int(number) for number in listed if -most - (wide == pa.int64()) <= number <= most and number == int(number)
        ]
        of_kind = whole_ones if pa.types.is_integer(kind) else [Decimal(number) for number in whole_ones]
        numbers_of_kind = pa.array(of_kind, wide)
        return lambda array: ~_bools(pc.is_in(array.cast(wide), value_set=numbers_of_kind))
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        doubles = np.array([_nearest(number) for number in listed], np.float64)
        return lambda array: ~np.isin(_as_read(array), doubles)
    # Values of another JSON type never occur in the column.
    python_type = {"object": dict, "array": list}.get(json_type(kind), str)
    return None if any(isinstance(value, python_type) for value in values) else all_rows


def _lengths(array: pa.Array) -> Int64s:
    """The number of characters of each text; bytes are base64."""
    if is_bytes(array.type):
        return (_numbers(pc.binary_length(array), 0) + 2) // 3 * 4
    return _numbers(pc.utf8_length(array.cast(pa.string())), 0)


def _numbers(array: pa.Array, of_null: int) -> Int64s:
    values: Int64s = pc.fill_null(array, of_null).to_numpy(zero_copy_only=False).astype(np.int64)
    return values


def _of_length(limit: Any, kind: pa.DataType, schema: Mapping[str, Any], is_wrong: Any) -> Wrong | None:
    has_length = is_text(kind) or is_bytes(kind) or pa.types.is_date32(kind)
    return (lambda array: is_wrong(_lengths(array), limit)) if has_length else None


def _unlike(pattern: str, kind: pa.DataType, schema: Mapping[str, Any]) -> Wrong | None:
    if not (is_text(kind) or pa.types.is_date32(kind)):
        return None
    searched = searched_by_re2(pattern)
    return lambda array: ~_bools(pc.match_substring_regex(array.cast(pa.string()), searched))


def pattern_matches(pattern: str, text: str) -> bool:
    """Whether *pattern* is found in *text*. :raises FormatError: as :func:`searched_by_re2`."""
    return bool(pc.match_substring_regex(pa.scalar(text), searched_by_re2(pattern)).as_py())


#: The parts of a pattern: an escape, the begin of a class, a group's first characters, or one character.
_PART: Final = re.compile(r"\\(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|.)|\(\?:|\(\?|\[\^?\]?|\{,|.", re.DOTALL)
#: Python's Unicode classes in RE2's syntax; outside of a class brackets are added.
_CLASSES: Final[Mapping[str, str]] = {
    r"\d": r"\p{Nd}",
    r"\w": r"\p{L}\p{N}_",
    r"\s": r"\s\x{B}\x{1C}-\x{1F}\x{85}\x{A0}\p{Z}",
}


def searched_by_re2(pattern: str) -> str:
    """Translate *pattern*, a regular expression of Python's ``re``, to RE2.

    :raises FormatError: if RE2 does not support it: backreferences, lookahead and lookbehind.
    """
    parts, in_class = [], False
    for part in _PART.findall(pattern):
        if part in _CLASSES:
            parts.append(_CLASSES[part] if in_class else f"[{_CLASSES[part]}]")
        elif part[:2] in (r"\u", r"\x") and len(part) > 2:
            parts.append(rf"\x{{{part[2:]}}}")
        elif part.startswith("\\"):
            if (
                part[1].isalnum()
                and part not in (r"\n", r"\t", r"\r", r"\f", r"\v", r"\A")
                and (in_class or part not in (r"\D", r"\W", r"\S", r"\Z"))
            ):
                raise _unknown(pattern, part)
            parts.append(_OPPOSITES.get(part, part))
        elif in_class:
            in_class = part != "]"
            if part[0] == "[":
                raise _unknown(pattern, part)
            parts.append(part)
        elif part[0] == "[":
            in_class = True
            parts.append(part)
        elif part in ("(?", "{,"):
            raise _unknown(pattern, part)
        else:
            # Python's $ also matches before a line feed at the end.
            parts.append(r"(?:\n?\z)" if part == "$" else part)
    translated = "".join(parts)
    try:
        pc.match_substring_regex(pa.array([""]), translated)
    except pa.ArrowInvalid:
        raise _unknown(pattern, pattern) from None
    return translated


_OPPOSITES: Final = {
    r"\D": r"[^\p{Nd}]",
    r"\W": rf"[^{_CLASSES[chr(92) + 'w']}]",
    r"\S": rf"[^{_CLASSES[chr(92) + 's']}]",
    r"\Z": r"\z",
}


def _unknown(pattern: str, part: str) -> FormatError:
    return FormatError(
        f"the JSON Schema has the pattern {pattern[:_SHOWN]!r} with {part[:_SHOWN]!r}, which kafkalite cannot match; "
        "remove it from the schema, or rewrite it"
    )


def counts_of(array: pa.Array) -> Int64s:
    """The number of items of each list or map."""
    counts: Int64s = np.diff(array.offsets.to_numpy().astype(np.int64))
    return counts


def counts_where(fits: Bools, array: pa.Array) -> Int64s:
    """The number of items of each list that fit; *fits* has a value for every item from the first list to the last."""
    offsets = array.offsets.to_numpy().astype(np.int64) - int(array.offsets[0].as_py())
    before: Int64s = np.concatenate(([0], np.cumsum(fits)))
    counts: Int64s = before[offsets[1:]] - before[offsets[:-1]]
    return counts


def items_of(array: pa.Array) -> pa.Array:
    """All items of lists, from the first list to the last."""
    begin, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return array.values.slice(begin, end - begin)


def _is_comparable(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_comparable(field.type) for field in kind)
    return not (is_list(kind) or pa.types.is_map(kind))


def _with_repetitions(array: pa.Array) -> Bools:
    codes = _codes(items_of(array))
    most = int(codes.max(initial=0)) + 2
    seen, times = np.unique(np.repeat(np.arange(len(array)), counts_of(array)) * most + codes + 1, return_counts=True)
    wrong = np.zeros(len(array), np.bool_)
    wrong[seen[times > 1] // most] = True
    return wrong


def _codes(array: pa.Array) -> Int64s:
    """A number for each value: equal for values with the same text in JSON; -1 for null."""
    if pa.types.is_struct(array.type):
        codes: Int64s = np.zeros(len(array), np.int64)
        for index in range(array.type.num_fields):
            of_field = _codes(array.field(index))
            codes = np.unique(codes * (int(of_field.max(initial=0)) + 2) + of_field, return_inverse=True)[1]
        nulls = nulls_of(array)
        return codes if nulls is None else np.where(nulls, -1, codes)
    if pa.types.is_timestamp(array.type):
        # The texts of timestamps have milliseconds.
        array = pc.floor_temporal(array, unit="millisecond")
    elif pa.types.is_floating(array.type):
        # The two zeros are equal.
        array = pc.add(array, pa.scalar(0.0, array.type))
    return _numbers(array.dictionary_encode().indices, -1)


_Make: TypeAlias = Callable[[Any, pa.DataType, Mapping[str, Any]], Wrong | None]
_OF_ALL: Final[dict[str, _Make]] = {"enum": _among, "const": lambda value, kind, schema: _among([value], kind, schema)}
_OF_NUMBERS: Final[dict[str, _Make]] = {
    "minimum": partial(_limit, is_lower=True, is_strict=False),
    "maximum": partial(_limit, is_lower=False, is_strict=False),
    "exclusiveMinimum": partial(_limit, is_lower=True, is_strict=True),
    "exclusiveMaximum": partial(_limit, is_lower=False, is_strict=True),
    "multipleOf": _multiple,
}
_OF_TEXTS: Final[dict[str, _Make]] = {
    "minLength": partial(_of_length, is_wrong=np.less),
    "maxLength": partial(_of_length, is_wrong=np.greater),
    "pattern": _unlike,
}
_OF_LISTS: Final[dict[str, _Make]] = {
    "minItems": lambda least, kind, schema: lambda array: counts_of(array) < least,
    "maxItems": lambda most, kind, schema: lambda array: counts_of(array) > most,
    "uniqueItems": lambda is_unique, kind, schema: (
        _none if not is_unique else _with_repetitions if _is_comparable(kind.value_type) else None
    ),
}
#: JSON type of a column → the keywords for it.
_OF_TYPES: Final[Mapping[str, dict[str, _Make]]] = {
    **dict.fromkeys(("integer", "number"), _OF_NUMBERS),
    **dict.fromkeys(("string", "null"), _OF_TEXTS),
    "array": _OF_LISTS,
}
