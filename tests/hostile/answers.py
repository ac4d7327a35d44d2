"""A broker with malformed responses to one API, and valid responses to the others: each API, each kind of error."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

from kafka_sink.client.blocking.blocking import BlockingClient, RequestSpec
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common.config import parse
from kafka_sink.common.errors import KafkaError
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import decode_request_header, encode_response
from kafka_sink.protocol.messages.connection import ApiVersion, ApiVersionsResponse
from kafka_sink.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from kafka_sink.protocol.registry import APIS, api
from kafka_sink.protocol.schema import Array, Primitive, Struct
from tests.hostile.records import damaged
from tests.hostile.servers import OPEN, Listener, interrupted_late

#: How long a client waits for a missing response.
_TIMEOUT_MS: Final = 300
#: The APIs that a client calls without earlier requests: SASL requests need the state of an authentication.
ASKED: Final = tuple(key for key in APIS if key not in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))

#: Maps the frame of a valid response to the parts that are sent in its place.
Lie = Callable[[random.Random, bytes], Iterator[bytes]]


def _framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def _pieces(rng: random.Random, payload: bytes) -> Iterator[bytes]:
    yield from (bytes([each]) for each in _framed(payload))


def _other_id(rng: random.Random, payload: bytes) -> Iterator[bytes]:
    yield _framed(struct.pack(">i", rng.choice((-1, 0, 7, 2**31 - 1))) + payload[4:])


def _endless_tags(rng: random.Random, payload: bytes) -> Iterator[bytes]:
    at = rng.choice((4, 5, len(payload)))
    yield _framed(payload[:at] + b"\xff\xff\xff\xff\x0f" + b"\1\0" * 500)


def _negative(rng: random.Random, payload: bytes) -> Iterator[bytes]:
    at = rng.randrange(4, len(payload) + 1)
    yield _framed(payload[:at] + rng.choice((b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\xff" * 8)) + payload[at + 4 :])


def _huge_lists(rng: random.Random, payload: bytes) -> Iterator[bytes]:
    at = rng.randrange(4, len(payload) + 1)
    yield _framed(
        payload[:at] + rng.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\0\xff\xff\xff")) + payload[at:]
    )


def _cut(rng: random.Random, payload: bytes) -> Iterator[bytes]:
    yield _framed(payload[: rng.randrange(len(payload))])


def _long_frame(rng: random.Random, payload: bytes) -> Iterator[bytes]:
    yield struct.pack(">i", rng.choice((-1, -(2**31), 2**31 - 1, 200_000_000, 99_000_000))) + payload


def _twice(rng: random.Random, payload: bytes) -> Iterator[bytes]:
    yield _framed(payload) * 2


def _damaged(rng: random.Random, payload: bytes) -> Iterator[bytes]:
    yield _framed(payload[:4] + damaged(rng, payload[4:]))


LIES: Final[dict[str, Lie]] = {
    "one byte at a time": _pieces,
    "another correlation id": _other_id,
    "endless tags": _endless_tags,
    "negative numbers": _negative,
    "huge lists": _huge_lists,
    "a cut answer": _cut,
    "a frame of another length": _long_frame,
    "two answers": _twice,
    "damaged bytes": _damaged,
}


def filled(kind: type[Struct], version: int, depth: int = 0) -> Struct:
    """Return a message with one element in each array and no empty string."""
    made = kind()
    for field in kind.SCHEMA.fields:
        if field.tag is not None or version not in field.versions:
            continue
        if isinstance(field.type, Array) and depth < 3:
            element = field.type.element
            setattr(
                made,
                field.name,
                [_value(element) if isinstance(element, Primitive) else filled(element, version, depth + 1)],
            )
        elif isinstance(field.type, Primitive) and field.type.name == "string":
            setattr(made, field.name, "t")
    return made


def _value(element: Primitive) -> Any:
    if element.name == "uuid":
        return uuid.UUID(int=1)
    return 1 if element.format else "t" if element.name == "string" else b"t"


class Liar(Listener):
    """A broker that applies :attr:`lie` to its responses to :attr:`key`."""

    def __init__(self) -> None:
        super().__init__()
        self.key: ApiKey | None = None
        self.lie: Callable[[bytes], Iterator[bytes]] = lambda payload: iter([_framed(payload)])

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, struct.error), connection, connection.makefile("rb") as asked:
            while head := asked.read(4):
                header, _ = decode_request_header(asked.read(struct.unpack(">i", head)[0]))
                body = self._body(header.api_key, header.api_version)
                parts = encode_response(header.api_key, header.api_version, header.correlation_id, body)
                payload = b"".join(map(bytes, parts))
                for part in self.lie(payload) if header.api_key is self.key else (_framed(payload),):
                    connection.sendall(part)

    def _body(self, key: ApiKey, version: int) -> Struct:
        if key is self.key and key not in (ApiKey.API_VERSIONS, ApiKey.METADATA):
            return filled(api(key).response, version)
        if key is ApiKey.API_VERSIONS:
            known = [ApiVersion(each, api(each).versions.min, api(each).versions.max) for each in APIS]
            return ApiVersionsResponse(api_keys=known)
        return MetadataResponse(brokers=[MetadataResponseBroker(1, "127.0.0.1", self.port)], controller_id=1)


@cache
def _shared() -> Liar:
    return OPEN.enter_context(Liar())


def asked(key: ApiKey, lie: str, rng: random.Random) -> str:
    """Send a request of *key* and return the client's result for the malformed response: "answered", or its error.

    :raises AssertionError: if the client does not end in time.
    """
    liar = _shared()
    liar.key, liar.lie = key, lambda payload: LIES[lie](rng, payload)
    config = parse(ClientConfig, {"bootstrap.servers": f"127.0.0.1:{liar.port}", "reconnect.backoff.ms": "1"})
    client = BlockingClient(config, client_id="c", timeout_ms=_TIMEOUT_MS)
    spec = RequestSpec(key, lambda version: filled(api(key).request, version))
    try:
        with interrupted_late():
            client.ask(None, spec)
        return "answered"
    except KafkaError as error:
        return str(error)
    finally:
        liar.key = None
        client.close()


def answers_of_apis(rng: random.Random) -> None:
    """For any malformed response, the client returns a response or raises an error of its own, in time."""
    key, lie = rng.choice(ASKED), rng.choice(list(LIES))
    said = asked(key, lie, rng)
    assert len(said) < 5_000, (key, lie, said)
