"""The interfaces of a channel for TLS and SASL, with a transport and an authenticator that take several steps."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafka_sink.common.errors import AuthenticationError
from kafka_sink.network.channel.channel import KafkaChannel
from kafka_sink.network.channel.selectable import ChannelState
from kafka_sink.network.frames import (
    READ_AHEAD_BYTES,
    UNLIMITED,
    FrameReader,
    MemoryPool,
    NetworkReceive,
    NetworkSend,
)
from kafka_sink.network.transport.transport import READ, WRITE


class Handshaking:
    """A transport whose handshake writes once and then waits for an answer; it may hold back bytes that it accepted."""

    peer_subject = None

    def __init__(self) -> None:
        self.is_connected = False
        self.handshakes = 0
        self.incoming = b""
        self.room = 2**20
        self.written = bytearray()
        self.kept_back = 0
        self.closed = False

    @property
    def ready(self) -> bool:
        return self.handshakes >= 2

    @property
    def handshake_events(self) -> int:
        return WRITE if self.handshakes == 0 else READ

    def fileno(self) -> int:
        return 0

    def finish_connect(self) -> None:
        self.is_connected = True

    def handshake(self) -> None:
        self.handshakes += 1

    def read_into(self, target: memoryview) -> int:
        count = min(len(target), len(self.incoming))
        target[:count], self.incoming = self.incoming[:count], self.incoming[count:]
        return count

    def write(self, buffers: Sequence[memoryview]) -> int:
        taken = b"".join(buffers)[: self.room]
        self.written += taken
        return len(taken)

    def has_bytes_buffered(self) -> bool:
        return bool(self.incoming)

    def has_pending_writes(self) -> bool:
        return self.kept_back > 0

    def close(self) -> None:
        self.closed = True


class Asking:
    """An authenticator that is complete after two steps, or fails at the second one."""

    principal = "User:me"
    session_expired = False

    def __init__(self, refuses: bool = False) -> None:
        self.steps = 0
        self.refuses = refuses
        self.wants_reauthentication = False
        self.received: list[NetworkReceive] = []
        self.closed = False

    @property
    def complete(self) -> bool:
        return self.steps >= 2

    @property
    def wanted_events(self) -> int:
        return READ | WRITE if self.steps == 0 else READ

    def authenticate(self) -> None:
        self.steps += 1
        if self.refuses and self.steps == 2:
            raise AuthenticationError("who are you?")

    def begin_reauthentication(self, request: NetworkReceive | None) -> bool:
        self.steps = 0
        return True

    def take_received(self) -> NetworkReceive | None:
        return self.received.pop(0) if self.received else None

    def send_failure(self) -> None:
        raise AssertionError("the channel leaves this to its selector")

    def close(self) -> None:
        self.closed = True


def channel(transport: Handshaking, authenticator: Asking, pool: MemoryPool | None = None) -> KafkaChannel:
    reader = FrameReader("1", UNLIMITED, pool or MemoryPool(100), memoryview(bytearray(READ_AHEAD_BYTES)))
    return KafkaChannel("1", transport, authenticator, reader)


def ready_channel(pool: MemoryPool | None = None) -> tuple[KafkaChannel, Handshaking]:
    transport, authenticator = Handshaking(), Asking()
    transport.is_connected, transport.handshakes, authenticator.steps = True, 2, 2
    return channel(transport, authenticator, pool), transport


@pytest.mark.behaviour("KafkaChannel", "A channel is ready after the handshake and the authentication")
def test_channel_wants_the_events_of_each_step_until_ready() -> None:
    transport, authenticator = Handshaking(), Asking()
    subject = channel(transport, authenticator)
    assert (subject.state, subject.wanted_events) == (ChannelState.NOT_CONNECTED, WRITE)
    subject.finish_connect()
    assert (subject.state, subject.wanted_events) == (ChannelState.AUTHENTICATE, WRITE)
    subject.prepare()
    assert (subject.ready, subject.wanted_events) == (False, READ)
    subject.prepare()
    assert (transport.ready, authenticator.steps, subject.wanted_events) == (True, 1, READ)
    subject.prepare()
    assert (subject.ready, subject.state, subject.wanted_events) == (True, ChannelState.READY, READ)


def test_a_half_written_authentication_frame_waits_for_room() -> None:
    transport = Handshaking()
    transport.is_connected, transport.handshakes = True, 2
    assert channel(transport, Asking()).wanted_events == READ | WRITE


def test_a_refusal_is_kept_for_the_report() -> None:
    transport, authenticator = Handshaking(), Asking(refuses=True)
    subject = channel(transport, authenticator)
    subject.finish_connect()
    subject.prepare()
    subject.prepare()
    with pytest.raises(AuthenticationError, match="who are you") as refusal:
        subject.prepare()
    subject.refuse(refusal.value)
    assert subject.wanted_events == 0
    assert subject.state is ChannelState.AUTHENTICATION_FAILED
    assert str(subject.failure) == "who are you?"


def test_bytes_kept_in_the_transport_keep_the_send_slot_taken() -> None:
    subject, transport = ready_channel()
    subject.set_send(NetworkSend("1", [b"abc"]))
    transport.kept_back = 5
    assert subject.write() is None
    assert (subject.can_send, subject.wanted_events) == (False, READ | WRITE)
    transport.kept_back = 0
    sent = subject.write()
    assert sent is not None
    assert (sent.completed, subject.can_send, subject.wanted_events) == (True, True, READ)
    transport.kept_back = 5
    assert subject.wanted_events == READ | WRITE


@pytest.mark.behaviour("KafkaChannel", "A client authenticates again between two frames, and keeps what came meanwhile")
def test_reauthentication_runs_between_frames_and_keeps_receives() -> None:
    transport, authenticator = Handshaking(), Asking()
    transport.is_connected, transport.handshakes, authenticator.steps = True, 2, 2
    subject = channel(transport, authenticator)
    authenticator.wants_reauthentication = True
    assert not subject.wants_reauthentication
    subject.set_send(NetworkSend("1", [b"abcdef"]))
    assert subject.wants_reauthentication
    transport.room = 4
    subject.write()
    assert not subject.wants_reauthentication
    transport.room = 100
    subject.write()
    subject.set_send(NetworkSend("1", [b"x"]))
    assert subject.begin_reauthentication()
    assert (subject.ready, subject.state) == (False, ChannelState.AUTHENTICATE)
    authenticator.received = [NetworkReceive("1", memoryview(b"one")), NetworkReceive("1", memoryview(b"two"))]
    subject.prepare()
    subject.prepare()
    assert (subject.ready, subject.state, subject.has_bytes_buffered) == (True, ChannelState.READY, True)
    assert [bytes(item.payload) for item in (subject.read(), subject.read()) if item is not None] == [b"one", b"two"]
    assert not subject.has_bytes_buffered


@pytest.mark.behaviour("KafkaChannel", "A channel has one slot for a frame, which is free when the last byte has left")
def test_send_slot_is_free_only_after_the_last_byte_was_written() -> None:
    subject, transport = ready_channel()
    first = NetworkSend("1", [b"abcdef"])
    subject.set_send(first)
    assert subject.wanted_events == READ | WRITE
    transport.room = 4
    assert subject.write() is None
    with pytest.raises(RuntimeError, match="not fully written"):
        subject.set_send(NetworkSend("1", [b"x"]))
    transport.room = 100
    assert subject.write() is first
    assert (subject.can_send, subject.wanted_events) == (True, READ)
    assert subject.write() is None
    assert bytes(transport.written) == b"\0\0\0\x06abcdef"


@pytest.mark.behaviour(
    "Request memory", "No room for a frame mutes its connection, and room unmutes it unless it was muted on purpose"
)
def test_a_channel_without_memory_mutes_itself() -> None:
    pool = MemoryPool(4)
    pool.try_reserve(4)
    subject, transport = ready_channel(pool)
    transport.incoming = b"\0\0\0\x02hi"
    assert subject.read() is None
    assert (subject.muted, subject.is_in_mutable_state, subject.wanted_events) == (True, True, 0)


@pytest.mark.behaviour("KSelector", "Frames in memory are looked at without a socket event, and wait for unmute")
def test_bytes_inside_the_transport_count_as_buffered() -> None:
    subject, transport = ready_channel()
    assert not subject.has_bytes_buffered
    transport.incoming = b"\0"
    assert subject.has_bytes_buffered


def test_closing_frees_everything() -> None:
    pool = MemoryPool(100)
    subject, transport = ready_channel(pool)
    transport.incoming = b"\0\0\0\x0aabc"
    subject.set_send(NetworkSend("1", [b"x"]))
    assert subject.read() is None
    assert pool.available_bytes == 90
    subject.close()
    assert (pool.available_bytes, transport.closed, subject.wants_write) == (100, True, False)
