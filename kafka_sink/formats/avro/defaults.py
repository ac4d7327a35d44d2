"""The default of a field as a column of one row, so that it is written as columns are.

Called when columns are matched with a schema. It ignores logical types: a default is declared as the type below.

Source: https://avro.apache.org/docs/1.12.0/specification/#schema-record (field default values).
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from kafka_sink.formats.avro.schema import (
    NO_DEFAULT,
    Array,
    AvroType,
    Decimal,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
)
from kafka_sink.formats.errors import FormatError

_ARROW: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}


#: Defaults of records within one another are written out, and there may be exponentially many.
MOST_VALUES: Final = 5_000
_SHOWN: Final = 200


def default_column(field: Field, path: str) -> tuple[AvroType, pa.Array]:
    """The type of the default (of a union its first one, and no logical type) and an array with the default.

    :raises FormatError: if the default is none of its type.
    """
    declared = field.type.branches[0] if isinstance(field.type, Union) else field.type
    if _has_more(declared, MOST_VALUES):
        raise FormatError(
            f"column '{path}' is missing, and the default of the schema's field has more than {MOST_VALUES} values "
            "with all names written out; add the column, or change the schema"
        )
    kind = _plain(declared)
    try:
        return kind, pa.array([_value(kind, field.default)], _arrow(kind))
    except (pa.ArrowException, TypeError, ValueError, LookupError, AttributeError, OverflowError):
        raise FormatError(
            f"column '{path}' is missing, and the default {repr(field.default)[:_SHOWN]} of the schema's field is no "
            f"{kind}; correct the schema, or add the column"
        ) from None


def _has_more(avro: AvroType, most: int) -> bool:
    """Whether *avro* has more than *most* types, with all names written out."""
    waiting = [avro]
    while waiting and most >= 0:
        most -= 1
        match waiting.pop():
            case Array(inner) | Map(inner):
                waiting.append(inner)
            case Record() as record:
                waiting += [each.type for each in record.fields]
            case Union() as union:
                waiting += union.branches
    return most < 0


def _plain(avro: AvroType) -> AvroType:
    """*avro* without logical types."""
    match avro:
        case Primitive():
            return Primitive(avro.name)
        case Decimal():
            return Primitive("bytes") if avro.size is None else Fixed("decimal", avro.size)
        case Array():
            return Array(_plain(avro.items))
        case Map():
            return Map(_plain(avro.values))
        case Union():
            return Union(tuple(_plain(branch) for branch in avro.branches))
        case Record():
            return Record(avro.name, tuple(Field(each.name, _plain(each.type), each.default) for each in avro.fields))
        case _:
            return avro


def _arrow(avro: AvroType) -> pa.DataType:
    match avro:
        case Primitive():
            return _ARROW[avro.name]
        case Array():
            return pa.list_(_arrow(avro.items))
        case Map():
            return pa.map_(pa.string(), _arrow(avro.values))
        case Record():
            return pa.struct([(each.name, _arrow(each.type)) for each in avro.fields])
        case Union():
            return _arrow(avro.others[0]) if avro.others else pa.null()
        case Enum():
            return pa.string()
        case _:
            return pa.binary()


def _value(avro: AvroType, declared: Any) -> Any:
    """*declared*, which is JSON, as Arrow takes it: bytes are declared as text."""
    match avro:
        case Primitive(name="bytes") | Fixed():
            return declared.encode("latin-1")
        case Array():
            return [_value(avro.items, each) for each in declared]
        case Map():
            return [(name, _value(avro.values, each)) for name, each in declared.items()]
        case Record():
            return {each.name: _value(each.type, _of_field(each, declared)) for each in avro.fields}
        case Union():
            return None if declared is None else _value(avro.others[0], declared)
        case _:
            return declared


def _of_field(field: Field, declared: Any) -> Any:
    return declared[field.name] if field.name in declared or field.default is NO_DEFAULT else field.default
