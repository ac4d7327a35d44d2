"""Rows as Arrow data: accepted columns, their types, and the errors for others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_sink.columns import record_columns
from kafka_sink.columns.gather import join_rows
from kafka_sink.columns.record_columns import HeadersColumn
from kafka_sink.common.errors import RowSerializationError, SerializationError
from kafka_sink.producer.staging.arrow_rows import ArrowRows, parts_to_send, rows_of
from kafka_sink.producer.staging.topic_metadata import ANY_PARTITION
from tests.support.cases import with_each

WALL_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array([b"a", b"b", b"c"]), **columns})


def timestamps(rows: ArrowRows) -> list[int]:
    assert rows.chunk.timestamps is not None
    found: list[int] = rows.chunk.timestamps.tolist()
    return found


def test_missing_columns_mean_no_keys_headers_or_partitions() -> None:
    rows = rows_of(batch(), WALL_MS)
    assert (rows.chunk.key, rows.chunk.headers, rows.chunk.timestamps, rows.partitions) == (None, None, None, None)
    assert rows.chunk.num_rows == 3


def test_a_row_may_leave_its_partition_and_its_timestamp_open() -> None:
    moment = datetime(1970, 1, 2, tzinfo=UTC)
    rows = rows_of(
        batch(
            partition=pa.array([4, None, 0], pa.int64()),
            timestamp=pa.array([None, moment, moment], pa.timestamp("ns", "UTC")),
        ),
        WALL_MS,
    )
    assert rows.partitions is not None
    assert rows.partitions.dtype == np.int32
    assert rows.partitions.tolist() == [4, ANY_PARTITION, 0]
    assert timestamps(rows) == [WALL_MS, 86_400_000, 86_400_000]


def test_integers_are_milliseconds() -> None:
    assert timestamps(rows_of(batch(timestamp=pa.array([5, None, 7], pa.int64())), WALL_MS)) == [5, WALL_MS, 7]


def test_a_moment_before_1970_stays_before_it() -> None:
    assert timestamps(rows_of(batch(timestamp=pa.array([-1, 0, 1], pa.timestamp("us"))), WALL_MS)) == [-1, 0, 0]


def test_nanoseconds_are_cut_to_milliseconds_like_every_unit() -> None:
    nanos = pa.array([1_700_000_000_123_456_789, None, -1], pa.timestamp("ns"))
    assert timestamps(rows_of(batch(timestamp=nanos), WALL_MS)) == [1_700_000_000_123, WALL_MS, -1]
    for unit, value in (("s", 7), ("ms", 7_000), ("us", 7_000_999)):
        column = pa.array([value, None, value], pa.timestamp(unit, "UTC"))
        assert timestamps(rows_of(batch(timestamp=column), WALL_MS)) == [7_000, WALL_MS, 7_000]


@with_each(
    ("columns", "problem"),
    [
        ({"partition": pa.array(["0"] * 3)}, "column 'partition' has type string, expected integers"),
        ({"timestamp": pa.array([1.5] * 3)}, "column 'timestamp' has type double, expected timestamps or integers"),
        (
            {"timestamp": pa.array([0, 2**63, 0], pa.uint64())},
            "column 'timestamp' has a value that is not a valid Kafka timestamp",
        ),
        (
            {"timestamp": pa.array([0, 2**60, 0], pa.timestamp("s"))},
            "column 'timestamp' has a value that is not a valid Kafka timestamp",
        ),
        ({"key": pa.array([1, 2, 3])}, "column 'key': "),
        ({"headers": pa.array(["h"] * 3)}, "headers must be list<struct<key: string, value: binary>>"),
        ({"keys": pa.array([b"k"] * 3)}, r"column 'keys' would not be written \(did you mean key\?\)"),
        ({"topic": pa.array(["t"] * 3)}, "column 'topic' would not be written; the columns are value, key, headers"),
    ],
)
def test_what_cannot_be_written_is_named(columns: dict[str, Any], problem: str) -> None:
    with pytest.raises(SerializationError, match=problem):
        parts_to_send(batch(**columns), None, WALL_MS)


@with_each("partition", [2**31, 2**32, -1, -(2**32)])
def test_a_partition_that_no_topic_has_becomes_no_other_one(partition: int) -> None:
    with pytest.raises(RowSerializationError, match=rf"row 1.* has partition {partition}; expected the number of one"):
        parts_to_send(batch(partition=pa.array([0, partition, None], pa.int64())), None, WALL_MS)


@with_each("kind", [pa.uint8(), pa.uint32(), pa.uint64(), pa.int8()])
def test_any_integers_are_partitions(kind: pa.DataType) -> None:
    rows = rows_of(batch(partition=pa.array([4, None, 0], kind)), WALL_MS)
    assert rows.partitions is not None and rows.partitions.tolist() == [4, ANY_PARTITION, 0]


def test_a_value_is_needed_and_every_name_once() -> None:
    with pytest.raises(SerializationError, match="no column 'value' among 'key'"):
        parts_to_send(pa.RecordBatch.from_pydict({"key": pa.array([b"k"])}), None, WALL_MS)
    twice = pa.RecordBatch.from_arrays([pa.array([b"a"])] * 2, ["value", "value"])
    with pytest.raises(SerializationError, match="duplicate column names"):
        parts_to_send(twice, None, WALL_MS)


def test_rows_of_a_table_are_counted_through_its_pieces() -> None:
    good = batch(partition=pa.array([0, 1, 2]))
    table = pa.Table.from_batches([good, batch(partition=pa.array([0, -3, 2]))])
    assert [part.chunk.num_rows for part in parts_to_send(pa.Table.from_batches([good, good]), None, WALL_MS)] == [3, 3]
    with pytest.raises(RowSerializationError, match="-3") as raised:
        parts_to_send(table, None, WALL_MS)
    assert raised.value.row == 4


def test_a_header_without_a_key_is_named_with_its_row() -> None:
    headers = pa.array([[], [{"key": None, "value": b"v"}], []], HEADERS)
    with pytest.raises(RowSerializationError) as raised:
        parts_to_send(batch(headers=headers), None, WALL_MS)
    assert raised.value.row == 1


def test_partitions_are_given_once() -> None:
    table = pa.Table.from_batches([batch(), batch()])
    parts = parts_to_send(table, np.arange(6, dtype=np.int32), WALL_MS)
    assert [part.partitions.tolist() for part in parts if part.partitions is not None] == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError, match="given twice"):
        parts_to_send(batch(partition=pa.array([0, 1, 2])), np.arange(3, dtype=np.int32), WALL_MS)


def test_headers_in_one_piece_are_encoded_once_for_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    join = join_rows

    def counting(pieces: Any, rows: int) -> Any:
        encoded.append(rows)
        return join(pieces, rows)

    monkeypatch.setattr(record_columns, "join_rows", counting)
    values = pa.chunked_array([[b"a", b"b"]] * 50)
    headers = pa.array([None if row % 7 == 0 else [("k", b"%d" % row)] * (row % 3) for row in range(100)], HEADERS)
    parts = parts_to_send(pa.table({"value": values, "headers": headers}), None, WALL_MS)
    assert sum(encoded) == sum(len(each) for each in headers.to_pylist() if each)
    found = [part.chunk.headers for part in parts]
    whole = HeadersColumn.from_arrow(headers)
    assert [row for each in found if each for row in each.counts] == whole.counts.tolist()
    rows = [each.entries.value(row) for each in found if each for row in range(len(each.counts))]
    assert rows == [whole.entries.value(row) for row in range(100)]
