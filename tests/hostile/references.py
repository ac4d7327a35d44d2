"""Registries with hostile schema references: circular ones, dangling ones, and references to invalid schemas."""

from __future__ import annotations

import base64
import json
import random
from typing import Any, Final

from google.protobuf import descriptor_pb2

from kafka_sink.common.errors import KafkaError, SchemaNotFoundError
from kafka_sink.formats.avro.parsing import parse_schema
from kafka_sink.formats.column_format import format_of
from kafka_sink.formats.json.parsing import parse_schema as parse_json_schema
from kafka_sink.formats.protobuf.parsing import parse_file
from kafka_sink.formats.schema_text import SchemaText
from kafka_sink.registry.references import SubjectVersion, resolved
from tests.hostile.records import avro_type, spoiled

_NAMES: Final = (
    "a.R0",
    "R1",
    "a.R2",
    "a.proto",
    "b/c.proto",
    "b",
    "../x",
    "-I/",
    "google/protobuf/any.proto",
    "",
    "a\0",
)


def schema_references(rng: random.Random) -> None:
    """Schemas of such a registry are linked and parsed, or rejected with our error."""
    form = rng.choice(["avro", "json", "protobuf"])
    answers = [_answer(rng, form, number) for number in range(6)]

    def ask(version: SubjectVersion) -> Any:
        if not version.subject.isdigit():
            raise SchemaNotFoundError("gone")
        return answers[int(version.subject) % len(answers)]

    try:
        schema = resolved("the schema", answers[0], form.upper(), ask)
        _parse(form, schema, format_of(form).linked(schema))
    except KafkaError:
        return


def _parse(form: str, schema: SchemaText, linked: str) -> None:
    if form == "json":
        parse_json_schema(schema)
    elif form == "protobuf":
        parse_file(linked)
    else:
        parse_schema(linked, is_read=True)
        parse_schema(linked)


def _answer(rng: random.Random, form: str, number: int) -> dict[str, Any]:
    # Most references are to later schemas, so that some graphs are acyclic.
    references: Any = [
        {
            "name": rng.choice(_NAMES),
            "subject": str(rng.randint(number + 1, number + 2)),
            "version": rng.choice((1, 1, -1)),
        }
        for _ in range(rng.randrange(4) if number < 5 else 0)
    ]
    if rng.random() < 0.1:
        references = spoiled(rng, references)
    return {"schema": _text(rng, form, number), "schemaType": form.upper(), "references": references}


def _text(rng: random.Random, form: str, number: int) -> str:
    if form == "protobuf":
        file = descriptor_pb2.FileDescriptorProto(name=rng.choice(_NAMES[3:6]), syntax="proto3")
        file.dependency.extend(rng.sample(_NAMES[3:6], rng.choice((0, 0, 1, 2))))
        message = file.message_type.add(name=f"M{number}")
        message.field.add(
            name="f", number=1, type=11, label=1, type_name=f".M{rng.choice((number, number, number + 1, 9))}"
        )
        return base64.b64encode(file.SerializeToString()).decode()
    found: Any
    if form == "avro":
        fields = [
            {"name": "f", "type": avro_type(rng, [rng.choice(_NAMES[:3])])},
            {"name": "g", "type": rng.choice(("int", "int", "int", *_NAMES))},
        ]
        found = {"type": "record", "name": f"R{number}", "namespace": rng.choice(("a", "")), "fields": fields}
    else:
        pointer = rng.choice(("", "#", "#/properties/a", "#/$defs/a/0", "#x", "#/~1~0%7"))
        found = {"$id": rng.choice(_NAMES), "$defs": {"a": [{"$ref": "#"}]}}
        found["properties"] = {name: {"$ref": rng.choice((*_NAMES, "")) + pointer} for name in ("a", "b", "$ref")}
    return json.dumps(spoiled(rng, found) if rng.random() < 0.3 else found)
