"""Writers of values without parts (numbers, texts and bytes) and with parts (structs, arrays and maps), a whole column
at once. Called on the task's thread.

A writer returns pieces with data, and texts that are the same in all rows; adjacent texts are joined before they become
pieces, because each piece has a cost per row. Floating-point numbers have the texts of Java (``Double.toString`` since
version 19): the fewest digits that identify the number, from 0.001 to 10,000,000 without an exponent (``100.0``), and
otherwise with one (``1.5E-7``).

As in Spark's ``to_json`` a null field is left out, and a null in an array or a map is ``null``.

Source: apache/spark ``JacksonGenerator.scala``; com.fasterxml.jackson.core ``JsonGenerator``, ``CharTypes``;
https://www.rfc-editor.org/rfc/rfc8259#section-7.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kafka_sink.columns.binary_column import BinaryColumn, Bools, Bytes
from kafka_sink.columns.gather import INLINE_BYTES, Piece, WordField, column_pieces, constant_fields
from kafka_sink.formats.fields import Absent, either, joined, nulls_of, numbers, only_present, optional_field
from kafka_sink.formats.payloads import bytes_of, encode_items, refuse_other_than_utf8, refuse_rows


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """The same text in every row that is not *absent*."""

    text: bytes
    absent: Absent


Token: TypeAlias = Piece | Literal


class TokenWriter(Protocol):
    """Writes the rows of one column at one place."""

    def tokens(self, array: pa.Array, absent: Absent) -> Sequence[Token]:
        """The tokens of each row of *array*; rows that are *absent*, among them all null ones, have no bytes.

        :raises RowSerializationError: about all rows whose values cannot be written for the first reason that was
            found; the text names the column.
        """


def pieces_of(tokens: Sequence[Token], rows: int) -> list[Piece]:
    """The pieces of *tokens*, for *rows* rows."""
    pieces: list[Piece] = []
    text, absent = b"", None
    for token in tokens:
        if isinstance(token, Literal) and token.absent is absent:
            text += token.text
            continue
        pieces += _pieces_of_text(text, absent, rows)
        text, absent = (token.text, token.absent) if isinstance(token, Literal) else (b"", None)
        if not isinstance(token, Literal):
            pieces.append(token)
    return pieces + _pieces_of_text(text, absent, rows)


def in_quotes(pieces: Sequence[Piece], absent: Absent) -> list[Token]:
    """*pieces* between quotes, in the rows that are not *absent*."""
    return [Literal(b'"', absent), *only_present(pieces, absent), Literal(b'"', absent)]


def _pieces_of_text(text: bytes, absent: Absent, rows: int) -> list[Piece]:
    if len(text) <= INLINE_BYTES:
        return only_present(constant_fields(text), absent)
    lengths = np.full(rows, len(text), np.int64) if absent is None else np.where(absent, 0, len(text))
    return [BinaryColumn.of(pa.py_buffer(text), np.zeros(rows, np.int64), lengths, None, is_contiguous=False)]


#: As Jackson writes them.
_NOT_FINITE: Final = ('"NaN"', '"Infinity"', '"-Infinity"')

_LEAST_PLAIN: Final = 1e-3
_LEAST_WITH_EXPONENT: Final = 1e7
#: The forms of Arrow's texts: with an exponent, below 1, and numbers with many digits before the point.
_SCIENTIFIC: Final = r"^(?P<first>-?\d)(?:\.(?P<rest>\d+))?e\+?(?P<exponent>-?\d+)$"
_SMALL: Final = r"^(?P<sign>-?)0\.(?P<zeros>0+)(?P<first>[1-9])(?P<rest>\d*)$"
_LARGE: Final = r"^(?P<first>-?[1-9])(?P<whole>\d+)(?:\.(?P<rest>\d+))?$"


# A signalling NaN is treated as every other NaN.
@np.errstate(invalid="ignore")
def float_texts(array: pa.Array) -> tuple[pa.Array, Bools, Bools | None]:
    """The texts of *array*, without the ``.0`` of whole numbers; the mask of the rows where this follows; and the mask
    of the rows with a finite number, None if all have one.

    The text of a null row is arbitrary.
    """
    double = pa.types.is_float64(array.type)
    values = numbers(array, np.float64 if double else np.float32)
    texts = pa.array(values).cast(pa.string())
    magnitude = np.abs(values).astype(np.float64, copy=False)
    is_number = np.isfinite(values)
    is_plain = (magnitude >= _LEAST_PLAIN) & (magnitude < _LEAST_WITH_EXPONENT) | (values == 0)
    is_whole = is_plain & (values == np.trunc(values))
    others = np.flatnonzero(is_number & ~is_plain)
    if len(others):
        texts = _replaced(texts, others, _with_exponent(texts.take(pa.array(others)), values[others]))
    if is_number.all():
        return texts, is_whole, None
    strange = np.flatnonzero(~is_number)
    which = np.where(np.isnan(values[strange]), 0, np.where(values[strange] > 0, 1, 2))
    return _replaced(texts, strange, pa.array(_NOT_FINITE).take(pa.array(which))), is_whole, is_number


def _replaced(texts: pa.Array, rows: NDArray[np.intp], by: pa.Array) -> pa.Array:
    mask = np.zeros(len(texts), dtype=np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(texts, pa.array(mask), by)


def _with_exponent(texts: pa.Array, values: NDArray[Any]) -> pa.Array:
    """*texts* as d.dddE±e."""
    scientific = pc.extract_regex(texts, _SCIENTIFIC)
    small = pc.extract_regex(texts, _SMALL)
    large = pc.extract_regex(texts, _LARGE)
    first = pc.coalesce(
        pc.struct_field(scientific, "first"),
        pc.binary_join_element_wise(pc.struct_field(small, "sign"), pc.struct_field(small, "first"), ""),
        pc.struct_field(large, "first"),
    )
    rest = pc.coalesce(
        pc.struct_field(scientific, "rest"),
        pc.struct_field(small, "rest"),
        pc.binary_join_element_wise(pc.struct_field(large, "whole"), pc.struct_field(large, "rest"), ""),
    )
    exponent = pc.coalesce(
        pc.struct_field(scientific, "exponent"),
        pc.negate(pc.add(pc.binary_length(pc.struct_field(small, "zeros")), 1)).cast(pa.string()),
        pc.binary_length(pc.struct_field(large, "whole")).cast(pa.string()),
    )
    digits = pc.utf8_rtrim(rest, "0")
    fraction = pc.if_else(pc.equal(digits, ""), "0", digits)
    formatted = pc.binary_join_element_wise(first, ".", fraction, "E", exponent, "")
    # Below this, the distance of numbers is so large that one digit may identify one; Java then shows two.
    few_digits = float(np.finfo(values.dtype).smallest_subnormal) * 200
    tiny = np.flatnonzero((np.abs(values) < few_digits) & pc.equal(digits, "").to_numpy(zero_copy_only=False))
    return _replaced(formatted, tiny, _two_digits(values[tiny])) if len(tiny) else formatted


def _two_digits(values: NDArray[Any]) -> pa.Array:
    """The texts with two digits; few numbers are this small, so each is formatted once."""
    distinct, where = np.unique(values, return_inverse=True)
    shown = [f"{value:.1e}".replace("e", "E").replace("E-0", "E-") for value in distinct.astype(np.float64).tolist()]
    return pa.array(shown, pa.string()).take(pa.array(where))


_Encode: TypeAlias = Callable[[pa.Array, Absent], Sequence[Piece]]
_SHORT: Final = {8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}
_FIRST_PLAIN: Final = 0x20
_ASCII: Final = 0x80
_TRUE: Final = np.uint64(int.from_bytes(b"true", "little"))
_FALSE: Final = np.uint64(int.from_bytes(b"false", "little"))


@dataclass(frozen=True, slots=True)
class StructWriter:
    """An object with the fields that are not null, and null for those in *keeps_null*; *names* are their names as JSON,
    with quotes."""

    names: tuple[bytes, ...]
    fields: tuple[TokenWriter, ...]
    keeps_null: tuple[bool, ...]

    def tokens(self, array: pa.Array, absent: Absent) -> Sequence[Token]:
        tokens: list[Token] = [Literal(b"{", absent)]
        # The rows in which a field was written before this one: none, all, or those of a mask.
        before: bool | Bools = False
        for index, (name, writer, is_kept) in enumerate(zip(self.names, self.fields, self.keeps_null, strict=True)):
            column = array.field(index)
            nulls = None if is_kept else nulls_of(column)
            missing = either(nulls, absent)
            if isinstance(before, np.ndarray):
                tokens += only_present([optional_field(b",", before)], missing)
            elif before:
                tokens.append(Literal(b",", missing))
            values = _or_null(writer, column, absent) if is_kept else writer.tokens(column, missing)
            tokens += [Literal(name + b":", missing), *values]
            if nulls is None:
                before = True
            elif before is not True:
                before = before | ~nulls
        return [*tokens, Literal(b"}", absent)]


@dataclass(frozen=True, slots=True)
class ArrayWriter:
    """An array of items."""

    items: TokenWriter

    def tokens(self, array: pa.Array, absent: Absent) -> Sequence[Token]:
        return _enclosed(b"[", array, absent, self._items, b"]")

    def _items(self, items: pa.Array, unused: Absent) -> Sequence[Piece]:
        return pieces_of([Literal(b",", unused), *_or_null(self.items, items, unused)], len(items))


@dataclass(frozen=True, slots=True)
class MapWriter:
    """An object with the entries of a map, in their order."""

    key: TokenWriter
    value: TokenWriter

    def tokens(self, array: pa.Array, absent: Absent) -> Sequence[Token]:
        return _enclosed(b"{", array, absent, self._entries, b"}")

    def _entries(self, entries: pa.Array, unused: Absent) -> Sequence[Piece]:
        name = [Literal(b",", unused), *self.key.tokens(entries.field(0), unused), Literal(b":", unused)]
        return pieces_of([*name, *_or_null(self.value, entries.field(1), unused)], len(entries))


def _or_null(writer: TokenWriter, items: pa.Array, unused: Absent) -> list[Token]:
    """The tokens of each item, and ``null`` for one that is null."""
    nulls = nulls_of(items)
    if nulls is None:
        return list(writer.tokens(items, unused))
    return [Literal(b"null", either(~nulls, unused)), *writer.tokens(items, either(nulls, unused))]


def _enclosed(opening: bytes, array: pa.Array, absent: Absent, encode: _Encode, closing: bytes) -> list[Token]:
    if not len(array):
        return []
    items, _ = encode_items(array, absent, encode, separator_bytes=1)
    return [Literal(opening, absent), *column_pieces(items), Literal(closing, absent)]


def escaped(array: pa.Array, absent: Absent, path: str) -> BinaryColumn:
    """The rows of *array*, a column of text, with backslashes where JSON needs them.

    :raises RowSerializationError: about the rows that are no UTF-8 and not *absent*.
    """
    column = bytes_of(array, path)
    used = _used(column)
    if not len(used):
        return column
    if int(used.max()) >= _ASCII:
        refuse_other_than_utf8(array, absent, path, "cast the column to binary, which becomes base64")
    codes = [code for code in (92, 34) if (used == code).any()]
    if int(used.min()) < _FIRST_PLAIN:
        codes += np.unique(used[used < _FIRST_PLAIN]).tolist()
    if not codes:
        return column
    binary = array.view(pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary())
    for code in codes:
        # The backslash comes first, because the other replacements insert one.
        binary = pc.replace_substring(binary, pattern=bytes([code]), replacement=escape(code))
    return BinaryColumn.from_arrow(binary)


def escape(code: int) -> bytes:
    """The escape of the character with this *code*."""
    return _SHORT.get(code) or b"\\u%04X" % code


def _used(column: BinaryColumn) -> Bytes:
    """The bytes from the first row to the last."""
    if not len(column):
        return column.data[:0]
    return column.data[int(column.starts.min()) : int((column.starts + column.lengths).max())]


@dataclass(frozen=True, slots=True)
class NothingWriter:
    """The type of columns that only have nulls: they are left out, or ``null`` in arrays and maps."""

    def tokens(self, array: pa.Array, absent: Absent) -> Sequence[Token]:
        return []


@dataclass(frozen=True, slots=True)
class BooleanWriter:
    """``true`` or ``false``."""

    def tokens(self, array: pa.Array, absent: Absent) -> Sequence[Token]:
        values = numbers(array.cast(pa.uint8()), np.uint8) != 0
        sizes = np.where(values, np.uint64(4), np.uint64(5))
        return only_present([WordField(np.where(values, _TRUE, _FALSE), sizes, 4, 5)], absent)


@dataclass(frozen=True, slots=True)
class NumberWriter:
    """Integers and decimals, whose texts in Arrow are those of Java."""

    def tokens(self, array: pa.Array, absent: Absent) -> Sequence[Token]:
        return _text_pieces(array.cast(pa.string()), absent)


@dataclass(frozen=True, slots=True)
class FloatWriter:
    """``float`` and ``double``, as Java writes them; NaN and infinite values are texts, or refused if *is_strict*."""

    path: str
    is_strict: bool

    def tokens(self, array: pa.Array, absent: Absent) -> Sequence[Token]:
        texts, is_whole, is_number = float_texts(array)
        if self.is_strict and is_number is not None:
            problem = "which JSON does not have as a number; replace it: when(isnan(…), None)"
            refuse_rows(~is_number, absent, array, self.path, problem)
        return [*_text_pieces(texts, absent), *only_present([optional_field(b".0", is_whole)], absent)]


@dataclass(frozen=True, slots=True)
class TextWriter:
    """A text in quotes."""

    path: str

    def tokens(self, array: pa.Array, absent: Absent) -> Sequence[Token]:
        return in_quotes(column_pieces(escaped(array, absent, self.path)), absent)


@dataclass(frozen=True, slots=True)
class BinaryWriter:
    """Bytes as base64, with padding."""

    path: str

    def tokens(self, array: pa.Array, absent: Absent) -> Sequence[Token]:
        if not len(array):
            return []
        column = bytes_of(array, self.path)
        rest = (-column.lengths) % 3
        zeros = WordField(0, rest.astype(np.uint64), 0, 2)
        # Every row is padded to groups of three bytes, so all rows can be encoded as one.
        data, bounds = joined([*column_pieces(column), zeros], len(array))
        text = np.frombuffer(base64.b64encode(data), np.uint8).copy()
        ends = bounds[1:] // 3 * 4
        for padding in (1, 2):
            text[ends[rest >= padding] - padding] = ord("=")
        starts = bounds[:-1] // 3 * 4
        encoded = BinaryColumn.of(pa.py_buffer(text), starts, ends - starts, None, is_contiguous=True)
        return in_quotes(column_pieces(encoded), absent)


@dataclass(frozen=True, slots=True)
class QuotedWriter:
    """Integers and booleans as texts: the keys of maps."""

    def tokens(self, array: pa.Array, absent: Absent) -> Sequence[Token]:
        return in_quotes(column_pieces(BinaryColumn.from_arrow(array.cast(pa.string()))), absent)


def _text_pieces(texts: pa.Array, absent: Absent) -> list[Piece]:
    return only_present(column_pieces(BinaryColumn.from_arrow(texts)), absent)
