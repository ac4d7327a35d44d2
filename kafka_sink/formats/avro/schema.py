"""The types of an Avro schema as data: their names, and their texts in messages.

:mod:`kafka_sink.formats.avro.parsing` creates them from JSON. They are immutable and hold no rows.

Source: https://avro.apache.org/docs/1.12.0/specification/.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

#: A valid name in Avro; a full name is several of them with dots between.
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

#: The default of a field that has none; ``null`` is a default.
NO_DEFAULT: Final = object()

#: The maximum number of a union's types that a message names.
_SHOWN_BRANCHES: Final = 8

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without parts, and its logical type if this package supports it."""

    name: str
    logical: str | None = None

    def __str__(self) -> str:
        return self.name if self.logical is None else f"{self.name} ({self.logical})"


@dataclass(frozen=True, slots=True)
class Decimal:
    """The logical type decimal: on ``fixed`` of *size* bytes, or on ``bytes`` if it is None."""

    precision: int
    scale: int
    size: int | None = None

    def __str__(self) -> str:
        kind = "bytes" if self.size is None else f"fixed of {self.size} bytes"
        return f"{kind} (decimal with precision {self.precision} and scale {self.scale})"


@dataclass(frozen=True, slots=True)
class Fixed:
    """Exactly *size* bytes."""

    name: str
    size: int

    def __str__(self) -> str:
        return f"fixed {self.name} of {self.size} bytes"


@dataclass(frozen=True, slots=True)
class Enum:
    """One of *symbols*, written as its position among them."""

    name: str
    symbols: tuple[str, ...]

    def __str__(self) -> str:
        return f"enum {self.name}"


@dataclass(frozen=True, slots=True)
class Array:
    """Any number of items of one type."""

    items: AvroType

    def __str__(self) -> str:
        return "array"


@dataclass(frozen=True, slots=True)
class Map:
    """Values of one type by strings."""

    values: AvroType

    def __str__(self) -> str:
        return "map"


@dataclass(frozen=True, slots=True)
class RecordField:
    """A field of a record; *default* as in the schema's JSON, or NO_DEFAULT."""

    name: str
    type: AvroType
    default: Any = field(default=NO_DEFAULT, hash=False)


@dataclass(frozen=True, slots=True)
class Record:
    """Fields in the order in which they are written."""

    name: str
    fields: tuple[RecordField, ...]

    def __str__(self) -> str:
        return f"record {self.name}"


@dataclass(frozen=True, slots=True)
class Union:
    """One of several types, written after its position among them."""

    branches: tuple[AvroType, ...]

    @property
    def others(self) -> tuple[AvroType, ...]:
        """The branches that are not null."""
        return tuple(branch for branch in self.branches if branch != NULL)

    def __str__(self) -> str:
        more = len(self.branches) - _SHOWN_BRANCHES
        shown = ", ".join(map(str, self.branches[:_SHOWN_BRANCHES]))
        return f"union of {shown}" + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class TypeReference:
    """The record *name*, within itself. Only schemas for reading contain it: a row cannot contain itself."""

    name: str

    def __str__(self) -> str:
        return f"record {self.name}"


AvroType: TypeAlias = Primitive | Decimal | Fixed | Enum | Array | Map | Record | Union | TypeReference

NULL: Final = Primitive("null")
