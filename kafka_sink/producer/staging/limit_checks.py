"""The check of rows against the settings of their topics, before any of them is sent; it runs on the calling thread.

Nothing loops over rows, except that records which may be too large are compressed one by one: the limit is for a batch
after its compression, and they may need a batch of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafka_sink.columns.record_columns import ColumnChunk
from kafka_sink.common.errors import RowSerializationError, RowTooLargeError, RowWithoutKeyError
from kafka_sink.producer.batching.producer_batch import Compression
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.topic_limits import CLEANUP_POLICY, MAX_MESSAGE_BYTES, TimeLimit, TopicLimits
from kafka_sink.records.compression import CompressionType, compress
from kafka_sink.records.layout import HEADER_BYTES, MAX_RECORD_OVERHEAD_BYTES
from kafka_sink.records.vectorized import content_sizes, encode_records

#: An upper bound of the bytes of the length fields of key, value and headers.
_LENGTHS_BYTES: Final = 20

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class LimitChecks:
    """The checks of rows against the *limits* of their topics.

    :param config: the configuration of the producer that sends the rows.
    """

    def __init__(self, limits: Mapping[str, TopicLimits], config: ProducerConfig) -> None:
        self._limits = limits
        self._compression = Compression.of(config)

    def check(self, topic: str, chunk: ColumnChunk, now_ms: int) -> None:
        """Check all rows of *chunk*, which are sent to *topic* at *now_ms* (since 1970).

        :raises RowError: about the rows that the brokers would refuse.
        """
        limits = self._limits.get(topic)
        if limits is None or not chunk.num_rows:
            return
        if limits.needs_key:
            _check_keys(topic, chunk)
        if (timestamps := chunk.timestamps) is not None:
            if limits.before is not None and now_ms - int(timestamps.min()) > limits.before.most_ms:
                raise _out_of_time(limits.before, topic, timestamps, now_ms - timestamps, "before")
            if limits.after is not None and int(timestamps.max()) - now_ms > limits.after.most_ms:
                raise _out_of_time(limits.after, topic, timestamps, timestamps - now_ms, "after")
        if limits.max_message_bytes is not None:
            _check_sizes(limits.max_message_bytes, topic, chunk, self._compression)


def _check_keys(topic: str, chunk: ColumnChunk) -> None:
    if chunk.key is None:
        lacking = np.arange(chunk.num_rows)
    elif chunk.key.null_mask is None:
        return
    else:
        lacking = np.flatnonzero(chunk.key.null_mask)
    if len(lacking):
        problem = (
            f"has no key, and topic {topic} is compacted ({CLEANUP_POLICY}): brokers refuse records without one; "
            "fill the column key, or write such rows to a topic that is not compacted"
        )
        raise RowWithoutKeyError.about(lacking.tolist(), lambda _: problem, "key")


def _out_of_time(
    limit: TimeLimit, topic: str, timestamps: NDArray[np.int64], away_ms: NDArray[np.int64], side: str
) -> RowSerializationError:
    setting, most_ms = limit
    return RowSerializationError.about(
        np.flatnonzero(away_ms > most_ms).tolist(),
        lambda row: (
            f"has the timestamp {_shown(int(timestamps[row]))}, more than {most_ms} ms {side} the time of the write, "
            f"which {setting} of topic {topic} does not allow; correct the column timestamp, or raise {setting} of the "
            "topic"
        ),
        "timestamp",
    )


def _shown(timestamp_ms: int) -> str:
    try:
        return f"{timestamp_ms} ({(_EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat()})"
    except OverflowError:
        return f"{timestamp_ms} (ms)"


def _check_sizes(most: int, topic: str, chunk: ColumnChunk, compression: Compression) -> None:
    columns = (chunk.value, chunk.key, None if chunk.headers is None else chunk.headers.entries)
    contents = sum(_LENGTHS_BYTES + column.max_length for column in columns if column is not None)
    if HEADER_BYTES + MAX_RECORD_OVERHEAD_BYTES + contents <= most:
        return
    large = np.flatnonzero(content_sizes(chunk) + HEADER_BYTES + MAX_RECORD_OVERHEAD_BYTES > most)
    if not len(large):
        return
    sizes = _sizes_of_batches(chunk.take(large), compression)
    size_of = dict(zip(large.tolist(), sizes, strict=True))
    refused = [row for row, size in size_of.items() if size > most]
    if refused:
        raise RowTooLargeError.about(
            refused,
            lambda row: (
                f"for topic {topic} needs {size_of[row]} bytes in a batch of its own, more than {MAX_MESSAGE_BYTES} of "
                f"the topic ({most} bytes); send a smaller record, or raise {MAX_MESSAGE_BYTES} of the topic"
            ),
        )


def _sizes_of_batches(chunk: ColumnChunk, compression: Compression) -> list[int]:
    """Bytes on the wire of each row in a batch of its own."""
    encoded = encode_records(chunk, np.zeros(chunk.num_rows, dtype=np.int64), 0)
    if compression.type is CompressionType.NONE:
        alone: list[int] = (np.diff(encoded.offsets) + HEADER_BYTES).tolist()
        return alone
    bounds: list[int] = encoded.offsets.tolist()
    return [
        HEADER_BYTES + len(compress(compression.type, encoded.data[start:end], compression.level))
        for start, end in pairwise(bounds)
    ]
