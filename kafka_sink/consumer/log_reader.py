"""LogReader: the public face of reading.

It belongs to no group, commits nothing and leaves nothing behind in the cluster. One thread uses it at a time and
everything happens on that thread, within the calls. It never makes a topic by asking for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import Any, Self

from kafka_sink.client.blocking import BlockingClient
from kafka_sink.common import config as common_config
from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.consumer.config import ConsumerConfig, check
from kafka_sink.consumer.fetched_partition import ConsumedRecord
from kafka_sink.consumer.topic_reading import EARLIEST, TopicReading


class LogReader:
    """Iterates over the records of a topic.

    :param properties: see :class:`~kafka_sink.consumer.config.ConsumerConfig`; ``bootstrap.servers`` is required.
    :raises ConfigError: unknown option, wrong value, or options that contradict each other.
    """

    def __init__(self, properties: Mapping[str, Any], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._config = common_config.parse(ConsumerConfig, properties)
        check(self._config)
        self._clock = clock
        self._client = BlockingClient(
            self._config,
            client_id=self._config.client_id,
            timeout_ms=self._config.default_api_timeout_ms,
            clock=clock,
        )

    def read(
        self,
        topic: str,
        partitions: Collection[int] | None = None,
        start: str | int = EARLIEST,
        *,
        stop_at_end: bool = True,
        max_records: int | None = None,
    ) -> Iterator[ConsumedRecord]:
        """The records of *topic*, in the order of their offsets within each partition.

        :param partitions: which ones; None = all that the topic has now.
        :param start: ``"earliest"``, ``"latest"`` or an offset, for each partition.
        :param stop_at_end: end where the partitions end now; otherwise wait for more records, for ever.
        :param max_records: end after so many.
        :raises UnknownTopicOrPartitionError: there is no such topic or partition; raised by the call itself.
        :raises ApiError: nobody answered in time, or what is to be read is not (any more) there.
        :raises CorruptRecordError: a batch is damaged or too large when decompressed.
        """
        reading = TopicReading(self._client, topic, self._config, self._clock)
        return islice(reading.begin(partitions, start, stop_at_end), max_records)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
