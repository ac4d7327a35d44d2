"""The table of exactly once: the next move of a driver that begins a batch, from its knowledge of its sink.

Pure values and functions: :func:`next_move` is the only place that decides, and it sends no request. It is total: for
every situation, the first rule of :data:`TABLE` that applies gives the move. :mod:`~kafka_sink.exactly_once.planning`
observes and performs. ``docs/internals/exactly-once.md`` shows the same table, printed from this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from kafka_sink.client.blocking.leader_requests import LogTransaction
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import TopicPartition, TransactionVersion
from kafka_sink.exactly_once.model import Log, Progress
from kafka_sink.exactly_once.transactions import Transaction, TransactionDescription

#: Open transactions of one producer id, by partition.
OpenRows: TypeAlias = Mapping[TopicPartition, LogTransaction]


class Fence(Enum):
    """The driver's own InitProducerId in this plan."""

    NONE = "not sent yet, or a move has used up its epoch since"
    HELD = "its epoch follows the transaction that was described before it, or is 0 of a new id or producer id"
    LATE = (
        "its epoch is a later one: another driver has fenced in between. In the next observation the id still has this "
        "driver's epoch"
    )
    LOST = "its epoch is a later one, and in the next observation the id has the epoch of a newer driver"


class End(Enum):
    """How far the last transaction of the driver's id has ended, everywhere. The first one that applies counts."""

    UNSEEN = "unknown: the progress was read before the id was described, or at the same time"
    UNUSED = "none: the id is new or forgotten, and no offsets are pending"
    ENDING = "PrepareCommit or PrepareAbort: decided, and its coordinator writes the markers"
    OPEN = "Ongoing, with an ordinary time-out"
    APPLYING = "any other state, with offsets pending and no rows open, within two seconds of the beginning of the plan"
    REPAIR_ABORTED = "CompleteAbort with the time-out of a repair: a lost commit was aborted while it was written again"
    REPAIR = "a lost commit that is being written again: it has a time-out that no other transaction has"
    ENDED = (
        "complete, with its marker in every partition and, if it is a commit, in the progress; or Empty, or a repair "
        "that is a complete commit, with neither open rows nor pending offsets"
    )
    LOST_COMMIT = (
        "CompleteCommit, and its marker is missing in a partition, or the progress does not name it or is missing"
    )
    LOST_ABORT = "CompleteAbort, and its marker is missing in a partition, or offsets are pending"
    UNPROVEN = "its marker is missing, and the id is Empty, is forgotten, or has open rows of another epoch"


class Batch(Enum):
    """The transactions of the last decided batch."""

    COMMITTED = (
        "all are committed, or there are none: without progress, or in the atomic protocol, in which the driver's "
        "transaction contains the rows"
    )
    UNKNOWN = "not all are described as committed, and EndTxn was not sent in this plan"
    ABORTED = "according to EndTxn, the brokers had aborted all"
    FORGOTTEN = "according to EndTxn, the brokers have forgotten them; or an operator accepts the torn batch"
    TORN = "according to EndTxn, the brokers had aborted or have forgotten some"


