"""Dead letters: the records of rows that cannot be written, with the reason and the origin of the row in headers.

Created in a Spark Python worker, on the task's thread, only from refused rows. docs/dead-letters.md lists the headers.
Keys and values that are neither text nor bytes become JSON; values that JSON cannot represent become texts in it.

Source of the names: Kafka Connect's ``__connect.errors.…`` (KIP-298), Kafka Streams' ``__streams.errors.…`` (KIP-1034).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import RowError, RowTooLargeError, RowWithoutKeyError
from kafka_sink.formats.column_format import JSON, ColumnFormat, format_of
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.fields import is_list, is_text
from kafka_sink.spark.internals import micro_batch_of
from kafka_sink.spark.task.task_rows import TaskRows
from kafka_sink.spark.write_spec import ExactlyOnce, WriteSpec

PREFIX: Final = "__kafkalite.errors."

#: The type of the headers column, as in Spark.
HEADERS_TYPE: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

#: The reasons, by the invalid column.
_REASONS: Final[Mapping[str, str]] = {
    "partition": "invalid-partition",
    "topic": "null-topic",
    "headers": "invalid-headers",
    "timestamp": "invalid-timestamp",
}

#: A key or value of a row that is too large is shortened to this many bytes, or this part of the largest record.
_KEPT_BYTES: Final = 64 * 1024
_KEPT_PART: Final = 8
#: An upper bound of the bytes that a header adds to its name and its value.
_HEADER_OVERHEAD_BYTES: Final = 10
_RECORD_OVERHEAD_BYTES: Final = 200

_NULL: Final = b"null"

_Headers = list[tuple[str, bytes | None]]


class DeadLetters:
    """Creates the dead letters of one task."""

    def __init__(self, spec: WriteSpec, clock: Clock = SYSTEM_CLOCK) -> None:
        self._topic = spec.topic
        self._clock = clock
        config = spec.producer.here()
        self._most_bytes = min(config.max_request_size_bytes, config.buffer_memory_bytes)
        limits = spec.limits.get(spec.dead_letter_topic or "")
        if limits is not None and limits.max_message_bytes is not None:
            self._most_bytes = min(self._most_bytes, limits.max_message_bytes)
        self._origin = _origin(spec.exactly_once)

    def of(self, rows: TaskRows, error: RowError) -> pa.RecordBatch:
        """The dead letters of those of *rows* that *error* is about: the columns ``key`` (if *rows* have keys),
        ``value`` and ``headers``.

        Key and value are as in the row, or JSON if they are neither text nor bytes.
        """
        batch = rows.batch.take(pa.array(error.rows, pa.int64()))
        now = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        shared = [("reason", _reason(error)), ("column", error.column), ("timestamp", now), *self._origin]
        contents: dict[str, pa.Array] = {}
        for name in ("key", "value"):
            if name in batch.schema.names:
                column, encoding = batch.column(name), ""
                if not (is_text(kind := column.type) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
                    column, encoding = json_column(column, name), JSON
                contents[name] = column
                shared.append((f"{name}.encoding", encoding))
        shared_headers = [(PREFIX + name, text.encode()) for name, text in shared if text]
        headers = [[*shared_headers, *of_row] for of_row in self._headers_of_rows(batch, rows, error)]
        own = _own_headers(batch)
        self._fit(contents, headers, own)
        all_headers = [[*mine, *others] for mine, others in zip(own, headers, strict=True)]
        return pa.record_batch([*contents.values(), pa.array(all_headers, HEADERS_TYPE)], names=[*contents, "headers"])

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
            [(PREFIX + name, str(text).encode()) for name, text in zip(texts, row, strict=True) if text is not None]
            for row in zip(*texts.values(), strict=True)
        ]

    def _fit(self, contents: dict[str, pa.Array], headers: list[_Headers], own: list[_Headers]) -> None:
        """Shorten dead letters that are too large for a record, and note this in their headers."""
        sizes = {name: pc.binary_length(column).fill_null(0).to_pylist() for name, column in contents.items()}
        kept = min(_KEPT_BYTES, self._most_bytes // _KEPT_PART)
        large = [
            row
            for row in range(len(headers))
            if sum(of_column[row] for of_column in sizes.values()) + _size(headers[row]) + _size(own[row])
            > self._most_bytes
        ]
        for row in large:
            headers[row] += [
                (f"{PREFIX}{name}.size", str(of_column[row]).encode())
                for name, of_column in sizes.items()
                if of_column[row] > kept
            ]
            if own[row]:
                headers[row].append((f"{PREFIX}headers.omitted", str(len(own[row])).encode()))
                own[row] = []
        for name, column in contents.items() if large else ():
            values = column.cast(pa.large_binary()).to_pylist()
            for row in large:
                values[row] = None if values[row] is None else values[row][:kept]
            contents[name] = pa.array(values, pa.large_binary())


def _origin(once: ExactlyOnce | None) -> list[tuple[str, str]]:
    """The headers that all dead letters of a task have."""
    context = TaskContext.get()
    query, batch = micro_batch_of(context)
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
        return "too-large"
    return "missing-key" if isinstance(error, RowWithoutKeyError) else _REASONS.get(error.column, "not-encodable")


def _values(batch: pa.RecordBatch, name: str) -> Sequence[object]:
    """The values of column *name*; None for each row without one. Timestamps are milliseconds since 1970, and
    invalid UTF-8 becomes U+FFFD."""
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    column = batch.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    if is_text(column.type):
        return [
            None if text is None else text.decode(errors="replace") for text in column.cast(pa.binary()).to_pylist()
        ]
    values: list[object] = column.to_pylist()
    return values


def _own_headers(batch: pa.RecordBatch) -> list[_Headers]:
    """The headers of the rows themselves, without those that no record can have; invalid UTF-8 in a key becomes U+FFFD,
    as in Spark's own sink."""
    if "headers" not in batch.schema.names:
        return [[] for _ in range(len(batch))]
    raw = pa.list_(pa.struct([pa.field("key", pa.binary()), pa.field("value", pa.binary())]))
    return [
        [
            (header["key"].decode(errors="replace"), header["value"])
            for header in headers or ()
            if header is not None and header["key"] is not None
        ]
        for headers in batch.column("headers").cast(raw).to_pylist()
    ]


