"""Planes, listeners and threads of one node, on real sockets."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kafka_sink.broker.config import BrokerConfig, EndPoint
from kafka_sink.broker.network.listener_security import users_of
from kafka_sink.broker.network.request_channel import RequestChannel, SendResponse
from kafka_sink.broker.network.socket_server import CONTROL_PLANE_QUEUE_CAPACITY, SocketServer
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.config import parse
from kafka_sink.common.errors import ConfigError
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import encode_request
from kafka_sink.protocol.messages.connection import ApiVersionsRequest, ApiVersionsResponse
from kafka_sink.protocol.messages.metadata import MetadataRequest
from tests.support.cases import with_each

CLIENTS = EndPoint("CLIENTS", "127.0.0.1", 0)
CONTROL = EndPoint("CONTROL", "127.0.0.1", 0)
FRAME = b"".join(map(bytes, encode_request(ApiKey.METADATA, 9, 1, None, MetadataRequest([]))))


def no_versions(request: ApiVersionsRequest, version: int) -> tuple[ApiVersionsResponse, int]:
    raise AssertionError("nobody asks")


@pytest.fixture
def servers() -> Iterator[list[SocketServer]]:
    started: list[SocketServer] = []
    yield started
    for server in started:
        server.shutdown()


def make(servers: list[SocketServer], endpoints: list[EndPoint], **properties: object) -> SocketServer:
    properties = {"listener_security_protocol_map": "CLIENTS:PLAINTEXT,CONTROL:PLAINTEXT", **properties}
    config = parse(BrokerConfig, {name.replace("_", "."): value for name, value in properties.items()})
    server = SocketServer("test", config, endpoints, users_of(config, dict), SYSTEM_CLOCK, no_versions)
    servers.append(server)
    return server


def connect(server: SocketServer, listener: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.bound_endpoint(listener).port), timeout=5)


def answer_one(channel: RequestChannel, data: bytes) -> None:
    request = channel.receive_request()
    assert request is not None
    channel.send_response(SendResponse(request, [data]))


@pytest.mark.behaviour(
    "SocketServer", "The control plane is opened first, and has an acceptor and a processor of its own"
)
@pytest.mark.behaviour("SocketServer", "The control plane has one processor and a queue of 20 requests")
def test_control_plane_has_its_own_processor_and_queue(servers: list[SocketServer]) -> None:
    server = make(
        servers, [CLIENTS, CONTROL], control_plane_listener_name="CONTROL", num_network_threads=3, queued_max_requests=7
    )
    before = set(threading.enumerate())
    server.bind()
    server.start_processing_requests()
    names = sorted(thread.name for thread in set(threading.enumerate()) - before)
    assert names == [
        "test-acceptor-CLIENTS",
        "test-acceptor-CONTROL",
        "test-processor-0",
        "test-processor-1",
        "test-processor-2",
        "test-processor-3",
    ]
    # The public interface shows which listeners are open, but not the order in which they were opened.
    assert list(server._listeners) == ["CONTROL", "CLIENTS"]
    control = server.control_plane_request_channel
    assert control is not None
    assert control.capacity == CONTROL_PLANE_QUEUE_CAPACITY == 20
    assert server.data_plane_request_channel.capacity == 7
    for listener, channel in (("CONTROL", control), ("CLIENTS", server.data_plane_request_channel)):
        with connect(server, listener) as sock:
            sock.sendall(struct.pack(">i", len(FRAME)) + FRAME)
            answer_one(channel, b"hello")
            assert sock.recv(100) == b"\0\0\0\5hello"


@pytest.mark.behaviour("SocketServer", "The listener between brokers is opened first")
def test_the_listener_between_brokers_is_opened_first(servers: list[SocketServer]) -> None:
    server = make(servers, [CLIENTS, CONTROL], inter_broker_listener_name="CONTROL")
    server.bind()
    # The public interface shows which listeners are open, but not the order in which they were opened.
    assert list(server._listeners) == ["CONTROL", "CLIENTS"]


@pytest.mark.behaviour("SocketServer", "Without a control plane every listener is data")
def test_without_a_control_plane_everything_is_data(servers: list[SocketServer]) -> None:
    server = make(servers, [CLIENTS, CONTROL])
    server.bind()
    server.start_processing_requests()
    assert server.control_plane_request_channel is None
    with connect(server, "CONTROL") as sock:
        sock.sendall(struct.pack(">i", len(FRAME)) + FRAME)
        answer_one(server.data_plane_request_channel, b"x")
        assert sock.recv(100) == b"\0\0\0\1x"


@pytest.mark.behaviour("SocketServer", "All ports are bound before anything is processed")
def test_ports_are_bound_before_anything_is_processed(servers: list[SocketServer]) -> None:
    server = make(servers, [CLIENTS])
    before = threading.active_count()
    server.bind()
    assert threading.active_count() == before
    with connect(server, "CLIENTS") as sock:
        sock.sendall(struct.pack(">i", len(FRAME)) + FRAME)
        server.start_processing_requests()
        answer_one(server.data_plane_request_channel, b"x")
        assert sock.recv(100) == b"\0\0\0\1x"


@pytest.mark.behaviour("SocketServer", "Stopping closes everything, and may be repeated")
@pytest.mark.parametrize("processing", [True, False])
def test_shutdown_closes_everything_and_may_come_twice(servers: list[SocketServer], processing: bool) -> None:
    before = set(threading.enumerate())
    server = make(servers, [CLIENTS, CONTROL], control_plane_listener_name="CONTROL")
    server.bind()
    if processing:
        server.start_processing_requests()
    with connect(server, "CLIENTS") as sock:
        if processing:
            # After this response, a processor has the connection.
            sock.sendall(struct.pack(">i", len(FRAME)) + FRAME)
            answer_one(server.data_plane_request_channel, b"x")
            assert sock.recv(5) == b"\0\0\0\1x"
        port = server.bound_endpoint("CLIENTS").port
        server.shutdown()
        server.shutdown()
        try:
            assert sock.recv(1) == b""
        except ConnectionResetError:
            assert not processing
    assert set(threading.enumerate()) == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


@pytest.mark.behaviour(
    "SocketServer", "Listeners that contradict each other, shared ports and addresses that nobody can reach are refused"
)
@with_each(
    ("endpoints", "properties", "text"),
    [
        ([CLIENTS], {"control_plane_listener_name": "CONTROL"}, "listener CONTROL does not exist"),
        ([CLIENTS], {"inter_broker_listener_name": "CONTROL"}, "listener CONTROL does not exist"),
        ([CONTROL], {"control_plane_listener_name": "CONTROL"}, "the only listener"),
        ([CLIENTS, CLIENTS], {}, "2 have the same name CLIENTS"),
        ([CLIENTS], {"max_connections_per_listener": "CLIENT:5"}, "listener CLIENT does not exist, only CLIENTS"),
        (
            [CLIENTS],
            {"max_connection_creation_rate_per_listener": "CLIENT:5"},
            "listener CLIENT does not exist, only CLIENTS",
        ),
        ([CLIENTS], {"listener_security_protocol_map": "CLIENTS:TLS"}, "'TLS' of listener CLIENTS"),
        ([CLIENTS], {"listener_security_protocol_map": "CLIENT:SASL_SSL"}, "is defined for listener 'CLIENTS'"),
    ],
)
def test_listeners_that_contradict_each_other(endpoints: list[EndPoint], properties: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make([], endpoints, **properties)


@pytest.mark.behaviour("SocketServer", "A start that fails half-way leaves nothing open")
def test_unusable_certificates_leave_no_listener_open(servers: list[SocketServer]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = make([], [CLIENTS, EndPoint("SSL", "127.0.0.1", port)], ssl_keystore_location="/none.pem")
    with pytest.raises(ConfigError, match=r"cannot read /none\.pem"):
        server.bind()
    server.shutdown()
    make(servers, [replace(CLIENTS, port=port)]).bind()


@with_each("text", ["PLAINTEXT", "://h:1", "A://h", "A://h:x", "A://h:70000", "A://:"])
def test_listeners_of_the_wrong_form(text: str) -> None:
    with pytest.raises(ConfigError, match="NAME://host:port"):
        EndPoint.parse(text)


def test_listeners_are_parsed() -> None:
    assert EndPoint.parse("A://127.0.0.1:9092") == EndPoint("A", "127.0.0.1", 9092)
    assert EndPoint.parse("A://[::1]:0") == EndPoint("A", "::1", 0)
    assert EndPoint.parse("A://:5") == EndPoint("A", "0.0.0.0", 5)


@pytest.mark.parametrize("text", ["A://127.0.0.1:9092", "A://[::1]:0", "A://broker.example:5"])
def test_listeners_are_written_as_they_are_read(text: str) -> None:
    assert str(EndPoint.parse(text)) == text
    assert EndPoint.parse(text).address == text.removeprefix("A://")
