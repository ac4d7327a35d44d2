"""The markers at the end of transactions, byte by byte, and other control records."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.records.batch import parse_header, with_records
from kafka_sink.records.compression import CompressionType
from kafka_sink.records.control import EndTransactionMarker, marker_batch, read_marker
from tests.fakes.record_batches import make_batch
from tests.support.cases import with_each

ABORT, COMMIT, OTHER = (struct.pack(">hh", 0, kind) for kind in (0, 1, 2))
VALUE = struct.pack(">hi", 0, 7)


def control_batch(key: bytes | None, value: bytes | None, **fields: Any) -> bytearray:
    return make_batch(
        [value], keys=[key], producer_id=9, producer_epoch=3, is_transactional=True, is_control=True, **fields
    )


@with_each(("committed", "key"), [(False, ABORT), (True, COMMIT)])
def test_a_marker_byte_by_byte(committed: bool, key: bytes) -> None:
    marker = EndTransactionMarker(9, 3, committed, 7)
    data = marker_batch(marker, 1234)
    assert data == control_batch(key, VALUE, base_timestamp=1234)
    assert data[21:23] == b"\0\x30"
    assert data[61:].hex(" ") == f"20 00 00 00 08 {key.hex(' ')} 0c {VALUE.hex(' ')} 00"
    assert read_marker(data) == marker


@with_each("key", [OTHER, struct.pack(">hh", 0, -1), OTHER + b"more"])
@with_each("value", [VALUE, b""])
def test_another_control_record_is_no_marker(key: bytes, value: bytes) -> None:
    assert read_marker(control_batch(key, value)) is None


def test_newer_markers_may_say_more() -> None:
    found = read_marker(control_batch(COMMIT + b"more", VALUE + b"more"))
    assert found == EndTransactionMarker(9, 3, True, 7)


@with_each(("key", "value"), [(None, VALUE), (b"", VALUE), (COMMIT[:3], VALUE), (COMMIT, None), (ABORT, VALUE[:5])])
def test_a_control_batch_with_no_whole_marker(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptRecordError, match="the control batch at offset 0 contains no marker"):
        read_marker(control_batch(key, value))


def test_a_control_batch_with_no_record() -> None:
    header = replace(parse_header(control_batch(COMMIT, VALUE)), record_count=0)
    with pytest.raises(CorruptRecordError, match="contains no marker"):
        read_marker(with_records(header, b""))


@with_each("kind", [CompressionType.NONE, CompressionType.ZSTD])
def test_a_marker_takes_a_kibibyte_at_most(kind: CompressionType) -> None:
    """Thirteen bytes surround the value: three lengths (2 + 1 + 2), attributes, deltas (2), the key and no headers."""
    value = VALUE.ljust(1024 - 13, b"\0")
    assert len(control_batch(COMMIT, value)) == 61 + 1024
    assert read_marker(control_batch(COMMIT, value, compression=kind)) == EndTransactionMarker(9, 3, True, 7)
    with pytest.raises(CorruptRecordError, match="limit of 1024"):
        read_marker(control_batch(COMMIT, value + b"\0", compression=kind))
