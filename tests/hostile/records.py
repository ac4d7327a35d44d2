"""Hostile records and schemas, from a seed, for which readers must return text or raise our errors.

An attack is a function of a random source. It returns nothing, and raises AssertionError or the error that it found if
a reader raises an error that it does not document.
"""

from __future__ import annotations

import io
import json
import random
import string
from functools import partial
from typing import Any, Final

import fastavro
import fastavro.schema
import pyarrow as pa
from fastavro.utils import generate_one

from kafka_sink.cli.values.typed_values import shown
from kafka_sink.common.errors import SerializationError
from kafka_sink.formats.avro.parsing import parse_schema
from kafka_sink.formats.avro.reading import DatumReader
from kafka_sink.formats.column_format import format_of
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.schema_text import SchemaText
from tests.support.encoders import avro_encoder

#: The most text that may be shown for a hostile record, in characters, beside those for its bytes.
MOST_TEXT: Final = 5 << 20
WIRE: Final = b"\0\0\0\0\1"
_NASTY: Final[tuple[Any, ...]] = (
    *(None, True, [], {}, "", "\0", "int", "null", 5, -1, 10**9, 10**30, 1e308, [[]], {"type": []}, "\ud800"),
)


class OneSchema:
    """A replacement of :class:`~kafka_sink.registry.client.RegistryClient` with one schema for all ids."""

    def __init__(self, text: str, kind: str = "AVRO") -> None:
        self._text, self._kind = text, kind

    def schema(self, schema_id: int, kind: str = "AVRO") -> SchemaText:
        return SchemaText(self._text)

    def kind(self, schema_id: int) -> str:
        return self._kind


