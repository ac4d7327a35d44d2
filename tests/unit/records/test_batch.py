from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from crc32c import crc32c

from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.records import batch, layout
from kafka_sink.records.compression import CompressionType
from tests.support.cases import with_each

RECORDS: list[Buffer] = [b"first piece", bytearray(b"second"), memoryview(b"third")]
BODY = b"".join(RECORDS)


def write(**fields: Any) -> bytearray:
    """Write a batch of three pieces; *fields* override the values given here."""
    known = {"last_offset_delta": 2, "base_timestamp": 1000, "max_timestamp": 1005, "record_count": 3}
    header = bytearray(layout.HEADER_BYTES)
    batch.write_header(header, RECORDS, **{**known, **fields})
    return header + BODY


def test_header_byte_by_byte() -> None:
    data = write(
        compression=CompressionType.LZ4,
        is_transactional=True,
        base_offset=7,
        partition_leader_epoch=8,
        producer_id=9,
        producer_epoch=10,
        base_sequence=11,
    )
    assert data[:21].hex(" ") == " ".join(
        (
            "00 00 00 00 00 00 00 07",
            f"00 00 00 {61 - 12 + len(BODY):02x}",
            "00 00 00 08",
            "02",
            crc32c(bytes(data[21:])).to_bytes(4, "big").hex(" "),
        )
    )
    assert data[21:61].hex(" ") == " ".join(
        (
            "00 13",
            "00 00 00 02",
            "00 00 00 00 00 00 03 e8",
            "00 00 00 00 00 00 03 ed",
            "00 00 00 00 00 00 00 09",
            "00 0a",
            "00 00 00 0b",
            "00 00 00 03",
        )
    )


def test_parsing_gives_back_what_was_written() -> None:
    header = batch.parse_header(b"xyz" + write(base_offset=40, is_control=True), 3)
    assert header.size_in_bytes == 61 + len(BODY)
    assert (header.base_offset, header.last_offset, header.record_count) == (40, 42, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1005)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert (header.is_control, header.is_transactional, header.is_log_append_time) == (True, False, False)
    assert not header.has_producer_id
    assert header.last_sequence == -1
    assert header.compression is CompressionType.NONE


def test_a_header_has_nothing_that_nobody_set() -> None:
    assert dataclasses.astuple(batch.BatchHeader(7)) == (7, 0, -1, 2, 0, 0, 0, -1, -1, -1, -1, -1, 0)


@with_each("bit", range(15))
def test_each_bit_of_the_attributes(bit: int) -> None:
    header = dataclasses.replace(batch.parse_header(write()), attributes=1 << bit)
    assert (header.is_log_append_time, header.is_transactional, header.is_control) == (bit == 3, bit == 4, bit == 5)
    assert header.delete_horizon_ms == (1000 if bit == 6 else None)


@with_each(("records", "producer_id", "is_gap"), [(0, -1, True), (1, -1, False), (0, 0, False), (1, 0, False)])
def test_a_gap_has_neither_records_nor_a_producer(records: int, producer_id: int, is_gap: bool) -> None:
    header = batch.parse_header(write(record_count=records, producer_id=producer_id))
    assert header.is_gap is is_gap


def test_sequences_wrap() -> None:
    header = batch.parse_header(write(producer_id=0, producer_epoch=0, base_sequence=(1 << 31) - 2))
    assert header.has_producer_id
    assert header.last_sequence == 0


def test_unknown_codec() -> None:
    header = dataclasses.replace(batch.parse_header(write()), attributes=5)
    with pytest.raises(CorruptRecordError, match="unknown compression codec 5"):
        _ = header.compression


def test_header_over_the_start_of_a_larger_buffer() -> None:
    target = bytearray(layout.HEADER_BYTES) + BODY
    batch.write_header(
        memoryview(target), [memoryview(target)[61:]], last_offset_delta=2, base_timestamp=1000, max_timestamp=1005,
        record_count=3
    )  # fmt: skip
    assert target == write()


def test_records_get_a_header_with_their_length_and_crc() -> None:
    data = write(compression=CompressionType.GZIP, base_offset=40, partition_leader_epoch=3, producer_id=9)
    header = dataclasses.replace(batch.parse_header(data), batch_length=1, crc=1)
    assert batch.with_records(header, BODY) == data
    assert batch.with_records(header, b"")[8:12] == b"\0\0\0\x31"


@pytest.mark.behaviour("Record format", "The CRC covers everything from the attributes on")
def test_crc_covers_all_from_the_attributes_on() -> None:
    data = write()
    assert batch.verify_crc(data)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        assert batch.verify_crc(damaged) is (at < layout.CRC_AT)


def test_a_batch_gets_its_place_without_touching_its_crc() -> None:
    data = write()
    layout.INT64.pack_into(data, layout.BASE_OFFSET_AT, 1 << 40)
    assert batch.verify_crc(data)
    header = batch.parse_header(data)
    assert header.base_offset == 1 << 40
    assert data[8:] == write()[8:]


def test_log_append_time_is_covered_by_the_crc() -> None:
    data = bytearray(write(compression=CompressionType.ZSTD))
    batch.set_log_append_time(data, 123_456)
    header = batch.parse_header(data)
    assert batch.verify_crc(data)
    assert (header.is_log_append_time, header.max_timestamp, header.base_timestamp) == (True, 123_456, 1000)
    assert header.compression is CompressionType.ZSTD


@with_each(
    ("damage", "message"),
    [
        (lambda data: data[:60], "takes 61 bytes, 60 are left"),
        (lambda data: data[:16] + b"\1" + data[17:], "has format version 1, expected 2"),
        (lambda data: data[:8] + b"\0\0\0\x30" + data[12:], "announces a length of 48 bytes"),
        (lambda data: data[:8] + b"\xff\xff\xff\xff" + data[12:], "announces a length of -1 bytes"),
    ],
)
def test_headers_that_cannot_be(damage: object, message: str) -> None:
    with pytest.raises(CorruptRecordError, match=message):
        batch.parse_header(damage(bytes(write())))  # type: ignore[operator]


def test_too_few_bytes_behind_others() -> None:
    with pytest.raises(CorruptRecordError, match="takes 61 bytes, 60 are left"):
        batch.parse_header(b"xyz" + write()[:60], 3)


def test_whether_bytes_are_of_a_transaction() -> None:
    plain, data = write(compression=CompressionType.ZSTD, is_control=True), write(is_transactional=True)
    assert batch.is_transactional(data) and batch.is_transactional(data[:61])
    assert not batch.is_transactional(plain)
    for size in (0, 16, 17, 22, 23, 60):
        assert not batch.is_transactional(data[:size])
    for magic in (0, 1, 3):
        assert not batch.is_transactional(data[:16] + bytes([magic]) + data[17:])
