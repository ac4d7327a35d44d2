"""Writers of values with parts, messages, lists, maps and wrappers, and of the fields of messages; of timestamps and
durations, which are messages of seconds and nanoseconds.

Called on the task's thread. A message's pieces are its fields' pieces behind their length. The items of lists and maps
are encoded as rows of their own; those of one row then are one piece, because they lie next to each other.

Source: https://protobuf.dev/programming-guides/encoding/; apache/spark ``ProtobufSerializer.scala``;
https://protobuf.dev/reference/protobuf/google.protobuf/#timestamp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from kafka_sink.columns.binary_column import BinaryColumn, Int64s
from kafka_sink.columns.gather import Piece, column_pieces, constant_fields, unsigned_varint_fields
from kafka_sink.common.errors import RowSerializationError
from kafka_sink.formats.fields import Absent, either, joined, nulls_of, numbers, only_present
from kafka_sink.formats.payloads import Writer, encode_items
from kafka_sink.formats.protobuf.leaves import Value, without_defaults
from kafka_sink.formats.protobuf.wire import VARINT, framed, tag_of, tagged
from kafka_sink.formats.refusals import refuse_nulls, refuse_rows

_NANOS: Final = 1_000_000_000
_SECONDS_TAG: Final = tag_of(1, VARINT)
_NANOS_TAG: Final = tag_of(2, VARINT)
_NO_NULL: Final = "and Protobuf has no null in lists and maps; leave it out, or fill it"


@dataclass(frozen=True, slots=True)
class MomentWriter:
    """google.protobuf.Timestamp and Duration, from units of which *per_second* are a second. Seconds from *low* to
    *high* are allowed. The nanoseconds of a Duration have the sign of its seconds, *is_signed*; those of a Timestamp
    are never negative.
    """

    path: str
    per_second: int
    low: int
    high: int
    allowed: str
    is_signed: bool

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        """See :class:`~kafka_sink.formats.protobuf.leaves.Value`; a message has no default value."""
        units: Int64s = numbers(array, np.int64)
        seconds, rest = np.divmod(units, self.per_second)
        wrong = (seconds < self.low) | (seconds > self.high)
        if wrong.any():
            problem = f"but {self.allowed}; correct the row, or choose another type in the schema"
            # Python has no dates for such values.
            refuse_rows(wrong, absent, array.cast(pa.int64()), self.path, problem)
        if self.is_signed:
            is_split = (seconds < 0) & (rest != 0)
            seconds, rest = seconds + is_split, rest - is_split * self.per_second
        nanos = rest * (_NANOS // self.per_second)
        inside = [*_part(_SECONDS_TAG, seconds, absent), *_part(_NANOS_TAG, nanos, absent)]
        return framed(tag, inside, absent)


def _part(tag: bytes, values: Int64s, absent: Absent) -> list[Piece]:
    return tagged(tag, unsigned_varint_fields(values.view(np.uint64)), without_defaults(absent, values == 0))


@dataclass(frozen=True, slots=True)
class SingularWriter:
    """A field of one value; null is no value. With *is_implicit* the default value is not written either."""

    tag: bytes
    value: Value
    is_implicit: bool

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        if array.null_count == len(array):
            return []
        return self.value.pieces(array, either(nulls_of(array), absent), self.tag, is_implicit=self.is_implicit)


@dataclass(frozen=True, slots=True)
class RequiredWriter:
    """A required field of proto2."""

    path: str
    tag: bytes
    value: Value

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        problem = "which the schema requires; fill it, or make the field optional"
        refuse_nulls(array, absent, self.path, problem)
        return self.value.pieces(array, absent, self.tag, is_implicit=False)


@dataclass(frozen=True, slots=True)
class ListWriter:
    """A list, each item with its tag; with *is_packed* behind one tag and the length of all items. A null list is an
    empty one.
    """

    path: str
    tag: bytes
    items: Value
    is_packed: bool

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        items = _encoded_items(array, absent, self._items)
        if not self.is_packed or not items.max_length:
            return column_pieces(items)
        is_empty = None if items.min_length else items.lengths == 0
        return framed(self.tag, column_pieces(items), is_empty)

    def _items(self, items: pa.Array, unused: Absent) -> Sequence[Piece]:
        refuse_nulls(items, unused, f"{self.path}[]", _NO_NULL)
        return self.items.pieces(items, unused, b"" if self.is_packed else self.tag, is_implicit=False)


@dataclass(frozen=True, slots=True)
class MapWriter:
    """A map: each entry is a message of key and value, both of which are always written."""

    path: str
    tag: bytes
    key_tag: bytes
    key: Value
    value_tag: bytes
    value: Value

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        return column_pieces(_encoded_items(array, absent, self._entries))

    def _entries(self, entries: pa.Array, unused: Absent) -> Sequence[Piece]:
        keys, values = entries.field(0), entries.field(1)
        refuse_nulls(values, unused, f"{self.path}{{}}", _NO_NULL)
        inside = [
            *self.key.pieces(keys, unused, self.key_tag, is_implicit=False),
            *self.value.pieces(values, unused, self.value_tag, is_implicit=False),
        ]
        return framed(self.tag, inside, unused)


def _encoded_items(
    array: pa.Array, absent: Absent, pieces_of: Callable[[pa.Array, Absent], Sequence[Piece]]
) -> BinaryColumn:
    """The items of each row, one after the other."""

    def encode(items: pa.Array, unused: Absent) -> tuple[pa.Buffer, Int64s]:
        rows = len(items)
        return joined(pieces_of(items, unused) if rows else [], rows)

    found = encode_items(array, absent, encode)
    return BinaryColumn.of(found.data, found.starts, found.ends - found.starts, None, is_contiguous=False)


@dataclass(frozen=True, slots=True)
class Oneof:
    """The *columns* of which at most one may have a value, and their names."""

    name: str
    columns: tuple[int, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MessageFields:
    """The fields of a message in the order of their numbers; *columns* are their positions in the struct."""

    path: str
    columns: tuple[int, ...]
    fields: tuple[Writer, ...]
    oneofs: tuple[Oneof, ...]

    def pieces(self, array: pa.Array, absent: Absent) -> list[Piece]:
        """The bytes of all fields; *absent* rows have none.

        :raises RowSerializationError: as :class:`Writer` does, and about rows with several values in a oneof.
        """
        for oneof in self.oneofs:
            self._check(oneof, array, absent)
        found: list[Piece] = []
        for column, writer in zip(self.columns, self.fields, strict=True):
            found += writer.pieces(array.field(column), absent)
        return found

    def _check(self, oneof: Oneof, array: pa.Array, absent: Absent) -> None:
        counts = np.zeros(len(array), np.int64)
        for column in oneof.columns:
            counts += array.field(column).is_valid().to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero((counts > 1) if absent is None else (counts > 1) & ~absent).tolist()
        if wrong:
            path = f"{self.path}.{oneof.name}"
            problem = (
                f"has more than one of the columns {', '.join(oneof.names)} of the oneof '{path}'; make all but one of "
                "them null"
            )
            raise RowSerializationError.about(wrong, lambda _: problem, path)


@dataclass(frozen=True, slots=True)
class MessageWriter:
    """A message within a message, behind its length."""

    fields: MessageFields

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        """See :class:`Value`; a message has no default value."""
        return framed(tag, self.fields.pieces(array, absent), absent)


@dataclass(frozen=True, slots=True)
class GroupWriter:
    """A message within a message, between its tag and *end_tag*."""

    fields: MessageFields
    end_tag: bytes

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        """See :class:`Value`; a message has no default value."""
        end = only_present(constant_fields(self.end_tag), absent)
        return [*tagged(tag, [], absent), *self.fields.pieces(array, absent), *end]


@dataclass(frozen=True, slots=True)
class WrapperWriter:
    """A wrapper, such as google.protobuf.StringValue: a message of one value."""

    wire_type: int
    value: Value

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        """See :class:`Value`; a message has no default value."""
        inside = self.value.pieces(array, absent, tag_of(1, self.wire_type), is_implicit=True)
        return framed(tag, inside, absent)
