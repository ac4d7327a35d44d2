"""Random messages with their rows, as columns of Arrow and as Google's library takes them: the oracle's side of
property tests.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2 as descriptors
from google.protobuf import message_factory
from hypothesis import strategies as st

from kafka_sink.formats.protobuf.descriptors import pool_of

_Types: Final = descriptors.FieldDescriptorProto
_Features: Final = descriptors.FeatureSet
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
NAMES: Final = {"ZERO": 0, "ONE": 1, "LOW": -(1 << 31), "HIGH": (1 << 31) - 1}
_ENUM: Final = "Choice"

#: How a field of a message gets a value: the message, the name of the field, and the value as Arrow has it.
Fill = Callable[[Any, str, Any], None]


@dataclass(frozen=True)
class Shape:
    """The type of a value in Arrow and in Protobuf; *told* is the value as Google's library takes it, or *fields* those
    of the message that it is."""

    arrow: pa.DataType
    kind: int
    values: st.SearchStrategy[Any]
    told: Callable[[Any], Any] = lambda value: value
    type_name: str = ""
    fields: tuple[FieldShape, ...] = ()
    is_group: bool = False


@dataclass(frozen=True)
class FieldShape:
    """A field: *label* is implicit, explicit, required, repeated, packed or map, or oneof."""

    shape: Shape
    label: str
    number: int
    key: Shape | None = None

    @property
    def name(self) -> str:
        return f"f{self.number}"


def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    edges = [sign * (1 << bits) + step for bits in (7, 14, 28, 31, 35, 56, 63) for sign in (1, -1) for step in (-1, 0)]
    return st.sampled_from([0, low, high, *(each for each in edges if low <= each <= high)]) | st.integers(low, high)


def _texts() -> st.SearchStrategy[str]:
    return st.text(max_size=6) | st.integers(0, 300).map(lambda size: ("0123456789é" * 30)[:size])


def _signed(bits: int) -> st.SearchStrategy[int]:
    return _integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


_LOW_64: Final = (1 << 63) - 1
_DECIMAL: Final = pa.decimal128(20, 0)
_UNSIGNED: Final = _integers(0, (1 << 64) - 1).map(decimal.Decimal)
_MICROS: Final = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999) | st.integers(-3_000_000, 3_000_000)
_LENGTHS: Final = st.integers(-_LOW_64, _LOW_64).map(lambda each: each % (1 << 50)) | st.integers(-(10**8), 10**8)


def _wrapper(name: str, shape: Shape) -> Shape:
    told = shape.told
    return Shape(shape.arrow, _Types.TYPE_MESSAGE, shape.values, lambda value: {"value": told(value)}, name)


def _moment(micros: int) -> dict[str, int]:
    return {"seconds": micros // 10**6, "nanos": micros % 10**6 * 1000}


def _length(micros: int) -> dict[str, int]:
    sign = -1 if micros < 0 else 1
    return {"seconds": sign * (abs(micros) // 10**6), "nanos": sign * (abs(micros) % 10**6 * 1000)}


_SCALARS: Final = [
    Shape(pa.bool_(), _Types.TYPE_BOOL, st.booleans()),
    Shape(pa.int8(), _Types.TYPE_INT32, _signed(8)),
    Shape(pa.int16(), _Types.TYPE_SINT32, _signed(16)),
    Shape(pa.int32(), _Types.TYPE_INT32, _signed(32)),
    Shape(pa.int32(), _Types.TYPE_SINT32, _signed(32)),
    Shape(pa.int32(), _Types.TYPE_SFIXED32, _signed(32)),
    Shape(pa.int32(), _Types.TYPE_UINT32, _integers(0, (1 << 31) - 1)),
    Shape(pa.int64(), _Types.TYPE_UINT32, _integers(0, (1 << 32) - 1)),
    Shape(pa.int64(), _Types.TYPE_FIXED32, _integers(0, (1 << 32) - 1)),
    Shape(pa.int64(), _Types.TYPE_INT64, _signed(64)),
    Shape(pa.int32(), _Types.TYPE_INT64, _signed(32)),
    Shape(pa.int64(), _Types.TYPE_SINT64, _signed(64)),
    Shape(pa.int64(), _Types.TYPE_SFIXED64, _signed(64)),
    Shape(pa.int64(), _Types.TYPE_UINT64, _integers(0, _LOW_64)),
    Shape(_DECIMAL, _Types.TYPE_UINT64, _UNSIGNED, int),
    Shape(_DECIMAL, _Types.TYPE_FIXED64, _UNSIGNED, int),
    Shape(pa.date32(), _Types.TYPE_INT32, st.dates(), lambda value: (value - _EPOCH.date()).days),
    Shape(pa.float32(), _Types.TYPE_FLOAT, st.floats(width=32, allow_nan=False)),
    Shape(pa.float32(), _Types.TYPE_DOUBLE, st.floats(width=32, allow_nan=False)),
    Shape(pa.float64(), _Types.TYPE_DOUBLE, st.floats(allow_nan=False)),
    Shape(pa.string(), _Types.TYPE_STRING, _texts()),
    Shape(pa.large_string(), _Types.TYPE_STRING, _texts()),
    Shape(pa.binary(), _Types.TYPE_BYTES, st.binary(max_size=20)),
    Shape(pa.string(), _Types.TYPE_BYTES, _texts(), lambda value: value.encode()),
]
_OTHERS: Final = [
    Shape(pa.string(), _Types.TYPE_ENUM, st.sampled_from(list(NAMES)), NAMES.__getitem__, _ENUM),
    Shape(pa.int32(), _Types.TYPE_ENUM, st.sampled_from(list(NAMES.values())), type_name=_ENUM),
    Shape(pa.timestamp("us", "UTC"), _Types.TYPE_MESSAGE, _MICROS, _moment, "google.protobuf.Timestamp"),
    Shape(pa.duration("us"), _Types.TYPE_MESSAGE, _LENGTHS, _length, "google.protobuf.Duration"),
]
_WRAPPED: Final = {
    _Types.TYPE_BOOL: "Bool",
    _Types.TYPE_INT32: "Int32",
    _Types.TYPE_INT64: "Int64",
    _Types.TYPE_UINT32: "UInt32",
    _Types.TYPE_UINT64: "UInt64",
    _Types.TYPE_FLOAT: "Float",
    _Types.TYPE_DOUBLE: "Double",
    _Types.TYPE_STRING: "String",
    _Types.TYPE_BYTES: "Bytes",
}
_WRAPPERS: Final = [
    _wrapper(f"google.protobuf.{_WRAPPED[each.kind]}Value", each) for each in _SCALARS if each.kind in _WRAPPED
]
_KEYS: Final = [
    each
    for each in _SCALARS
    if each.kind not in (_Types.TYPE_FLOAT, _Types.TYPE_DOUBLE, _Types.TYPE_BYTES) and each.arrow != _DECIMAL
]
_UNPACKABLE: Final = (_Types.TYPE_STRING, _Types.TYPE_BYTES, _Types.TYPE_MESSAGE, _Types.TYPE_GROUP)


def messages() -> st.SearchStrategy[Shape]:
    """Messages of a few levels, of up to five fields each."""
    leaves = st.sampled_from([*_SCALARS, *_OTHERS, *_WRAPPERS])
    return _message(st.recursive(leaves, _message, max_leaves=6))


def _message(inner: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
    numbers = st.lists(
        st.integers(1, 40) | st.sampled_from([2047, 2048, 1 << 21, (1 << 29) - 1]), min_size=1, max_size=5, unique=True
    )
    found: st.SearchStrategy[Sequence[FieldShape]] = numbers.flatmap(
        lambda chosen: st.tuples(*(_field(number, inner) for number in chosen))
    )
    return found.map(_of_fields)


@st.composite
def _field(draw: st.DrawFn, number: int, inner: st.SearchStrategy[Shape]) -> FieldShape:
    shape = draw(inner)
    if len(shape.fields) > 0 and draw(st.booleans()):
        shape = replace(shape, is_group=True)
    labels = ["explicit", "explicit", "required", "repeated", "oneof"]
    if shape.kind not in (_Types.TYPE_MESSAGE, _Types.TYPE_GROUP):
        labels += ["implicit", "implicit"]
    if shape.kind not in _UNPACKABLE:
        labels.append("packed")
    if not shape.is_group:
        labels.append("map")
    label = draw(st.sampled_from(labels))
    return FieldShape(shape, label, number, draw(st.sampled_from(_KEYS)) if label == "map" else None)


def _of_fields(fields: Sequence[FieldShape]) -> Shape:
    return Shape(
        pa.struct([pa.field(each.name, _arrow(each), each.label != "required") for each in fields]),
        _Types.TYPE_MESSAGE,
        st.fixed_dictionaries({each.name: _values(each) for each in fields}).flatmap(lambda row: _one(row, fields)),
        fields=tuple(fields),
    )


def _one(row: dict[str, Any], fields: Sequence[FieldShape]) -> st.SearchStrategy[dict[str, Any]]:
    """*row* with at most one value in the oneof."""
    names = [each.name for each in fields if each.label == "oneof"]
    kept = st.sampled_from([None, *names])
    return kept.map(lambda one: {name: None if name in names and name != one else row[name] for name in row})


def _arrow(field: FieldShape) -> pa.DataType:
    if field.label in ("repeated", "packed"):
        return pa.list_(field.shape.arrow)
    return field.shape.arrow if field.key is None else pa.map_(field.key.arrow, field.shape.arrow)


def _values(field: FieldShape) -> st.SearchStrategy[Any]:
    shape, key = field.shape, field.key
    if field.label == "required":
        return shape.values
    if field.label in ("repeated", "packed"):
        return st.none() | st.lists(shape.values, max_size=4)
    if key is not None:
        return st.none() | st.dictionaries(key.values, shape.values, max_size=3).map(lambda found: list(found.items()))
    return st.none() | shape.values


def declared(shape: Shape) -> str:
    """The schema of a message, as base64 of its descriptor."""
    file = descriptors.FileDescriptorProto(
        name="shapes.proto", package="shapes", syntax="editions", edition=descriptors.EDITION_2023
    )
    for each in ("timestamp", "duration", "wrappers"):
        file.dependency.append(f"google/protobuf/{each}.proto")
    choice = file.enum_type.add(name=_ENUM)
    for name, number in NAMES.items():
        choice.value.add(name=name, number=number)
    _declare(file, shape, count())
    # The first message is the outermost.
    return base64.b64encode(file.SerializeToString()).decode()


def _declare(file: Any, shape: Shape, numbers: Any) -> str:
    name = f"M{next(numbers)}"
    message = file.message_type.add(name=name)
    if any(each.label == "oneof" for each in shape.fields):
        message.oneof_decl.add(name="one")
    for each in shape.fields:
        field = message.field.add(name=each.name, number=each.number)
        if each.key is None:
            _declare_type(file, field, each.shape, numbers)
        else:
            field.type, field.type_name = _Types.TYPE_MESSAGE, f".shapes.{name}.F{each.number}Entry"
            entry = message.nested_type.add(name=f"F{each.number}Entry")
            entry.options.map_entry = True
            for number, part in enumerate((each.key, each.shape), 1):
                inside = entry.field.add(name=("", "key", "value")[number], number=number, label=_Types.LABEL_OPTIONAL)
                _declare_type(file, inside, part, numbers)
        _declare_label(field, each)
    return name


def _declare_type(file: Any, field: Any, shape: Shape, numbers: Any) -> None:
    field.type = shape.kind
    if shape.fields:
        field.type_name = f".shapes.{_declare(file, shape, numbers)}"
    elif shape.type_name:
        field.type_name = f".{shape.type_name}" if "." in shape.type_name else f".shapes.{shape.type_name}"
    if shape.is_group:
        field.options.features.message_encoding = _Features.DELIMITED


def _declare_label(field: Any, shape: FieldShape) -> None:
    is_many = shape.label in ("repeated", "packed", "map")
    field.label = _Types.LABEL_REPEATED if is_many else _Types.LABEL_OPTIONAL
    features = field.options.features
    if shape.label == "oneof":
        field.oneof_index = 0
    elif shape.label == "repeated" and shape.shape.kind not in _UNPACKABLE:
        features.repeated_field_encoding = _Features.EXPANDED
    elif shape.label == "implicit":
        features.field_presence = _Features.IMPLICIT
    elif shape.label == "required":
        features.field_presence = _Features.LEGACY_REQUIRED


def by_google(schema: str, shape: Shape, rows: Sequence[Any]) -> list[bytes | None]:
    """The payload of each row; a null row has none."""
    kind = _class(schema)
    found: list[bytes | None] = []
    for row in rows:
        message = kind()
        if row is not None:
            _fill(message, shape, row)
        found.append(None if row is None else message.SerializeToString(deterministic=True))
    return found


def written_again(schema: str, payload: bytes) -> bytes:
    """*payload* as Google's library writes what it has read from it; the order of a map is the library's."""
    again: bytes = _class(schema).FromString(payload).SerializeToString(deterministic=True)
    return again


def has_long_map(shape: Shape, row: Any) -> bool:
    """Whether a map in *row* has more than one entry, which then may be in any order."""
    if row is None or not shape.fields:
        return False
    return any(_has_long_map(each, row[each.name]) for each in shape.fields)


def _has_long_map(field: FieldShape, value: Any) -> bool:
    if value is None:
        return False
    if field.key is not None:
        return len(value) > 1 or any(has_long_map(field.shape, each) for _, each in value)
    is_many = field.label in ("repeated", "packed")
    return any(has_long_map(field.shape, each) for each in (value if is_many else [value]))


def _class(schema: str) -> Any:
    return message_factory.GetMessageClass(pool_of(schema).FindMessageTypeByName("shapes.M0"))


def _fill(message: Any, shape: Shape, row: dict[str, Any]) -> None:
    for each in shape.fields:
        value = row[each.name]
        if value is not None:
            _fill_field(message, each, value)


def _fill_field(message: Any, field: FieldShape, value: Any) -> None:
    target = getattr(message, field.name)
    is_message = field.shape.kind == _Types.TYPE_MESSAGE
    if field.key is not None:
        for key, each in value:
            if is_message:
                _fill_message(target[field.key.told(key)], field.shape, each)
            else:
                target[field.key.told(key)] = field.shape.told(each)
    elif field.label in ("repeated", "packed"):
        for each in value:
            if is_message:
                _fill_message(target.add(), field.shape, each)
            else:
                target.append(field.shape.told(each))
    elif is_message:
        target.SetInParent()
        _fill_message(target, field.shape, value)
    else:
        setattr(message, field.name, field.shape.told(value))


def _fill_message(message: Any, shape: Shape, value: Any) -> None:
    if shape.fields:
        _fill(message, shape, value)
        return
    for name, each in shape.told(value).items():
        setattr(message, name, each)
