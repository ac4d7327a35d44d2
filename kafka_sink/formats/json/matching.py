"""The match of a JSON Schema and a column: checks its type before any row is written, and the rows by columns.

A type of which no row can fit is refused on the driver. Null values, bounds and alternatives are checked in the rows,
as for Avro and Protobuf, because Spark reads every column as nullable. Rows are validated as their payloads: a null
field that is left out is absent for all keywords, and only those about the presence of fields apply to it.

Source: https://json-schema.org/draft-07/json-schema-validation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kafka_sink.columns.binary_column import Bools, Int64s
from kafka_sink.common.config import nearest
from kafka_sink.common.errors import RowSerializationError
from kafka_sink.common.text import words
from kafka_sink.formats.errors import FormatError, shown_type
from kafka_sink.formats.fields import Absent, either, is_list, is_text, nulls_of
from kafka_sink.formats.json.constraints import (
    all_rows,
    constraints,
    counts_of,
    counts_where,
    items_of,
    json_type,
    pattern_matches,
    refusing,
    whole,
)
from kafka_sink.formats.json.parsing import OF_ALTERNATIVES, UNCHECKED, UNCHECKED_OF, keywords_of
from kafka_sink.formats.payloads import Check, check_of_contents, check_of_field, check_of_present, refuse_nulls

_NO_NULL: Final = "which the JSON Schema does not take; fill it (coalesce), or let the schema take null"
#: The maximum number of comparisons of a schema's parts with the columns to which they may apply.
_MOST_COMPARED: Final = 100_000
_SHOWN: Final = 100


class _MisfitError(Exception):
    """No row of a column fits a schema."""


def takes_null(schema: Any) -> bool:
    """Whether *schema* accepts null."""
    if not isinstance(schema, dict):
        return bool(schema)
    if (
        None not in schema.get("enum", [None])
        or schema.get("const") is not None
        or "null" not in schema.get("type", "null")
    ):
        return False
    takes = {
        name: [takes_null(part) for part in schema[name]] for name in ("allOf", *OF_ALTERNATIVES) if name in schema
    }
    if not all(takes.get("allOf", ())) or not any(takes.get("anyOf", [True])) or sum(takes.get("oneOf", [True])) != 1:
        return False
    if "if" in schema and not takes_null(schema.get("then" if takes_null(schema["if"]) else "else", True)):
        return False
    return "not" not in schema or not takes_null(schema["not"])


@dataclass(frozen=True, slots=True)
class NullFields:
    """The null fields that are written as null instead of left out, at the place *path* of a column: fields that
    *schemas*, all schemas of this place, require and accept null for; and, if they are *kept* or *defaulted* contains
    their path, other fields for which null is accepted.

    A field that only an alternative requires, without a schema for it, is left out: alternatives such as
    ``[{"required": ["a"]}, {"required": ["b"]}]`` are about the presence of fields.
    """

    schemas: Sequence[Any] = ()
    kept: bool = False
    path: str = ""
    defaulted: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        of_field, alternatives = self.property(name).schemas, self._alternatives()
        takes = any(map(takes_null, of_field))
        if any(name in part.get("required", ()) for part in self._objects()):
            return takes or not of_field
        if requiring := [part for part in alternatives if name in part.get("required", ())]:
            return takes and any(name in part.get("properties", ()) for part in requiring)
        return (self.kept or f"{self.path}.{name}" in self.defaulted) and (takes or not of_field)

    def property(self, name: str) -> NullFields:
        """The null fields within the field *name*."""
        parts = [*self._objects(), *self._alternatives()]
        of_field = [part.get("properties", {}).get(name, part.get("additionalProperties")) for part in parts]
        return replace(self, schemas=[schema for schema in of_field if schema is not None], path=f"{self.path}.{name}")

    def within(self, keyword: str) -> NullFields:
        """The null fields within the values of a map (``additionalProperties``) or the ``items`` of a list."""
        parts = [*self._objects(), *self._alternatives()]
        path = f"{self.path}{'[]' if keyword == 'items' else '{}'}"
        return replace(self, schemas=[part[keyword] for part in parts if keyword in part], path=path)

    def _objects(self) -> list[dict[str, Any]]:
        return _with_parts([schema for schema in self.schemas if isinstance(schema, dict)], "allOf")

    def _alternatives(self) -> list[dict[str, Any]]:
        parts = self._objects()
        return _with_parts(parts, "allOf", *OF_ALTERNATIVES, "then", "else")[len(parts) :]


def _with_parts(schemas: list[dict[str, Any]], *keywords: str) -> list[dict[str, Any]]:
    """*schemas*, and the schemas that they contain under *keywords*, at any depth."""
    parts = list(schemas)
    for part in parts:
        for name in keywords:
            held = part.get(name, ())
            parts += [schema for schema in (held if isinstance(held, list) else (held,)) if isinstance(schema, dict)]
            if len(parts) > _MOST_COMPARED:
                return parts
    return parts


class Matching:
    """Compares one schema with a column, whose null fields *nulls* writes as null.

    Within alternatives, conditions and negations a mismatch of the type is no error of the column: it decides which
    rows fit, as every keyword there does.
    """

    def __init__(self, schema: Any) -> None:
        """:raises FormatError: if the draft of *schema* is unknown."""
        self._schema = schema
        self._known = keywords_of(schema)
        self._compared = 0
        self._is_inside = False

    def checks(self, kind: pa.DataType, path: str, nulls: NullFields) -> list[Check]:
        """The checks of the rows of column *path*, of the type *kind*, that are not null.

        :raises FormatError: if no row fits the schema, or if rows cannot be checked against a keyword; the text names
            the column.
        """
        try:
            return self._checks(self._schema, kind, path, nulls)
        except _MisfitError as error:
            raise FormatError(str(error)) from None

    def _checks(self, schema: Any, kind: pa.DataType, path: str, nulls: NullFields) -> list[Check]:
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
        schema = {name: part for name, part in schema.items() if name in self._known}
        if unchecked := sorted(schema.keys() & {*UNCHECKED, *UNCHECKED_OF.get(json_type(kind), ())}):
            raise _unchecked(unchecked[0], path)
        checks = self._of_type(schema, kind, path) + constraints(schema, self._known, kind, path)
        if pa.types.is_struct(kind):
            checks += self._of_fields(schema, kind, path, nulls) + self._of_present_fields(schema, kind, path, nulls)
        elif pa.types.is_map(kind):
            checks += self._of_entries(schema, kind, path, nulls)
        elif is_list(kind):
            checks += self._of_items(schema, kind, path, nulls)
        for part in schema.get("allOf", ()):
            checks += self._checks(part, kind, path, nulls)
        for name in OF_ALTERNATIVES:
            if name in schema:
                checks += self._of_alternatives(name, schema[name], kind, path, nulls)
        return checks + self._of_conditions(schema, kind, path, nulls)

    def _of_type(self, schema: dict[str, Any], kind: pa.DataType, path: str) -> list[Check]:
        written, wanted = json_type(kind), schema.get("type", ())
        if not wanted or _takes(wanted, written, kind):
            return []
        if self._is_inside and written == "number" and "integer" in wanted:
            return [refusing(whole, path, "which is no integer")]
        article = "an" if written[0] in "aio" else "a"
        raise _MisfitError(
            f"column '{path}' is {shown_type(kind)}, in JSON {article} {written}, and the JSON Schema has the type "
            f"{json.dumps(wanted)} there; cast the column, or change the schema"
        )

    def _inner(self, schema: Any, kind: pa.DataType, path: str, nulls: NullFields) -> list[Check]:
        """The checks of a part of the column; within an alternative a wrong type of it refuses rows, not the column."""
        try:
            return [] if pa.types.is_null(kind) else self._checks(schema, kind, path, nulls)
        except _MisfitError as error:
            if not self._is_inside:
                raise
            return [refusing(all_rows, path, str(error))]

    def _verdict(self, schema: Any, kind: pa.DataType, path: str, nulls: NullFields) -> list[Check] | _MisfitError:
        """The checks of the rows by *schema*, or the error if no row fits."""
        before, self._is_inside = self._is_inside, True
        try:
            return self._checks(schema, kind, path, nulls)
        except _MisfitError as error:
            return error
        finally:
            self._is_inside = before

    def _of_fields(self, schema: dict[str, Any], kind: pa.DataType, path: str, nulls: NullFields) -> list[Check]:
        names = [field.name for field in kind]
        required = schema.get("required", ())
        for name in required:
            if name not in names:
                raise _MisfitError(
                    f"column '{path}.{name}' is missing, and the JSON Schema requires it{nearest(name, names)}; add "
                    "it, or change the schema"
                )
        checks: list[Check] = []
        for index, field in enumerate(kind):
            parts = self._parts_of(schema, field.name, path)
            is_written = field.name in nulls
            needs_value = not all(map(takes_null, parts)) if is_written else field.name in required
            inside = _never_null(f"{path}.{field.name}") if needs_value else []
            for part in parts:
                of_part = self._inner(part, field.type, f"{path}.{field.name}", nulls.property(field.name))
                inside += [check_of_present(check) for check in of_part]
            if inside:
                checks.append(check_of_field(index, inside))
        return checks

    def _parts_of(self, schema: dict[str, Any], name: str, path: str) -> list[Any]:
        """The parts of *schema* that apply to the property *name*."""
        properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        parts = [properties[name]] if name in properties else []
        parts += [part for pattern, part in patterns.items() if pattern_matches(pattern, name)]
        if parts:
            return parts
        others = schema.get("additionalProperties", True)
        if others is False and not self._is_inside:
            raise _MisfitError(
                f"column '{path}.{name}' has no property in the JSON Schema, which takes no others "
                f"(additionalProperties){nearest(name, properties)}; rename or drop it, or add it to the schema"
            )
        return [others]

    def _of_present_fields(
        self, schema: dict[str, Any], kind: pa.DataType, path: str, nulls: NullFields
    ) -> list[Check]:
        """The checks of the presence of fields."""
        names = [field.name for field in kind]

        def there(array: pa.Array, name: str) -> Bools:
            missing = None if name in nulls else nulls_of(array.field(names.index(name)))
            return np.ones(len(array), np.bool_) if missing is None else ~missing

        def count(array: pa.Array) -> Int64s:
            return sum((there(array, name).astype(np.int64) for name in names), np.zeros(len(array), np.int64))

        checks = _of_property_count(schema, path, count)
        for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
            for name, part in schema.get(keyword, {}).items() if keyword in schema else ():
                if name in names:
                    needed = {"required": part} if isinstance(part, list) else part
                    verdict = self._verdict(needed, kind, path, nulls)
                    checks.append(_if_else(partial(there, name=name), verdict, [], path))
        if "propertyNames" in schema:
            for name in names:
                verdict = self._verdict(schema["propertyNames"], pa.string(), path, NullFields())
                if not isinstance(verdict, list) or wrong_rows(verdict, pa.array([name]), None)[0]:
                    problem = f"which has '{name}', against the JSON Schema's propertyNames"
                    checks.append(refusing(partial(there, name=name), path, problem))
        return checks

    def _of_items(self, schema: dict[str, Any], kind: pa.DataType, path: str, nulls: NullFields) -> list[Check]:
        items = schema.get("items", True)
        if isinstance(items, list):
            raise _unchecked("items", path)
        item_path, within = f"{path}[]", nulls.within("items")
        inside = [] if takes_null(items) else _never_null(item_path)
        inside += [check_of_present(check) for check in self._inner(items, kind.value_type, item_path, within)]
        checks = [check_of_contents(inside, lambda items: items)] if inside else []
        if "contains" in schema:
            fitting = self._verdict(schema["contains"], kind.value_type, item_path, within)
            least, most = schema.get("minContains", 1), schema.get("maxContains", math.inf)
            takes_nulls = takes_null(schema["contains"])

            def wrong(array: pa.Array) -> Bools:
                items = items_of(array)
                fits = _fitting(fitting, items)
                unknown = nulls_of(items)
                counts = counts_where(fits if unknown is None else np.where(unknown, takes_nulls, fits), array)
                outside: Bools = (counts < least) | (counts > most)
                return outside

            checks.append(refusing(wrong, path, "which is against the JSON Schema's contains"))
        return checks

    def _of_entries(self, schema: dict[str, Any], kind: pa.DataType, path: str, nulls: NullFields) -> list[Check]:
        for name in words("properties required patternProperties dependencies dependentRequired dependentSchemas"):
            if schema.get(name):
                raise (FormatError if self._is_inside else _MisfitError)(
                    f"column '{path}' is {shown_type(kind)}, which may have any keys, and the JSON Schema has "
                    f"'{name}' there; make the column a struct, or change the schema"
                )
        values, value_path = schema.get("additionalProperties", True), f"{path}{{}}"
        inside = [] if takes_null(values) else _never_null(value_path)
        of_values = self._inner(values, kind.item_type, value_path, nulls.within("additionalProperties"))
        inside += [check_of_present(check) for check in of_values]
        checks = [check_of_contents(inside, lambda entries: entries.field(1))] if inside else []
        if "propertyNames" in schema:
            of_keys = self._inner(schema["propertyNames"], pa.string(), f"{path}{{key}}", NullFields())
            if not is_text(kind.key_type):
                raise FormatError(
                    f"column '{path}' has no keys of text, and the JSON Schema has 'propertyNames' there; cast the keys"
                )
            checks.append(check_of_contents(of_keys, lambda entries: entries.field(0)))
        return checks + _of_property_count(schema, path, counts_of)

    def _of_alternatives(
        self, name: str, schemas: Sequence[Any], kind: pa.DataType, path: str, nulls: NullFields
    ) -> list[Check]:
        others = [schema for schema in schemas if schema != {"type": "null"}]
        if len(others) == 1:
            return self._checks(others[0], kind, path, nulls)
        verdicts = [self._verdict(schema, kind, path, nulls) for schema in others]
        fitting = [verdict for verdict in verdicts if isinstance(verdict, list)]
        if not fitting:
            problems = "; ".join(str(verdict) for verdict in verdicts)
            raise _MisfitError(
                f"column '{path}' is {shown_type(kind)}, which fits none of the JSON Schema's {name} "
                f"({problems[:_SHOWN]}…); change the column, or the schema"
            )
        is_exclusive = name == "oneOf"
        if is_exclusive and fitting.count([]) > 1:
            raise _MisfitError(
                f"column '{path}' is {shown_type(kind)}, which fits several of the JSON Schema's oneOf, and must fit "
                "exactly one; change the schema (anyOf takes it), or the column"
            )
        if len(fitting) == 1:
            return fitting[0]
        if not is_exclusive and [] in fitting:
            return []
        how = "exactly one" if is_exclusive else "any"

        def wrong(array: pa.Array) -> Bools:
            fits = np.sum([_fitting(verdict, array) for verdict in fitting], axis=0)
            misfits: Bools = (fits != 1) if is_exclusive else (fits == 0)
            return misfits

        return [refusing(wrong, path, f"which does not fit {how} of the JSON Schema's {name}")]

    def _of_conditions(self, schema: dict[str, Any], kind: pa.DataType, path: str, nulls: NullFields) -> list[Check]:
        checks = []
        if "not" in schema:
            negated = self._verdict(schema["not"], kind, path, nulls)
            if negated == []:
                raise _MisfitError(f"column '{path}' always matches the JSON Schema's 'not'; change the schema")
            checks.append(refusing(partial(_fitting, negated), path, "which fits the JSON Schema's 'not'"))
        if "if" in schema:
            condition, then, otherwise = (
                self._verdict(schema.get(name, True), kind, path, nulls) for name in ("if", "then", "else")
            )
            checks.append(_if_else(partial(_fitting, condition), then, otherwise, path))
        return checks


def _unchecked(keyword: str, path: str) -> FormatError:
    return FormatError(
        f"the JSON Schema has '{keyword}' for column '{path}', which kafkalite cannot validate; remove it from the "
        "schema (with latest.compatibility.strict=false rows are written by the latest schema nevertheless)"
    )


def _never_null(path: str) -> list[Check]:
    return [lambda array, absent: refuse_nulls(array, absent, path, _NO_NULL)]


def _of_property_count(schema: dict[str, Any], path: str, count: Callable[[pa.Array], Int64s]) -> list[Check]:
    checks = []
    for name, is_wrong in (("minProperties", np.less), ("maxProperties", np.greater)):
        if name in schema:

            def wrong(array: pa.Array, limit: int = schema[name], is_wrong: Any = is_wrong) -> Bools:
                outside: Bools = is_wrong(count(array), limit)
                return outside

            checks.append(refusing(wrong, path, f"which has not the JSON Schema's {name} ({schema[name]})"))
    return checks


def _fitting(verdict: list[Check] | _MisfitError, array: pa.Array) -> Bools:
    if not isinstance(verdict, list):
        return np.zeros(len(array), np.bool_)
    return ~wrong_rows(verdict, array, nulls_of(array))


def _if_else(
    where: Callable[[pa.Array], Bools],
    then: list[Check] | _MisfitError,
    otherwise: list[Check] | _MisfitError,
    path: str,
) -> Check:
    """The checks *then* of the rows in the mask of *where*, and *otherwise* of the others."""
    of_then, of_others = (
        verdict if isinstance(verdict, list) else [refusing(all_rows, path, str(verdict))]
        for verdict in (then, otherwise)
    )

    def check(array: pa.Array, absent: Absent) -> None:
        if not len(array):
            return
        holds = where(array)
        for check_rows in of_then:
            check_rows(array, either(~holds, absent))
        for check_rows in of_others:
            check_rows(array, either(holds, absent))

    return check


def wrong_rows(checks: Sequence[Check], array: pa.Array, absent: Absent) -> Bools:
    """The mask of all rows that any of *checks* refuses: each error covers the rows of one problem only."""
    wrong = np.zeros(len(array), np.bool_)
    for check in checks:
        while True:
            try:
                check(array, either(wrong, absent))
                break
            except RowSerializationError as error:
                wrong[list(error.rows)] = True
    return wrong


def _takes(wanted: str | Sequence[str], written: str, kind: pa.DataType) -> bool:
    kinds = [wanted] if isinstance(wanted, str) else wanted
    # A decimal without a fraction is written without a point.
    is_whole = written == "integer" or (pa.types.is_decimal(kind) and kind.scale == 0)
    return written in kinds or (is_whole and bool({"number", "integer"} & set(kinds)))
