from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.common.errors import InvalidReceiveError
from kafka_sink.network import frames as frames_module
from kafka_sink.network.frames import (
    FIRST_ROOM_BYTES,
    READ_AHEAD_BYTES,
    UNLIMITED,
    UNLIMITED_MEMORY_POOL,
    FrameReader,
    MemoryPool,
    NetworkReceive,
)


class Stream:
    """The bytes that have arrived so far; each piece is one segment of the network."""

    def __init__(self, *pieces: bytes, closed: bool = False) -> None:
        self.pieces = list(pieces)
        self.closed = closed
        self.reads = 0

    def read_into(self, target: memoryview) -> int:
        self.reads += 1
        if not self.pieces:
            if self.closed:
                raise EOFError("closed by the other side")
            return 0
        taken = self.pieces[0][: len(target)]
        target[: len(taken)] = taken
        self.pieces[0] = self.pieces[0][len(taken) :]
        if not self.pieces[0]:
            del self.pieces[0]
        return len(taken)


def reader(max_bytes: int = UNLIMITED, pool: MemoryPool = UNLIMITED_MEMORY_POOL) -> FrameReader:
    return FrameReader("7", max_bytes, pool, memoryview(bytearray(READ_AHEAD_BYTES)))


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def payload_of(received: NetworkReceive | None) -> bytes | None:
    return None if received is None else bytes(received.payload)


def test_a_small_frame_takes_one_read() -> None:
    stream = Stream(frame(b"hello"))
    received = reader().read_from(stream.read_into)
    assert received is not None
    assert (received.source, bytes(received.payload), stream.reads) == ("7", b"hello", 1)


def test_a_big_frame_that_is_there_takes_few_reads() -> None:
    payload = bytes(range(256)) * 5000
    stream = Stream(frame(payload))
    assert payload_of(reader().read_from(stream.read_into)) == payload
    assert stream.reads == 5


def test_short_read_is_not_followed_by_another_read() -> None:
    subject, stream = reader(), Stream(frame(b"x" * 5000)[:1000])
    assert subject.read_from(stream.read_into) is None
    assert stream.reads == 1


@given(
    payloads=st.lists(st.one_of(st.binary(max_size=40), st.integers(16_000, 40_000).map(bytes)), max_size=5),
    cuts=st.lists(st.integers(1, 20_000), max_size=12),
)
def test_frames_are_the_same_however_they_are_cut(payloads: list[bytes], cuts: list[int]) -> None:
    data, pieces = b"".join(map(frame, payloads)), []
    for cut in cuts:
        pieces.append(data[:cut])
        data = data[cut:]
    stream = Stream(*(piece for piece in [*pieces, data] if piece))
    subject, received = reader(), []
    while stream.pieces or subject.has_bytes_buffered:
        one = subject.read_from(stream.read_into)
        if one is not None:
            received.append(bytes(one.payload))
    assert received == payloads


def test_of_several_frames_in_one_read_each_call_gives_one() -> None:
    subject, stream = reader(), Stream(frame(b"a") + frame(b"b") + b"\0\0")
    assert payload_of(subject.read_from(stream.read_into)) == b"a"
    assert subject.has_bytes_buffered
    assert payload_of(subject.read_from(stream.read_into)) == b"b"
    # Half of a length allows no progress: claiming otherwise would make a selector spin.
    assert not subject.has_bytes_buffered
    assert stream.reads == 1


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(InvalidReceiveError, match="negative length -1"):
        reader().read_from(Stream(b"\xff\xff\xff\xff").read_into)


@pytest.mark.behaviour("KSelector", "A frame over the limit is refused before it is read")
def test_a_frame_over_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(InvalidReceiveError, match="frame of 11 bytes is larger than the limit of 10 bytes"):
        reader(max_bytes=10).read_from(Stream(b"\0\0\0\x0b").read_into)


def test_a_frame_at_the_limit_is_read() -> None:
    assert payload_of(reader(max_bytes=10).read_from(Stream(frame(b"0123456789")).read_into)) == b"0123456789"


