"""Records as JSON lines: exact bytes on output, strict on input, lossless in between."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.cli.values.json_records import from_json_line, to_json_line
from kafka_sink.common.errors import SerializationError
from kafka_sink.consumer.fetched_partition import ConsumedRecord
from kafka_sink.producer.kafka_producer import ProducerRecord
from tests.support.cases import with_each

# Text and bytes that are not valid text, both frequently.
any_bytes = st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=10).map(lambda text: text.encode()))
headers = st.lists(st.tuples(st.text(max_size=5), any_bytes), max_size=3).map(tuple)


def refusal(line: bytes) -> str:
    with pytest.raises(SerializationError) as caught:
        from_json_line("t", line)
    return str(caught.value)


def test_a_record_is_one_line_of_utf_8() -> None:
    record = ConsumedRecord("t", 1, 2, 3, "clé".encode(), b"line\nfeed", (("h", b"1"),))
    assert to_json_line(record).decode() == (
        '{"topic": "t", "partition": 1, "offset": 2, "timestamp": 3, "key": "clé", "value": "line\\nfeed", '
        '"headers": [["h", "1"]]}\n'
    )


def test_what_is_no_text_is_marked_as_base64_and_null_is_null() -> None:
    fields = json.loads(to_json_line(ConsumedRecord("t", 0, 0, -1, None, b"\xff\x00", (("h", b"\xfe"), ("n", None)))))
    assert fields["key"] is None
    assert fields["value"] == {"base64": "/wA="}
    assert fields["headers"] == [["h", {"base64": "/g=="}], ["n", None]]
    assert fields["timestamp"] is None


def test_text_that_looks_like_the_marker_stays_text() -> None:
    text = b'{"base64": "/wA="}'
    line = to_json_line(ConsumedRecord("t", 0, 0, 0, None, text, ()))
    assert from_json_line("t", line).value == text


@given(key=any_bytes, value=any_bytes, headers=headers, timestamp=st.integers(0, 2**63 - 1))
def test_what_consume_prints_produce_takes(key: Any, value: Any, headers: Any, timestamp: int) -> None:
    line = to_json_line(ConsumedRecord("from", 3, 4, timestamp, key, value, headers))
    assert line.count(b"\n") == 1
    assert from_json_line("to", line) == ProducerRecord("to", value, key, 3, timestamp, headers)


def test_only_the_value_must_be_there() -> None:
    assert from_json_line("t", b'{"value": "v"}') == ProducerRecord("t", b"v")
    assert from_json_line("t", b'{"value": null, "headers": null}') == ProducerRecord("t", None)


@with_each(
    ("line", "text"),
    [
        (b"", "not JSON: "),
        (b"{", "not JSON: "),
        (b'{"value": "\xff"}', "not JSON: "),
        (b"[" * 100_000, "not JSON: "),
        (b"[1]", 'expected an object such as {"key": "k", "value": "v"}'),
        (b'"v"', "expected an object"),
        (b"{}", "field value is missing; use null for a record without a value"),
        (b'{"key": "k"}', "field value is missing"),
        (b'{"valeu": "v"}', "unknown field 'valeu' (did you mean value?)"),
        (b'{"value": 1}', 'field value: expected text, null or {"base64": "…"}'),
        (b'{"value": {"a": 1}}', "field value: expected text"),
        (b'{"value": {"base64": 1}}', "field value: expected text"),
        (b'{"value": {"base64": "*"}}', "field value: "),
        (b'{"value": "\\ud800"}', "field value: "),
        (b'{"value": "v", "key": true}', "field key: expected text"),
        (b'{"value": "v", "partition": "0"}', "field partition: expected null or a whole number from 0 to 2147483647"),
        (b'{"value": "v", "partition": -1}', "field partition: expected"),
        (b'{"value": "v", "partition": true}', "field partition: expected"),
        (b'{"value": "v", "timestamp": 1.5}', "field timestamp: expected"),
        (b'{"value": "v", "timestamp": 9223372036854775808}', "field timestamp: expected"),
        (b'{"value": "v", "headers": {"a": "b"}}', 'field headers: expected pairs such as [["name", "value"]]'),
        (b'{"value": "v", "headers": [["a"]]}', "field headers: expected pairs"),
        (b'{"value": "v", "headers": [[1, "b"]]}', "field headers: expected pairs"),
        (b'{"value": "v", "headers": [["a", 1]]}', "field headers: expected text"),
        (b'{"value": "v", "headers": [["\\ud800", "b"]]}', "field headers: "),
    ],
)
def test_a_line_that_is_not_a_record_is_refused_with_its_reason(line: bytes, text: str) -> None:
    assert refusal(line).startswith(text)


@given(st.binary(max_size=40))
def test_any_line_is_a_record_or_refused(line: bytes) -> None:
    try:
        assert isinstance(from_json_line("t", line), ProducerRecord)
    except SerializationError as error:
        assert str(error)
