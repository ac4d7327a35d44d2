"""Plain values of both protocols, and the errors that end a batch.

Made on the driver and in tasks, pickled between them. They never hold a connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final

from kafka_sink.common.errors import KafkaError
from kafka_sink.common.model import TopicPartition


class Flow(IntEnum):
    """Which requests make up a transaction; the two are never mixed within one (KIP-890).

    ``V1`` = AddPartitionsToTxn, Produce up to version 11, EndTxn up to 4; ``V2`` = Produce from 12, EndTxn 5.
    """

    V1 = 1
    V2 = 2


class BatchNumbering(Enum):
    """Who counts the versions of a sink, and so which of them may come first and which may come again.

    Spark numbers the batches of a query from 0 and runs only the last one again: an earlier number after a later one is
    another batch. An application may begin with any version, and ask again for each.
    """

    OF_A_QUERY = "query"
    #: As above, but its first batches were not written by this sink, or its progress is lost.
    OF_A_QUERY_UNDER_WAY = "query under way"
    OF_AN_APPLICATION = "application"


@dataclass(frozen=True, order=True)
class Transaction:
    """One transaction: an id, with the producer id and epoch that it has for this transaction alone."""

    transactional_id: str
    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.transactional_id} (producer id {self.producer_id}, epoch {self.epoch})"


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction with rows in it, and where they are: what a task hands to the driver."""

    transaction: Transaction
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True)
class PlannedOffsets:
    """Which rows belong to batch *version*, as its query noted them before it ran the batch: the *digest* of its
    sources' offsets. Two plans of one number with different digests have different rows.

    Without digest, *unknown* says why: it completes the sentence "this is not known, because …".
    """

    version: int = -1
    digest: str = ""
    unknown: str = ""


#: Of what an application numbers.
NO_OFFSETS: Final = PlannedOffsets(unknown="the rows of an application's version are never compared")


@dataclass(frozen=True)
class Progress:
    """What was decided last: every version below *next_version* is committed.

    *writer* is the query (or application) that decided it, at *decided_s* (seconds since 1970, on its clock);
    *transactions* are what it decided to commit, and *version* is what they belong to. *offsets* is the digest of what
    was planned for that version; empty where nobody knew.
    """

    next_version: int
    writer: str
    flow: Flow
    decided_s: int
    transactions: tuple[Transaction, ...] = ()
    offsets: str = ""

    @property
    def version(self) -> int:
        return self.next_version - 1


class ExactlyOnceError(KafkaError):
    """The batch was not committed, and going on would not be exactly once; the text says what to do."""


class FencedError(ExactlyOnceError):
    """A newer driver has taken over this sink; nothing that it does was touched."""


class UndecidedError(ExactlyOnceError):
    """The batch could not be committed, and nothing of it will ever be visible: it may be run again."""


class UnwritableRowsError(ExactlyOnceError):
    """A row cannot be written as it is: nothing was committed, and trying again would end the same way."""


class ProgressError(ExactlyOnceError):
    """The record of progress is missing, or belongs to somebody else."""


@dataclass(eq=False)
class TornBatchError(ExactlyOnceError):
    """The batch was decided, but the brokers aborted part of it, because nobody was there to finish it before
    transaction.timeout.ms: the rows of *lost* are not in Kafka, those of *committed* are.
    """

    version: int
    lost: Sequence[Transaction] = field(default_factory=tuple)
    committed: Sequence[Transaction] = field(default_factory=tuple)

    def __str__(self) -> str:
        lost = ", ".join(map(str, self.lost))
        return (
            f"batch {self.version} was decided, but then nobody finished it before transaction.timeout.ms: "
            f"{len(self.lost)} of {len(self.lost) + len(self.committed)} transactions were aborted by the brokers and "
            f"their rows are missing: {lost}; write these rows again, then delete the consumer group that has the name "
            "of the sink and start with allowMissingProgress=true"
        )
