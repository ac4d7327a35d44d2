"""A column in Avro, see :class:`~kafka_sink.formats.column_format.Format`, and the schema that belongs to its Arrow
type, as spark-avro derives it from the types of Spark.

Schemas are derived on the driver, before any task. Names, namespaces and the order of unions are spark-avro's; only a
decimal is ``bytes`` here, as in other libraries, and ``fixed`` there. Unlike spark-avro's, a registered schema has null
first in its unions, and null as the default of a nullable field: without a default no field can be added to a subject.

Source: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding,
https://spark.apache.org/docs/latest/sql-data-sources-avro.html, apache/spark ``SchemaConverters.scala``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.formats.avro.matching import writer_for
from kafka_sink.formats.avro.parsing import linked, parse_schema, without_comments
from kafka_sink.formats.avro.schema import NAME, Record
from kafka_sink.formats.column_format import AVRO, TOP_LEVEL, ColumnEncoder, ColumnFormat, Format
from kafka_sink.formats.errors import FormatError, check_unique, shown_type
from kafka_sink.formats.fields import PER_SECOND, Absent, is_list
from kafka_sink.formats.payloads import Check, FieldsEncoder, leaf_checks, refuse_moments
from kafka_sink.formats.schema_text import SchemaText

#: spark-avro notes the type of an interval, which is a plain number in Avro.
_CATALYST_TYPE: Final = "spark.sql.catalyst.type"

#: From this day on the Julian and the Gregorian calendar agree, and so do the times of day in all zones
#: (apache/spark ``RebaseDateTime``: lastSwitchJulianDay, lastSwitchGregorianTs).
_FIRST_DAY: Final = -141_427
_FIRST_SECOND: Final = -2_208_988_800

_SIMPLE: Final[Mapping[pa.DataType, str]] = {
    pa.null(): "null",
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
}

_LOGICAL: Final[tuple[tuple[Callable[[pa.DataType], bool], dict[str, str]], ...]] = (
    (pa.types.is_date32, {"type": "int", "logicalType": "date"}),
    (pa.types.is_time, {"type": "long", "logicalType": "time-micros"}),
    (
        lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None,
        {"type": "long", "logicalType": "timestamp-micros"},
    ),
    (pa.types.is_timestamp, {"type": "long", "logicalType": "local-timestamp-micros"}),
    (pa.types.is_duration, {"type": "long", _CATALYST_TYPE: "interval day to second"}),
)


def derive_schema(kind: pa.DataType, column: str, *, has_defaults: bool = False) -> str:
    """The JSON of the schema for *column*, whose rows have the type *kind*. Null rows have no payload, so the schema
    itself is not nullable.

    :param has_defaults: fields that may be null have null as their default, so that a schema with more or fewer of them
        is compatible.
    :raises FormatError: if a type has no counterpart in Avro, or a field has a name that Avro does not allow.
    """
    derive = _Derivation(has_defaults).type
    return json.dumps(derive(kind, TOP_LEVEL, "", column), separators=(",", ":"))


@dataclass(frozen=True)
class _Derivation:
    """The declarations of one schema."""

    has_defaults: bool

    def type(self, kind: pa.DataType, name: str, namespace: str, path: str) -> Any:
        simple = _SIMPLE.get(kind)
        if simple is not None:
            return simple
        for fits, declared in _LOGICAL:
            if fits(kind):
                return declared
        if pa.types.is_decimal128(kind) and kind.scale >= 0:
            return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        if is_list(kind):
            return {"type": "array", "items": self._of_field(kind.value_field, name, namespace, f"{path}[]")}
        if pa.types.is_map(kind):
            if not pa.types.is_string(kind.key_type):
                raise FormatError(
                    f"column '{path}' is a map with keys of type {kind.key_type}, but Avro's maps have string keys; "
                    f"cast them: transform_keys(…, lambda key, _: key.cast('string'))"
                )
            return {"type": "map", "values": self._of_field(kind.item_field, name, namespace, f"{path}{{}}")}
        if pa.types.is_struct(kind):
            return self._record(kind, name, namespace, path)
        raise FormatError(
            f"column '{path}' has the type {shown_type(kind)}, which has no counterpart in Avro; cast or drop it"
        )

    def _record(self, kind: pa.DataType, name: str, namespace: str, path: str) -> dict[str, Any]:
        inside = f"{namespace}.{name}" if namespace else name
        check_unique([field.name for field in kind], path)
        fields = []
        for field in kind:
            inner_path = f"{path}.{field.name}"
            if not NAME.fullmatch(field.name):
                raise FormatError(
                    f"column '{inner_path}' has a name that Avro does not allow: only letters, digits and _, and no "
                    "digit first; rename it"
                )
            of_field = self._of_field(field, field.name, inside, inner_path)
            is_nullable = of_field == "null" or (isinstance(of_field, list) and "null" in of_field)
            default = {"default": None} if self.has_defaults and is_nullable else {}
            fields.append({"name": field.name, "type": of_field, **default})
        declared: dict[str, Any] = {"type": "record", "name": name}
        if namespace:
            declared["namespace"] = namespace
        return {**declared, "fields": fields}

    def _of_field(self, field: pa.Field, name: str, namespace: str, path: str) -> Any:
        declared = self.type(field.type, name, namespace, path)
        if not field.nullable or declared == "null":
            return declared
        # In Avro a default is a value of the first type.
        return ["null", declared] if self.has_defaults else [declared, "null"]


class AvroFormat(Format):
    """Schemas are JSON texts."""

    def encoder(self, form: ColumnFormat, kind: pa.DataType) -> ColumnEncoder:
        rebase = form.settings.rebase
        checks = [] if rebase == "CORRECTED" else leaf_checks(kind, form.column, partial(_check_of_rebase, rebase))
        return FieldsEncoder(writer_for(parse_schema(form.schema), kind, form.column), checks)

    def derived(self, kind: pa.DataType, column: str) -> ColumnFormat:
        return ColumnFormat(column, AVRO, derive_schema(kind, column))

    def registrable(self, kind: pa.DataType, column: str) -> Sequence[ColumnFormat]:
        forms = (ColumnFormat(column, AVRO, derive_schema(kind, column, has_defaults=True)), self.derived(kind, column))
        return forms if forms[0] != forms[1] else forms[:1]

    def given(self, schema: SchemaText, kind: pa.DataType, column: str, message: str | None = None) -> ColumnFormat:
        # A registry and its readers may not accept comments.
        schema = without_comments(schema)
        return ColumnFormat(column, AVRO, linked(schema), source=schema if schema.references else None)

    def linked(self, schema: SchemaText) -> str:
        return linked(schema)

    def record_name(self, form: ColumnFormat) -> str | None:
        schema = parse_schema(form.schema)
        return schema.name if isinstance(schema, Record) else None


def _check_of_rebase(rebase: str, kind: pa.DataType, path: str) -> Check | None:
    """Refuses the dates and moments of a column that Spark's ``to_avro`` refuses, or moves to the Julian calendar."""
    if pa.types.is_date32(kind):
        stored, first = pa.int32(), _FIRST_DAY
    elif pa.types.is_timestamp(kind) and kind.tz is not None:
        stored, first = pa.int64(), _FIRST_SECOND * PER_SECOND[kind.unit]
    else:
        return None
    problem = (
        f"which spark.sql.avro.datetimeRebaseModeInWrite={rebase} "
        f"{'refuses' if rebase == 'EXCEPTION' else 'moves to the Julian calendar'}: it is before "
        f"{'1582-10-15' if stored == pa.int32() else '1900'}; set it to CORRECTED"
    )

    def check(array: pa.Array, absent: Absent) -> None:
        wrong = pc.less(array.cast(stored), first).fill_null(False).to_numpy(zero_copy_only=False)
        refuse_moments(wrong, absent, array, path, problem)

    return check


FORMAT: Final = AvroFormat()
