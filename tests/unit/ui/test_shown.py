"""The display of values on the pages."""

from __future__ import annotations

from kafka_sink.ui.shown import SHOWN_CHARACTERS, ByteView, ShownBytes, shown_age, shown_rate, shown_time
from tests.support.cases import with_each


@with_each(
    ("data", "shown"),
    [
        (None, ShownBytes("null", "null", 0)),
        (b"", ShownBytes("empty", "", 0)),
        ("grün <b>".encode(), ShownBytes("text", "grün <b>", 0)),
        (b'{"a": 1}', ShownBytes("JSON", '{"a": 1}', 0)),
        (b'{"a": ', ShownBytes("text", '{"a": ', 0)),
        (b"\xff\xfe", ShownBytes("bytes", "ff fe", 0)),
        (b"\x00\x00\x00\x00\x07\x02a", ShownBytes("schema 7", "00 00 00 00 07 02 61", 0)),
        (b"\x00\xff\xff\xff\xff\x02", ShownBytes("bytes", "00 ff ff ff ff 02", 0)),
        (b'\x00\x00\x00\x00\x07{"a": 1}', ShownBytes("schema 7", '{"a": 1}', 0)),
        (b"\x00", ShownBytes("bytes", "00", 0)),
        # These characters reverse the text, control a terminal, or are invisible.
        ("a\u202eb\x1b[0m\u200b".encode(), ShownBytes("text", "a\\u202eb\\x1b[0m\\u200b", 0)),
        (b"line\n\tnext", ShownBytes("text", "line\n\tnext", 0)),
    ],
)
def test_bytes_are_shown_as_what_they_are(data: bytes | None, shown: ShownBytes) -> None:
    assert ByteView()(data) == shown


def test_of_long_values_the_beginning_is_shown_and_the_rest_told() -> None:
    text = ByteView()("é".encode() * 1_000_000)
    assert (text.text, text.rest) == ("é" * SHOWN_CHARACTERS, 2_000_000 - 2 * SHOWN_CHARACTERS)
    binary = ByteView()(b"\xff" * 1_000_000)
    assert len(binary.text) < SHOWN_CHARACTERS
    assert binary.rest == 1_000_000 - len(binary.text.split())


def test_times_ages_and_rates() -> None:
    assert [shown_time(1_700_000_000_123), shown_time(-1), shown_time(2**62)] == [
        "2023-11-14 22:13:20.123",
        "",
        f"{2**62} ms",
    ]
    assert [shown_age(3_723), shown_age(None)] == ["1:02:03", "–"]
    assert [shown_rate(value) for value in (None, 0, 0.25, 1234.5)] == ["–", "0", "0.2", "1,234"]
