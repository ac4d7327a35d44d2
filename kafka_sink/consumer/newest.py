"""The newest records of a topic, or those from a place on, for people who look at what was written; limited in records,
bytes and time.

Runs on the calling thread. It belongs to no group and changes nothing in the cluster.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from kafka_sink.common import config as common_config
from kafka_sink.common.clock import SYSTEM_CLOCK, Clock, within
from kafka_sink.common.errors import KafkaTimeoutError
from kafka_sink.consumer.config import ConsumerConfig
from kafka_sink.consumer.fetched_partition import ConsumedRecord
from kafka_sink.consumer.log_reader import LogReader
from kafka_sink.consumer.topic_reading import Start
from kafka_sink.records.reader import Looking

_log = logging.getLogger(__name__)

#: The most bytes of one fetch response for one partition, so that few records of many partitions stay small.
_FETCH_BYTES: Final = 1024 * 1024


#: What the objects of a record take, and those of a header, beside their bytes.
_RECORD_BYTES: Final = 300
_HEADER_BYTES: Final = 150


@dataclass(frozen=True)
class PeekLimits:
    """The most bytes that the records may take in memory, and the longest time for reading, ms. A record of more than
    *max_bytes*, and of more than 1 MiB, is not read."""

    max_bytes: int = 16 * 1024 * 1024
    timeout_ms: int = 15_000


class _EnoughError(Exception):
    """A limit is reached."""


def newest_records(
    properties: Mapping[str, Any], topic: str, count: int, limits: PeekLimits, clock: Clock = SYSTEM_CLOCK
) -> list[ConsumedRecord]:
    """The *count* records of *topic* with the latest timestamps, in the order of their timestamps, of the last *count*
    records of each partition. Fewer if a limit is reached first, with a warning that says which. Damaged ones are among
    them, with their problems, and those of open and aborted transactions, which say so.

    :param properties: client properties under Kafka's names; those of producers only are ignored.
    :param clock: measures the limit of time.
    :raises UnknownTopicOrPartitionError: if the topic does not exist.
    :raises ApiError: if no broker answered in time.
    """

    def begin(reader: LogReader, looking: Looking) -> Iterator[ConsumedRecord]:
        return reader.read_newest(topic, count, looking)

    newest: list[tuple[int, int, int, ConsumedRecord]] = []
    with within(limits.timeout_ms, clock):
        for record in _read(properties, topic, begin, limits, clock):
            heapq.heappush(newest, (*_place(record), record))
            if len(newest) > count:
                heapq.heappop(newest)
    return [each[-1] for each in sorted(newest, key=lambda each: each[:3])]


def records_from(
    properties: Mapping[str, Any],
    topic: str,
    start: Start,
    count: int,
    limits: PeekLimits,
    wanted: Callable[[ConsumedRecord], bool],
    clock: Clock = SYSTEM_CLOCK,
) -> list[ConsumedRecord]:
    """The first *count* records of *topic* from *start* on that are *wanted*, in the order of their timestamps; else as
    :func:`newest_records`."""

    def begin(reader: LogReader, looking: Looking) -> Iterator[ConsumedRecord]:
        return reader.read(topic, start=start, looking=looking, marks_transactions=True)

    with within(limits.timeout_ms, clock):
        records = islice(filter(wanted, _read(properties, topic, begin, limits, clock)), count)
        return sorted(records, key=_place)


def _place(record: ConsumedRecord) -> tuple[int, int, int]:
    return record.timestamp, record.offset, record.partition


def _read(
    properties: Mapping[str, Any],
    topic: str,
    begin: Callable[[LogReader, Looking], Iterator[ConsumedRecord]],
    limits: PeekLimits,
    clock: Clock,
) -> Iterator[ConsumedRecord]:
    """The records that *begin* begins to read, until a limit is reached."""
    bounds = {
        "default.api.timeout.ms": limits.timeout_ms,
        "fetch.max.bytes": max(limits.max_bytes, 1),
        "max.partition.fetch.bytes": max(min(_FETCH_BYTES, limits.max_bytes), 1),
    }
    deadline_ms = clock.monotonic_ms() + limits.timeout_ms

    def check() -> None:
        if clock.monotonic_ms() >= deadline_ms:
            raise _EnoughError(f"{limits.timeout_ms} ms")

    size = 0
    try:
        with LogReader({**common_config.known_to(ConsumerConfig, properties), **bounds}) as reader:
            looking = Looking(check, max(limits.max_bytes, _FETCH_BYTES))
            for record in begin(reader, looking):
                size += _size(record)
                yield record
                if size >= limits.max_bytes:
                    raise _EnoughError(f"{size} bytes")
                check()
    except (_EnoughError, KafkaTimeoutError) as enough:
        if isinstance(enough, KafkaTimeoutError) and not size:
            raise
        _log.warning("topic %r: stopped after %s; not all partitions were read", topic, enough)


def _size(record: ConsumedRecord) -> int:
    headers = sum(_HEADER_BYTES + len(name) + len(value or b"") for name, value in record.headers)
    return _RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers
