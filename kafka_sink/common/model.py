"""Plain values that several layers use."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from kafka_sink.common.text import printable

#: A record header as the log stores it: key (UTF-8 text) and value (None = null).
Header = tuple[str, bytes | None]

NO_TIMESTAMP = -1

#: The time-out, ms, that brokers give to transactional ids whose transactions never time out (KIP-939).
NO_TIMEOUT_MS: Final = 2**31 - 1
NO_OFFSET = -1


class TopicPartition(NamedTuple):
    """A partition of a topic; prints as Kafka writes it, ``topic-0``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def host_and_port(host: str, port: int) -> str:
    """``host:port``, as in ``bootstrap.servers``; IPv6 addresses are in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class ProducerIdAndEpoch(NamedTuple):
    """The identity of a producer, for which its sequences are valid; by default the absence of one."""

    producer_id: int = -1
    epoch: int = -1

    @property
    def is_valid(self) -> bool:
        return self.producer_id != -1


#: The last epoch that is assigned to a producer; the coordinator reserves the next one for fencing.
LAST_PRODUCER_EPOCH: Final = 2**15 - 2

#: The finalized feature (KIP-584) whose level is the cluster's transaction version.
TRANSACTION_VERSION_FEATURE: Final = "transaction.version"
#: The finalized feature whose level 1 stands for the consumer protocol of groups (KIP-848).
GROUP_VERSION_FEATURE: Final = "group.version"


class TransactionVersion(IntEnum):
    """The version of the transaction protocol (KIP-890). It determines the versions of a transaction's requests, and
    one transaction never mixes the two.

    ``V1``: AddPartitionsToTxn and AddOffsetsToTxn precede every first write; Produce up to version 11, TxnOffsetCommit
    and EndTxn up to 4. ``V2``: the first write adds its partition; Produce from 12, TxnOffsetCommit and EndTxn from 5,
    and every EndTxn returns the epoch of the next transaction.
    """

    V1 = 1
    V2 = 2

    @classmethod
    def of_level(cls, level: int) -> TransactionVersion:
        """The version at *level* of the feature; a cluster without the feature (level 0) uses version 1."""
        return cls.V2 if level >= cls.V2 else cls.V1


@dataclass(frozen=True, slots=True)
class Node:
    """A broker. Negative ids are bootstrap addresses whose real id is unknown. *lane* distinguishes several connections
    to the same broker."""

    id: int
    host: str
    port: int
    rack: str | None = None
    lane: int = 0

    @property
    def connection_id(self) -> str:
        """The id of this node's connection in a selector."""
        return f"{self.id}/{self.lane}" if self.lane else str(self.id)

    def __str__(self) -> str:
        name = f"broker {self.id}" if self.id >= 0 else "bootstrap broker"
        # Brokers send the host, so it is not trusted.
        return f"{name} at {printable(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """The position of a stored record; the offset is −1 if the broker did not return it (acks=0)."""

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


#: The entity of a quota: types (user, client-id) and names; None is the default of a type.
QuotaEntity = frozenset[tuple[str, str | None]]
