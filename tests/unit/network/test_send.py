from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.network.frames import MAX_GATHERED_BUFFERS, NetworkSend


class Socket:
    """Accepts at most *room* bytes per call."""

    def __init__(self, room: int = 2**62) -> None:
        self.room = room
        self.data = bytearray()
        self.calls: list[int] = []

    def write(self, buffers: Sequence[memoryview]) -> int:
        assert len(buffers) <= MAX_GATHERED_BUFFERS
        self.calls.append(len(buffers))
        taken = b"".join(buffers)[: self.room]
        self.data += taken
        return len(taken)


def test_a_frame_is_its_length_and_its_segments() -> None:
    send, socket = NetworkSend("1", [b"ab", bytearray(b"cde")]), Socket()
    assert (send.destination, send.size, send.completed) == ("1", 9, False)
    assert send.write_to(socket.write) == 9
    assert (bytes(socket.data), send.completed, socket.calls) == (b"\0\0\0\x05abcde", True, [3])


def test_an_empty_frame_is_a_length_alone() -> None:
    socket = Socket()
    NetworkSend("1", []).write_to(socket.write)
    assert bytes(socket.data) == b"\0\0\0\0"


@given(
    segments=st.lists(st.binary(max_size=20), max_size=12), rooms=st.lists(st.integers(0, 30), min_size=1, max_size=40)
)
def test_writing_goes_on_where_it_stopped(segments: list[bytes], rooms: list[int]) -> None:
    send, socket = NetworkSend("1", segments), Socket()
    for room in [*rooms, 2**20]:
        before = len(socket.data)
        socket.room = room
        assert send.write_to(socket.write) == len(socket.data) - before
        assert send.completed == (len(socket.data) == send.size)
    body = b"".join(segments)
    assert bytes(socket.data) == len(body).to_bytes(4, "big") + body


def test_send_with_too_many_segments_uses_several_calls() -> None:
    count = MAX_GATHERED_BUFFERS * 2 + 5
    send, socket = NetworkSend("1", [b"x"] * count), Socket()
    send.write_to(socket.write)
    assert send.completed
    assert socket.data == count.to_bytes(4, "big") + b"x" * count
    assert socket.calls == [MAX_GATHERED_BUFFERS, MAX_GATHERED_BUFFERS, 6]


def test_a_written_frame_lets_go_of_its_segments() -> None:
    lent = bytearray(b"abc")
    send = NetworkSend("1", [lent])
    with pytest.raises(BufferError):
        lent.append(1)
    send.write_to(Socket().write)
    lent.append(1)


def test_segments_of_wider_elements_count_in_bytes() -> None:
    send, socket = NetworkSend("1", [memoryview(b"abcdefgh").cast("q")]), Socket(room=5)
    send.write_to(socket.write)
    socket.room = 100
    send.write_to(socket.write)
    assert bytes(socket.data) == b"\0\0\0\x08abcdefgh"