class Move(Enum):
    """The driver's next action. The texts are those of the documentation."""

    REFUSE_WRITER = "stop with ProgressError"
    SKIP = "end the plan without an epoch: the batch is not written"
    FOLLOW = "end the plan with the epoch that the last commit has begun"
    DESCRIBE = "DescribeTransactions of the decided batch's transactions"
    SEE = "observe"
    WAIT = "pause, then observe"
    ABORT_OPEN = "InitProducerId with its producer id and epoch (KIP-360), which aborts it; then observe"
    COMMIT_AGAIN = (
        "if it is not a repair yet, first record its epoch in the repair id, and send InitProducerId with its producer "
        "id and epoch and the time-out of a repair. In both cases AddPartitionsToTxn and AddOffsetsToTxn for the "
        "missing markers, EndTxn (commit); then observe"
    )
    ABORT_AGAIN = "AddPartitionsToTxn and AddOffsetsToTxn for the missing markers, EndTxn (abort); then observe"
    FENCE = (
        "InitProducerId without an epoch, once. With an answer: read the progress; if the epoch is not the next one, "
        "observe before that. Without an answer, or if a transaction was open: observe"
    )
    STOP_LOST_END = "stop with LostEndError"
    STOP_FENCED = "stop with FencedError"
    COMMIT_DECIDED = "EndTxn (commit) of those transactions; its error codes give their outcomes"
    PROVE = (
        "write a progress, read the previous one from the same coordinator, and abort the write. If it differs from "
        "the progress of this plan, end the plan and plan the batch again. The fence is used up; observe"
    )
    STOP_TORN = "stop with TornBatchError"
    ROLL_BACK = "decide a progress that names the previous batch, and no transactions. The fence is used up; observe"
    TRY_TWO_PHASE = "InitProducerId with two-phase commit. The fence is used up; observe"
    CLEAR_RECORD = (
        "InitProducerId of the repair id with its producer id and epoch, which records that no commit is lost"
    )
    ABORT_LEFT = "EndTxn (abort) of the open transactions of tasks"
    SEARCH = "search the logs for lost markers of tasks, and write them again"
    BEGIN = "end the plan with the epoch of the fence"


#: The moves that end a plan.
LAST_MOVES: Final = frozenset({Move.SKIP, Move.FOLLOW, Move.BEGIN})


