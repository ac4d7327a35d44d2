"""Errors of a record before it is staged: the text names the field, the actual and the expected value."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.common.errors import SerializationError
from kafka_sink.producer.producer_record import NO_HEADERS, ProducerRecord, checked_headers, header_pairs
from tests.support.cases import with_each

TOPIC = "orders"


def check(topic: Any = TOPIC, partition: Any = None, timestamp: Any = None) -> None:
    assert checked_headers(topic, partition, timestamp, {"h": "x"}) == (("h", b"x"),)


@with_each(
    "fields",
    [
        {},
        {"partition": 0, "timestamp": 0},
        {"partition": 2**31 - 1, "timestamp": 2**63 - 1},
    ],
)
def test_what_a_record_may_have(fields: dict[str, Any]) -> None:
    check(**fields)


@with_each(
    ("fields", "text"),
    [
        ({"topic": None}, r"the topic must be str, got NoneType"),
        ({"topic": 5}, r"the topic must be str, got int \(5\)"),
        ({"topic": [TOPIC]}, r"the topic must be str, got list"),
        ({"topic": ""}, r"the topic must be a non-empty str, got ''"),
        ({"topic": "a\ud800"}, r"the topic must be text in UTF-8, got 'a\\ud800'"),
        ({"partition": 1.5}, r"the record's partition must be int or None, got float \(1.5\)"),
        ({"partition": True}, r"the record's partition must be int or None, got bool \(True\)"),
        ({"partition": "1"}, r"the record's partition must be int or None, got str \('1'\)"),
        ({"partition": -1}, r"the record's partition must not be negative, got -1"),
        ({"partition": 2**31}, r"the record's partition must be at most 2147483647, got 2147483648"),
        ({"timestamp": 1.5e12}, r"the record's timestamp must be int or None, got float"),
        ({"timestamp": False}, r"the record's timestamp must be int or None, got bool"),
        ({"timestamp": -2}, r"the record's timestamp must not be negative, got -2"),
        ({"timestamp": 2**63}, r"the record's timestamp must be at most 9223372036854775807, got 9223372036854775808"),
    ],
)
def test_a_wrong_topic_partition_or_timestamp(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        check(**fields)


@with_each(
    ("headers", "pairs"),
    [
        (None, ()),
        ([], ()),
        ([("h", b"x"), ("h", None)], (("h", b"x"), ("h", None))),
        ((["h", b""],), (("h", b""),)),
        ({"h": b"x", "é": "é", "null": None}, (("h", b"x"), ("é", "é".encode()), ("null", None))),
    ],
)
def test_headers_are_a_mapping_or_pairs(headers: Any, pairs: Any) -> None:
    assert header_pairs(headers) == pairs


@with_each(
    ("headers", "text"),
    [
        ("hx", r"headers must be a mapping or a sequence of pairs, .*, got str"),
        (7, r"headers must be a mapping or a sequence of pairs, .*, got int"),
        ([("h", b"x"), "hx"], r"header 1 must be a pair of str and bytes, str or None, got str"),
        ([("h", b"x", b"y")], r"header 0 must be a pair of str and bytes, str or None, got tuple"),
        ([(b"h", b"x")], r"header 0: the key must be str, got bytes"),
        ({5: b"x"}, r"header 0: the key must be str, got int"),
        ([("h", "\ud800")], r"header 0 \(h\): the value cannot be written in UTF-8: surrogates"),
        ([("h", 5)], r"header 0 \(h\): the value must be bytes, str or None, got int"),
    ],
)
def test_wrong_headers(headers: Any, text: str) -> None:
    with pytest.raises(SerializationError, match=text):
        header_pairs(headers)


def test_a_record_without_headers_needs_no_look_at_them() -> None:
    assert ProducerRecord(TOPIC, b"v").headers is NO_HEADERS
