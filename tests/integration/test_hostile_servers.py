"""Servers that are no brokers, or hostile ones: the producer and the log reader raise a clear error, in time, with
bounded memory.
"""

from __future__ import annotations

import contextlib
import re
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafka_sink import KafkaProducer, ProducerRecord
from kafka_sink.common.errors import BrokersUnreachableError, KafkaTimeoutError
from kafka_sink.consumer.log_reader import LogReader
from tests.conftest import Figure

#: Long enough for an answer on a busy machine.
LIMIT_MS, REQUEST_MS = 5_000, 2_000
#: How long a busy machine may stall.
STALL_S = 15.0

Behaviour = Callable[[socket.socket], None]


def says(data: bytes) -> Behaviour:
    """Return a server that waits for a request, responds with *data*, and then is silent."""

    def behave(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(data)
        time.sleep(LIMIT_MS / 1000 * 2)

    return behave


def floods(connection: socket.socket) -> None:
    connection.recv(4096)
    while True:
        connection.sendall(b"\x00" * 65_536)


def drips(connection: socket.socket) -> None:
    connection.recv(4096)
    for byte in struct.pack(">i", 1_000) * 100:
        connection.sendall(bytes([byte]))
        time.sleep(1.5)


def hangs_up(connection: socket.socket) -> None:
    connection.recv(4096)


def keeps_quiet(connection: socket.socket) -> None:
    time.sleep(LIMIT_MS / 1000 * 2)


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
    "1 byte per 1.5 s": (drips, "was not answered within"),
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


def cause_of(name: str, attempt: Callable[[str], None]) -> tuple[str, float]:
    """Return the error that *attempt* raises with the server of this name, and the time until then in seconds."""
    with server(SERVERS[name][0]) as address:
        began = time.monotonic()
        try:
            attempt(address)
        except (BrokersUnreachableError, KafkaTimeoutError) as error:
            return str(error), time.monotonic() - began
        return "it raised nothing", time.monotonic() - began


def check_all_servers(attempt: Callable[[str], None], figure: Figure) -> None:
    """Run *attempt* for all servers in parallel, because each one takes its full time-out."""
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with ThreadPoolExecutor(len(SERVERS)) as pool:
        ended = dict(zip(SERVERS, pool.map(cause_of, SERVERS, [attempt] * len(SERVERS)), strict=True))
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    longest_s = max(took for _, took in ended.values())
    figure(f"{len(SERVERS)} servers", f"{longest_s:.1f} s, {grown_kib / 1024:.1f} MiB")
    said = {name: text for name, (text, _) in ended.items() if not re.search(SERVERS[name][1], text)}
    assert said == {}
    assert longest_s < LIMIT_MS / 1000 + STALL_S
    assert grown_kib < 100 * 1024


@pytest.mark.behaviour("Metadata", "Waiting for the metadata of a server that is no broker ends with the cause")
@pytest.mark.behaviour(
    "Faults: hostile servers", "A producer to a server that is no broker ends with the cause, in little memory"
)
def test_a_server_that_is_no_broker_ends_in_its_cause(figure: Figure) -> None:
    def send(address: str) -> None:
        properties = {"bootstrap.servers": address, "max.block.ms": LIMIT_MS, "request.timeout.ms": REQUEST_MS}
        with KafkaProducer(properties) as producer:
            producer.send(ProducerRecord("t", b"v")).result(0)

    check_all_servers(send, figure)


@pytest.mark.behaviour(
    "Faults: hostile servers", "A reader of a server that is no broker ends with the cause, in little memory"
)
def test_reader_of_hostile_server_ends_with_the_cause(figure: Figure) -> None:
    def read(address: str) -> None:
        properties = {"default.api.timeout.ms": LIMIT_MS, "request.timeout.ms": REQUEST_MS}
        with LogReader({"bootstrap.servers": address, **properties}) as reader:
            list(reader.read("t"))

    check_all_servers(read, figure)
