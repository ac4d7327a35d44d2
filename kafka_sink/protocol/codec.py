"""Encodes and decodes messages: the interface of this package for all other code.

Called by client, broker and header on any thread; compiled writers and readers are cached per (class, version).
Invalid bytes of a peer must not raise anything but ProtocolError, and the bytes of ``records`` must not be accessed.
"""

from __future__ import annotations

import struct

from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import ProtocolError, UnsupportedVersionError
from kafka_sink.protocol.decoder import Read, struct_reader
from kafka_sink.protocol.encoder import Write, struct_writer
from kafka_sink.protocol.primitives import Writer
from kafka_sink.protocol.schema import S, Struct

# Compiled on first use. If two threads compile the same version at once, either result is valid, so there is no lock.
_WRITERS: dict[tuple[type[Struct], int], Write] = {}
_READERS: dict[tuple[type[Struct], int], Read] = {}


def encode(message: Struct, version: int) -> list[Buffer]:
    """The bytes of *message* in *version*, as segments for a gathering write; ``records`` are included without a copy.

    :raises UnsupportedVersionError: if the message has no such version, or a value cannot be encoded in that version.
    :raises ValueError: if a value does not fit its type, or is null where the version does not allow it.
    """
    out = Writer()
    encode_into(out, message, version)
    return out.segments()


def encode_into(out: Writer, message: Struct, version: int) -> None:
    """Append *message* in *version* to *out*; raises as :func:`encode` does."""
    kind = type(message)
    try:
        _message_writer(kind, version)(out, message)
    except struct.error as error:
        raise ValueError(f"{kind.__name__} version {version}: {error}") from error


def decode(kind: type[S], data: Buffer, version: int) -> S:
    """Decode a *kind* of *version* from *data*; ``records`` are views of *data*. Trailing bytes are ignored.

    :raises UnsupportedVersionError: if the message has no such version.
    :raises ProtocolError: if the bytes are not a valid message.
    """
    view = memoryview(data).cast("B")
    read = _message_reader(kind, version)
    try:
        message, _ = read(view, 0)
    except (ProtocolError, UnicodeDecodeError) as error:
        raise ProtocolError(f"{kind.__name__} version {version}: {error}") from error
    except (IndexError, struct.error) as error:
        raise ProtocolError(f"{kind.__name__} version {version} ends too early, after {len(view)} bytes") from error
    assert isinstance(message, kind)
    return message


def _message_writer(kind: type[Struct], version: int) -> Write:
    write = _WRITERS.get((kind, version))
    if write is None:
        write = _WRITERS[kind, version] = struct_writer(kind, version, _is_flexible(kind, version))
    return write


def _message_reader(kind: type[Struct], version: int) -> Read:
    read = _READERS.get((kind, version))
    if read is None:
        read = _READERS[kind, version] = struct_reader(kind, version, _is_flexible(kind, version))
    return read


def _is_flexible(kind: type[Struct], version: int) -> bool:
    versions = kind.SCHEMA.versions
    if versions is None:
        raise ValueError(f"{kind.__name__} is not a top-level message")
    if version not in versions:
        raise UnsupportedVersionError(f"{kind.__name__} has versions {versions}, not {version}")
    return version in kind.SCHEMA.flexible
