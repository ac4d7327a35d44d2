"""Encodes and decodes messages: the interface of this package for all other code.

Called by client, broker and header on any thread; compiled writers and readers are cached per (class, version).
Invalid bytes of a peer must not raise anything but ProtocolError, and the bytes of ``records`` must not be accessed.
"""

from __future__ import annotations

import struct
import threading
from functools import cache
from typing import Final

from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import ProtocolError, UnsupportedVersionError
from kafka_sink.protocol.decoder import Read, struct_reader
from kafka_sink.protocol.encoder import Write, struct_writer
from kafka_sink.protocol.primitives import ByteWriter
from kafka_sink.protocol.schema import S, Struct

#: The memory that a request may take with its response, whatever its size.
LEAST_BYTES: Final = 64 << 20
MOST_TIMES: Final = 8
#: The memory that a response may take: a million partitions of Metadata.
ANSWER_BYTES: Final = 1 << 30
#: The most memory that a byte of a response can take, so that most responses need no estimate.
ANSWER_TIMES: Final = 64
#: An estimate includes the part of a response to each item; for the items of a response there is none.
_TIMES_WITHOUT_ANSWER: Final = 3


def encode(message: Struct, version: int) -> list[Buffer]:
    """The bytes of *message* in *version*, as segments for a gathering write; ``records`` are included without a copy.

    :raises UnsupportedVersionError: if the message has no such version, or a value cannot be encoded in that version.
    :raises ValueError: if a value does not fit its type, or is null where the version does not allow it.
    """
    out = ByteWriter()
    encode_into(out, message, version)
    return out.segments()


def encode_into(out: ByteWriter, message: Struct, version: int) -> None:
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
    return _decode(kind, data, version, _message_reader(kind, version))


def _decode(kind: type[S], data: Buffer, version: int, read: Read) -> S:
    view = memoryview(data).cast("B")
    try:
        message, _ = read(view, 0)
    except (ProtocolError, UnicodeDecodeError) as error:
        raise ProtocolError(f"{kind.__name__} version {version}: {error}") from error
    except (IndexError, struct.error) as error:
        raise ProtocolError(f"{kind.__name__} version {version} ends too early, after {len(view)} bytes") from error
    assert isinstance(message, kind)
    return message


def decode_request(kind: type[S], data: Buffer, version: int) -> S:
    """As :func:`decode`, for a request of an untrusted client: a few bytes of an array become an object with its own
    part of the response, so the memory that all of them take is estimated before they are created.

    :raises ProtocolError: also above :data:`LEAST_BYTES` and :data:`MOST_TIMES` times the request's size.
    """
    return _decode_within(max(LEAST_BYTES, MOST_TIMES * memoryview(data).nbytes), kind, data, version)


def decode_answer(kind: type[S], data: Buffer, version: int) -> S:
    """As :func:`decode`, for a response of a broker, which a client does not trust either.

    :raises ProtocolError: also if it would take more memory than :data:`ANSWER_BYTES`.
    """
    if memoryview(data).nbytes * ANSWER_TIMES <= ANSWER_BYTES:
        return decode(kind, data, version)
    return _decode_within(ANSWER_BYTES, kind, data, version, _TIMES_WITHOUT_ANSWER)


def _decode_within(most_bytes: int, kind: type[S], data: Buffer, version: int, times: int = 1) -> S:
    """*times* is the ratio between an estimate and the memory taken."""
    _BUDGET.most, _BUDGET.left = most_bytes, most_bytes * times
    return _decode(kind, data, version, _bounded_reader(kind, version))


class _Budget(threading.local):
    """The memory that a message decoded by this thread may take, in bytes, and the rest of it."""

    most = left = 0

    def spend(self, size: int) -> None:
        """:raises ProtocolError: if there are not *size* bytes left."""
        self.left -= size
        if self.left < 0:
            raise ProtocolError(f"it names so much that it would take more than {self.most} bytes of memory")


_BUDGET: Final = _Budget()


# Compiled on first use; two threads may compile the same version at once, and either result is valid.
@cache
def _message_writer(kind: type[Struct], version: int) -> Write:
    return struct_writer(kind, version, _is_flexible(kind, version))


@cache
def _message_reader(kind: type[Struct], version: int) -> Read:
    return struct_reader(kind, version, _is_flexible(kind, version))


@cache
def _bounded_reader(kind: type[Struct], version: int) -> Read:
    return struct_reader(kind, version, _is_flexible(kind, version), _BUDGET.spend)


def _is_flexible(kind: type[Struct], version: int) -> bool:
    versions = kind.SCHEMA.versions
    if versions is None:
        raise ValueError(f"{kind.__name__} is not a top-level message")
    if version not in versions:
        raise UnsupportedVersionError(f"{kind.__name__} has versions {versions}, not {version}")
    return version in kind.SCHEMA.flexible
