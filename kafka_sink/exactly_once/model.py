"""Plain values of both protocols, and the errors that end a batch.

Created on the driver and in tasks, and pickled between them. They never hold a connection.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

from kafka_sink.common.errors import ErrorCode, KafkaError
from kafka_sink.common.model import (
    LAST_PRODUCER_EPOCH,
    Node,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionVersion,
)
from kafka_sink.exactly_once.names import accept_command

#: Codes that mean that a producer no longer owns its transaction.
FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
#: Codes that mean that a transaction has ended otherwise than requested, or that its id has another producer by now.
OVERTAKEN: Final = FENCED | {ErrorCode.INVALID_TXN_STATE}

#: How many epochs of a producer id are kept for a lost end: the one that it has begun in transaction version 2, and the
#: one that records a commit while it is written again.
RESERVED_EPOCHS: Final = 2

#: What the failure of a version means for the later ones, for sinks whose versions an application numbers.
IN_ORDER: Final = (
    "write it again before any later version: once a later version is committed, this one is skipped and its rows are "
    "not in Kafka"
)


class BatchNumbering(Enum):
    """Who numbers the versions of a sink. This determines which version may come first and which may be repeated.

    Spark numbers the batches of a query from 0 and repeats only the last one: an earlier number after a later one is a
    different batch. An application may begin with any version and may repeat any version.
    """

    OF_A_QUERY = "query"
    #: As above, but this sink did not write the first batches, or its progress is lost.
    OF_A_QUERY_UNDER_WAY = "query under way"
    OF_AN_APPLICATION = "application"


@dataclass(frozen=True, order=True)
class Transaction:
    """One transaction: a transactional id with the producer id and epoch that it has for this transaction only."""

    transactional_id: str
    producer_id: int
    epoch: int

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.epoch)

    @property
    def is_reserved(self) -> bool:
        """Whether its epoch is one of the last of its producer id, which are kept for lost ends that are written again.

        The transactional id gets another producer id after them (KIP-360; KIP-890: at the end of a transaction), and
        then no request of a sink can end what the former producer id has open."""
        return self.epoch > LAST_PRODUCER_EPOCH - RESERVED_EPOCHS

    def __str__(self) -> str:
        return f"{self.transactional_id} (producer id {self.producer_id}, epoch {self.epoch})"


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction that contains rows, and the partitions of these rows. A task sends it to the driver."""

    transaction: Transaction
    partitions: frozenset[TopicPartition]


class RowRange(NamedTuple):
    """Rows of one transaction in one partition: the offset of the first one, and the one behind the last."""

    first: int
    end: int


@dataclass(frozen=True)
class PlannedOffsets:
    """Identifies the rows of batch *version* by the *digest* of its sources' offsets, which the query recorded before
    it ran the batch. Two plans with the same version and different digests have different rows.

    Without a digest, *unknown* gives the reason: it completes the sentence "this is not known, because …".
    """

    version: int = -1
    digest: str = ""
    unknown: str = ""


#: For versions that an application numbers.
NO_OFFSETS: Final = PlannedOffsets(unknown="versions of an application are not compared")


@dataclass(frozen=True)
class Skipped:
    """Why *version* is not written: *last* is the sink's last committed version.

    If that is *version* itself, *doubt* is the reason why it is not known whether it had the rows planned now; empty if
    it had them. If it is a later one, nothing tells whether *version* was ever committed.
    """

    version: int
    last: int
    doubt: str = ""

    @property
    def is_older(self) -> bool:
        return self.version < self.last

    @property
    def decision(self) -> Literal["skipped", "older"]:
        """The decision in the report of the write."""
        return "older" if self.is_older else "skipped"


@dataclass(frozen=True)
class Progress:
    """The latest decision: every version below *next_version* is committed.

    *writer* is the query (or application) that made the decision at *decided_s* (seconds since 1970, by its clock).
    *transactions* are the transactions that it decided to commit; they belong to *version*. *offsets* is the digest of
    the offsets planned for that version; empty if they were not known. *decider* is the producer of the driver's
    transaction that decided it; None if release 1.0.0 did. *ends* are the offsets behind the rows of that transaction;
    there are none in the parallel protocol.
    """

    next_version: int
    writer: str
    transaction_version: TransactionVersion
    decided_s: int
    transactions: tuple[Transaction, ...] = ()
    offsets: str = ""
    decider: ProducerIdAndEpoch | None = None
    ends: tuple[tuple[TopicPartition, int], ...] = ()

    @property
    def version(self) -> int:
        return self.next_version - 1


