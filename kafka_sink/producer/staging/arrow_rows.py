"""Arrow rows for ``send_columns``: the meaning of the columns, and their types.

Called on the sending thread, once per record batch. It uses views of the buffers and never loops over rows.

The columns are those of Spark's own Kafka sink (its structured streaming guide to Kafka), and ``timestamp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kafka_sink.columns.record_columns import BinaryColumn, ColumnChunk, HeadersColumn
from kafka_sink.common.config import nearest
from kafka_sink.common.errors import RowError, RowSerializationError, SerializationError
from kafka_sink.producer.staging.topic_metadata import ANY_PARTITION

#: ``value`` and ``key``: text or bytes; ``headers``: list<struct<key: string, value: binary>>; ``partition``: integers;
#: ``timestamp``: timestamps of any unit, truncated to milliseconds, or integers of milliseconds since 1970.
COLUMNS: Final = ("value", "key", "headers", "partition", "timestamp")

_HIGHEST_PARTITION: Final = 2**31 - 1

#: How many of Arrow's time units a millisecond has; seconds are converted to milliseconds first.
_PER_MS: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """Rows for one topic. ``partitions`` is int32[rows] with ANY_PARTITION for rows without a partition, or None."""

    chunk: ColumnChunk
    partitions: NDArray[np.int32] | None


def rows_of(batch: pa.RecordBatch, wall_ms: int) -> ArrowRows:
    """The rows of *batch*, without a copy; columns with other names are ignored. A null timestamp becomes *wall_ms*.

    :raises SerializationError: if a column has a type that cannot be written, or a timestamp that Kafka cannot
        represent.
    :raises RowSerializationError: if a row has a partition that no topic can have, or a header that is null or has no
        key.
    """
    present = batch.schema.names
    chunk = ColumnChunk(
        value=_bytes(batch, "value"),
        key=_bytes(batch, "key") if "key" in present else None,
        headers=HeadersColumn.from_arrow(batch.column("headers")) if "headers" in present else None,
        timestamps=_timestamps(batch.column("timestamp"), wall_ms) if "timestamp" in present else None,
    )
    return ArrowRows(chunk, _partitions(batch.column("partition")) if "partition" in present else None)


def parts_to_send(
    rows: pa.RecordBatch | pa.Table | ColumnChunk, partitions: NDArray[np.int32] | None, wall_ms: int
) -> list[ArrowRows]:
    """All of *rows*, in their record batches, with *partitions*, those of all rows, if they are not None.

    :raises SerializationError: if there is no column ``value``, or a column has an unknown name or a type that cannot
        be written.
    :raises RowSerializationError: as for :func:`rows_of`, with the row's number in *rows*.
    :raises ValueError: if the rows have a column ``partition``, too.
    """
    if isinstance(rows, ColumnChunk):
        return [ArrowRows(rows, partitions)]
    _check_names(rows.schema.names)
    parts: list[ArrowRows] = []
    before = 0
    for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
        try:
            part = rows_of(batch, wall_ms)
        except RowError as error:
            raise error.at([before + row for row in error.rows]) from None
        if partitions is not None:
            if part.partitions is not None:
                raise ValueError(
                    "partitions are given twice: as an argument, and in the column 'partition'; remove one of them"
                )
            part = ArrowRows(part.chunk, partitions[before : before + batch.num_rows])
        parts.append(part)
        before += batch.num_rows
    return parts


def _check_names(names: Sequence[str]) -> None:
    """:raises SerializationError: if a column is missing, occurs twice, or has an unknown name."""
    if "value" not in names:
        raise SerializationError(f"there is no column 'value' among {', '.join(map(repr, names)) or 'no columns'}")
    for name in names:
        if name not in COLUMNS:
            raise SerializationError(
                f"column {name!r} would not be written{nearest(name, COLUMNS)}; the columns are {', '.join(COLUMNS)}"
            )
    if len(set(names)) < len(names):
        raise SerializationError(f"duplicate column names: {', '.join(map(repr, names))}")


def _bytes(batch: pa.RecordBatch, name: str) -> BinaryColumn:
    try:
        return BinaryColumn.from_arrow(batch.column(name))
    except RowError as error:
        raise type(error).about(error.rows, error.problem_of, name) from None
    except SerializationError as error:
        raise SerializationError(f"column {name!r}: {error}") from None


def _timestamps(column: pa.Array, wall_ms: int) -> NDArray[np.int64]:
    """Milliseconds since 1970."""
    kind = column.type
    try:
        if pa.types.is_timestamp(kind):
            if kind.unit == "s":
                column, kind = column.cast(pa.timestamp("ms", kind.tz)), pa.timestamp("ms", kind.tz)
            # Fractions of a millisecond are cut off, because Kafka's timestamps have none.
            per_ms = _PER_MS[kind.unit]
            ticks = column.cast(pa.int64())
            if ticks.null_count:
                ticks = ticks.fill_null(wall_ms * per_ms)
            return np.asarray(ticks.to_numpy(zero_copy_only=False) // per_ms, dtype=np.int64)
        if pa.types.is_integer(kind):
            millis = column.cast(pa.int64()).fill_null(wall_ms)
            return np.asarray(millis.to_numpy(zero_copy_only=False), dtype=np.int64)
    except pa.ArrowInvalid as error:
        raise SerializationError(
            f"column 'timestamp' has a value that is not a valid Kafka timestamp: {error}"
        ) from None
    raise SerializationError(f"column 'timestamp' has type {kind}, expected timestamps or integers of milliseconds")


def _no_partitions(column: pa.Array) -> RowSerializationError:
    valid = pc.and_(pc.greater_equal(column, 0), pc.less_equal(column, _HIGHEST_PARTITION)).fill_null(True)
    return RowSerializationError.about(
        np.flatnonzero(~valid.to_numpy(zero_copy_only=False)).tolist(),
        lambda row: (
            f"has partition {column[row]}; expected the number of one of the topic's partitions, which begin with 0, "
            "or null, which lets the partitioner choose"
        ),
        "partition",
    )


def _partitions(column: pa.Array) -> NDArray[np.int32]:
    if not pa.types.is_integer(column.type):
        raise SerializationError(f"column 'partition' has type {column.type}, expected integers")
    if column.null_count < len(column):
        extremes = pc.min_max(column).as_py()
        # Before the cast, because a value that int32 cannot hold would become another partition.
        if extremes["min"] < 0 or extremes["max"] > _HIGHEST_PARTITION:
            raise _no_partitions(column)
    return np.asarray(
        column.cast(pa.int32(), safe=False).fill_null(ANY_PARTITION).to_numpy(zero_copy_only=False), dtype=np.int32
    )
