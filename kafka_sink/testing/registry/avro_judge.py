"""Whether data that was written by one Avro schema can be read by another: the checker of Apache's package decides.

The package finds names otherwise than Java's library does, which Confluent's registry uses, so it is given schemas in
which all names stand in full.

Source: https://avro.apache.org/docs/1.12.0/specification/#schema-resolution,
https://github.com/apache/avro/blob/release-1.12.1/lang/java/avro/src/main/java/org/apache/avro/SchemaCompatibility.java.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kafka_sink.formats.avro.linking import linked
from kafka_sink.formats.avro.parsing import json_of
from kafka_sink.formats.schema_text import SchemaText
from kafka_sink.testing.registry.avro_text import NO_NAMESPACE, compact, records_of, spelled_out
from kafka_sink.testing.registry.judging import CannotJudgeError


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
    texts = [spelled_out(json_of(linked(each))) for each in (reader, writer)]
    try:
        read, written = (parse(compact(each), validate_names=False) for each in texts)
        found = checker().get_compatibility(read, written)
    except (AvroException, RecursionError) as error:
        raise CannotJudgeError(f"this Avro schema ({error})".replace(f"{NO_NAMESPACE}.", "")) from None
    twice = _found_twice(*texts)
    if twice is not None:
        return [f"the field '{twice}' of the reader stands for several fields of the writer"]
    kinds = dict.fromkeys(each.name.upper() for each in found.incompatibilities)
    # The root is always among them.
    places = ", ".join(f"path '{each}'" for each in sorted(found.locations - {"/"} or {"/"}))
    said = ", ".join(sorted(found.messages)).replace(f"{NO_NAMESPACE}.", "")
    return [f"{', '.join(kinds)}: {said} at {places}"] if kinds else []


def _found_twice(reader: Any, writer: Any) -> str | None:
    """A field of a record in *reader* that stands, by its name and aliases, for several fields of the same record in
    *writer*: Java's library refuses it, and the package takes the first.
    """
    written: dict[str, list[Mapping[str, Any]]] = {}
    for record in records_of(writer):
        for name in {record["name"], record["name"].rpartition(".")[2]}:
            written.setdefault(name, []).append(record)
    for record in records_of(reader):
        for name in (record["name"].rpartition(".")[2], *record["aliases"]):
            for other in written.get(name, ()):
                names = Counter(each["name"] for each in other["fields"])
                for field in record["fields"]:
                    if sum(names[each] for each in (field["name"], *field["aliases"])) > 1:
                        return str(field["name"])
    return None
