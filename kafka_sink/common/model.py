"""Plain values that several layers use."""

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
    """A broker. Negative ids are bootstrap addresses whose real id is unknown."""

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
    """Where a record was stored; the offset is −1 if the broker did not return it (acks=0)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int
    serialized_value_size: int


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed position of a consumer group: the offset of the next record to read, with a text of the committer."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """The consumer group of committed offsets. With generation and member id, the coordinator refuses old members."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
