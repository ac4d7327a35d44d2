"""The checks of a run with transactions: the records that a reader of committed records may get, and those it must get.

A reported outcome is binding: readers get all records of a committed transaction, and none of one that was aborted or
that its producer did not end. If the producer does not know the outcome, the transaction may have either one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise

from kafka_sink.common.model import TopicPartition
from kafka_sink.consumer.fetched_partition import ConsumedRecord
from kafka_sink.producer.futures import Delivery
from kafka_sink.records.reader import Record
from tests.sim.ledger import Copy, Ledger, Sending
from tests.sim.world import ViolationError

#: Represents a control record in a log.
MARKER = -1


class Told(Enum):
    """The outcome of a transaction as far as the application knows it."""

    OPEN = auto()
    COMMITTING = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass(slots=True, eq=False)
class Transaction:
    number: int
    writer: str
    life: int
    told: Told = Told.OPEN
    records: list[int] = field(default_factory=list)
    #: The offset committed for the writer's group, if any.
    offset: int | None = None
    #: A record of it was not staged, so it must not be committed.
    is_broken: bool = False

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.writer} ({self.told.name.lower()}, life {self.life})"


@dataclass(slots=True)
class TransactionLedger(Ledger):
    transactions: list[Transaction] = field(default_factory=list)
    owners: dict[int, Transaction] = field(default_factory=dict)
    #: The offsets and numbers of records that readers got during the run.
    seen: defaultdict[TopicPartition, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    #: Processes that were suspended report outcomes late.
    may_be_late: bool = False

    def begin(self, writer: str, life: int) -> Transaction:
        transaction = Transaction(len(self.transactions), writer, life)
        self.transactions.append(transaction)
        self.world.note("{} begins", transaction)
        return transaction

    def belongs(self, transaction: Transaction, sending: Sending) -> None:
        numbers = range(sending.first, sending.first + sending.count)
        transaction.records += numbers
        self.owners.update(dict.fromkeys(numbers, transaction))

    # --- as in any run -----------------------------------------------------------------------------------------------

    def stored(
        self, partition: TopicPartition, numbers: list[int], base_offset: int, identity: tuple[int, int]
    ) -> None:
        log = self.logs[partition]
        log += [MARKER] * (base_offset - len(log))
        if base_offset != len(log):
            raise ViolationError(f"{partition} has the end {len(log)}, but a batch went to {base_offset}")
        log += numbers
        self.stored_batches += 1
        self.copies[partition].append(Copy(base_offset, len(numbers), identity))
        self.world.note("stored: {} at {} {} as {}", numbers, partition, base_offset, identity)

    def _check_in_time(self, sending: Sending, delivery: Delivery) -> None:
        if not self.may_be_late:
            # dataclass(slots=True) makes a new class, which super() without arguments does not find.
            super(TransactionLedger, self)._check_in_time(sending, delivery)

    # --- readers -----------------------------------------------------------------------------------------------------

    def read(self, partition: TopicPartition, records: list[ConsumedRecord]) -> list[int]:
        """Check *records* that a reader got from the beginning: those that earlier readers got, and maybe more."""
        found = [(each.offset, self._number(partition, each)) for each in records]
        before = self.seen[partition]
        if len(found) >= len(before):
            self.seen[partition] = found
        shorter, longer = sorted((before, found), key=len)
        if longer[: len(shorter)] != shorter:
            raise ViolationError(f"of {partition} a reader got {before}, and another one later {found}")
        return [number for _, number in found]

    def _number(self, partition: TopicPartition, record: ConsumedRecord) -> int:
        plain = Record(record.offset, record.timestamp, record.key, record.value, record.headers)
        return self._recognise(partition, plain)

    # --- the end -----------------------------------------------------------------------------------------------------

    def check_committed(self, logs: dict[TopicPartition, list[int]], offsets: dict[str, int | None]) -> None:
        """*logs* are the records that readers of committed records get at the end, *offsets* those of each group."""
        counts = Counter(number for numbers in logs.values() for number in numbers)
        repeated = [number for number, count in counts.items() if count > 1]
        if repeated:
            raise ViolationError(f"the records {repeated} were read more than once")
        strays = [number for number in counts if number not in self.owners]
        if strays:
            raise ViolationError(f"the records {strays} belong to no transaction")
        visible = [transaction for transaction in self.transactions if self._is_visible(transaction, counts)]
        for partition, numbers in logs.items():
            self._check_order(partition, numbers)
        for group, offset in offsets.items():
            self._check_offset(group, offset, set(visible))

    def _is_visible(self, transaction: Transaction, counts: Counter[int]) -> bool:
        found = [number for number in transaction.records if number in counts]
        if found and len(found) < len(transaction.records):
            missing = sorted(set(transaction.records) - set(found))
            raise ViolationError(f"{transaction} is torn: {found} were read, {missing} were not")
        if found and transaction.told in (Told.OPEN, Told.ABORTED):
            raise ViolationError(f"{transaction} was never committed, and {found} were read")
        if found and transaction.is_broken:
            raise ViolationError(f"{transaction} had lost a record, and was committed without it")
        if transaction.records and not found and transaction.told is Told.COMMITTED:
            raise ViolationError(f"{transaction}: nothing of it was read")
        return bool(found) or transaction.told is Told.COMMITTED

    def _check_order(self, partition: TopicPartition, numbers: list[int]) -> None:
        by_life: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for number in numbers:
            owner = self.owners[number]
            by_life[owner.writer, owner.life].append(number)
        for (writer, _), mine in by_life.items():
            for before, after in pairwise(mine):
                if after < before:
                    raise ViolationError(f"in {partition} record {after} of {writer} stands behind {before}")

    def _check_offset(self, writer: str, offset: int | None, visible: set[Transaction]) -> None:
        """Check the offset of the last committed transaction; one of unknown outcome may have changed it or not."""
        allowed: set[int | None] = {None}
        for transaction in self.transactions:
            if transaction.writer != writer or transaction.offset is None:
                continue
            if transaction in visible:
                allowed = {transaction.offset}
            elif transaction.told is Told.COMMITTING and not transaction.records:
                allowed.add(transaction.offset)
        if offset not in allowed:
            raise ViolationError(f"{offset} is committed for the group of {writer}, and not one of {allowed}")
