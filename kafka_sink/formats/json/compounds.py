"""Writers of values with parts: structs, arrays and maps. Called on the task's thread.

As in Spark's ``to_json`` a null field is left out, and a null in an array or a map is ``null``.

Source: apache/spark ``JacksonGenerator.scala``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from kafka_sink.columns.binary_column import BinaryColumn, Bools, Int64s
from kafka_sink.columns.gather import column_pieces
from kafka_sink.formats.fields import Absent, either, joined, nulls_of, only_present, optional_field
from kafka_sink.formats.json.tokens import Literal, Token, Writer, pieces_of
from kafka_sink.formats.payloads import encode_items

_Encode: TypeAlias = Callable[[pa.Array, Absent], tuple[pa.Buffer, Int64s]]


@dataclass(frozen=True, slots=True)
class StructWriter:
    """An object with the fields that are not null; *names* are theirs, as JSON has them, with quotes."""

    names: tuple[bytes, ...]
    fields: tuple[Writer, ...]

    def tokens(self, array: pa.Array, absent: Absent) -> Sequence[Token]:
        found: list[Token] = [Literal(b"{", absent)]
        # Where a field was written before this one: in no row, in all rows, or in those of a mask.
        before: bool | Bools = False
        for index, (name, writer) in enumerate(zip(self.names, self.fields, strict=True)):
            column = array.field(index)
            nulls = nulls_of(column)
            missing = either(nulls, absent)
            if isinstance(before, np.ndarray):
                found += only_present([optional_field(b",", before)], missing)
            elif before:
                found.append(Literal(b",", missing))
            found += [Literal(name + b":", missing), *writer.tokens(column, missing)]
            if nulls is None:
                before = True
            elif before is not True:
                before = before | ~nulls
        return [*found, Literal(b"}", absent)]


@dataclass(frozen=True, slots=True)
class ArrayWriter:
    """An array of items."""

    items: Writer

    def tokens(self, array: pa.Array, absent: Absent) -> Sequence[Token]:
        return _enclosed(b"[", array, absent, self._encoded, b"]")

    def _encoded(self, items: pa.Array, unused: Absent) -> tuple[pa.Buffer, Int64s]:
        return _joined([Literal(b",", unused), *_or_null(self.items, items, unused)], len(items))


@dataclass(frozen=True, slots=True)
class MapWriter:
    """An object with the entries of a map, in their order."""

    key: Writer
    value: Writer

    def tokens(self, array: pa.Array, absent: Absent) -> Sequence[Token]:
        return _enclosed(b"{", array, absent, self._encoded, b"}")

    def _encoded(self, entries: pa.Array, unused: Absent) -> tuple[pa.Buffer, Int64s]:
        name = [Literal(b",", unused), *self.key.tokens(entries.field(0), unused), Literal(b":", unused)]
        return _joined([*name, *_or_null(self.value, entries.field(1), unused)], len(entries))


def _or_null(writer: Writer, items: pa.Array, unused: Absent) -> list[Token]:
    """The tokens of each item, and ``null`` for one that is null."""
    nulls = nulls_of(items)
    if nulls is None:
        return list(writer.tokens(items, unused))
    return [Literal(b"null", either(~nulls, unused)), *writer.tokens(items, either(nulls, unused))]


def _joined(tokens: Sequence[Token], rows: int) -> tuple[pa.Buffer, Int64s]:
    return joined(pieces_of(tokens, rows) if rows else [], rows)


def _enclosed(opening: bytes, array: pa.Array, absent: Absent, encode: _Encode, closing: bytes) -> list[Token]:
    if not len(array):
        return []
    found = encode_items(array, absent, encode)
    # Each item begins with a comma, and the first of a row goes without it.
    starts = found.starts + (found.counts > 0)
    items = BinaryColumn.of(found.data, starts, found.ends - starts, None, is_contiguous=False)
    return [Literal(opening, absent), *column_pieces(items), Literal(closing, absent)]
