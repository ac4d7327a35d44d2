"""Checks whether messages of one Protobuf schema can be read by another, by the rules of Confluent's registry.

Messages are compared by their names within the package, fields by their numbers. A field may be added or removed at any
time, unless it is required or leaves a oneof; fields that could be set together must not exclude each other afterwards.

Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/serdes-protobuf.html,
https://protobuf.dev/programming-guides/proto3/#updating.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafka_sink.formats.protobuf.descriptors import descriptors, kind_name, linked
from kafka_sink.formats.schema_text import SchemaText
from kafka_sink.testing.registry.refusals import CannotJudgeError

#: Type → its group of types that can be read as each other; all others can only be read as the same type.
_GROUPS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool", "enum"), "a number"),
    **dict.fromkeys(("sint32", "sint64"), "a zigzag number"),
    **dict.fromkeys(("string", "bytes"), "text or bytes"),
    **dict.fromkeys(("fixed32", "sfixed32"), "32 bits"),
    **dict.fromkeys(("fixed64", "sfixed64"), "64 bits"),
}
_OPTIONAL: Final = 1
_REQUIRED: Final = 2


def problems(reader: SchemaText, writer: SchemaText) -> list[str]:
    """The reasons why messages of *writer* cannot be read by *reader*, with the path of each field; empty if they can.

    :raises CannotJudgeError: if one of the schemas has groups, or is written in an edition.
    """
    read, written = (_Schema(descriptors(linked(schema)).file) for schema in (reader, writer))
    reasons = list(_Comparison(read, written).all())
    if read.package != written.package:
        reasons.insert(0, f"PACKAGE_CHANGED: the package is {read.package!r}, and was {written.package!r}")
    return reasons


@dataclass(frozen=True, eq=False)
class _Message:
    #: Its name within the package of its file.
    name: str
    declared: Any
    is_proto3: bool
    #: Its nested messages, by their last names.
    messages: Mapping[str, _Message]


class _Schema:
    """The messages of a file, and of all its imports."""

    def __init__(self, files: Sequence[Any]) -> None:
        #: Full name, as in fields → message.
        self.named: dict[str, _Message] = {}
        for file in files:
            if file.syntax == "editions":
                raise CannotJudgeError("a Protobuf schema of an edition")
            self.package = file.package
            self.messages = self._messages(file.message_type, "", file)

    def _messages(self, declared: Iterable[Any], outer: str, file: Any) -> dict[str, _Message]:
        messages = {}
        for descriptor in declared:
            name = f"{outer}{descriptor.name}"
            inner = self._messages(descriptor.nested_type, f"{name}.", file)
            message = _Message(name, descriptor, file.syntax == "proto3", inner)
            messages[descriptor.name] = self.named[f".{file.package}.{name}" if file.package else f".{name}"] = message
        return messages


class _Comparison:
    def __init__(self, reader: _Schema, writer: _Schema) -> None:
        self._reader, self._writer = reader, writer
        #: Pairs that were found, and those of them that are still to be compared: fields may refer to one another in a
        #: chain of any length.
        self._begun: set[tuple[_Message, _Message]] = set()
        self._waiting: deque[tuple[_Message, _Message]] = deque()

    def all(self) -> Iterator[str]:
        """The reasons why messages cannot be read."""
        yield from self._of_types(self._reader.messages, self._writer.messages)
        while self._waiting:
            yield from self._of_messages(*self._waiting.popleft())

    def _begin(self, reader: _Message, writer: _Message) -> None:
        if (reader, writer) not in self._begun:
            self._begun.add((reader, writer))
            self._waiting.append((reader, writer))

    def _of_types(self, reader: Mapping[str, _Message], writer: Mapping[str, _Message]) -> Iterator[str]:
        """The reasons in the messages that a file or a message declares."""
        for name, message in writer.items():
            if message.declared.options.map_entry:
                continue
            if name in reader:
                self._begin(reader[name], message)
            else:
                yield f"MESSAGE_REMOVED: the message at path '{_path(message)}' is missing"

    def _of_messages(self, reader: _Message, writer: _Message) -> Iterator[str]:
        read, written = ({field.number: field for field in message.declared.field} for message in (reader, writer))
        for number, field in read.items():
            path = f"{_path(reader)}/{number}"
            if number in written:
                labels = _label(field, reader), _label(written[number], writer)
                yield from self._of_fields(field, written[number], labels, path)
            elif field.label == _REQUIRED:
                yield f"REQUIRED_FIELD_ADDED: the field '{field.name}' at path '{path}' is required"
        yield from _of_removed(reader.declared, writer.declared, read.keys(), _path(reader))
        yield from _of_oneofs(reader.declared, writer.declared, _path(reader))
        yield from self._of_types(reader.messages, writer.messages)

    def _of_fields(self, reader: Any, writer: Any, labels: tuple[str | None, ...], path: str) -> Iterator[str]:
        read, written = self._reader.named.get(reader.type_name), self._writer.named.get(writer.type_name)
        shapes = _shape(reader, read), _shape(writer, written)
        if shapes[0] != shapes[1]:
            yield f"FIELD_KIND_CHANGED: the field at path '{path}' is a {shapes[0]}, and was a {shapes[1]}"
        elif read is None or written is None:
            yield from _of_scalars(kind_name(reader.type), kind_name(writer.type), labels, path)
        elif shapes[0] == "map":
            for new, old in zip(read.declared.field, written.declared.field, strict=True):
                yield from self._of_fields(new, old, (None, None), f"{path}/{old.name}")
        elif read.name != written.name:
            yield f"FIELD_NAMED_TYPE_CHANGED: the field at path '{path}' is {read.name}, and was {written.name}"
        else:
            self._begin(read, written)


def _path(message: _Message) -> str:
    return f"#/{message.name.replace('.', '/')}"


def _of_scalars(new: str, old: str, labels: tuple[str | None, ...], path: str) -> Iterator[str]:
    group = _GROUPS.get(new, new)
    if group != _GROUPS.get(old, old):
        yield f"FIELD_SCALAR_KIND_CHANGED: the field at path '{path}' is {new}, which does not read {old}"
    elif None not in labels and labels[0] != labels[1] and group != "text or bytes":
        yield f"FIELD_NUMERIC_LABEL_CHANGED: the field at path '{path}' is {labels[0]}, and was {labels[1]}"


def _of_removed(reader: Any, writer: Any, numbers: Container[int], path: str) -> Iterator[str]:
    """The reasons about fields that *numbers* lacks; a whole oneof may be removed."""
    left = {oneof.name for oneof in reader.oneof_decl} | {
        _oneof(field, writer) for field in writer.field if field.number in numbers
    }
    for field in writer.field:
        field_path = f"{path}/{field.number}"
        if field.number in numbers:
            continue
        if field.label == _REQUIRED:
            yield f"REQUIRED_FIELD_REMOVED: the required field '{field.name}' at path '{field_path}' is missing"
        elif (name := _oneof(field, writer)) is not None and name in left:
            yield f"ONEOF_FIELD_REMOVED: the field '{field.name}' of a oneof at path '{field_path}' is missing"


def _of_oneofs(reader: Any, writer: Any, path: str) -> Iterator[str]:
    """The reasons about fields that exclude each other now, and did not before."""
    earlier = {field.number: _oneof(field, writer) or field.number for field in writer.field}
    together: dict[str, set[Any]] = {}
    for field in reader.field:
        name = _oneof(field, reader)
        if name is not None and field.number in earlier:
            together.setdefault(name, set()).add(earlier[field.number])
    for name, groups in together.items():
        if len(groups) > 1:
            several = sum(isinstance(group, int) for group in groups) > 1
            code = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if several else "FIELD_MOVED_TO_EXISTING_ONEOF"
            yield f"{code}: the oneof at path '{path}/{name}' has fields that could be set together"


def _oneof(field: Any, message: Any) -> str | None:
    """The oneof of *field*, except those that proto3 has for optional fields."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return None
    return str(message.oneof_decl[field.oneof_index].name)


def _shape(field: Any, message: _Message | None) -> str:
    if kind_name(field.type) == "group":
        raise CannotJudgeError(f"the group '{field.name}' of a Protobuf schema")
    return "scalar" if message is None else "map" if message.declared.options.map_entry else "message"


def _label(field: Any, message: _Message) -> str | None:
    """The label before *field* in the text of *message*; None if there is none."""
    if field.label == _OPTIONAL:
        is_written = field.proto3_optional if message.is_proto3 else not field.HasField("oneof_index")
        return "optional" if is_written else None
    return "required" if field.label == _REQUIRED else "repeated"
