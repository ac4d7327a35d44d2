"""The message index between a schema id and a Protobuf payload."""

from __future__ import annotations

import pytest

from kafka_sink.common.errors import SerializationError
from kafka_sink.registry.subjects import message_position, split_position
from tests.support.cases import with_each


@pytest.mark.behaviour(
    "Schema registry", "A message's position has zig-zag numbers behind their count; the first is a 0"
)
@with_each(
    ("position", "expected"),
    [((0,), b"\x00"), ((1,), b"\x02\x02"), ((0, 0), b"\x04\x00\x00"), ((2, 100, 1), b"\x06\x04\xc8\x01\x02")],
)
def test_position_is_written_and_read(position: tuple[int, ...], expected: bytes) -> None:
    assert message_position(position) == expected
    assert split_position(expected + b"rest") == (position, b"rest")


def test_long_form_of_the_first_message_is_read() -> None:
    assert split_position(b"\x02\x00rest") == ((0,), b"rest")


@with_each("data", [b"", b"\x04\x00", b"\x01", b"\x02\x01", b"\xff" * 6])
def test_what_is_no_position_is_refused(data: bytes) -> None:
    with pytest.raises(SerializationError, match="has no position of a message"):
        split_position(data)
