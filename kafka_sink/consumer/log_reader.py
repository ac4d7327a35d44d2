"""LogReader: the public interface for reading.

It belongs to no group, commits nothing and leaves no state in the cluster. One thread at a time uses it, and all work
is done on that thread, within the calls. Its metadata requests never create topics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final, Self

from kafka_sink.client.blocking.blocking import BlockingClient
from kafka_sink.common import config as common_config
from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.consumer.config import ConsumerConfig, reconcile
from kafka_sink.consumer.fetched_partition import ConsumedRecord
from kafka_sink.consumer.topic_reading import EARLIEST, Start, TopicReading
from kafka_sink.records.reader import Looking

#: What shows damaged records, too, and goes on behind them.
SHOW_DAMAGED: Final = Looking()


class LogReader:
    """Iterates over the records of a topic.

    :param properties: see :class:`~kafka_sink.consumer.config.ConsumerConfig`; ``bootstrap.servers`` is required. One
        that is None is not set.
    :raises ConfigError: if an option is unknown or invalid, or if options contradict each other.
    """

    def __init__(self, properties: Mapping[str, Any], *, clock: Clock = SYSTEM_CLOCK) -> None:
        properties = common_config.without_none(properties)
        self._config = reconcile(common_config.parse(ConsumerConfig, properties), frozenset(properties))
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
        :param looking: for people who look at records: a damaged one is returned with its problem.
        :param marks_transactions: records of transactions that are aborted, or open at the beginning, say so.
        :raises UnknownTopicOrPartitionError: if the topic or a partition does not exist; raised by the call itself.
        :raises ApiError: if no broker answered in time, or if the requested offsets do not exist (any more).
        :raises CorruptRecordError: if a record or its batch is damaged, or too large when decompressed.
        """
        reading = TopicReading(
            self._client, topic, self._config, self._clock, looking, marks_transactions=marks_transactions
        )
        return islice(reading.begin(partitions, start, stop_at_end), max_records)

    def read_newest(self, topic: str, count: int, looking: Looking) -> Iterator[ConsumedRecord]:
        """The last *count* records of each partition of *topic*, and some before them, from its end on backwards, for
        people who look at records: as :meth:`read` returns them with *looking* and *marks_transactions*."""
        reading = TopicReading(self._client, topic, self._config, self._clock, looking, marks_transactions=True)
        return reading.begin_newest(count)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