@pytest.mark.behaviour("Request memory", "A frame costs the memory of what has arrived")
@pytest.mark.parametrize("size", [100_000, 4 * 1024 * 1024 - 1, 100 * 1024 * 1024])
def test_frame_costs_only_the_memory_of_what_has_arrived(size: int) -> None:
    announced, pool = size.to_bytes(4, "big"), MemoryPool(1 << 30)
    tracemalloc.start()
    try:
        half_read = [reader(pool=pool) for _ in range(10)]
        for subject in half_read:
            assert subject.read_from(Stream(announced + b"0123456789").read_into) is None
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    # All of it is reserved.
    assert pool.available_bytes == (1 << 30) - 10 * size
    for subject in half_read:
        subject.discard()
    assert pool.available_bytes == 1 << 30


@pytest.mark.parametrize("sent", [b"", b"\0\0", frame(b"abc")[:6]])
def test_closed_stream_raises_eof_at_any_byte_of_a_frame(sent: bytes) -> None:
    subject, stream = reader(), Stream(*([sent] if sent else []), closed=True)
    with pytest.raises(EOFError):
        while True:
            assert subject.read_from(stream.read_into) is None


def test_what_came_before_the_end_is_handed_out_first() -> None:
    subject, stream = reader(), Stream(frame(b"a") + frame(b"b"), closed=True)
    assert [payload_of(subject.read_from(stream.read_into)) for _ in range(2)] == [b"a", b"b"]
    with pytest.raises(EOFError):
        subject.read_from(stream.read_into)


def test_without_memory_the_frame_waits_and_nothing_is_lost() -> None:
    pool = MemoryPool(10)
    assert pool.try_reserve(10)
    subject, stream = reader(pool=pool), Stream(frame(b"abc"))
    assert subject.read_from(stream.read_into) is None
    assert subject.awaits_memory
    assert subject.has_bytes_buffered
    assert subject.read_from(stream.read_into) is None
    pool.release(10)
    assert payload_of(subject.read_from(stream.read_into)) == b"abc"
    assert not subject.awaits_memory
    assert pool.available_bytes == 7


def test_memory_comes_back_once_when_a_frame_is_released() -> None:
    pool = MemoryPool(10)
    received = reader(pool=pool).read_from(Stream(frame(b"abc")).read_into)
    assert received is not None
    received.release()
    received.release()
    assert pool.available_bytes == 10


def test_memory_of_a_half_read_frame_comes_back() -> None:
    pool = MemoryPool(10)
    subject = reader(pool=pool)
    assert subject.read_from(Stream(frame(b"abcdef")[:6]).read_into) is None
    assert pool.available_bytes == 4
    subject.discard()
    subject.discard()
    assert pool.available_bytes == 10


@pytest.mark.behaviour("Request memory", "A frame that is given up gives its memory back")
def test_memory_that_the_system_refuses_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(size: int) -> bytearray:
        if size > FIRST_ROOM_BYTES:
            raise MemoryError
        return bytearray(size)

    pool = MemoryPool(100_000_000)
    monkeypatch.setattr(frames_module, "bytearray", refuse, raising=False)
    frames = reader(pool=pool)
    with pytest.raises(MemoryError):
        frames.read_from(Stream((50_000_000).to_bytes(4, "big") + b"x" * 1_000_000).read_into)
    frames.discard()
    assert pool.available_bytes == 100_000_000


@pytest.mark.behaviour("KSelector", "New limits hold from the next frame on")
def test_new_limits_hold_from_the_next_frame_on() -> None:
    """As after authentication, when the next request may be read while the memory of the last one is still in use."""
    before, after = MemoryPool(100), MemoryPool(100)
    frames, stream = reader(50, before), Stream(frame(b"x" * 40)[:10])
    assert frames.read_from(stream.read_into) is None
    frames.limit(10, after)
    stream.pieces += [frame(b"x" * 40)[10:], frame(b"x" * 11)]
    received = frames.read_from(stream.read_into)
    assert received is not None and (before.available_bytes, after.available_bytes) == (60, 100)
    received.release()
    assert (before.available_bytes, after.available_bytes) == (100, 100)
    with pytest.raises(InvalidReceiveError, match="limit of 10 bytes"):
        frames.read_from(stream.read_into)
