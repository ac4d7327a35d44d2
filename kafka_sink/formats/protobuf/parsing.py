"""Resolves the text of a schema into messages as data.

Called on the driver, by the command line and by the registry in memory; tasks never need it. The text is a ``.proto``
file, or base64 of a FileDescriptorProto, as in registries, or of a FileDescriptorSet. A ``.proto`` file is compiled by
protoc, which the package grpcio-tools contains, in a separate process.

Source: https://protobuf.dev/programming-guides/proto3/, google/protobuf/descriptor.proto.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Iterable
from typing import Any

from kafka_sink.common.config import nearest
from kafka_sink.formats.errors import FormatError, schema_boundary
from kafka_sink.formats.protobuf.descriptors import (
    LINKED,
    descriptors,
    has_own_set,
    is_well_known,
    kind_name,
    own_files,
    pool_of,
)
from kafka_sink.formats.protobuf.schema import Enum, Message, MessageField, Presence, ProtobufSchema
from kafka_sink.formats.schema_text import Reference, SchemaText


@schema_boundary("Protobuf schema")
def parse_schema(text: str, message: str | None = None) -> ProtobufSchema:
    """The schema of *text* with the root *message*, a full name or its last part; by default the first message.

    :raises FormatError: if it is no valid schema, if it does not have the message, or if a package is missing.
    """
    resolved = _Resolved()
    root, position = _root(text, message)
    resolved.add(pool_of(text).FindMessageTypeByName(root))
    return ProtobufSchema(root, position, resolved.messages, resolved.enums)


@schema_boundary("Protobuf schema")
def parse_file(text: str) -> ProtobufSchema:
    """As :func:`parse_schema`, with all messages and enums of the file, whether the root needs them or not, and with
    the extensions of each message among its fields."""
    pool = pool_of(text)
    resolved = _Resolved(pool.FindAllExtensions)
    messages = message_names(text)
    for name, _ in messages:
        resolved.add(pool.FindMessageTypeByName(name))
    root, position = _root(text, None)
    return ProtobufSchema(root, position, resolved.messages, resolved.enums)


@schema_boundary("Protobuf schema")
def file_descriptor(text: str, *, is_named: bool = True) -> str:
    """The file *text* as base64 of its FileDescriptorProto; with *is_named* false, it is the same for equal files with
    different names.

    :raises FormatError: if it is no valid schema, or if a package is missing.
    """
    file = _without_defaults(descriptors(text).file[-1])
    if not is_named:
        file.ClearField("name")
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode("ascii")


@schema_boundary("Protobuf schema")
def registered_text(text: str, message: str | None = None) -> SchemaText:
    """*text* as it is registered: for a set, the file that declares the root, with references to its imports.

    :raises FormatError: as :func:`parse_schema` does.
    """
    if not has_own_set(text):
        return SchemaText(text)
    root, _ = _root(text, message)
    schemas: dict[str, SchemaText] = {}
    for file in own_files(text):
        imported = [path for path in file.dependency if not is_well_known(path)]
        references = tuple(Reference(path, schemas[path]) for path in imported)
        described = _without_defaults(file).SerializeToString()
        schemas[file.name] = SchemaText(base64.b64encode(described).decode("ascii"), references)
    return schemas[pool_of(text).FindMessageTypeByName(root).file.name]


def _without_defaults(file: Any) -> Any:
    """*file* without the default names of fields in JSON: protoc adds them to sets, and not to its other output, so the
    same file would become another version."""
    copied = copy.deepcopy(file)
    waiting: list[Any] = [copied]
    while waiting:
        part = waiting.pop()
        is_file = part is copied
        waiting += part.message_type if is_file else part.nested_type
        for field in (*part.extension, *(() if is_file else part.field)):
            first, *rest = field.name.split("_")
            if field.json_name == first + "".join(word[:1].upper() + word[1:] for word in rest):
                field.ClearField("json_name")
    return copied


def message_names(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """The full names of the messages of *text*, each before those that it contains, with their positions.

    :raises FormatError: if it is no valid schema, or if a package is missing.
    """
    files = descriptors(text).file
    # The last file is the one that was compiled or linked. A given set may have several files, and their imports.
    is_of_several = files[-1].name != LINKED and has_own_set(text)
    others = [other for other in files[:-1] if not is_well_known(other.name)] if is_of_several else []
    return [message for file in (files[-1], *others) for message in _named(file.message_type, file.package, ())]


def _named(messages: Any, scope: str, position: tuple[int, ...]) -> list[tuple[str, tuple[int, ...]]]:
    named: list[tuple[str, tuple[int, ...]]] = []
    # The entries of maps are messages that compilers generate, and are not counted.
    for index, message in enumerate(message for message in messages if not message.options.map_entry):
        name = f"{scope}.{message.name}" if scope else message.name
        named += [(name, (*position, index)), *_named(message.nested_type, name, (*position, index))]
    return named


def _root(text: str, message: str | None) -> tuple[str, tuple[int, ...]]:
    """The full name and the position of *message*, or of the first one."""
    messages = message_names(text)
    if not messages:
        raise FormatError("the Protobuf schema declares no message")
    if message is None:
        return messages[0]
    names = [name for name, _ in messages]
    matching = [candidate for candidate in messages if candidate[0] == message] or [
        candidate for candidate in messages if candidate[0].endswith(f".{message}")
    ]
    if not matching:
        raise FormatError(
            f"the Protobuf schema has no message '{message}'{nearest(message, names)}; it has {', '.join(names)}"
        )
    if len(matching) > 1:
        raise FormatError(
            f"the Protobuf schema has several messages '{message}': {', '.join(name for name, _ in matching)}; name "
            "one of them in full"
        )
    return matching[0]


class _Resolved:
    """The messages and enums that a message needs."""

    def __init__(self, extensions_of: Callable[[Any], Iterable[Any]] = lambda message: ()) -> None:
        self._extensions_of = extensions_of
        self.messages: dict[str, Message] = {}
        self.enums: dict[str, Enum] = {}

    def add(self, descriptor: Any) -> None:
        """Add a message, and all messages and enums that it contains."""
        waiting = [descriptor]
        while waiting:
            descriptor = waiting.pop()
            if descriptor.full_name in self.messages:
                continue
            options = descriptor.GetOptions()
            if options.message_set_wire_format:
                raise FormatError(
                    f"{descriptor.full_name!r:.200} has the form of a MessageSet, which Protobuf no longer supports"
                )
            fields = sorted((*descriptor.fields, *self._extensions_of(descriptor)), key=lambda field: field.number)
            self.messages[descriptor.full_name] = Message(
                descriptor.full_name, tuple(_field(field) for field in fields), options.map_entry
            )
            waiting += [field.message_type for field in fields if field.message_type is not None]
            for enum in (field.enum_type for field in fields if field.enum_type is not None):
                numbers = tuple((value.name, value.number) for value in enum.values)
                self.enums[enum.full_name] = Enum(enum.full_name, numbers)


def _field(field: Any) -> MessageField:
    inner, oneof = field.message_type or field.enum_type, field.containing_oneof
    return MessageField(
        f"[{field.full_name}]" if field.is_extension else field.name,
        field.number,
        kind_name(field.type),
        _presence(field),
        "" if inner is None else inner.full_name,
        # proto3 has a oneof for each optional field, which contains no other field.
        None if oneof is None or len(oneof.fields) == 1 else oneof.name,
    )


def _presence(field: Any) -> Presence:
    if field.is_repeated:
        return Presence.PACKED if field.is_packed else Presence.REPEATED
    if field.is_required:
        return Presence.REQUIRED
    return Presence.EXPLICIT if field.has_presence else Presence.IMPLICIT