def as_text(form: str, schema: str, payload: bytes) -> str | None:
    """Return the text that ``kafkalite consume`` shows for *payload*; None if it rejects the payload."""
    try:
        text = shown(form, "value", OneSchema(schema, form.upper()))(payload)  # type: ignore[arg-type]
    except SerializationError:
        return None
    assert len(text) <= MOST_TEXT + 4 * len(payload)
    return text


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Return *data* with a few bytes changed, removed, repeated or inserted."""
    found = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(4):
            case 0:
                found[at : at + 1] = rng.choice([b"\xff", b"\x80", b"\x7f", b"\0", rng.randbytes(1)])
            case 1:
                del found[at : at + rng.randrange(1, 9)]
            case 2:
                found[at:at] = rng.choice([b"\xff" * 9 + b"\1", b"\x80" * 5, b"\xfe\xff\xff\xff\x0f", rng.randbytes(3)])
            case _:
                found[at:at] = found[at : at + 40] * rng.randrange(1, 30)
    return bytes(found)


# --- Avro


def _name(rng: random.Random, names: list[str]) -> str:
    names.append(f"N{len(names)}")
    return names[-1]


def avro_type(rng: random.Random, names: list[str], depth: int = 0) -> Any:
    """Return a random Avro type, which may refer to the *names* of enclosing or preceding types."""
    if names and rng.random() < 0.12:
        return rng.choice(names)
    if depth > 3 or rng.random() < 0.4:
        logical = {
            "int": ["date", "time-millis", None],
            "long": ["timestamp-millis", "timestamp-micros", "local-timestamp-micros", "time-micros", None],
            "string": ["uuid", None],
        }
        kind = rng.choice(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
        chosen = rng.choice(logical.get(kind, [None]))
        return kind if chosen is None else {"type": kind, "logicalType": chosen}
    match rng.randrange(6):
        case 0:
            return {"type": "array", "items": avro_type(rng, names, depth + 1)}
        case 1:
            return {"type": "map", "values": avro_type(rng, names, depth + 1)}
        case 2:
            return {"type": "fixed", "name": _name(rng, names), "size": rng.choice([0, 1, 12, 16])}
        case 3:
            symbols = [f"S{number}" for number in range(rng.choice([1, 3, 70]))]
            return {"type": "enum", "name": _name(rng, names), "symbols": symbols}
        case 4:
            others = [each for each in ("int", "string", "bytes", "boolean") if rng.random() < 0.5]
            return ["null", *others, *([rng.choice(names)] if names and rng.random() < 0.3 else [])]
        case _:
            record = {"type": "record", "name": _name(rng, names)}
            fields = [{"name": f"f{at}", "type": avro_type(rng, names, depth + 1)} for at in range(rng.randrange(4))]
            return {**record, "fields": fields}


def avro_records(rng: random.Random) -> None:
    """Random bytes and damaged records are shown or rejected, for random schemas that may be recursive."""
    schema = json.dumps(avro_type(rng, []))
    try:
        reader = DatumReader(schema)
    except FormatError:
        return
    size = rng.choice([0, 3, 30, 3_000])
    data = damaged(rng, rng.choice([b"\2", b"\0", b"\4a", rng.randbytes(5)]) * (size // 2 + 1))
    text = as_text("avro", schema, WIRE + data)
    if text is not None:
        json.loads(text)
        assert text == "".join(reader.pieces(data))


def avro_like_fastavro(rng: random.Random) -> None:
    """Records written by fastavro are read with the same values."""
    fields = [{"name": f"f{at}", "type": avro_type(rng, ["R"], 2)} for at in range(4)]
    schema: Any = {"type": "record", "name": "R", "fields": [*fields, {"name": "next", "type": ["null", "R"]}]}
    try:
        parsed = fastavro.parse_schema(schema)
        value = generate_one(parsed)
    except (RecursionError, fastavro.schema.SchemaParseException, KeyError, IndexError, TypeError):
        return
    target = io.BytesIO()
    fastavro.schemaless_writer(target, parsed, value)
    text = as_text("avro", json.dumps(schema), WIRE + target.getvalue())
    if text is not None:
        _compare(value, json.loads(text))


def _compare(value: Any, found: Any) -> None:
    """Compare a value with its JSON, except for texts of times and bytes, which other tests check."""
    if isinstance(value, dict):
        assert list(value) == list(found)
        for name, each in value.items():
            _compare(each, found[name])
    elif isinstance(value, list):
        assert len(value) == len(found)
        for one, other in zip(value, found, strict=True):
            _compare(one, other)
    elif value is None or isinstance(value, bool | int):
        assert found == value or isinstance(found, str)
    elif isinstance(value, str):
        assert isinstance(found, str)


# --- schemas


def spoiled(rng: random.Random, schema: Any) -> Any:
    """Return *schema* with some of its values replaced by values that are invalid in their place."""
    if rng.random() < 0.08:
        return rng.choice(_NASTY)
    if isinstance(schema, dict):
        changed = {name: spoiled(rng, value) for name, value in schema.items() if rng.random() > 0.03}
        if rng.random() < 0.1:
            changed[rng.choice(["logicalType", "precision", "size", "default", "namespace", "scale"])] = rng.choice(
                _NASTY
            )
        return changed
    if isinstance(schema, list):
        return [spoiled(rng, each) for each in schema]
    return schema


_ROWS: Final = pa.array([{"a": 1, "b": "x"}, None], pa.struct([("a", pa.int64()), ("b", pa.string())]))


def _use(form: str, schema: str) -> None:
    """Use *schema* for rows, or get our error."""
    try:
        given = format_of(form).given(SchemaText(schema), _ROWS.type, "value")
        format_of(form).encoder(given, _ROWS.type).encode(_ROWS)
    except (FormatError, SerializationError):
        return


def avro_schemas(rng: random.Random) -> None:
    """Avro schemas with invalid values are used, or rejected with our error."""
    field = {"name": "c", "type": avro_type(rng, ["R"]), "default": rng.choice(_NASTY)}
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": ["null", "string"]}, field]
    schema = json.dumps(spoiled(rng, {"type": "record", "name": "R", "fields": fields}))
    for parse in (parse_schema, partial(parse_schema, is_read=True)):
        try:
            parse(schema)
        except FormatError:
            continue
    _use("avro", schema)


def json_schemas(rng: random.Random) -> None:
    """JSON schemas with invalid values are used, or rejected with our error."""
    leaf = {"type": rng.choice(["integer", "string", ["null", "string"], "number"])}
    inner: Any = {"oneOf": [{"type": "null"}, leaf], "anyOf": [leaf]} if rng.random() < 0.5 else leaf
    schema = {"type": "object", "properties": {"a": inner, "b": {"type": "array", "items": inner}}, "required": ["a"]}
    _use("json", json.dumps(spoiled(rng, {**schema, "additionalProperties": rng.choice([True, False, leaf])})))


def protobuf_schemas(rng: random.Random) -> None:
    """Protobuf descriptors with damaged bytes are used, or rejected with our error."""
    import base64

    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="x.proto", syntax=rng.choice(["proto2", "proto3", "", "editions"]))
    file.dependency.extend(f"{rng.choice(string.ascii_letters)}.proto" for _ in range(rng.choice([0, 0, 1])))
    message = file.message_type.add(name="M")
    for number in range(1, rng.randrange(2, 6)):
        message.field.add(
            name="ab"[number % 2] + "x" * (number // 3), number=number, type=rng.randrange(1, 19), label=1
        )
    data = file.SerializeToString()
    _use("protobuf", base64.b64encode(damaged(rng, data) if rng.random() < 0.7 else data).decode())


# --- Protobuf

PROTO: Final = """syntax = "proto3";
import "google/protobuf/any.proto"; import "google/protobuf/struct.proto"; import "google/protobuf/timestamp.proto";
message M {
  int32 a = 1; repeated int64 b = 2; M c = 3; repeated M d = 4; map<string, M> e = 5; string f = 6; bytes g = 7;
  enum E { ZERO = 0; ONE = 1; MINUS = -1; } repeated E h = 8; google.protobuf.Any i = 9; google.protobuf.Value j = 10;
  google.protobuf.Timestamp k = 11; oneof o { double l = 12; M m = 13; } repeated fixed32 n = 14; optional bool p = 15;
}
"""


def protobuf_records(rng: random.Random) -> None:
    """Random messages, valid and damaged, are shown or rejected."""
    data = _message(rng, 0)
    payload = WIRE + b"\0" + (damaged(rng, data) if rng.random() < 0.8 else data)
    text = as_text("protobuf", PROTO, payload)
    if text is not None:
        json.loads(text)


def _message(rng: random.Random, depth: int) -> bytes:
    found = b""
    for _ in range(rng.randrange(5)):
        number = rng.randrange(1, 17)
        if number in (1, 15) or rng.random() < 0.2:
            found += bytes([number << 3 & 0x7F]) + rng.choice([b"\0", b"\1", b"\xff" * 9 + b"\1", b"\x80\1"])
        else:
            inner = _message(rng, depth + 1) if depth < 5 else rng.randbytes(rng.randrange(4))
            if number == 9:
                inner = b"\n\x04x/M\x00"[:5] + b"\x12" + bytes([len(inner) & 0x7F]) + inner
            found += bytes([number << 3 & 0x7F | 2, min(len(inner), 127)]) + inner[:127]
    return found


# --- columns


def avro_columns(rng: random.Random) -> None:
    """Dictionary-encoded, sliced and chunked columns are written like plain ones, or rejected with our error."""
    words = [rng.choice(["", "a", "é", "x" * 70, None]) for _ in range(rng.randrange(1, 9))]
    plain, schema = pa.array(words, pa.string()), '["null", "string"]'
    expected = avro_encoder(schema, plain.type, "value").encode(plain).to_pylist()
    at = rng.randrange(len(words) + 1)
    sliced = pa.chunked_array([plain[:at], plain[at:]])
    assert [
        each for chunk in sliced.chunks for each in avro_encoder(schema, plain.type, "v").encode(chunk).to_pylist()
    ] == (expected)
    try:
        coded = plain.dictionary_encode()
        assert avro_encoder(schema, coded.type, "value").encode(coded).to_pylist() == expected
    except FormatError:
        return
