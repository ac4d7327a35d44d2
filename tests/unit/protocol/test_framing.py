from __future__ import annotations

import pytest

from kafka_sink.common.buffers import Buffer
from kafka_sink.protocol import framing
from kafka_sink.protocol.framing import SIZE_BYTES, frame


@pytest.mark.behaviour("Protocol", "A frame begins with the length of all its segments")
def test_the_length_of_all_segments_comes_first() -> None:
    assert b"".join(frame([b"abc", bytearray(b"de"), memoryview(b"f")])) == b"\x00\x00\x00\x06abcdef"
    assert len(frame([b"abc"])[0]) == SIZE_BYTES


def test_an_empty_message_is_a_frame_too() -> None:
    assert frame([]) == [b"\x00\x00\x00\x00"]


def test_segments_are_not_copied() -> None:
    segments: list[Buffer] = [bytearray(b"abc"), memoryview(b"def")]
    assert all(framed is given for framed, given in zip(frame(segments)[1:], segments, strict=True))


def test_lengths_count_bytes_not_items() -> None:
    words = memoryview(bytearray(8)).cast("I")
    assert frame([words])[0] == b"\x00\x00\x00\x08"


def test_what_no_frame_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "total_size", lambda segments: 2**31)
    with pytest.raises(ValueError, match="2147483648 bytes"):
        frame([])
