"""The estimated size of a text compared with the printed text, since a few bytes of a record may need megabytes."""

from __future__ import annotations

import base64
import json
import random
from typing import Any, Final

from google.protobuf import descriptor_pb2

from kafka_sink.cli.values.typed_values import shown
from kafka_sink.columns.varint import encode_unsigned_varint
from kafka_sink.common.errors import CorruptRecordError, SerializationError
from kafka_sink.formats.avro.reading import DatumReader
from kafka_sink.formats.protobuf.parsing import parse_file
from kafka_sink.formats.protobuf.weighing import Scale
from tests.hostile.records import WIRE, OneSchema, avro_type

#: The most characters per value, in addition to the bytes of texts and names.
PER_VALUE: Final = 100
#: The most characters per byte, in a JSON escape.
PER_BYTE: Final = 6
_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 18)


def _long_name(rng: random.Random, begin: str) -> str:
    return begin + "q" * rng.choice([0, 0, 5, 70, 700])


def _field(rng: random.Random, number: int, messages: int, label: int) -> Any:
    kind = rng.choice([*_SCALARS, 11, 14, 14])
    found = _FIELD(name=_long_name(rng, f"f{number}"), number=number, type=kind, label=label)
    if kind == 11:
        found.type_name = f".M{rng.randrange(messages)}"
    elif kind == 14:
        found.type_name = ".E"
    return found


def protobuf_set(rng: random.Random) -> Any:
    """Return messages with long names and symbols, repeated fields, maps, and extensions of the first one."""
    syntax, count = rng.choice(["proto3", "proto2"]), rng.randrange(1, 4)
    file = descriptor_pb2.FileDescriptorProto(name="s.proto", syntax=syntax)
    enum = file.enum_type.add(name="E")
    for number in range(rng.randrange(1, 4)):
        enum.value.add(name=_long_name(rng, f"S{number}"), number=number)
    for at in range(count):
        message = file.message_type.add(name=f"M{at}")
        for number in range(1, rng.choice([2, 5, 40])):
            if rng.random() < 0.2:
                name = f"F{number}Entry"
                entry = message.nested_type.add(name=name)
                entry.options.map_entry = True
                entry.field.append(_FIELD(name="key", number=1, type=rng.choice([3, 9]), label=1))
                value = _field(rng, 2, count, 1)
                value.name = "value"
                entry.field.append(value)
                found = _FIELD(name=f"f{number}", number=number, type=11, label=3, type_name=f".M{at}.{name}")
            else:
                found = _field(rng, number, count, rng.choice([1, 1, 3]))
            message.field.append(found)
    if syntax == "proto2":
        file.message_type[0].extension_range.add(start=100, end=200)
        for number in range(100, 100 + rng.randrange(4)):
            found = _field(rng, number, count, rng.choice([1, 3]))
            found.extendee = ".M0"
            file.extension.append(found)
    return descriptor_pb2.FileDescriptorSet(file=[file])


def _message(rng: random.Random, depth: int = 0) -> bytes:
    """Return random fields, some of the messages of :func:`protobuf_set`, with wire types that may be theirs."""
    data = b""
    for _ in range(rng.choice([0, 1, 3, 12])):
        number = rng.choice([1, 2, 3, rng.randrange(1, 42), rng.randrange(100, 104)])
        wire = rng.choice([0, 0, 1, 2, 2, 2, 5])
        data += encode_unsigned_varint(number << 3 | wire)
        if wire == 2:
            inner = (
                _message(rng, depth + 1)
                if depth < 4 and rng.random() < 0.7
                else rng.choice(
                    [b"", b"\0" * 20, b"a\x1b\n\x7f", "\u202e".encode() * 9, bytes(rng.randrange(3) for _ in range(30))]
                )
            )
            data += encode_unsigned_varint(len(inner)) + inner
        else:
            data += {0: b"\1", 1: rng.randbytes(8), 5: rng.randbytes(4)}[wire]
    return data


def protobuf_weights(rng: random.Random) -> None:
    """No printed text is longer than its weight."""
    text = base64.b64encode(protobuf_set(rng).SerializeToString()).decode()
    scale, show = Scale(parse_file(text)), shown("protobuf", "value", OneSchema(text, "PROTOBUF"))  # type: ignore[arg-type]
    for _ in range(10):
        data = _message(rng)
        try:
            printed = show(WIRE + b"\0" + data)
        except SerializationError:
            continue
        weight = scale.check("M0", data, 1 << 60)
        assert len(printed) <= PER_VALUE * weight + PER_BYTE * len(data), (len(printed), weight, len(data))


def text_weights(rng: random.Random) -> None:
    """Avro is printed in pieces of a length limited by its bytes and the names of its schema; JSON unchanged."""
    schema = json.dumps(avro_type(rng, []))
    reader = DatumReader(schema)
    data = rng.choice([b"\0", b"\2", b"\4ab", b"\x7f\x1b"]) * rng.randrange(400)
    try:
        for count, piece in enumerate(reader.pieces(data)):
            assert len(piece) <= len(schema) + PER_BYTE * len(data) + 100
            if count > 10_000:
                break
    except CorruptRecordError:
        pass
    text = json.dumps({"k": ["\u202e\x7f" * rng.randrange(9), "\n\r" * rng.randrange(9)]}, ensure_ascii=False)
    assert len(shown("json", "value", None)(text.encode())) <= PER_BYTE * len(text.encode())
