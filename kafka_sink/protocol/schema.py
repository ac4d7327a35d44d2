"""Declarations of messages: typed fields with version ranges.

Message modules use this at import; encoder and decoder read the declarations when they compile a version. This module
must not depend on the encoding of values, which :mod:`encoder` and :mod:`decoder` define.

Source: the README of Apache Kafka's message definitions (versions, taggedVersions, nullableVersions, ignorable,
defaults), KIP-482 (flexible versions and tagged fields).
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar, dataclass_transform

from kafka_sink.common.buffers import Buffer

#: The maximum version of any API, because versions are encoded as int16.
MAX_VERSION: Final = 0x7FFF

ZERO_UUID: Final = uuid.UUID(int=0)

#: The value of a ``records`` field: one buffer, several for a gathering write, or null. Decoding returns a memoryview
#: or None.
Records: TypeAlias = Buffer | Sequence[Buffer] | None

_FIELD: Final = "kafkalite.field"


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions *min* to *max*, both included; empty if *max* is below *min*."""

    min: int
    max: int

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Parse Kafka's notation: ``3+``, ``0-12``, ``4`` or ``none``."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), MAX_VERSION)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def __contains__(self, version: int) -> bool:
        return self.min <= version <= self.max

    def __str__(self) -> str:
        return f"{self.min} to {self.max}"


NO_VERSIONS: Final = VersionRange(0, -1)


@dataclass(frozen=True, slots=True)
class Primitive:
    """A primitive type of the protocol; *format* is its struct code if its size is fixed."""

    name: str
    format: str
    default: Any


BOOL: Final = Primitive("bool", "?", False)
INT8: Final = Primitive("int8", "b", 0)
INT16: Final = Primitive("int16", "h", 0)
UINT16: Final = Primitive("uint16", "H", 0)
INT32: Final = Primitive("int32", "i", 0)
UINT32: Final = Primitive("uint32", "I", 0)
INT64: Final = Primitive("int64", "q", 0)
FLOAT64: Final = Primitive("float64", "d", 0.0)
UUID: Final = Primitive("uuid", "", ZERO_UUID)
STRING: Final = Primitive("string", "", "")
BYTES: Final = Primitive("bytes", "", b"")
RECORDS: Final = Primitive("records", "", None)


@dataclass(frozen=True, slots=True)
class Array:
    """The type of a list of *element*."""

    element: Primitive | type[Struct]


FieldType: TypeAlias = "Primitive | Array | type[Struct]"


@dataclass(frozen=True, slots=True)
class StructField:
    """One declared field: name, type, versions, nullable versions, and its tag if it is a tagged field."""

    name: str
    type: FieldType
    versions: VersionRange
    nullable: VersionRange
    tag: int | None
    ignorable: bool
    make_default: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class StructSchema:
    """The declaration of one struct; *versions* is None for a struct that is only used inside others."""

    fields: tuple[StructField, ...]
    versions: VersionRange | None
    flexible: VersionRange


def _default_maker(item: dataclasses.Field[Any]) -> Callable[[], Any]:
    if item.default_factory is not dataclasses.MISSING:
        return item.default_factory
    value = item.default
    return lambda: value


@dataclass_transform()
class _StructType(type):
    """Makes the classes of structs: dataclasses with slots, and with a schema of their :func:`field` declarations."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        versions: str = "",
        flexible: str = "none",
    ) -> Any:
        made: Any = super().__new__(cls, name, bases, namespace)
        if "__slots__" in namespace:
            # A base class, or the class that dataclass() makes of one without slots.
            return made
        struct = dataclass(slots=True)(made)
        fields = (
            item.metadata[_FIELD](name=item.name, make_default=_default_maker(item))
            for item in dataclasses.fields(struct)
        )
        struct.SCHEMA = StructSchema(
            tuple(fields), VersionRange.parse(versions) if versions else None, VersionRange.parse(flexible)
        )
        return struct


class Struct(metaclass=_StructType):
    """Base class of messages and of the structs inside them. Fields have Kafka's names (snake_case) and defaults.

    The class statement of a request or response has its *versions* and those that are *flexible* (KIP-482).
    """

    __slots__ = ()
    SCHEMA: ClassVar[StructSchema]


S = TypeVar("S", bound=Struct)
A_co = TypeVar("A_co", bound=Struct, covariant=True)


class RequestBody(Struct, Generic[A_co]):
    """Base class of requests; *A_co* is the class of the response."""

    __slots__ = ()


def field(
    type: FieldType,
    versions: str,
    *,
    default: Any = dataclasses.MISSING,
    nullable: str = "none",
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a field of a struct.

    *versions*, *nullable*: the versions that have the field and those that allow null, in Kafka's notation. Without a
    *default* it is Kafka's default for the type: zero, empty, or a struct of defaults. With a *tag* it is a tagged
    field in all its versions. A value other than the default in a version without the field is an error unless the
    field is *ignorable*. A ``records`` field cannot be a tagged field, because its size must be known before its bytes.
    """
    declare = partial(
        StructField,
        type=type,
        versions=VersionRange.parse(versions),
        nullable=VersionRange.parse(nullable),
        tag=tag,
        ignorable=ignorable,
    )
    metadata = {_FIELD: declare}
    if default is not dataclasses.MISSING:
        return dataclasses.field(default=default, metadata=metadata)
    if isinstance(type, Primitive):
        return dataclasses.field(default=type.default, metadata=metadata)
    return dataclasses.field(default_factory=list if isinstance(type, Array) else type, metadata=metadata)


class Throttled(Struct):
    """Base class of responses that have begun with the throttle time since their first version."""

    throttle_time_ms: int = field(INT32, "0+")


class Outcome(Struct):
    """Base class of structs that begin with an error and its text, null without one."""

    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