class Log(NamedTuple):
    """A partition under one leader, which *epoch* tells from the same one at another time (None: not known)."""

    partition: TopicPartition
    leader: Node
    epoch: int | None


@dataclass
class Remembered:
    """What a process remembers of a sink between its batches, to ask less. It may forget it at any time.

    *logs* are those that were last searched for lost ends, each with the leader that it had. *other_logs* are those of
    the topics besides the progress topic, as of the instant *other_logs_ms*. *has_two_phase* says that the brokers have
    offered two-phase commit. *driver* is the driver's transaction of the last batch that this process planned, and
    *ends* the offsets behind its rows if this process committed it. *recent_ids* are those of the last decided
    batches' transactions, the latest first; tasks take turns with a few ids. A batch is planned and written in its
    *turn*: two threads must not continue after the same batch.
    """

    logs: frozenset[Log] = frozenset()
    other_logs: frozenset[Log] = frozenset()
    other_logs_ms: int | None = None
    has_two_phase: bool = False
    driver: Transaction | None = None
    ends: Mapping[TopicPartition, int] | None = None
    recent_ids: tuple[str, ...] = ()
    turn: threading.RLock = field(default_factory=threading.RLock, repr=False)


class Memories:
    """What a process remembers of the sinks of one cluster, by the prefix of their ids.

    The same addresses may lead to another cluster one day (after a move, or a restore). Ids of a sink of that name
    may have the same producer ids and epochs there, and belong to somebody else.
    """

    def __init__(self) -> None:
        self._cluster_id: str | None = None
        self._sinks: defaultdict[str, Remembered] = defaultdict(Remembered)

    def __getitem__(self, sink: str) -> Remembered:
        return self._sinks[sink]

    def belong_to(self, cluster_id: str | None) -> None:
        """Called with what the brokers say of themselves: forget everything that another cluster has said."""
        if self._cluster_id not in (None, cluster_id):
            for each in list(self._sinks.values()):
                vars(each).update(vars(Remembered(turn=each.turn)))
        self._cluster_id = cluster_id


class ExactlyOnceError(KafkaError):
    """The batch was not committed, and continuing would break exactly-once delivery. The text says what to do."""


class FencedError(ExactlyOnceError):
    """A newer driver has taken over this sink; its transactions were not touched."""


class UndecidedError(ExactlyOnceError):
    """The batch was not committed and none of its rows will ever be visible. It may be run again."""


class OutdatedProgressError(UndecidedError):
    """The batch was planned after a decision that is not the latest one: a group coordinator told it that had been
    replaced. Nothing was decided."""


class AttemptError(ExactlyOnceError):
    """An attempt at a batch failed, and none of its rows will ever be visible; another attempt may succeed."""


class LostEndError(ExactlyOnceError):
    """The brokers have lost the end of a transaction, and nothing proves how it ended. The text names the partition,
    the offset, the producer and the command that ends it."""


class ProgressError(ExactlyOnceError):
    """The progress is missing or belongs to another writer."""


class TornBatchError(ExactlyOnceError):
    """The batch was decided, but the brokers aborted part of it, because no driver finished it within
    transaction.timeout.ms. The rows of *lost* are not in Kafka; the rows of *committed* are."""

    version: int = -1
    lost: Sequence[Transaction] = ()
    committed: Sequence[Transaction] = ()

    def __init__(self, version: int, lost: Sequence[Transaction], committed: Sequence[Transaction] = ()) -> None:
        super().__init__(_torn(version, lost, len(committed)))
        self.version, self.lost, self.committed = version, lost, committed

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.version, self.lost, self.committed)


def _torn(version: int, lost: Sequence[Transaction], committed: int) -> str:
    sink, _, _ = lost[0].transactional_id.rsplit(".", 2)
    return (
        f"batch {version} was decided, but no driver completed it within transaction.timeout.ms: the "
        f"brokers aborted {len(lost)} of its {len(lost) + committed} transactions, and their rows are "
        f"missing: {', '.join(map(str, lost))}. Until somebody has judged that, the sink writes nothing. Compare "
        "the batch with its source ('kafkalite verify') and write the missing rows with another program, or do "
        f"without them; then run `{accept_command(sink, version)}` and start the sink again, which goes on with "
        "the next batch"
    )
