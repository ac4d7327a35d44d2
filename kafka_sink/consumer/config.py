"""The options of a log reader, under the names of Apache Kafka's consumer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, Self

from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common.bounded import INT32_MAX
from kafka_sink.common.config import BOOLEAN, INT, STRING, at_least, between, one_of
from kafka_sink.common.errors import ConfigError

READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"

#: The maximum size of an answer without its batches.
_ANSWER_OVERHEAD_BYTES: Final = 512


@dataclass(frozen=True)
class ConsumerConfig(ClientConfig):
    """The properties of a :class:`~kafka_sink.consumer.log_reader.LogReader`."""

    isolation_level: str = STRING(
        READ_UNCOMMITTED,
        "read_committed leaves out aborted transactions and stops before open ones",
        one_of(READ_UNCOMMITTED, READ_COMMITTED),
    )
    fetch_min_bytes: int = INT(1, "minimum bytes that a broker collects before it answers", between(0, INT32_MAX))
    fetch_max_wait_ms: int = INT(500, "longest time that a broker waits for fetch.min.bytes, ms", between(0, INT32_MAX))
    fetch_max_bytes: int = INT(
        50 * 1024 * 1024,
        "maximum size of a fetch response, bytes; a larger first batch is returned whole",
        between(1, INT32_MAX),
    )
    max_partition_fetch_bytes: int = INT(
        1024 * 1024,
        "maximum size of the data per partition in a fetch response, bytes; a larger first batch is returned whole",
        between(1, INT32_MAX),
    )
    max_decompressed_bytes: int = INT(
        256 * 1024 * 1024,
        "maximum size of a batch after decompression, bytes; a larger one is refused as damaged",
        at_least(1),
    )
    check_crcs: bool = BOOLEAN(True, "verify the checksum of every batch that is read")
    default_api_timeout_ms: int = INT(
        60_000, "longest time without any answer for a partition before reading it fails, ms", at_least(1)
    )

    def settle(self, explicit: Collection[str]) -> Self:
        """Adapt the limits of an answer to each other.

        :raises ConfigError: if answers as large as fetch.max.bytes would be refused, and the user set both limits.
        """
        least = self.fetch_max_bytes + _ANSWER_OVERHEAD_BYTES
        if least <= self.receive_message_max_bytes:
            return self
        if "fetch.max.bytes" not in explicit:
            return replace(self, fetch_max_bytes=self.receive_message_max_bytes - _ANSWER_OVERHEAD_BYTES)
        if "receive.message.max.bytes" not in explicit:
            return replace(self, receive_message_max_bytes=least)
        raise ConfigError.of(
            "receive.message.max.bytes",
            f" ({self.receive_message_max_bytes}) is less than fetch.max.bytes ({self.fetch_max_bytes}) + "
            f"{_ANSWER_OVERHEAD_BYTES}; raise receive.message.max.bytes or lower fetch.max.bytes",
        )
