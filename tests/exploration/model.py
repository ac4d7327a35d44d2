"""Brokers as one value: the transactions of a cluster, two partitions with rows, and one group's progress.

The embedded broker's own rules, which answer as Apache Kafka does, determine the effect of a request on a transactional
id; here they are applied to an immutable value, so that states can be compared and kept. Brokers may lose the ends of a
transaction (KAFKA-20734): its id is complete, and nothing was written.

A coordinator or a leader may not learn that it was replaced, because it has lost its connection to the controller. It
then still answers from its former state, and accepts no change, because no other broker stores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from kafka_sink.broker.coordinator import transaction_state as rules
from kafka_sink.broker.coordinator.transaction_state import (
    NO_PRODUCER_EPOCH,
    TransactionMetadata,
    TransactionState,
)
from kafka_sink.client.blocking.leader_requests import LogTransaction
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import (
    LAST_PRODUCER_EPOCH,
    NO_TIMEOUT_MS,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionVersion,
)
from kafka_sink.exactly_once.transactions import RESERVED_EPOCHS, Transaction, TransactionDescription

TOPIC: Final = "t"
GROUP: Final = "s"
PARTITIONS: Final = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
#: The participant of a transaction with offsets of the group.
OFFSETS: Final = TopicPartition("__consumer_offsets", 0)

#: Request → its receiver: the coordinator of the group or of transactions, or the leaders of the rows.
COORDINATORS: Final = {
    "offsets": "group",
    "commit_offsets": "group",
    **dict.fromkeys(("describe", "list", "init", "add", "end"), "transactions"),
    **dict.fromkeys(("write", "end_offsets", "open"), "leaders"),
}

#: The first transaction of an id that begins after this epoch has its producer id's last epoch that is not reserved.
NEARLY_LAST_EPOCH: Final = LAST_PRODUCER_EPOCH - RESERVED_EPOCHS - 1

_NO_GROUPS: Final[frozenset[str]] = frozenset()


class Entry(NamedTuple):
    """A row with its *value*, or without one the marker of a transaction, a *commit* or an abort."""

    producer_id: int
    epoch: int
    value: str | None
    commit: bool = False


class Offset(NamedTuple):
    """A committed offset of one partition of the progress topic."""

    partition: int
    offset: int
    metadata: str


@dataclass(frozen=True)
class Model:
    """The whole cluster. *pending* has the offsets of open transactions, by producer id. New ids begin after
    *first_epoch*."""

    version: TransactionVersion
    ids: tuple[tuple[str, TransactionMetadata], ...] = ()
    logs: tuple[tuple[Entry, ...], ...] = ((), ())
    pending: frozenset[tuple[int, Offset]] = frozenset()
    committed: frozenset[Offset] = frozenset()
    next_producer_id: int = 1
    first_epoch: int = NO_PRODUCER_EPOCH
    #: The state of a replaced coordinator of transactions, of a replaced coordinator of the group, and of old leaders.
    old_ids: tuple[tuple[str, TransactionMetadata], ...] | None = None
    old_offsets: tuple[frozenset[tuple[int, Offset]], frozenset[Offset]] | None = None
    old_logs: tuple[tuple[Entry, ...], ...] | None = None

    def __hash__(self) -> int:
        # Sets of worlds contain models, and hashing their fields takes long.
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.ids, self.logs, self.pending, self.committed, self.old_ids, self.old_offsets, self.old_logs))

    # --- requests ----------------------------------------------------------------------------------------------------

    def ask(self, operation: str, *arguments: Any) -> tuple[Model, Any]:
        """Return the cluster after a request, and the answer: a value, or an ErrorCode."""
        known = self._asked.get((operation, arguments))
        if known is None:
            try:
                known = getattr(self, f"_{operation}")(*arguments)
            except ApiError as error:
                known = self, error.code
            self._asked[operation, arguments] = known
        return known

    @cached_property
    def _asked(self) -> dict[tuple[str, tuple[Any, ...]], tuple[Model, Any]]:
        """Return the cache of this cluster's answers, because many drivers send the same requests."""
        return {}

    @cached_property
    def _completed(self) -> dict[tuple[str, frozenset[TopicPartition]], Model]:
        return {}

    @cached_property
    def replaced(self) -> frozenset[str]:
        """Return the coordinators and leaders that were replaced and have not learned of it."""
        olds = {"group": self.old_offsets, "transactions": self.old_ids, "leaders": self.old_logs}
        return frozenset(coordinator for coordinator, old in olds.items() if old is not None)

    def of_replaced(self, coordinator: str) -> Model:
        """Return the cluster in the state that the replaced *coordinator*, or the replaced leaders, know."""
        if coordinator == "leaders":
            assert self.old_logs is not None
            return replace(self, logs=self.old_logs)
        if coordinator == "transactions":
            assert self.old_ids is not None
            return replace(self, ids=self.old_ids)
        assert self.old_offsets is not None
        pending, committed = self.old_offsets
        return replace(self, pending=pending, committed=committed)

    def _describe(self, names: tuple[str, ...]) -> tuple[Model, tuple[TransactionDescription, ...]]:
        known = dict(self.ids)
        return self, tuple(_description(known[name]) for name in names if name in known)

    def _list(self, states: tuple[str, ...], producer_ids: frozenset[int]) -> tuple[Model, tuple[str, ...]]:
        return self, tuple(
            name
            for name, each in self.ids
            if (not states or each.state in states) and (not producer_ids or each.producer_id in producer_ids)
        )

    def _init(
        self, name: str, timeout_ms: int, expected: ProducerIdAndEpoch | None, two_phase: bool
    ) -> tuple[Model, Any]:
        timeout_ms = NO_TIMEOUT_MS if two_phase else timeout_ms
        known = dict(self.ids).get(name)
        if known is None:
            known = TransactionMetadata(name, self.next_producer_id, timeout_ms, 0, self.first_epoch)
        changed = rules.init_producer_id(known, timeout_ms, expected, self.version, self._new_id, 0)
        model = self.with_id(changed)
        if changed.state.is_deciding:
            return model, ErrorCode.CONCURRENT_TRANSACTIONS
        return model, Transaction(name, changed.producer_id, changed.producer_epoch)

    def _add(self, transaction: Transaction, partitions: frozenset[TopicPartition], group: bool) -> tuple[Model, Any]:
        added = partitions | ({OFFSETS} if group else frozenset())
        return self._added(transaction, added, TransactionVersion.V1), None

    def _added(
        self, transaction: Transaction, partitions: Iterable[TopicPartition], version: TransactionVersion
    ) -> Model:
        known = self._known(transaction)
        return self.with_id(
            rules.add_partitions(known, transaction.producer, frozenset(partitions), _NO_GROUPS, version, 0)
        )

    def _write(self, transaction: Transaction, partition: int, value: str) -> tuple[Model, Any]:
        model = self
        place = PARTITIONS[partition]
        log = self.logs[partition]
        mine = [each for each in log if each.producer_id == transaction.producer_id]
        if any(each.value == value for each in mine):
            # A retry of a record batch that was stored.
            same = (each.producer_id == transaction.producer_id and each.value == value for each in log)
            return self, list(same).index(True)
        if mine and mine[-1].epoch > transaction.epoch:
            return self, ErrorCode.INVALID_PRODUCER_EPOCH
        if self.version is TransactionVersion.V2:
            model = self._added(transaction, {place}, self.version)
        elif rules.missing_partitions(self._known(transaction), transaction.producer, {place}):
            return self, ErrorCode.TRANSACTION_ABORTABLE
        entry = Entry(transaction.producer_id, transaction.epoch, value)
        return model.with_log(partition, (*log, entry)), len(log)

    def _commit_offsets(self, transaction: Transaction, offsets: tuple[Offset, ...]) -> tuple[Model, Any]:
        model = self
        if self.version is TransactionVersion.V2:
            model = self._added(transaction, {OFFSETS}, self.version)
        elif rules.missing_partitions(self._known(transaction), transaction.producer, {OFFSETS}):
            return self, ErrorCode.INVALID_TXN_STATE
        kept = {(pid, each) for pid, each in model.pending if pid != transaction.producer_id}
        pending = frozenset(kept | {(transaction.producer_id, each) for each in offsets})
        return replace(model, pending=pending), tuple(sorted(self.committed))

    def _end(self, transaction: Transaction, commit: bool) -> tuple[Model, Any]:
        known = self._known(transaction)
        changed = rules.end_transaction(known, transaction.producer, self.version, self._new_id, 0, committed=commit)
        return self.with_id(changed), None

    def _offsets(self, stable: bool) -> tuple[Model, Any]:
        if stable and self.pending:
            return self, ErrorCode.UNSTABLE_OFFSET_COMMIT
        return self, tuple(sorted(self.committed))

    def _end_offsets(self, stable: bool) -> tuple[Model, tuple[int, ...]]:
        return self, tuple(_stable_end(log) if stable else len(log) for log in self.logs)

    def _open(self) -> tuple[Model, tuple[tuple[LogTransaction, ...], ...]]:
        return self, tuple(_open_in(log) for log in self.logs)

    # --- steps of brokers --------------------------------------------------------------------------------------------

    @cached_property
    def deciding(self) -> list[str]:
        """Return the ids whose ends are being written."""
        return [name for name, each in self.ids if each.state.is_deciding]

    @cached_property
    def timing_out(self) -> list[str]:
        """Return the ids whose open transaction may time out."""
        return [
            name
            for name, each in self.ids
            if each.state is TransactionState.ONGOING and each.timeout_ms != NO_TIMEOUT_MS
        ]

    def complete(self, name: str, lost: frozenset[TopicPartition] = frozenset()) -> Model:
        """Write the ends of the decided transaction of *name*, except those of the participants that are *lost*."""
        model = self._completed.get((name, lost))
        if model is None:
            model = self._completed[name, lost] = self._ended(name, lost)
        return model

    def _ended(self, name: str, lost: frozenset[TopicPartition]) -> Model:
        decided = dict(self.ids)[name]
        model = self
        for partition, place in enumerate(PARTITIONS):
            if place in decided.partitions and place not in lost:
                entry = Entry(decided.producer_id, decided.producer_epoch, None, decided.state.is_commit)
                model = model.with_log(partition, (*model.logs[partition], entry))
        if OFFSETS in decided.partitions and OFFSETS not in lost:
            model = model.with_ended_offsets(decided)
        return model.with_id(decided.completed(0))

    def losses(self, name: str) -> list[frozenset[TopicPartition]]:
        """Return the participants of the decided transaction of *name* whose ends may be lost together: all, those with
        rows, or the group."""
        participants = dict(self.ids)[name].partitions
        rows = participants - {OFFSETS}
        return sorted({each for each in (participants, rows, participants - rows) if each}, key=sorted)

    def with_replaced(self, coordinator: str) -> Model:
        """Replace the *coordinator* of transactions or of the group, or the leaders, which do not learn of it."""
        if coordinator == "leaders":
            return replace(self, old_logs=self.logs)
        if coordinator == "transactions":
            return replace(self, old_ids=self.ids)
        return replace(self, old_offsets=(self.pending, self.committed))

    def time_out(self, name: str) -> Model:
        """Begin to abort the open transaction of *name*."""
        return self.with_id(rules.fenced(dict(self.ids)[name], self.version, self._new_id, 0))

    def after_a_week(self, *, offsets: bool, ids: bool) -> Model:
        """Time out all transactions that can, and complete the decided ones. Then expire the group's *offsets* that no
        open transaction holds, or the *ids* at rest, or both."""
        model = self
        for name in model.timing_out:
            model = model.time_out(name)
        for name in model.deciding:
            model = model.complete(name)
        held = {each.partition for _, each in model.pending}
        return replace(
            model,
            committed=frozenset(each for each in model.committed if not offsets or each.partition in held),
            ids=tuple((name, each) for name, each in model.ids if not ids or not _is_at_rest(each)),
        )

    # --- readers -----------------------------------------------------------------------------------------------------

    def visible(self) -> list[str]:
        """Return the rows that readers of committed records see."""
        return [value for log in self.logs for value in _visible_in(log)]

    @property
    def is_settled(self) -> bool:
        """Return whether logs and offsets have no open transaction."""
        return not self.pending and all(_stable_end(log) == len(log) for log in self.logs)

    # --- changes -----------------------------------------------------------------------------------------------------

    def _known(self, transaction: Transaction) -> TransactionMetadata:
        known = dict(self.ids).get(transaction.transactional_id)
        if known is None:
            raise ApiError("no such id", ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return known

    def with_id(self, changed: TransactionMetadata) -> Model:
        ids: Mapping[str, TransactionMetadata] = {**dict(self.ids), changed.transactional_id: changed}
        taken = max(changed.producer_id, changed.next_producer_id) + 1
        return replace(
            self,
            ids=tuple(sorted(ids.items(), key=lambda item: item[0])),
            next_producer_id=max(self.next_producer_id, taken),
        )

    def _new_id(self) -> int:
        return self.next_producer_id

    def with_log(self, partition: int, log: tuple[Entry, ...]) -> Model:
        logs = list(self.logs)
        logs[partition] = log
        return replace(self, logs=tuple(logs))

    def with_ended_offsets(self, decided: TransactionMetadata) -> Model:
        ended = {each for pid, each in self.pending if pid == decided.producer_id}
        committed = self.committed
        if decided.state.is_commit:
            partitions = {each.partition for each in ended}
            committed = frozenset({each for each in committed if each.partition not in partitions} | ended)
        pending = frozenset((pid, each) for pid, each in self.pending if pid != decided.producer_id)
        return replace(self, pending=pending, committed=committed)


def offsets_of(answer: Iterable[Offset]) -> dict[int, OffsetAndMetadata]:
    return {each.partition: OffsetAndMetadata(each.offset, each.metadata) for each in answer}


def _is_at_rest(known: TransactionMetadata) -> bool:
    return known.state in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def _description(known: TransactionMetadata) -> TransactionDescription:
    return TransactionDescription(
        Transaction(known.transactional_id, known.producer_id, known.producer_epoch),
        str(known.state),
        frozenset(each for each in known.partitions if each != OFFSETS),
        known.timeout_ms,
    )


@lru_cache(maxsize=10_000)
def _visible_in(log: tuple[Entry, ...]) -> tuple[str, ...]:
    found: list[str] = []
    for position, entry in enumerate(log[: _stable_end(log)]):
        ends = (each for each in log[position:] if each.value is None and each.producer_id == entry.producer_id)
        if entry.value is not None and next(ends).commit:
            found.append(entry.value)
    return tuple(found)


@lru_cache(maxsize=10_000)
def _open_in(log: tuple[Entry, ...]) -> tuple[LogTransaction, ...]:
    first: dict[int, LogTransaction] = {}
    for position, entry in enumerate(log):
        if entry.value is None:
            first.pop(entry.producer_id, None)
        else:
            start = first[entry.producer_id].start_offset if entry.producer_id in first else position
            first[entry.producer_id] = LogTransaction(entry.producer_id, entry.epoch, start, 0, 0)
    return tuple(first.values())


def _stable_end(log: tuple[Entry, ...]) -> int:
    return min((each.start_offset for each in _open_in(log)), default=len(log))
