"""Plain values that travel between layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

#: A record header as the log stores it: key (UTF-8 text) and value (None = null).
Header = tuple[str, bytes | None]

NO_TIMESTAMP = -1
NO_OFFSET = -1


class TopicPartition(NamedTuple):
    """A partition of a topic; prints as Kafka writes it, ``topic-0``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Node:
    """A broker. Ids below zero stand for bootstrap addresses whose real id is not known yet."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def connection_id(self) -> str:
        """The id of this node's connection in a selector."""
        return str(self.id)

    def __str__(self) -> str:
        name = f"broker {self.id}" if self.id >= 0 else "bootstrap broker"
        return f"{name} at {self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record was stored: offset −1 when the broker did not say (acks=0)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int
    serialized_value_size: int
