"""Request and response headers, and whole messages: a header with its body, without the frame's length.

Client and broker call it on their network threads. It must not handle errors: it rejects what it cannot decode, and
returns everything else.

Source: Kafka protocol guide, "Request and response headers"; KIP-482 (header versions), KIP-511 (ApiVersions).
"""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass
from typing import Final

from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import ErrorCode, ProtocolError
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.codec import decode, decode_answer, decode_request, encode_into
from kafka_sink.protocol.primitives import MAX_STRING_BYTES, NULL, ByteWriter, end_of, read_int16_length, skip_tags
from kafka_sink.protocol.registry import Api, api
from kafka_sink.protocol.schema import Struct

_REQUEST: Final = struct.Struct(">hhih")
_CORRELATION_ID: Final = struct.Struct(">i")
_ERROR_CODE: Final = struct.Struct(">h")

#: Size of a request header up to the length of the client id, in bytes.
_CLIENT_ID_AT: Final = 8


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """The header of a request; the response repeats *correlation_id*."""

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None


def encode_request(
    api_key: ApiKey, version: int, correlation_id: int, client_id: str | None, body: Struct
) -> list[Buffer]:
    """Header and *body* of a request, without the frame's length; raises as :func:`codec.encode` does."""
    out = ByteWriter()
    # The client id has its classic format in flexible headers too, so that any broker can read it (KIP-511).
    encoded = b"" if client_id is None else client_id.encode()
    if len(encoded) > MAX_STRING_BYTES:
        raise ValueError(f"a client id of {len(encoded)} bytes is longer than {MAX_STRING_BYTES}")
    out += _REQUEST.pack(api_key, version, correlation_id, NULL if client_id is None else len(encoded))
    out += encoded
    if version >= api(api_key).flexible_from:
        out.append(0)
    encode_into(out, body, version)
    return out.segments()


def encode_response(api_key: ApiKey, version: int, correlation_id: int, body: Struct) -> list[Buffer]:
    """Header and *body* of a response, without the frame's length; raises as :func:`codec.encode` does."""
    out = ByteWriter()
    out += _CORRELATION_ID.pack(correlation_id)
    if _has_response_tags(api(api_key), version):
        out.append(0)
    encode_into(out, body, version)
    return out.segments()


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header of a request and the offset of its body.

    The version is not checked, because a broker answers ApiVersions requests of unknown versions (KIP-511).

    :raises ProtocolError: if the bytes are not a request header, or its API has no messages here.
    """
    data = memoryview(frame).cast("B")
    try:
        key, version, correlation_id, _ = _REQUEST.unpack_from(data)
        length, pos = read_int16_length(data, _CLIENT_ID_AT)
        end = end_of(data, pos, max(length, 0))
        client_id = None if length == NULL else str(data[pos:end], "utf-8")
        entry = _known_api(key)
        if version >= entry.flexible_from:
            end = skip_tags(data, end)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"request header: {error}") from error
    return RequestHeader(entry.key, version, correlation_id, client_id), end


def _known_api(key: int) -> Api:
    try:
        return api(key)
    except ValueError:
        raise ProtocolError(f"unknown API key {key}") from None


def decode_request_body(header: RequestHeader, frame: Buffer, offset: int) -> Struct:
    """The body at *offset* of *frame*; raises as :func:`codec.decode_request` does."""
    return decode_request(api(header.api_key).request, memoryview(frame)[offset:], header.api_version)


def decode_response(api_key: ApiKey, version: int, frame: Buffer) -> tuple[int, Struct]:
    """Correlation id and body of a response to a request of *version*.

    :raises ProtocolError: if the bytes are not a valid response.
    """
    data = memoryview(frame).cast("B")
    entry = api(api_key)
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(data)
        pos = _CORRELATION_ID.size
        if _has_response_tags(entry, version):
            pos = skip_tags(data, pos)
        if api_key == ApiKey.API_VERSIONS and _ERROR_CODE.unpack_from(data, pos)[0] == ErrorCode.UNSUPPORTED_VERSION:
            # A broker that does not support the requested version answers in version 0 (KIP-511). In the answer of
            # broker mocks (such as librdkafka's) only the error code can be read.
            version = 0
            with contextlib.suppress(ProtocolError):
                return correlation_id, decode_answer(entry.response, data[pos:], version)
            return correlation_id, decode(
                entry.response, data[pos : pos + _ERROR_CODE.size].tobytes() + bytes(4), version
            )
    except (IndexError, struct.error) as error:
        raise ProtocolError(f"response header of {entry.key.name}: {error}") from error
    return correlation_id, decode_answer(entry.response, data[pos:], version)


def _has_response_tags(entry: Api, version: int) -> bool:
    # A client must be able to read the ApiVersions header before it has the broker's versions, so it is always v0.
    return version >= entry.flexible_from and entry.key is not ApiKey.API_VERSIONS
