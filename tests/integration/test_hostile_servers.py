"""Servers that are no brokers, or mean it badly: the producer and the log reader end in a clear error, in time, within
their memory.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kafka_sink import KafkaProducer, ProducerRecord
from kafka_sink.common.errors import BrokersUnreachableError, KafkaTimeoutError
from kafka_sink.consumer.log_reader import LogReader
from tests.conftest import Figure

MAX_BLOCK_MS = 1_500
READ_TIMEOUT_MS = 600
#: That a busy machine may stand still for.
STALL_S = 15.0

Behaviour = Callable[[socket.socket], None]


def says(data: bytes) -> Behaviour:
    """Waits for a request and answers with *data*, then keeps quiet."""

    def behave(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(data)
        time.sleep(MAX_BLOCK_MS / 1000 * 2)

    return behave


def floods(connection: socket.socket) -> None:
    connection.recv(4096)
    while True:
        connection.sendall(b"\x00" * 65_536)


def drips(connection: socket.socket) -> None:
    connection.recv(4096)
    for byte in struct.pack(">i", 1_000) * 100:
        connection.sendall(bytes([byte]))
        time.sleep(0.3)


def hangs_up(connection: socket.socket) -> None:
    connection.recv(4096)


def keeps_quiet(connection: socket.socket) -> None:
    time.sleep(MAX_BLOCK_MS / 1000 * 2)


SERVERS: dict[str, tuple[Behaviour, str]] = {
    "2 GiB announced": (says(struct.pack(">i", 2**31 - 1)), "frame of 2147483647 bytes is larger than the limit"),
    "TLS alert": (
        says(b"\x15\x03\x03\x00\x02\x02\x46"),
        "frame of 352518912 bytes is larger than .*speaks TLS: set security.protocol",
    ),
    "HTTP": (says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "frame of 1213486160 bytes is larger than .*speaks HTTP"),
    "negative length": (says(struct.pack(">i", -5) + b"xxxx"), "frame of negative length -5"),
    "empty frames": (says(struct.pack(">i", 0) * 3), "response cannot be decoded"),
    "wrong correlation id": (
        says(struct.pack(">ii", 12, 99) + b"\x00\x00\x01\x00\x00\x00\x00\x00"),
        "has the correlation id 99",
    ),
    "zeros without end": (floods, "response cannot be decoded"),
    "hangs up": (hangs_up, "closed by"),
    "1 byte per 0.3 s": (drips, "was not answered within"),
    "keeps quiet": (keeps_quiet, "was not answered within"),
}


@contextlib.contextmanager
def server(behave: Behaviour) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            behave(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


@pytest.mark.behaviour("Metadata", "Waiting for the metadata of a server that is no broker ends with the cause")
@pytest.mark.behaviour(
    "Faults: hostile servers", "A producer to a server that is no broker ends with the cause, in little memory"
)
@pytest.mark.parametrize("name", SERVERS)
def test_a_server_that_is_no_broker_ends_in_its_cause(name: str, figure: Figure) -> None:
    behave, cause = SERVERS[name]
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with (
        server(behave) as address,
        KafkaProducer(
            {"bootstrap.servers": address, "max.block.ms": MAX_BLOCK_MS, "request.timeout.ms": 500}
        ) as producer,
    ):
        began = time.monotonic()
        future = producer.send(ProducerRecord("t", b"v"))
        took = time.monotonic() - began
        with pytest.raises(BrokersUnreachableError, match=cause):
            future.get(0)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    figure(name, f"{took:.1f} s, {grown_kib / 1024:.1f} MiB")
    assert took < MAX_BLOCK_MS / 1000 + STALL_S
    assert grown_kib < 50 * 1024


@pytest.mark.behaviour(
    "Faults: hostile servers", "A reader of a server that is no broker ends with the cause, in little memory"
)
@pytest.mark.parametrize("name", SERVERS)
def test_reader_of_hostile_server_ends_with_the_cause(name: str, figure: Figure) -> None:
    behave, cause = SERVERS[name]
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    properties = {"default.api.timeout.ms": READ_TIMEOUT_MS, "request.timeout.ms": READ_TIMEOUT_MS // 2}
    with server(behave) as address, LogReader({"bootstrap.servers": address, **properties}) as reader:
        began = time.monotonic()
        with pytest.raises((BrokersUnreachableError, KafkaTimeoutError), match=cause):
            list(reader.read("t"))
        took = time.monotonic() - began
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    figure(name, f"{took:.1f} s, {grown_kib / 1024:.1f} MiB")
    assert took < MAX_BLOCK_MS / 1000 + STALL_S
    assert grown_kib < 50 * 1024
