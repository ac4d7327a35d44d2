"""The transactional ids of a sink, their transactions, and how coordinators describe them (KIP-664).

Plain values and pure functions. A description is never refreshed. The ids of a sink are distinct from those of a sink
whose name is a prefix of its name, and from those of a sink with the same name that writes to another topic.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import LAST_PRODUCER_EPOCH, ProducerIdAndEpoch, TopicPartition, TransactionVersion
from kafka_sink.protocol.messages.transaction_admin import TransactionState

PROCESS_BYTES = 6
_OF_PROCESS = rf"[0-9a-f]{{{2 * PROCESS_BYTES}}}\.[0-9]{{1,18}}"


def sink_id(name: str, progress_topic: str) -> str:
    """The prefix of all ids of the sink *name*. An application may use one name for several topics, as it may for
    several tables with Delta. Topic names contain no slash."""
    return f"{name}/{progress_topic}"


def sink_of_id(transactional_id: str) -> tuple[str, str] | None:
    """The name and progress topic of the sink that *transactional_id* belongs to; None if it is of no sink."""
    match = re.fullmatch(rf"(.+)/([^/]+?)\.(?:driver|repair|{_OF_PROCESS})", transactional_id, re.DOTALL)
    return None if match is None else (match[1], match[2])


def accept_command(sink: str, version: int, writer: str | None = None) -> str:
    """The command that records *version* as the last complete one of the *sink* with these ids."""
    named = () if writer is None else ("--writer", writer)
    return shlex.join(["kafkalite", "txn", "accept", *sink.rsplit("/", 1), "--version", str(version), *named])


def delete_progress_command(name: str, progress_topic: str) -> str:
    """The command that deletes the progress of a sink, and not that of others with the same name."""
    return shlex.join(["kafkalite", "groups", "delete", name, "--topic", progress_topic])


def driver_id(sink: str) -> str:
    """The id of the sink's driver; the producer that has it is the only driver."""
    return f"{sink}.driver"


def repair_id(sink: str) -> str:
    """The id that records which lost commit of the driver is being written again; nothing is ever written with it."""
    return f"{sink}.repair"


def writer_id(sink: str, process: bytes, number: int) -> str:
    """The id with *number* of a process that writes rows; *process* are random bytes that identify the process."""
    return f"{sink}.{process.hex()}.{number}"


def writer_pattern(sink: str) -> str:
    """A regular expression (RE2) that matches the complete ids of the sink's writers and no other ids."""
    return rf"{re.escape(sink)}\.{_OF_PROCESS}"


def is_writer_id(sink: str, transactional_id: str) -> bool:
    return re.fullmatch(writer_pattern(sink), transactional_id) is not None


def split_writer_id(sink: str, transactional_id: str) -> tuple[bytes, int]:
    """The process and number of an id of the sink's writers."""
    process, number = transactional_id.removeprefix(f"{sink}.").split(".")
    return bytes.fromhex(process), int(number)


#: Codes that mean that a producer no longer owns its transaction.
FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
#: Codes that mean that a transaction has ended otherwise than requested, or that its id has another producer by now.
OVERTAKEN: Final = FENCED | {ErrorCode.INVALID_TXN_STATE}

#: The number of epochs of a producer id that are kept for a lost marker: the one that the end of the transaction begins
#: in transaction version 2, and the one that records a commit while its marker is written again.
RESERVED_EPOCHS: Final = 2

#: The time-outs of an id whose last commit is written again because brokers lost it, ms; the longest that they allow is
#: used. No other transaction of a sink has one, so they record in the id, across crashes, that it must be committed.
COMPLETING_MS: Final = tuple(599_993 >> halvings for halvings in range(10))

#: Time-outs of the repair id: this value plus the epoch of the driver's lost commit; or NO_RECORD_MS, if none is lost.
#: Every broker allows them.
_RECORD_MS: Final = 1_000
NO_RECORD_MS: Final = 34_000


def record_of(epoch: int) -> int:
    """The time-out that records that the driver's transaction of this *epoch* was committed."""
    return _RECORD_MS + epoch


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
        """Whether its epoch is one of the last of its producer id, which are kept to write lost markers again.

        The transactional id gets another producer id after them (KIP-360; KIP-890: at the end of a transaction), and
        then no request of a sink can end open rows of the former producer id."""
        return self.epoch > LAST_PRODUCER_EPOCH - RESERVED_EPOCHS

    def __str__(self) -> str:
        return f"{self.transactional_id} (producer id {self.producer_id}, epoch {self.epoch})"


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction that contains rows, and the partitions of these rows. A task sends it to the driver."""

    transaction: Transaction
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True)
class TransactionDescription:
    """The coordinator's description of an id; *state* is Kafka's name (Ongoing, PrepareCommit, CompleteAbort, …).

    *partitions* are those with written records; the partitions of consumer group offsets are left out.
    """

    transaction: Transaction
    state: str
    partitions: frozenset[TopicPartition]
    timeout_ms: int = 0
    #: Wall time at which the transaction began, ms since 1970; -1 if none is open.
    started_ms: int = -1

    @property
    def is_ongoing(self) -> bool:
        return self.state == "Ongoing"

    @property
    def is_over(self) -> bool:
        return self.state in ("Empty", "CompleteCommit", "CompleteAbort")

    @property
    def is_repair(self) -> bool:
        """Whether the commit of an earlier transaction of the id is, or was, written again."""
        return self.timeout_ms in COMPLETING_MS

    @property
    def recorded_epoch(self) -> int | None:
        """The epoch of the driver's lost commit that this id records; None if it records none."""
        return None if self.timeout_ms >= NO_RECORD_MS else self.timeout_ms - _RECORD_MS

    def proves_commit(self, epochs: Iterable[int], version: TransactionVersion) -> bool | None:
        """Whether the last transaction of the id, which is complete, was committed; None if the description does not
        prove the outcome for rows of these *epochs*."""
        if self.is_repair:
            return None if self.state == "CompleteAbort" else True
        if self.state == "CompleteAbort":
            return False
        own_epoch = self.transaction.epoch - (version is TransactionVersion.V2)
        return True if self.state == "CompleteCommit" and all(epoch == own_epoch for epoch in epochs) else None

    def is_commit_of(self, transaction: Transaction, version: TransactionVersion) -> bool:
        """Whether *transaction* is described as committed, and not a later one of the same id.

        In *version* 2 the end of a transaction begins the next epoch; in version 1 each transaction of a sink has its
        own epoch. A description with that epoch therefore reports the end of exactly this transaction. A commit that is
        written again has later epochs.
        """
        if self.is_repair and self.state not in ("PrepareAbort", "CompleteAbort"):
            own = self.transaction
            return own.producer_id == transaction.producer_id and own.epoch > transaction.epoch
        if self.state not in ("PrepareCommit", "CompleteCommit"):
            return False
        at_end = replace(transaction, epoch=transaction.epoch + 1) if version is TransactionVersion.V2 else transaction
        return self.transaction == at_end

    @classmethod
    def of(cls, state: TransactionState) -> TransactionDescription:
        """The description from a coordinator's response."""
        return cls(
            Transaction(state.transactional_id, state.producer_id, state.producer_epoch),
            state.transaction_state,
            frozenset(
                TopicPartition(topic.topic, partition)
                for topic in state.topics
                if topic.topic != "__consumer_offsets"
                for partition in topic.partitions
            ),
            state.transaction_timeout_ms,
            state.transaction_start_time_ms,
        )