def _size(headers: _Headers) -> int:
    return _RECORD_OVERHEAD_BYTES + sum(
        len(name.encode()) + len(value or b"") + _HEADER_OVERHEAD_BYTES for name, value in headers
    )


def json_column(column: pa.Array, name: str) -> pa.Array:
    """Each row of *column* as JSON; a null row is null. *name* is the name of the column, for the JSON format.

    If the JSON format cannot write a type or a value in the column, its parts are written one by one, so that the other
    parts are as in any other record.
    """
    texts = _texts(column, name)
    return pa.array([text if text != _NULL else None for text in texts], pa.large_binary())


def _texts(column: pa.Array, name: str) -> list[bytes]:
    try:
        payloads = format_of(JSON).encoder(ColumnFormat(name, JSON, ""), column.type).encode(column)
    except (FormatError, RowError):
        # A single type or a single value may have caused this.
        return _of_parts(column, name)
    return [_NULL if text is None else text for text in payloads.to_pylist()]


def _of_parts(column: pa.Array, name: str) -> list[bytes]:
    kind = column.type
    if pa.types.is_struct(kind):
        fields = [json.dumps(field.name).encode() for field in kind]
        parts = [_texts(column.field(index), name) for index in range(kind.num_fields)]
        # As in the JSON format, null fields are omitted.
        rows: list[list[bytes]] = [
            [name + b":" + text for name, text in zip(fields, row, strict=True) if text != _NULL]
            for row in zip(*parts, strict=True)
        ]
        return _nulls_of(column, lambda row: b"{" + b",".join(rows[row]) + b"}")
    if pa.types.is_map(kind):
        names, values = _texts(column.keys, name), _texts(column.items, name)
        # Names in JSON objects are strings.
        quoted = [name if name.startswith(b'"') else json.dumps(name.decode()).encode() for name in names]
        return _of_items(column, [b":".join(entry) for entry in zip(quoted, values, strict=True)], b"{%s}")
    if is_list(kind):
        return _of_items(column, _texts(column.values, name), b"[%s]")
    return _nulls_of(column, lambda row: json.dumps(_text_of(column[row])).encode())


def _of_items(column: pa.Array, items: list[bytes], around: bytes) -> list[bytes]:
    offsets: list[int] = column.offsets.to_pylist()
    return _nulls_of(column, lambda row: around % b",".join(items[offsets[row] : offsets[row + 1]]))


def _nulls_of(column: pa.Array, text_of: Callable[[int], bytes]) -> list[bytes]:
    """The result of *text_of* for each row of *column* that is not null; JSON's null for others."""
    return [text_of(row) if valid else _NULL for row, valid in enumerate(column.is_valid().to_pylist())]


def _text_of(value: pa.Scalar) -> str:
    if is_text(value.type):
        # Invalid UTF-8; the JSON format has written any other text.
        content: bytes = value.as_buffer().to_pybytes()
        return content.decode(errors="replace")
    try:
        plain = value.as_py()
    except (ValueError, OverflowError):
        # Python cannot represent the date.
        return str(value.cast(pa.int64()))
    if not isinstance(plain, timedelta):
        return str(plain)
    # As Spark's ``to_json`` writes it.
    size = abs(plain)
    hours, seconds = divmod(size.seconds, 3600)
    fraction = f".{size.microseconds:06}".rstrip("0").rstrip(".")
    text = f"{size.days} {hours:02}:{seconds // 60:02}:{seconds % 60:02}{fraction}"
    return f"INTERVAL '{'-' if plain < timedelta() else ''}{text}' DAY TO SECOND"
