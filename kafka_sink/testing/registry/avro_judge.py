"""Whether data that was written by one Avro schema can be read by another: the checker of Apache's package decides.

The package finds names otherwise than Java's library does, which Confluent's registry uses, so it is given schemas in
which all names stand in full.

Source: https://avro.apache.org/docs/1.12.0/specification/#schema-resolution,
https://github.com/apache/avro/blob/release-1.12.1/lang/java/avro/src/main/java/org/apache/avro/SchemaCompatibility.java.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kafka_sink.formats.avro.linking import linked
from kafka_sink.formats.avro.parsing import json_of
from kafka_sink.formats.avro.schema import PRIMITIVES
from kafka_sink.formats.schema_text import SchemaText
from kafka_sink.testing.registry.avro_text import NAMED, PART, compact, full_name
from kafka_sink.testing.registry.judging import CannotJudgeError

#: The namespace of types that have none: within others they would get theirs. It is not shown.
_NONE: Final = "kafkalite_no_namespace"


def problems(reader: SchemaText, writer: SchemaText) -> list[str]:
    """Why data of *writer* cannot be read as *reader*; nothing if it can.

    :raises CannotJudgeError: if Apache's package is missing, or does not read one of them.
    """
    try:
        from avro import compatibility
        from avro.errors import AvroException
        from avro.schema import parse
    except ImportError:
        raise CannotJudgeError(
            "Avro schemas without Apache's package avro", "pip install 'kafkalite[registry]', or "
        ) from None
    checker: Any = compatibility.ReaderWriterCompatibilityChecker
    texts = [_Names().type(json_of(linked(each)), "") for each in (reader, writer)]
    try:
        read, written = (parse(compact(each), validate_names=False) for each in texts)
        found = checker().get_compatibility(read, written)
    except (AvroException, RecursionError) as error:
        raise CannotJudgeError(f"this Avro schema ({error})".replace(f"{_NONE}.", "")) from None
    twice = _found_twice(*texts)
    if twice is not None:
        return [f"the field '{twice}' of the reader stands for several fields of the writer"]
    kinds = dict.fromkeys(each.name.upper() for each in found.incompatibilities)
    # The root is always among them.
    places = ", ".join(f"path '{each}'" for each in sorted(found.locations - {"/"} or {"/"}))
    said = ", ".join(sorted(found.messages)).replace(f"{_NONE}.", "")
    return [f"{', '.join(kinds)}: {said} at {places}"] if kinds else []


class _Names:
    """Writes types with all names in full, and without what does not count."""

    def __init__(self) -> None:
        self._declared: set[str] = set()

    def type(self, declared: Any, outer: str) -> Any:
        if isinstance(declared, str):
            return self._used(declared, outer)
        if isinstance(declared, list):
            return [self.type(each, outer) for each in declared]
        kind = declared["type"]
        if kind in NAMED:
            return self._named(kind, declared, outer)
        if kind in PART:
            return {"type": kind, PART[kind]: self.type(declared[PART[kind]], outer)}
        return self.type(kind, outer)

    def _used(self, name: str, outer: str) -> str:
        if name in PRIMITIVES:
            return name
        full = full_name(name, outer)
        return _whole(full if full in self._declared else name)

    def _named(self, kind: str, declared: Mapping[str, Any], outer: str) -> dict[str, Any]:
        full = full_name(declared["name"], declared.get("namespace", outer) or "")
        self._declared.add(full)
        inside = full.rpartition(".")[0]
        found: dict[str, Any] = {"type": "record" if kind == "error" else kind, "name": _whole(full)}
        found["aliases"] = [_whole(full_name(each, inside)) for each in declared.get("aliases") or ()]
        found |= {name: declared[name] for name in ("symbols", "size", "default") if name in declared}
        if "fields" in declared:
            found["fields"] = [{**_kept(each), "type": self.type(each["type"], inside)} for each in declared["fields"]]
        return found


def _whole(full: str) -> str:
    return full if "." in full else f"{_NONE}.{full}"


def _kept(field: Mapping[str, Any]) -> dict[str, Any]:
    return {name: field[name] for name in ("name", "default", "aliases") if name in field}


def _found_twice(reader: Any, writer: Any) -> str | None:
    """A field of a record in *reader* that stands, by its name and aliases, for several fields of the same record in
    *writer*: Java's library refuses it, and the package takes the first.
    """
    written = list(_records(writer))
    for record in _records(reader):
        for other in (each for each in written if _is_read_as(record, each)):
            names = Counter(each["name"] for each in other["fields"])
            for field in record["fields"]:
                if sum(names[each] for each in (field["name"], *field.get("aliases", ()))) > 1:
                    return str(field["name"])
    return None


def _is_read_as(reader: Mapping[str, Any], writer: Mapping[str, Any]) -> bool:
    last = [each["name"].rpartition(".")[2] for each in (reader, writer)]
    return last[0] == last[1] or writer["name"] in reader["aliases"]


def _records(part: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(part, Mapping):
        if "fields" in part:
            yield part
        for each in part.values():
            yield from _records(each)
    elif isinstance(part, list):
        for each in part:
            yield from _records(each)