@dataclass(frozen=True)
class Situation:
    """A driver's knowledge of its sink at one moment of a plan.

    *last* is the description of the driver's id (None: never used, or forgotten); *open_rows* are rows of its producer
    that are open in partitions, and *behind* the partitions of the last batch whose last stable offset has not reached
    its end. *record* is the id that records a lost commit of the driver. *is_stable*: no transaction holds a newer
    progress. *is_in_order*: the description was made before the progress was read. *is_patient*: the driver has waited
    for less than two seconds. *left_open* are the transactions that tasks had open before the fence; *described* has
    the descriptions of the decided batch's ids, if requested, and *outcomes* the error codes of its commits.

    *own* is the driver's transaction of the batch that this process planned last. *fence* is the transaction that this
    plan's InitProducerId has begun, and *fenced_after* the one that was described before. *is_proven*: an accepted
    write has proven that *progress* is the latest one, and that no newer driver had taken over when *left_open* was
    listed. *logs* are those that rows go to, *partition_count* is the number of partitions of the progress topic.
    """

    version: TransactionVersion
    wanted_timeout_ms: int
    #: The writer and the version to be written, if they are known, and the version that an operator accepts.
    writer: str | None = None
    batch_version: int | None = None
    accepted: int | None = None
    own: Transaction | None = None
    last: TransactionDescription | None = None
    open_rows: OpenRows = field(default_factory=dict)
    behind: frozenset[TopicPartition] = frozenset()
    record: TransactionDescription | None = None
    progress: Progress | None = None
    is_stable: bool = True
    is_in_order: bool = True
    is_patient: bool = True
    left_open: tuple[Transaction, ...] = ()
    described: Mapping[str, TransactionDescription] | None = None
    outcomes: Mapping[Transaction, ErrorCode] | None = None
    fence: Transaction | None = None
    fenced_after: Transaction | None = None
    timeout_ms: int = 0
    is_proven: bool = False
    has_new_leaders: bool = False
    needs_two_phase: bool = False
    partition_count: int = 0
    logs: frozenset[Log] = frozenset()

    @property
    def fence_state(self) -> Fence:
        if self.fence is None:
            return Fence.NONE
        if follows(self.fence, self.fenced_after):
            return Fence.HELD
        return Fence.LATE if self.last is not None and self.last.transaction == self.fence else Fence.LOST

    @property
    def is_in_progress(self) -> bool:
        """Whether the last transaction, if it is a commit, is the one that decided the progress: each commit of a
        driver has one. Otherwise its marker was lost, or a replaced group coordinator has answered. A progress of
        release 1.0.0 does not name its transaction."""
        last, progress = self.last, self.progress
        if last is None or last.state != "CompleteCommit" or last.is_repair:
            return True
        if progress is None or progress.decider is None:
            return progress is not None
        decided = Transaction(last.transaction.transactional_id, *progress.decider)
        return last.is_commit_of(decided, progress.transaction_version)

    @property
    def recorded_epoch(self) -> int | None:
        """The epoch of the driver's commit that is recorded as lost; None if none is."""
        return None if self.record is None else self.record.recorded_epoch

    @property
    def is_decision_lost(self) -> bool:
        """Whether a commit of the driver is recorded as lost, and the progress does not prove that it was written
        again. An older progress does not have the decision; in the atomic protocol, the progress may have its commit
        marker, and the rows an abort marker."""
        if self.recorded_epoch is None:
            return False
        if self.progress is None or self.progress.decider is None:
            return True
        epoch, has_own_rows = self.progress.decider.epoch, not self.progress.transactions
        return epoch < self.recorded_epoch or (has_own_rows and epoch == self.recorded_epoch)

    @property
    def end(self) -> End:
        last = self.last
        if not self.is_in_order:
            return End.UNSEEN
        if last is None:
            if self.is_stable:
                return End.UNUSED
            return End.APPLYING if self.is_patient else End.UNPROVEN
        if last.state in ("PrepareCommit", "PrepareAbort"):
            return End.ENDING
        if last.is_ongoing and not last.is_repair:
            return End.OPEN
        is_missing = not self.is_stable or bool(self.open_rows)
        if is_missing and not self.open_rows and self.is_patient:
            # Older coordinators apply the marker to the offsets a moment after the transaction is complete.
            return End.APPLYING
        if last.is_repair:
            if last.state == "CompleteAbort":
                return End.REPAIR_ABORTED
            return End.ENDED if last.state == "CompleteCommit" and not is_missing else End.REPAIR
        if not is_missing and not self.behind and self.is_in_progress:
            return End.ENDED
        return self._missing(last)

    def _missing(self, last: TransactionDescription) -> End:
        """The end of the complete transaction *last*, whose marker is missing somewhere."""
        commit = last.proves_commit((txn.epoch for txn in self.open_rows.values()), self.version)
        if commit is None:
            return End.UNPROVEN
        return End.LOST_COMMIT if commit else End.LOST_ABORT

    @property
    def unended(self) -> list[Transaction]:
        """The decided transactions that are not described as committed."""
        if self.progress is None:
            return []
        described, version = self.described or {}, self.progress.transaction_version
        return [
            txn
            for txn in self.progress.transactions
            if (description := described.get(txn.transactional_id)) is None
            or not description.is_commit_of(txn, version)
        ]

    @property
    def decided_ids(self) -> list[str]:
        """The ids of the decided transactions."""
        return [] if self.progress is None else [txn.transactional_id for txn in self.progress.transactions]

    @property
    def batch(self) -> Batch:
        if self.outcomes is None or self.progress is None:
            return Batch.UNKNOWN if self.unended else Batch.COMMITTED
        batch = outcome_of(self.progress, self.outcomes)
        return Batch.FORGOTTEN if batch is Batch.TORN and self.accepted == self.progress.version else batch

    @property
    def undecided(self) -> list[Transaction]:
        """The transactions that tasks left open, without those of the decided batch."""
        decided = frozenset(() if self.progress is None else self.progress.transactions)
        return [txn for txn in self.left_open if txn not in decided]

    def with_progress(self, progress: Progress | None) -> Situation:
        """This situation with the *progress* that was read last; outcomes and proof of another one are discarded."""
        if progress == self.progress:
            return self
        return replace(self, progress=progress, outcomes=None, is_proven=False)


