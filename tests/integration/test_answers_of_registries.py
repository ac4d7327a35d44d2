"""Answers of a registry that come in part or from one of several addresses: another one is asked."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.config import registry_configs
from kafka_sink.testing import EmbeddedRegistry
from tests.support.cases import with_each

SCHEMA = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
CUT = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 300\r\n\r\n{"subject":"t-value","vers'
TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.fixture
def registry() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry() as running:
        yield running


@with_each("answer", [CUT, TIMED_OUT])
def test_the_next_address_is_asked_after_an_answer_in_part(registry: EmbeddedRegistry, answer: bytes) -> None:
    """As Confluent's client does: an IOException, and 408, are tried again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]},{registry.url}"
        assert RegistryClient(*registry_configs({"schema.registry.url": url})).register("t-value", SCHEMA) == 1
