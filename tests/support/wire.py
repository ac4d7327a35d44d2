"""A connection that sends single requests and takes their answers when the test wants them."""

from __future__ import annotations

import socket
import struct
from typing import Any

from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import decode_response, encode_request
from tests.support.messages import request_body

#: Longer than any answer takes; a test that gets here fails.
PATIENCE_S = 40.0


class Wire:
    """A blocking socket to the first of *bootstrap_servers*."""

    def __init__(self, bootstrap_servers: str, *, patience_s: float = PATIENCE_S) -> None:
        host, _, port = bootstrap_servers.split(",")[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=patience_s)

    def ask(self, key: ApiKey, version: int, *values: Any, **named: Any) -> Any:
        """The answer to a request, or to one with these fields (:mod:`tests.support.messages`)."""
        self.send(key, version, *values, **named)
        return self.receive(key, version)

    def send(self, key: ApiKey, version: int, *values: Any, **named: Any) -> None:
        body = request_body(key, *values, **named)
        self.send_frame(b"".join(map(bytes, encode_request(key, version, 1, "script", body))))

    def receive(self, key: ApiKey, version: int) -> Any:
        return decode_response(key, version, self.receive_frame())[1]

    def send_frame(self, frame: bytes) -> None:
        """Send a request that is encoded already, header included."""
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return data

    def close(self) -> None:
        self._socket.close()
