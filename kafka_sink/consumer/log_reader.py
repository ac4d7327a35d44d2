"""LogReader: the public interface for reading; and the newest records of a topic, or those from a start on, for showing
them to users, with limits of records, bytes and time.

It belongs to no group, commits nothing and leaves no state in the cluster. One thread at a time uses it, and all work
is done on that thread, within the calls. Its metadata requests never create topics.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, Self

from kafka_sink.client.blocking.blocking import BlockingClient
from kafka_sink.common import config as common_config
from kafka_sink.common.clock import SYSTEM_CLOCK, Clock, within
from kafka_sink.common.errors import KafkaTimeoutError
from kafka_sink.consumer.config import ConsumerConfig
from kafka_sink.consumer.fetched_partition import ConsumedRecord
from kafka_sink.consumer.topic_reading import EARLIEST, Start, TopicReading
from kafka_sink.records.reader import Looking

#: Returns damaged records, too, and continues after them.
SHOW_DAMAGED: Final = Looking()


class LogReader:
    """Iterates over the records of a topic.

    :param properties: see :class:`~kafka_sink.consumer.config.ConsumerConfig`; ``bootstrap.servers`` is required. An
        option that is None is not set.
    :raises ConfigError: if an option is unknown or invalid, or if options contradict each other.
    """

    def __init__(self, properties: Mapping[str, Any], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._config = common_config.parse(ConsumerConfig, common_config.without_none(properties))
        self._clock = clock
        self._client = BlockingClient(
            self._config, client_id=self._config.client_id, timeout_ms=self._config.default_api_timeout_ms, clock=clock
        )

    def read(
        self,
        topic: str,
        partitions: Collection[int] | None = None,
        start: Start = EARLIEST,
        *,
        stop_at_end: bool = True,
        max_records: int | None = None,
        looking: Looking | None = None,
        marks_transactions: bool = False,
    ) -> Iterator[ConsumedRecord]:
        """The records of *topic*, in the order of their offsets within each partition.

        :param partitions: the partitions to read; None = all that the topic has now.
        :param start: ``"earliest"``, ``"latest"``, an offset, or a time :class:`FromTime`, for each partition.
        :param stop_at_end: stop at the current end of the partitions; otherwise wait for more records forever.
        :param max_records: the maximum number of records.
        :param looking: for showing records: a damaged record is returned with its problem.
        :param marks_transactions: mark records of transactions that are aborted, or open at the begin of the call.
        :raises UnknownTopicOrPartitionError: if the topic or a partition does not exist; raised by the call itself.
        :raises ApiError: if no broker answered in time, or if the requested offsets do not exist (any more).
        :raises CorruptRecordError: if a record or its batch is damaged, or too large when decompressed.
        """
        reading = TopicReading(
            self._client, topic, self._config, self._clock, looking, marks_transactions=marks_transactions
        )
        return islice(reading.begin(partitions, start, stop_at_end), max_records)

    def read_newest(self, topic: str, count: int, looking: Looking) -> Iterator[ConsumedRecord]:
        """The last *count* records of each partition of *topic*, and some before them, read from its end backwards, for
        showing them: as :meth:`read` returns them with *looking* and *marks_transactions*."""
        reading = TopicReading(self._client, topic, self._config, self._clock, looking, marks_transactions=True)
        return reading.begin_newest(count)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


_log = logging.getLogger(__name__)

#: The most bytes of one fetch response for one partition, so that few records of many partitions stay small.
_FETCH_BYTES: Final = 1024 * 1024
#: The memory of a record's objects, and of a header's, in addition to their bytes.
_RECORD_BYTES: Final = 300
_HEADER_BYTES: Final = 150


@dataclass(frozen=True)
class PeekLimits:
    """The most bytes that the records may take in memory, and the longest time for reading, ms. A record of more than
    *max_bytes*, and of more than 1 MiB, is not read."""

    max_bytes: int = 16 * 1024 * 1024
    timeout_ms: int = 15_000


class _EnoughError(Exception):
    """A limit of bytes or time is reached."""


def newest_records(
    properties: Mapping[str, Any], topic: str, count: int, limits: PeekLimits, clock: Clock = SYSTEM_CLOCK
) -> list[ConsumedRecord]:
    """The *count* records of *topic* with the latest timestamps, in the order of their timestamps, among the last
    *count* records of each partition. Fewer if a limit is reached first, with a warning that names it. They include
    damaged records, with their problems, and records of open and aborted transactions, which are marked.

    :param properties: client properties under Kafka's names; those of producers only are ignored.
    :param clock: measures the limit of time.
    :raises UnknownTopicOrPartitionError: if the topic does not exist.
    :raises ApiError: if no broker answered in time.
    """
    begin = partial(LogReader.read_newest, topic=topic, count=count)
    with within(limits.timeout_ms, clock):
        return heapq.nlargest(count, _read(properties, topic, begin, limits, clock), key=_order)[::-1]


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
    begin = partial(LogReader.read, topic=topic, start=start, marks_transactions=True)
    with within(limits.timeout_ms, clock):
        records = islice(filter(wanted, _read(properties, topic, begin, limits, clock)), count)
        return sorted(records, key=_order)


def _order(record: ConsumedRecord) -> tuple[int, int, int]:
    return record.timestamp, record.offset, record.partition


def _read(
    properties: Mapping[str, Any],
    topic: str,
    begin: Callable[..., Iterator[ConsumedRecord]],
    limits: PeekLimits,
    clock: Clock,
) -> Iterator[ConsumedRecord]:
    """The records of the iteration that *begin* returns, until a limit is reached."""
    bounds = {
        "default.api.timeout.ms": limits.timeout_ms,
        "fetch.max.bytes": max(limits.max_bytes, 1),
        "max.partition.fetch.bytes": max(min(_FETCH_BYTES, limits.max_bytes), 1),
        # The value of a producer may be too small for the limits.
        "receive.message.max.bytes": None,
    }
    deadline_ms = clock.monotonic_ms() + limits.timeout_ms

    def check() -> None:
        if clock.monotonic_ms() >= deadline_ms:
            raise _EnoughError(f"{limits.timeout_ms} ms")

    size = 0
    try:
        with LogReader({**common_config.known_to(ConsumerConfig, properties), **bounds}) as reader:
            looking = Looking(check, max(limits.max_bytes, _FETCH_BYTES))
            for record in begin(reader, looking=looking):
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
