"""The match of a JSON Schema and a column: whether its type fits, before any row; and which rows do not, by columns.

The types are Spark's business, so a type that no row of which fits is refused on the driver. Whether a value is null,
one of an enumeration, or of the right alternative is a question of rows, as in Avro and Protobuf: Spark reads every
column as one that may be null. Rows are judged as the payloads that they become: a null field that is left out is
there for no keyword but ``required``.

Source: https://json-schema.org/draft-07/json-schema-validation.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.columns.binary_column import Bools
from kafka_sink.common.config import nearest
from kafka_sink.common.errors import RowSerializationError
from kafka_sink.formats.errors import FormatError, shown_type
from kafka_sink.formats.fields import Absent, either, is_list, is_text
from kafka_sink.formats.json.parsing import OF_ALTERNATIVES, OTHER_CONSTRAINTS, is_tuple
from kafka_sink.formats.payloads import (
    Check,
    check_of_contents,
    check_of_field,
    check_of_present,
    refuse_nulls,
    refuse_rows,
)

_NO_NULL: Final = "which the JSON Schema does not take; fill it (coalesce), or let the schema take null"
#: A schema's parts are compared with all columns that they may be about.
_MOST_COMPARED: Final = 100_000
_SHOWN: Final = 100


class _MisfitError(Exception):
    """No row of a column fits a schema."""


def takes_null(schema: Any) -> bool:
    """Whether *schema* takes null."""
    if not isinstance(schema, dict):
        return bool(schema)
    listed = [schema.get("enum", [None]), [schema.get("const")]]
    return (
        "null" in schema.get("type", "null")
        and all(None in each for each in listed)
        and all(any(map(takes_null, schema[name])) for name in OF_ALTERNATIVES if name in schema)
    )


@dataclass(frozen=True, slots=True)
class NullFields:
    """Which null fields are written as null instead of left out, at the place *path* of a column: those that *schemas*,
    all that are about this place, require and take null for; and, if they are *kept* or *defaulted* names their path,
    others that they take it for.

    What only an alternative requires, and says nothing more about, is left out: alternatives such as
    ``[{"required": ["a"]}, {"required": ["b"]}]`` ask which fields are there.
    """

    schemas: Sequence[Any] = ()
    kept: bool = False
    path: str = ""
    defaulted: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        of_field, alternatives = self.property(name).schemas, self._alternatives()
        takes = any(map(takes_null, of_field))
        if any(name in each.get("required", ()) for each in self._objects()):
            return takes or not of_field
        if requiring := [each for each in alternatives if name in each.get("required", ())]:
            return takes and any(name in each.get("properties", ()) for each in requiring)
        return (self.kept or f"{self.path}.{name}" in self.defaulted) and (takes or not of_field)

    def property(self, name: str) -> NullFields:
        """Those within the field *name*."""
        parts = [*self._objects(), *self._alternatives()]
        found = [each.get("properties", {}).get(name, each.get("additionalProperties")) for each in parts]
        return replace(self, schemas=[each for each in found if each is not None], path=f"{self.path}.{name}")

    def within(self, keyword: str) -> NullFields:
        """Those within the values of a map (``additionalProperties``) or the ``items`` of a list."""
        parts = [*self._objects(), *self._alternatives()]
        path = f"{self.path}{'[]' if keyword == 'items' else '{}'}"
        return replace(self, schemas=[each[keyword] for each in parts if keyword in each], path=path)

    def _objects(self) -> list[dict[str, Any]]:
        return [each for each in self.schemas if isinstance(each, dict)]

    def _alternatives(self) -> list[dict[str, Any]]:
        parts = self._objects()
        own = len(parts)
        for part in parts:
            parts += [each for name in OF_ALTERNATIVES for each in part.get(name, ()) if isinstance(each, dict)]
        return parts[own:]


class Matching:
    """Compares one schema with a column; *unchecked* are the keywords in it that rows are not checked against."""

    def __init__(self) -> None:
        self.unchecked: set[str] = set()
        self._compared = 0

    def checks(self, schema: Any, kind: pa.DataType, path: str) -> list[Check]:
        """The checks of the rows of column *path*, of the type *kind*, that are not null.

        :raises FormatError: if no row fits *schema*; the text names the column.
        """
        try:
            return self._checks(schema, kind, path)
        except _MisfitError as error:
            raise FormatError(str(error)) from None

    def _checks(self, schema: Any, kind: pa.DataType, path: str, *, is_alternative: bool = False) -> list[Check]:
        self._compared += 1
        if self._compared > _MOST_COMPARED:
            raise FormatError(
                f"the JSON Schema has alternatives within alternatives, of more than {_MOST_COMPARED} combinations; "
                "make it flatter"
            )
        if schema is False:
            raise _MisfitError(f"column '{path}': the JSON Schema allows no value here; drop the column")
        if schema is True:
            return []
        written, wanted = _json_type(kind), schema.get("type", ())
        if wanted and not _takes(wanted, written, kind):
            raise _MisfitError(
                f"column '{path}' is {shown_type(kind)}, in JSON {_article(written)}, and the JSON Schema has the type "
                f"{json.dumps(wanted)} there; cast the column, or change the schema"
            )
        checks = self._of_values(schema, kind, path)
        if pa.types.is_struct(kind):
            checks += self._of_fields(schema, kind, path, is_alternative)
        elif pa.types.is_map(kind):
            checks += self._of_entries(schema, kind, path)
        elif is_list(kind):
            checks += self._of_items(schema, kind, path)
        for name in OF_ALTERNATIVES:
            if name in schema:
                checks += self._of_alternatives(name, schema[name], kind, path)
        return checks

    def _of_values(self, schema: dict[str, Any], kind: pa.DataType, path: str) -> list[Check]:
        checks = []
        for name in sorted(schema.keys() & OTHER_CONSTRAINTS):
            values = schema[name] if name == "enum" else [schema[name]]
            array = _values_of(values, kind) if name in ("enum", "const") else None
            if array is None:
                self.unchecked.add(name)
            else:
                checks.append(_among(array, path, f"which is not the JSON Schema's {name} ({_shown(schema[name])})"))
        return checks

    def _of_fields(self, schema: dict[str, Any], kind: pa.DataType, path: str, is_alternative: bool) -> list[Check]:
        names = [field.name for field in kind]
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        required = schema.get("required", ())
        for name in required:
            if name not in names:
                raise _MisfitError(
                    f"column '{path}.{name}' is missing, and the JSON Schema requires it{nearest(name, names)}; add "
                    "it, or change the schema"
                )
        checks: list[Check] = []
        for index, field in enumerate(kind):
            place = f"{path}.{field.name}"
            if field.name not in properties and "patternProperties" in schema:
                continue
            if field.name not in properties and others is False:
                raise _MisfitError(
                    f"column '{place}' has no property in the JSON Schema, which takes no others "
                    f"(additionalProperties){nearest(field.name, properties)}; rename or drop it, or add it to the "
                    "schema"
                )
            part = properties.get(field.name, others)
            is_null_written = takes_null(part) and (field.name in properties or not is_alternative)
            needs_value = field.name in required and not is_null_written
            inside = self._of_nullable(part, field.type, place, needs_value=needs_value)
            if inside:
                checks.append(check_of_field(index, inside))
        return checks

    def _of_nullable(self, schema: Any, kind: pa.DataType, path: str, *, needs_value: bool) -> list[Check]:
        """The checks of rows that may be null, but not if the schema *needs_value*."""
        checks: list[Check] = []
        if needs_value:
            checks.append(lambda array, absent: refuse_nulls(array, absent, path, _NO_NULL))
        if not pa.types.is_null(kind):
            checks += [check_of_present(each) for each in self._checks(schema, kind, path)]
        return checks

    def _of_items(self, schema: dict[str, Any], kind: pa.DataType, path: str) -> list[Check]:
        items = schema.get("items", True)
        if is_tuple(items):
            self.unchecked.add("items")
            return []
        inside = self._of_nullable(items, kind.value_type, f"{path}[]", needs_value=not takes_null(items))
        return [check_of_contents(inside, lambda items: items)] if inside else []

    def _of_entries(self, schema: dict[str, Any], kind: pa.DataType, path: str) -> list[Check]:
        for name in ("properties", "required"):
            if schema.get(name):
                raise _MisfitError(
                    f"column '{path}' is {shown_type(kind)}, which may have any keys, and the JSON Schema has "
                    f"'{name}' there; make the column a struct, or change the schema"
                )
        values = schema.get("additionalProperties", True)
        inside = self._of_nullable(values, kind.item_type, f"{path}{{}}", needs_value=not takes_null(values))
        return [check_of_contents(inside, lambda entries: entries.field(1))] if inside else []

    def _of_alternatives(self, name: str, schemas: Sequence[Any], kind: pa.DataType, path: str) -> list[Check]:
        fitting: list[list[Check]] = []
        problems: list[str] = []
        # What is not compared may tell alternatives apart.
        is_exclusive, known, self.unchecked = name == "oneOf", self.unchecked, set()
        for each in schemas:
            try:
                fitting.append(self._checks(each, kind, path, is_alternative=True))
            except _MisfitError as error:
                problems += [] if each == {"type": "null"} else [str(error)]
        is_exclusive, self.unchecked = is_exclusive and not self.unchecked, known | self.unchecked
        if not fitting:
            if len(problems) == 1:
                raise _MisfitError(problems[0])
            raise _MisfitError(
                f"column '{path}' is {shown_type(kind)}, which fits none of the JSON Schema's {name} "
                f"({'; '.join(problems)[:_SHOWN]}…); change the column, or the schema"
            )
        if is_exclusive and fitting.count([]) > 1:
            raise _MisfitError(
                f"column '{path}' is {shown_type(kind)}, which fits several of the JSON Schema's oneOf, and must fit "
                "exactly one; change the schema (anyOf takes it), or the column"
            )
        if len(fitting) == 1:
            return fitting[0]
        if not is_exclusive and [] in fitting:
            return []
        return [_of_any(fitting, path, name, is_exclusive=is_exclusive)]


def _of_any(alternatives: Sequence[Sequence[Check]], path: str, name: str, *, is_exclusive: bool) -> Check:
    how = "exactly one" if is_exclusive else "any"
    problem = f"which does not fit {how} of the JSON Schema's {name}; correct it, or change the schema"

    def check(array: pa.Array, absent: Absent) -> None:
        fits = len(alternatives) - np.sum([_wrong_rows(each, array, absent) for each in alternatives], axis=0)
        refuse_rows((fits != 1) if is_exclusive else (fits == 0), absent, array, path, problem)

    return check


def _wrong_rows(checks: Sequence[Check], array: pa.Array, absent: Absent) -> Bools:
    """Those of all problems: an error is about the rows of one."""
    wrong = np.zeros(len(array), np.bool_)
    for check in checks:
        while True:
            try:
                check(array, either(wrong, absent))
                break
            except RowSerializationError as error:
                wrong[list(error.rows)] = True
    return wrong


def _among(values: pa.Array, path: str, problem: str) -> Check:
    def check(array: pa.Array, absent: Absent) -> None:
        inside = pc.is_in(array, value_set=values.cast(array.type))
        refuse_rows(~inside.to_numpy(zero_copy_only=False), absent, array, path, f"{problem}; correct it")

    return check


def _values_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """Those of *values* that a column of the type *kind* may have; None if its values are not compared with JSON's."""
    if is_text(kind):
        return pa.array([each for each in values if isinstance(each, str)], kind)
    if pa.types.is_boolean(kind):
        return pa.array([each for each in values if isinstance(each, bool)], kind)
    numbers = [each for each in values if isinstance(each, int | float) and not isinstance(each, bool)]
    if pa.types.is_integer(kind):
        most = 1 << kind.bit_width - 1
        return pa.array([int(each) for each in numbers if each == each // 1 and -most <= each < most], kind)
    return pa.array([float(each) for each in numbers], kind) if pa.types.is_float64(kind) else None


def _json_type(kind: pa.DataType) -> str:
    is_of = pa.types
    if is_of.is_struct(kind) or is_of.is_map(kind):
        return "object"
    if is_list(kind):
        return "array"
    if is_of.is_integer(kind) or is_of.is_boolean(kind):
        return "boolean" if is_of.is_boolean(kind) else "integer"
    return (
        "number" if is_of.is_floating(kind) or is_of.is_decimal(kind) else "null" if is_of.is_null(kind) else "string"
    )


def _takes(wanted: str | Sequence[str], written: str, kind: pa.DataType) -> bool:
    kinds = [wanted] if isinstance(wanted, str) else wanted
    # A decimal without a fraction is written without a point.
    is_whole = written == "integer" or (pa.types.is_decimal(kind) and kind.scale == 0)
    return written in kinds or (is_whole and bool({"number", "integer"} & set(kinds)))


def _article(written: str) -> str:
    return f"{'an' if written[0] in 'aio' else 'a'} {written}"


def _shown(values: Any) -> str:
    text = json.dumps(values, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
