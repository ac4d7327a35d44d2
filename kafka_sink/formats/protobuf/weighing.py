"""Checks by its bytes and its schema that a message is small enough to be parsed into objects.

For showing records, before Google's library converts them to JSON: two bytes may be a message with a thousand fields
that are shown with their default values, and one byte an enum with a name of 60 kB.

Source: https://protobuf.dev/programming-guides/encoding/, https://protobuf.dev/programming-guides/json/.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from kafka_sink.columns.varint import MAX_VARLONG_BYTES
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.formats.protobuf.schema import ENUM, MESSAGE, Message, MessageField, Presence, ProtobufSchema
from kafka_sink.formats.protobuf.writers import END_GROUP, FIXED32, FIXED64, LENGTH_DELIMITED, START_GROUP, VARINT
from kafka_sink.formats.schema_text import MOST_DEPTH

_ANY: Final = "google.protobuf.Any"
#: The characters of names, or the copied bytes of an Any, that weigh as much as a value.
_UNIT: Final = 64
#: Type → the bytes of a packed item, for types with more than one.
_ITEM_BYTES: Final = {"double": 8, "fixed64": 8, "sfixed64": 8, "float": 4, "fixed32": 4, "sfixed32": 4}
#: The fields that are shown for an empty message: those with default values, and those with items, which are empty.
_ITEMS: Final = frozenset({Presence.REPEATED, Presence.PACKED})
_SHOWN_EMPTY: Final = _ITEMS | {Presence.IMPLICIT}


@dataclass(frozen=True, slots=True)
class _Kind:
    """A message; *weight* is that of an empty one."""

    name: str
    fields: Mapping[int, MessageField]
    weight: int

    @classmethod
    def of(cls, message: Message, enums: Mapping[str, int]) -> _Kind:
        shown = [number for number in message.fields if number.presence in _SHOWN_EMPTY or message.is_map_entry]
        weight = 1 + sum(1 + len(number.name) // _UNIT for number in shown)
        # An enum is shown as the name of its zero, which is the default in the entry of a map, too.
        weight += sum(enums.get(number.type_name, 1) for number in shown if number.presence not in _ITEMS)
        return cls(message.name, {field.number: field for field in message.fields}, weight)


_UNKNOWN: Final = _Kind("", {}, 1)


class Scale:
    """Weighs messages of *schema*."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self.enums = {
            name: 1 + max((len(symbol) for symbol, _ in enum.numbers), default=0) // _UNIT
            for name, enum in schema.enums.items()
        }
        kinds = {name: _Kind.of(message, self.enums) for name, message in schema.messages.items()}
        self.kinds = dict(kinds)
        for name, kind in kinds.items():
            if schema.messages[name].is_map_entry:
                # The value of a map entry without one is an empty message.
                held = (kinds[field.type_name].weight for field in kind.fields.values() if field.type_name in kinds)
                self.kinds[name] = replace(kind, weight=kind.weight + sum(held))

    def check(self, name: str, data: bytes, most: int) -> int:
        """Check that the message *name* in *data* has at most *most* values, each of up to about 64 characters with its
        name, in addition to the bytes of texts; returns their number.

        :raises CorruptRecordError: if it has more, is nested too deeply, or is no message.
        """
        weighing = _Weighing(self, data, most)
        weighing.message(self.kinds[name], 0, len(data), 0, 0)
        return most - weighing.left


class _Weighing:
    def __init__(self, scale: Scale, data: bytes, most: int) -> None:
        self._scale, self._data, self._most, self.left = scale, data, most, most

    def message(self, kind: _Kind, at: int, end: int, group: int, depth: int) -> int:
        """Weigh the fields from *at* to *end*, or to the end of the *group* with this number; returns their end."""
        if depth == MOST_DEPTH:
            raise CorruptRecordError(f"it is nested more than {MOST_DEPTH} levels deep")
        self._take(kind.weight)
        held = _UNKNOWN
        while at < end:
            key, at = self._varint(at, end)
            number, wire = key >> 3, key & 7
            field = kind.fields.get(number)
            self._take(1 if field is None else 1 + len(field.name) // _UNIT)
            if wire == VARINT:
                _, at = self._varint(at, end)
                self._take_item(field, 1)
            elif wire == LENGTH_DELIMITED:
                size, at = self._varint(at, end)
                if size > end - at:
                    raise CorruptRecordError(f"{size} bytes are declared, and {end - at} are left")
                if kind.name == _ANY:
                    held = self._held(held, number, at, size, depth)
                elif field is not None and field.kind == MESSAGE:
                    self.message(self._kind(field), at, at + size, 0, depth + 1)
                else:
                    self._take_item(field, size)
                at += size
            elif wire == START_GROUP:
                at = self.message(self._kind(field), at, end, number, depth + 1)
            elif wire == END_GROUP and number == group:
                return at
            elif wire in (FIXED64, FIXED32):
                at += 8 if wire == FIXED64 else 4
            else:
                raise CorruptRecordError(f"a field has the wire type {wire}")
        if group or at > end:
            raise CorruptRecordError("it ends too early")
        return at

    def _kind(self, field: MessageField | None) -> _Kind:
        return _UNKNOWN if field is None else self._scale.kinds.get(field.type_name, _UNKNOWN)

    def _held(self, held: _Kind, number: int, at: int, size: int, depth: int) -> _Kind:
        """Weigh a field of an Any, which has the name of a message first; returns the kind of this message."""
        if number == 1:
            name = self._data[at : at + size].rpartition(b"/")[2].decode("utf-8", "replace")
            if name not in self._scale.kinds:
                raise CorruptRecordError(f"an Any holds {name[:_UNIT]!r}, which the schema does not have")
            return self._scale.kinds[name]
        if held is _UNKNOWN and size:
            raise CorruptRecordError("an Any has no name of a message before its bytes")
        self._take(size // _UNIT)
        self.message(held, at, at + size, 0, depth + 1)
        return held

    def _take_item(self, field: MessageField | None, size: int) -> None:
        """Weigh a value, or packed values, of *size* bytes."""
        if field is None:
            return
        if field.kind == ENUM:
            self._take(size * self._scale.enums.get(field.type_name, 1))
        elif field.presence in (Presence.PACKED, Presence.REPEATED) and field.kind not in ("string", "bytes"):
            self._take(size // _ITEM_BYTES.get(field.kind, 1))

    def _take(self, weight: int) -> None:
        self.left -= weight
        if self.left < 0:
            raise CorruptRecordError(f"it has more than {self._most} values, which are too many to be shown")

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = 0
        for index in range(MAX_VARLONG_BYTES):
            if at + index >= end:
                raise CorruptRecordError("it ends too early")
            byte = self._data[at + index]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value, at + index + 1
        raise CorruptRecordError(f"a number has more than {MAX_VARLONG_BYTES} bytes")