def outcome_of(progress: Progress, outcomes: Mapping[Transaction, ErrorCode]) -> Batch:
    """The outcome of *progress*'s batch; *outcomes* are the codes of commits, the rest was committed before."""
    undone = [txn for txn, code in outcomes.items() if code is not ErrorCode.NONE]
    if not undone:
        return Batch.COMMITTED
    forgotten = [txn for txn in undone if outcomes[txn] is ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    if len(forgotten) == len(undone):
        return Batch.FORGOTTEN
    return Batch.ABORTED if len(undone) == len(progress.transactions) and not forgotten else Batch.TORN


def follows(fence: Transaction, last: Transaction | None) -> bool:
    """Whether *fence* is the epoch that InitProducerId gives out after *last* (None: an id that was never used, or is
    forgotten), if no other fence came in between. A coordinator that was replaced may not know the id."""
    if last is None or fence.producer_id != last.producer_id:
        return fence.epoch == 0
    return fence.epoch == last.epoch + 1


class Condition(NamedTuple):
    """A condition of rules, with its *text* in the documentation."""

    text: str
    holds: Callable[[Situation], bool]


def nothing_happened(s: Situation) -> bool:
    """Whether no other driver, open task transaction or new leader was seen since this process planned its last batch,
    which is committed and decided the progress."""
    last, own, progress = s.last, s.own, s.progress
    return (
        s.version is TransactionVersion.V2
        and own is not None
        and last is not None
        and last.is_commit_of(own, s.version)
        and last.timeout_ms == s.wanted_timeout_ms
        and not last.transaction.is_reserved
        and progress is not None
        and progress.decider == own.producer
        and not (s.left_open or s.has_new_leaders or s.needs_two_phase)
    )


_ANOTHER_WRITER: Final = Condition(
    "the progress belongs to another writer",
    lambda s: s.writer is not None and s.progress is not None and s.progress.writer != s.writer,
)
_LATER_BATCH: Final = Condition(
    "the batch to be written is older than the last committed one",
    lambda s: s.batch_version is not None and s.progress is not None and s.batch_version < s.progress.version,
)
_NOTHING_HAPPENED: Final = Condition(
    "transaction version 2; the last transaction is the commit of the batch that this process planned last, and has "
    "decided the progress; no task of any process has an open transaction; no leader has changed; the epoch of the "
    "commit is not reserved, and its time-out is an ordinary one",
    nothing_happened,
)
_NOT_DESCRIBED: Final = Condition("the transactions were not described in this plan", lambda s: s.described is None)
_RECORDED_COMMIT: Final = Condition(
    "the last transaction is a commit, and a lost commit is recorded",
    lambda s: s.recorded_epoch is not None and s.last is not None and s.last.state == "CompleteCommit",
)
_RECORDED: Final = Condition(
    "a commit is recorded as lost, and no operator accepts a batch",
    lambda s: s.recorded_epoch is not None and s.accepted is None,
)
_LOST_DECISION: Final = Condition(
    "a commit is recorded as lost, the progress does not prove that it is complete, and no operator accepts a batch",
    lambda s: s.is_decision_lost and s.accepted is None,
)
_ACCEPTED: Final = Condition(
    "an operator accepts a batch, which is decided when the plan has ended", lambda s: s.accepted is not None
)
RESERVED: Final = Condition(
    "the epoch is one of the last two of its producer id", lambda s: s.fence is not None and s.fence.is_reserved
)
_NOT_PROVEN: Final = Condition("the progress is not proven", lambda s: not s.is_proven)
_NEW_OR_LEFT_OPEN: Final = Condition(
    "there is no progress, or before the fence tasks had open transactions that the progress does not list",
    lambda s: s.progress is None or bool(s.undecided),
)
_LEFT_UNDECIDED: Final = Condition(
    "before the fence tasks had open transactions that the progress does not list, and they are not aborted yet",
    lambda s: bool(s.undecided),
)
_TWO_PHASE_UNTRIED: Final = Condition(
    "two-phase commit is enabled, and this process has not tried it", lambda s: s.needs_two_phase
)
_NEW_LEADERS: Final = Condition(
    "this process has not searched the partitions, or not under their present leaders", lambda s: s.has_new_leaders
)


@dataclass(frozen=True)
class Rule:
    """*move* in each situation with one of these fences, ends and batches (empty: any), in which each condition of
    *also* holds; *reason* says why that is safe."""

    move: Move
    fences: tuple[Fence, ...] = ()
    ends: tuple[End, ...] = ()
    batches: tuple[Batch, ...] = ()
    also: tuple[Condition, ...] = ()
    reason: str = ""

    def because(self, reason: str) -> Rule:
        return replace(self, reason=reason)

    def applies(self, s: Situation) -> bool:
        return (
            (not self.fences or s.fence_state in self.fences)
            and (not self.ends or s.end in self.ends)
            and (not self.batches or s.batch in self.batches)
            and all(condition.holds(s) for condition in self.also)
        )


_BEFORE: Final = (Fence.NONE,)
#: The last transaction is observed before the fence, and once more if another driver has fenced in between.
_LOOKING: Final = (Fence.NONE, Fence.LATE)
_AFTER: Final = (Fence.HELD, Fence.LATE)

TABLE: Final = (
    Rule(Move.REFUSE_WRITER, also=(_ANOTHER_WRITER,)).because(
        "A sink has one writer. Before the fence, this driver has not disturbed the other writer."
    ),
    Rule(Move.SKIP, _BEFORE, also=(_LATER_BATCH,)).because(
        "No driver writes a batch below the last committed one, so no fence is necessary. A stale answer may only name "
        "an older batch."
    ),
    Rule(Move.DESCRIBE, _BEFORE, (End.ENDED,), (Batch.UNKNOWN,), (_NOTHING_HAPPENED, _NOT_DESCRIBED)).because(
        "A description changes nothing."
    ),
    Rule(Move.FOLLOW, _BEFORE, (End.ENDED,), (Batch.COMMITTED,), (_NOTHING_HAPPENED,)).because(
        "EndTxn has begun the next epoch (KIP-890). All drivers that this process fenced in its first batch are still "
        "fenced; a driver that fences from now on stops this one at TxnOffsetCommit at the latest. An epoch has one "
        "commit, so the progress that it decided is the latest one."
    ),
    Rule(Move.SEE, _BEFORE, (End.UNSEEN,)).because(
        "A transaction could begin, time out and lose its marker between the two answers."
    ),
    Rule(Move.WAIT, _LOOKING, (End.ENDING, End.APPLYING)).because("A decided transaction has only one outcome."),
    Rule(Move.ABORT_OPEN, _LOOKING, (End.OPEN,)).because(
        "An open transaction is undecided. If it is decided in the meantime, it stays decided, because the request "
        "names the exact epoch. EndTxn would not fence in version 1."
    ),
    Rule(Move.COMMIT_AGAIN, _LOOKING, (End.LOST_COMMIT, End.REPAIR)).because(
        "The description proves a commit. The next InitProducerId would overwrite that proof, so this one records it "
        "in the id: a driver that finds the time-out of a repair continues the commit. The move writes only markers; "
        "every request names the exact epoch, so that two drivers may do the same."
    ),
    Rule(Move.ABORT_AGAIN, _LOOKING, (End.LOST_ABORT,)).because(
        "The description proves an abort. The move may be repeated and interrupted at any point."
    ),
    Rule(Move.FENCE, _BEFORE, (End.REPAIR_ABORTED,), also=(_ACCEPTED,)).because(
        "The operator has compared the batches with their source, and says which one is the last."
    ),
    Rule(Move.STOP_LOST_END, _LOOKING, (End.UNPROVEN, End.REPAIR_ABORTED)).because(
        "The next marker of the producer id would commit or abort the open rows, and nothing proves how they were "
        "decided. An operator has to decide."
    ),
    Rule(Move.CLEAR_RECORD, _BEFORE, also=(_RECORDED_COMMIT,)).because(
        "The description proves that the commit is complete: it was written again, or a later one follows it. The "
        "fence will overwrite that proof."
    ),
    Rule(Move.FENCE, _BEFORE, (End.UNUSED, End.ENDED)).because(
        "There is no open transaction or missing marker that the fence could end in the wrong way. The fence is never "
        "repeated without an observation: if its answer is lost, or a transaction was open, it may have aborted the "
        "repair of another driver."
    ),
    Rule(Move.STOP_FENCED, (Fence.LOST,)).because(
        "The process with the newest epoch is the driver, even if it is an older process that resumed late."
    ),
    Rule(Move.FENCE, _AFTER, also=(RESERVED,)).because(
        "After its last epochs an id gets another producer id, and no request reaches open rows of the former one. "
        "These epochs are reserved for repairs."
    ),
    Rule(Move.PROVE, _AFTER, also=(_LOST_DECISION, _NOT_PROVEN)).because(
        "A group coordinator that was replaced may have answered with an older progress."
    ),
    Rule(Move.STOP_LOST_END, _AFTER, also=(_LOST_DECISION,)).because(
        "Fences of other drivers may have aborted the lost commit during its repair, and overwritten the trace of the "
        "abort. An operator has to decide."
    ),
    Rule(Move.CLEAR_RECORD, _AFTER, also=(_RECORDED,)).because(
        "The progress is the recorded decision, or a later one."
    ),
    Rule(Move.COMMIT_DECIDED, _AFTER, batches=(Batch.UNKNOWN,)).because(
        "A decision is final, and a second commit changes nothing."
    ),
    Rule(Move.PROVE, _AFTER, batches=(Batch.ABORTED, Batch.FORGOTTEN, Batch.TORN), also=(_NOT_PROVEN,)).because(
        "Replaced coordinators also answer OffsetFetch and DescribeTransactions, but they accept no write."
    ),
    Rule(Move.STOP_TORN, _AFTER, batches=(Batch.TORN,)).because(
        "An operator has to decide about the missing rows, and accept the batch."
    ),
    Rule(Move.ROLL_BACK, _AFTER, batches=(Batch.ABORTED,)).because("No reader will ever see a row of the batch."),
    Rule(Move.PROVE, _AFTER, also=(_NEW_OR_LEFT_OPEN, _NOT_PROVEN)).because(
        "Only transactions that the latest progress does not list may be aborted. For a new sink this also detects "
        "missing permissions before the first row."
    ),
    Rule(Move.TRY_TWO_PHASE, _AFTER, also=(_TWO_PHASE_UNTRIED,)).because(
        "This detects brokers that refuse it before the first row."
    ),
    Rule(Move.ABORT_LEFT, _AFTER, also=(_LEFT_UNDECIDED,)).because(
        "The transactions were listed before the fence, and so belong to no newer driver. The progress is the latest "
        "one, and does not list them."
    ),
    Rule(Move.SEARCH, _AFTER, also=(_NEW_LEADERS,)).because(
        "Lost markers of tasks only delay readers: their ids are not reused."
    ),
    Rule(Move.BEGIN).because(
        "All other drivers are fenced, all earlier transactions have ended, and the read behind the proposal proves "
        "that no other driver has decided. A forgotten batch is neither written again nor skipped (ProgressError)."
    ),
)


def next_move(situation: Situation) -> Move:
    """The move of the first rule of :data:`TABLE` that applies; one always does."""
    return next(rule.move for rule in TABLE if rule.applies(situation))
