"""Dead letters: the records of rows that cannot be written, with headers that say why and where the row came from.

Created in a Spark Python worker, on the task's thread, from the rows that are refused only. docs/dead-letters.md lists
the headers.

Source of the names: Kafka Connect's ``__connect.errors.…`` (KIP-298), Kafka Streams' ``__streams.errors.…`` (KIP-1034).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.config import read_one
from kafka_sink.common.errors import RowError, RowTooLargeError, RowWithoutKeyError
from kafka_sink.formats.column_format import JSON
from kafka_sink.formats.kinds import is_text
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.spark.prepared_write import ExactlyOnce, TaskOptions
from kafka_sink.spark.task.bad_rows import TaskRows
from kafka_sink.spark.task.json_texts import json_column

PREFIX: Final = "__kafkalite.errors."

#: The type of the column of headers, as Spark has it.
HEADERS_TYPE: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

_TOO_LARGE: Final = "too-large"
_WITHOUT_KEY: Final = "missing-key"
_NOT_ENCODABLE: Final = "not-encodable"
#: By the column that is wrong.
_REASONS: Final[Mapping[str, str]] = {
    "partition": "invalid-partition",
    "topic": "null-topic",
    "headers": "invalid-headers",
    "timestamp": "invalid-timestamp",
}

#: The most bytes that a key, or a value, keeps in a row that is too large, and its part of max.request.size.
_KEPT_BYTES: Final = 64 * 1024
_KEPT_PART: Final = 8
#: More than a header adds to its name and its value.
_HEADER_OVERHEAD_BYTES: Final = 10
_RECORD_OVERHEAD_BYTES: Final = 200

_Headers = list[tuple[str, bytes | None]]


class DeadLetters:
    """Makes the dead letters of one task."""

    def __init__(self, options: TaskOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        self._topic = options.rows.topic
        self._clock = clock
        self._most_bytes: int = min(
            read_one(ProducerConfig, name, options.producer_properties)
            for name in ("max.request.size", "buffer.memory")
        )
        limits = options.rows.limits.get(options.rows.dead_letter_topic or "")
        if limits is not None and limits.max_message_bytes is not None:
            self._most_bytes = min(self._most_bytes, limits.max_message_bytes)
        self._origin = _origin(options.exactly_once)

    def of(self, rows: TaskRows, error: RowError) -> pa.RecordBatch:
        """The dead letters of those of *rows* that *error* is about: the columns ``key`` (if *rows* have keys),
        ``value`` and ``headers``.

        Key and value are as in the row; what is neither text nor bytes is JSON.
        """
        batch = rows.batch.take(pa.array(error.rows, pa.int64()))
        shared = [("reason", _reason(error)), ("column", error.column), ("timestamp", self._now()), *self._origin]
        contents: dict[str, pa.Array] = {}
        for name in ("key", "value"):
            if name in batch.schema.names:
                contents[name], encoding = _contents(batch.column(name), name)
                shared.append((f"{name}.encoding", encoding))
        told = [(PREFIX + name, text.encode()) for name, text in shared if text]
        headers = self._headers_of_rows(batch, rows, error)
        headers = [[*told, *each] for each in headers]
        own = _own_headers(batch)
        self._fit(contents, headers, own)
        all_headers = [[*mine, *others] for mine, others in zip(own, headers, strict=True)]
        return pa.record_batch([*contents.values(), pa.array(all_headers, HEADERS_TYPE)], names=[*contents, "headers"])

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC).isoformat(timespec="milliseconds")

    def _headers_of_rows(self, batch: pa.RecordBatch, rows: TaskRows, error: RowError) -> list[_Headers]:
        """The headers that differ from row to row."""
        texts: dict[str, Sequence[object]] = {
            "message": [f"row {rows.number(row)} of this task {error.problem_of(row)}" for row in error.rows],
            "row": [rows.number(row) for row in error.rows],
            "topic": _values(batch, "topic") if self._topic is None else [self._topic] * batch.num_rows,
            "partition": _values(batch, "partition"),
            "row.timestamp": _values(batch, "timestamp"),
        }
        return [
            [(PREFIX + name, str(text).encode()) for name, text in zip(texts, each, strict=True) if text is not None]
            for each in zip(*texts.values(), strict=True)
        ]

    def _fit(self, contents: dict[str, pa.Array], headers: list[_Headers], own: list[_Headers]) -> None:
        """Shorten what makes a dead letter too large for a record, and say so in its headers."""
        sizes = {name: pc.binary_length(column).fill_null(0).to_pylist() for name, column in contents.items()}
        kept = min(_KEPT_BYTES, self._most_bytes // _KEPT_PART)
        large = [
            row
            for row in range(len(headers))
            if sum(each[row] for each in sizes.values()) + _size(headers[row]) + _size(own[row]) > self._most_bytes
        ]
        for row in large:
            headers[row] += [
                (f"{PREFIX}{name}.size", str(each[row]).encode()) for name, each in sizes.items() if each[row] > kept
            ]
            if own[row]:
                headers[row].append((f"{PREFIX}headers.omitted", str(len(own[row])).encode()))
                own[row] = []
        for name, column in contents.items() if large else ():
            contents[name] = _shortened(column, large, kept)


def first_message(letters: pa.RecordBatch) -> str:
    """The error text of the first of *letters*."""
    told = {each["key"]: each["value"] for each in letters.column("headers")[0].as_py()}
    text: bytes = told[f"{PREFIX}message"]
    return text.decode()


def _origin(once: ExactlyOnce | None) -> list[tuple[str, str]]:
    """The headers that all dead letters of a task have."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    version = "" if once is None or once.version is None else str(once.version)
    return [
        ("sink", once.name if once is not None else ""),
        ("query.id", query or ""),
        ("batch.id", batch or version),
        ("task", "0" if context is None else str(context.partitionId())),
        ("attempt", "0" if context is None else str(context.attemptNumber())),
    ]


def _reason(error: RowError) -> str:
    if isinstance(error, RowTooLargeError):
        return _TOO_LARGE
    if isinstance(error, RowWithoutKeyError):
        return _WITHOUT_KEY
    return _REASONS.get(error.column, _NOT_ENCODABLE)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _contents(column: pa.Array, name: str) -> tuple[pa.Array, str]:
    """The rows of *column* as text or bytes, and the name of the encoding if it is not their own."""
    if _is_bytes(column.type):
        return column, ""
    return json_column(column, name), JSON


def _values(batch: pa.RecordBatch, name: str) -> Sequence[object]:
    """The values of column *name*; None for each row without one. Timestamps are milliseconds since 1970."""
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    column = batch.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    found: list[object] = column.to_pylist()
    return found


def _own_headers(batch: pa.RecordBatch) -> list[_Headers]:
    """The headers that the rows have themselves, without those that no record can have."""
    found: Sequence[Any] = (
        batch.column("headers").to_pylist() if "headers" in batch.schema.names else [None] * len(batch)
    )
    return [
        [(each["key"], each["value"]) for each in headers or () if each is not None and each["key"] is not None]
        for headers in found
    ]


def _size(headers: _Headers) -> int:
    return _RECORD_OVERHEAD_BYTES + sum(
        len(name.encode()) + len(value or b"") + _HEADER_OVERHEAD_BYTES for name, value in headers
    )


def _shortened(column: pa.Array, rows: Sequence[int], kept: int) -> pa.Array:
    """*column* with at most *kept* bytes in *rows*, as bytes."""
    contents = column.cast(pa.large_binary()).to_pylist()
    for row in rows:
        contents[row] = None if contents[row] is None else contents[row][:kept]
    return pa.array(contents, pa.large_binary())
