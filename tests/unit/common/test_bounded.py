"""The reader of external bytes ends, advances, and accepts only values in range."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.common.bounded import (
    INT16_MAX,
    INT32_MAX,
    INT64_MAX,
    Cursor,
    json_number,
    known_number,
    whole_number,
)


class Odd(Exception):
    """The error of a reader."""


def test_bytes_are_taken_once_and_in_order() -> None:
    cursor = Cursor(b"\x00\x02hi\x00\x00\x00\x02abrest", Odd)
    assert cursor.text() == "hi"
    assert [cursor.take(1) for _ in range(cursor.count(1))] == [b"a", b"b"]
    assert (cursor.left, cursor.take(4), cursor.left) == (4, b"rest", 0)


@pytest.mark.parametrize(
    ("data", "read"),
    [
        (b"", lambda cursor: cursor.take(1)),
        (b"abc", lambda cursor: cursor.take(-1)),
        (b"\xff\xfa" + bytes(8), lambda cursor: cursor.text()),
        (b"\x00\x02\xff\xff", lambda cursor: cursor.text()),
        (b"\x00\x02a", lambda cursor: cursor.text()),
        (b"\x00\x00\x00\x03" + bytes(8), lambda cursor: cursor.count(4)),
        (b"\xff\xff\xff\xff" + bytes(8), lambda cursor: cursor.count(4)),
        (b"\x7f\xff\xff\xff" + bytes(8), lambda cursor: cursor.count(4)),
        (b"\xff\xff\xff\xff", lambda cursor: cursor.int32()),
        (b"\x00\x05", lambda cursor: cursor.int16(0, 4)),
        (b"\x00\x00\x00\x01\x00\x00\x00\x00", lambda cursor: cursor.int64(0, INT32_MAX)),
        (b"\x80" * 20, lambda cursor: cursor.zigzag()),
        (b"\xff" * 9 + b"\x7f", lambda cursor: cursor.zigzag()),
        (b"\x05", lambda cursor: cursor.zigzag(0, 4)),
    ],
)
def test_what_is_out_of_range_is_the_error_of_the_reader(data: bytes, read: object) -> None:
    assert callable(read)
    with pytest.raises(Odd):
        read(Cursor(data, Odd))


def test_a_number_that_does_not_end_is_named() -> None:
    # The number would have 70 bits.
    with pytest.raises(Odd, match="does not end"):
        Cursor(b"\x80" * 10 + b"\x01", Odd).zigzag()


def test_bounds_are_within_the_range() -> None:
    assert (INT16_MAX, INT32_MAX, INT64_MAX) == (0x7FFF, 0x7FFF_FFFF, 0x7FFF_FFFF_FFFF_FFFF)
    cursor = Cursor(b"\x00\x05\x02\x00\x00\x00\x00\x00\x00\x04", Odd)
    assert (cursor.uint16(), cursor.zigzag(), cursor.text(), cursor.count(4)) == (5, 1, "", 0)
    assert (cursor.zigzag(), cursor.take(0), cursor.left) == (2, b"", 0)
    assert Cursor(b"\x00\x00\x00\x02" + bytes(8), Odd).count(4) == 2
    assert Cursor(b"\x00\x04", Odd).int16(0, 4) == 4
    assert Cursor(b"\xff\xff", Odd).int16(-1) == -1
    assert Cursor(b"\xfe" + b"\xff" * 8 + b"\x01", Odd).zigzag() == 2**63 - 1


@pytest.mark.parametrize(
    "text", ["", "-", "+1", " 1", "1 ", "1_0", "٣", "1e3", "0x1", "1.0", "9" * 500, "11", "-6", "1\n"]
)
def test_texts_that_are_no_number_in_range_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="between -5 and 10") as caught:
        whole_number(text, -5, 10)
    assert len(str(caught.value)) < 100
    assert known_number(text, -5, 10) is None


def test_numbers_at_the_bounds_are_read() -> None:
    assert (whole_number("-5", -5, 10), whole_number("10", -5, 10), known_number("7")) == (-5, 10, 7)
    assert known_number(None) is None
    assert whole_number("0" * 39 + "7") == 7
    with pytest.raises(ValueError, match="is not a whole number"):
        whole_number("0" * 40 + "7")
    assert (json_number(-5, -5, 10), json_number(10, -5, 10), json_number(3.0)) == (-5, 10, 3)


@pytest.mark.parametrize("value", [-6, 11, True, "5", None, float("nan")])
def test_values_of_json_that_are_no_number_in_range_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is not a number between -5 and 10"):
        json_number(value, -5, 10)


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_in_range_are_read(number: int) -> None:
    assert whole_number(str(number), -(2**63)) == number
    assert whole_number(f"{number:030}", -(2**63)) == number
