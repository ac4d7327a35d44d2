from __future__ import annotations

import pytest

from kafka_sink.common.errors import ProtocolError
from kafka_sink.protocol.primitives import ByteWriter, read_uvarint, skip_tags, write_uvarint
from tests.support.cases import with_each

# Kafka protocol guide: seven bits per byte, lowest first; the top bit is set if more bytes follow.
VARINTS = {
    0: "00",
    1: "01",
    127: "7f",
    128: "8001",
    300: "ac02",
    16_383: "ff7f",
    16_384: "808001",
    2**31 - 1: "ffffffff07",
    2**32 - 1: "ffffffff0f",
}


@with_each(("value", "encoded"), VARINTS.items())
def test_varints(value: int, encoded: str) -> None:
    out = ByteWriter()
    write_uvarint(out, value)
    assert out.hex() == encoded
    assert read_uvarint(memoryview(b"\xaa" + out), 1) == (value, 1 + len(out))


def test_a_longer_form_of_a_small_number_is_read() -> None:
    assert read_uvarint(memoryview(bytes.fromhex("8000")), 0) == (0, 2)


@with_each("encoded", ["ffffffff10", "ffffffff7f", "8080808080", "ffffffffffff"])
def test_varints_beyond_32_bits_are_refused(encoded: str) -> None:
    with pytest.raises(ProtocolError, match="longer than 32 bits"):
        read_uvarint(memoryview(bytes.fromhex(encoded)), 0)


def test_skipped_tags_have_to_be_there() -> None:
    tags = memoryview(bytes.fromhex("020001aa0700") + b"rest")
    assert skip_tags(tags, 0) == 6
    with pytest.raises(ProtocolError, match="exceeds the"):
        skip_tags(memoryview(bytes.fromhex("010005aa")), 0)


def test_a_writer_without_foreign_buffers_is_one_segment() -> None:
    out = ByteWriter()
    out += b"abc"
    assert out.segments() == [b"abc"]


def test_no_segment_is_empty() -> None:
    out = ByteWriter()
    out += b"head"
    out.splice(b"one")
    out.splice(b"two")
    assert out.segments() == [b"head", b"one", b"two"]


def test_foreign_buffers_stay_themselves_and_in_their_places() -> None:
    first, second = bytearray(b"11"), memoryview(b"22")
    out = ByteWriter()
    out.splice(first)
    out += b"between"
    out.splice(second)
    out.splice(first)
    out += b"end"
    segments = out.segments()
    assert b"".join(segments) == b"11between2211end"
    assert segments[0] is first
    assert segments[2] is second
    assert segments[3] is first
