"""The messages of a Protobuf schema as data, and the texts of their types in messages.

They are resolved on the driver, by :mod:`kafka_sink.formats.protobuf.parsing` or
:mod:`kafka_sink.formats.protobuf.column`, and pickled to the tasks, which then need no library of Protobuf. They are
immutable and hold no rows.

Source: https://protobuf.dev/programming-guides/proto3/, https://protobuf.dev/editions/features/.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum as Enumeration
from typing import Final

BOOL: Final = "bool"
STRING: Final = "string"
BYTES: Final = "bytes"
FLOAT: Final = "float"
DOUBLE: Final = "double"
ENUM: Final = "enum"
MESSAGE: Final = "message"
#: A message between two tags instead of after its length: proto2's groups, and DELIMITED of editions.
GROUP: Final = "group"

TIMESTAMP: Final = "google.protobuf.Timestamp"
DURATION: Final = "google.protobuf.Duration"

#: The type of the one field, ``value``, of each wrapper.
WRAPPERS: Final[Mapping[str, str]] = {
    "google.protobuf.BoolValue": BOOL,
    "google.protobuf.Int32Value": "int32",
    "google.protobuf.Int64Value": "int64",
    "google.protobuf.UInt32Value": "uint32",
    "google.protobuf.UInt64Value": "uint64",
    "google.protobuf.FloatValue": FLOAT,
    "google.protobuf.DoubleValue": DOUBLE,
    "google.protobuf.StringValue": STRING,
    "google.protobuf.BytesValue": BYTES,
}


class Presence(Enumeration):
    """The presence of a field. A repeated field or a map has none: without items it is not written."""

    #: proto3 without ``optional``: the default value is not written.
    IMPLICIT = "implicit"
    #: Every value is written; null is not written.
    EXPLICIT = "explicit"
    #: ``required`` of proto2.
    REQUIRED = "required"
    REPEATED = "repeated"
    PACKED = "packed"


@dataclass(frozen=True, slots=True)
class MessageField:
    """A field of a message. *kind* is a scalar type's name, or one of ENUM, MESSAGE and GROUP, and *type_name* then the
    full name of the enum or message. *oneof* is the name of the oneof that contains it and others."""

    name: str
    number: int
    kind: str
    presence: Presence
    type_name: str = ""
    oneof: str | None = None

    def __str__(self) -> str:
        repeated = "repeated " if self.presence in (Presence.REPEATED, Presence.PACKED) else ""
        return f"{repeated}{self.kind if not self.type_name else f'{self.kind} {self.type_name}'}"


@dataclass(frozen=True, slots=True)
class Message:
    """Fields in the order of their numbers, in which they are written. The entries of a map are messages, too."""

    name: str
    fields: tuple[MessageField, ...]
    is_map_entry: bool = False

    def __str__(self) -> str:
        return f"message {self.name}"


@dataclass(frozen=True, slots=True)
class Enum:
    """The number of each name, which several names may share."""

    name: str
    numbers: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """All messages and enums by their full names, and the message of the rows: *root*, at *position* in its file: the
    indices of the messages that contain it, the outermost first, and its own."""

    root: str
    position: tuple[int, ...]
    messages: Mapping[str, Message]
    enums: Mapping[str, Enum]
