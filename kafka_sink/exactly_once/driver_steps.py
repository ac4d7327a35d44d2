"""The steps of a sink's driver: what it asks of the brokers, one exchange or decision at a time.

Used on the driver, by one thread at a time. A driver may die or be overtaken between any two steps: after each of them,
its docstring says what is certain. A step of a driver that was paused and resumes does no harm, because every request
is either fenced or names one exact transaction. Which steps a batch takes, and in which order, is decided by
:mod:`~kafka_sink.exactly_once.planning` and the two protocols.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from typing import Final, NamedTuple

from kafka_sink.client.blocking.exchange import Pause
from kafka_sink.client.metadata.cluster import PartitionInfo
from kafka_sink.client.requests.transactional_requests import TWO_PHASE_NEEDS
from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import ApiError, ErrorCode, KafkaError
from kafka_sink.common.model import TransactionVersion
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.lost_ends import DriverEnd, LostEnds, logs_of
from kafka_sink.exactly_once.model import (
    FENCED,
    RESERVED_EPOCHS,
    ExactlyOnceError,
    FencedError,
    Log,
    OutdatedProgressError,
    Progress,
    TornBatchError,
    Transaction,
    UndecidedError,
)
from kafka_sink.exactly_once.names import driver_id, is_writer_id, sink_id, writer_pattern
from kafka_sink.exactly_once.plan import Plan
from kafka_sink.exactly_once.progress import ProgressStore
from kafka_sink.exactly_once.transaction_description import COMPLETING_MS, TransactionDescription

_log = logging.getLogger(__name__)

#: Kafka's default for transaction.max.timeout.ms.
LONGEST_TIMEOUT_MS: Final = 900_000
#: No practical broker configuration has a lower limit.
_SHORTEST_TIMEOUT_MS: Final = 1000

_SLICE_S: Final = 0.5

#: For each log of a topic besides the progress topic, that topic's metadata are asked for less often, ms: some progress
#: topics were chosen because they are smaller. At most, readers wait so long for an end that the brokers have lost.
MS_FOR_A_LOG: Final = 10
_LONGEST_VALID_MS: Final = 60_000

#: The markers of this process's last batch may still be on their way when its driver looks for the next one.
_PAUSES_FOR_OWN_END_MS: Final = (2, 5, 10, 20)


class Ending(Enum):
    """The outcome of the transactions of a decided batch."""

    COMMITTED = auto()
    #: The brokers aborted all of them, so the batch counts as undecided.
    ABORTED = auto()
    #: The brokers no longer know the ids (transactional.id.expiration.ms), so the outcome of the transactions is
    #: unknown.
    FORGOTTEN = auto()


class Look(NamedTuple):
    """What a driver sees of its sink before the fence: the number of partitions of the progress topic, the logs that
    may have rows of the sink, the latest decision that is already stable, the transactions that tasks left open, and
    how the driver's last transaction ended; None if that is not certain."""

    partition_count: int
    logs: frozenset[Log]
    known: Progress | None
    left_open: list[Transaction]
    driver: DriverEnd | None


class DriverSteps:
    """The steps of one driver. *name* is the prefix of the sink's transactional ids and the name of its group; the
    progress is stored as offsets of *progress_topic*, which must exist.

    :param timeout_ms: transaction.timeout.ms; None for the longest that the brokers allow, at most 15 minutes.
    :param two_phase: the transactions of tasks never time out (KIP-939).
    :param topics: the topics that rows go to, besides the progress topic; None if rows name their topics.
    """

    def __init__(
        self,
        client: CoordinatorClient,
        name: str,
        progress_topic: str,
        *,
        timeout_ms: int | None = None,
        two_phase: bool = False,
        topics: Collection[str] | None = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.client = client
        self.clock = clock
        self.name = name
        #: The prefix of all transactional ids of the sink.
        self.id = sink_id(name, progress_topic)
        self.progress_topic = progress_topic
        self.store = ProgressStore(client, name, progress_topic)
        self.remembered = client.remembered[self.id]
        rows_in = None if topics is None else {progress_topic, *topics}
        self._other_topics = None if rows_in is None else rows_in - {progress_topic}
        self.ends = LostEnds(client, self.store, name, self.id, rows_in, clock)
        self.two_phase = two_phase
        self._timeout_ms = timeout_ms

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Within, no other thread of this process plans or writes a batch of the sink: each would fence the other."""
        turn = self.remembered.turn
        if not turn.acquire(timeout=_SLICE_S):
            _log.info("another thread of this process writes to the sink %r; this one waits for its turn", self.name)
            # In slices: an exception that another thread asks for wakes no lock.
            while not turn.acquire(timeout=_SLICE_S):
                pass
        try:
            yield
        finally:
            turn.release()

    def look(self, *, with_rows: bool) -> Look:
        """What can be seen of the sink without changing anything. *with_rows*: the driver's transactions contain rows.

        Called before the fence: the tasks of a newer driver begin after its fence, so none of the open transactions is
        theirs.

        :raises ExactlyOnceError: if the topic does not exist.
        """
        pauses_ms = iter(_PAUSES_FOR_OWN_END_MS)
        while True:
            look = self._look_once(with_rows=with_rows)
            # What this process committed is about to be over, and then there is nothing to fence.
            is_over = look.driver is None or look.driver.is_settled or look.driver.open_rows
            pause_ms = None if is_over else next(pauses_ms, None)
            if pause_ms is None:
                return look
            self.client.run(_after(pause_ms))

    def _look_once(self, *, with_rows: bool) -> Look:
        partitions, others, (known, is_stable), left_open, (described, rows) = self.client.together(
            self._partitions(),
            self._other_logs(),
            self.ends.peek(),
            self.left_open(),
            self.ends.driver(self.remembered, with_rows=with_rows),
        )
        # The progress may have been read before the description. Nothing can have happened in between if the
        # description still is the commit of this process's last batch.
        is_own = described is not None and self.ends.is_commit_of_last(described, self.remembered)
        end = DriverEnd(described, is_stable, rows) if is_own else None
        return Look(len(partitions), logs_of(partitions) | others, known, left_open, end)

    async def _partitions(self) -> tuple[PartitionInfo, ...]:
        """The partitions of the progress topic.

        :raises ExactlyOnceError: if the topic does not exist.
        """
        partitions = await self.client.partitions(self.progress_topic)
        if not partitions:
            raise ExactlyOnceError(
                f"topic {self.progress_topic!r} for the progress (option progressTopic) does not exist or is not "
                "visible; create it (option topicPartitions creates a missing topic of the rows), or grant DESCRIBE"
            )
        return partitions

    async def _other_logs(self) -> frozenset[Log]:
        """The logs of the other topics that rows go to; not older than what it costs to ask for them allows."""
        remembered, now_ms = self.remembered, self.clock.monotonic_ms()
        if self._other_topics is not None and not self._other_topics:
            return frozenset()
        if remembered.other_logs_ms is not None:
            valid_ms = min(MS_FOR_A_LOG * len(remembered.other_logs), _LONGEST_VALID_MS)
            if now_ms - remembered.other_logs_ms < valid_ms:
                return remembered.other_logs
        partitions = await self.client.leaders.partitions_of(self._other_topics)
        remembered.other_logs, remembered.other_logs_ms = logs_of(partitions), now_ms
        return remembered.other_logs

    async def left_open(self, winners: Collection[Transaction] = ()) -> list[Transaction]:
        """The open transactions of tasks, without those whose ids are in *winners*, and without those whose lost
        commit is written again."""
        names = await self.client.list_ongoing(writer_pattern(self.id))
        known = {each.transactional_id for each in winners}
        others = [name for name in names if name not in known and is_writer_id(self.id, name)]
        described = await self.client.describe(others)
        return [each.transaction for each in described.values() if each.is_ongoing and not each.is_completing]

    async def following(self, look: Look, transaction_version: TransactionVersion) -> TransactionDescription | None:
        """The driver's next transaction if it may begin without a fence, because nothing happened since this process
        planned the last batch, except that batch's commit; None if a fence is needed.

        In transaction version 2, EndTxn has begun the next epoch (KIP-890), unless another driver has fenced this one.
        The progress may have been read before the description; it is the latest if it is not the one before the batch.
        Tasks must have left nothing open: without a fence before it, it may be what a newer driver's tasks are writing.
        """
        end, remembered = look.driver, self.remembered
        if transaction_version is not TransactionVersion.V2 or end is None or end.described is None:
            return None
        last = remembered.driver
        is_own = last is not None and end.described.is_commit_of(last, transaction_version)
        is_at_rest = end.is_settled and not look.left_open and look.logs <= remembered.logs
        is_as_wanted = end.described.timeout_ms == self._wanted_timeout_ms
        if not (is_own and is_at_rest and is_as_wanted) or look.known in (None, remembered.progress):
            return None
        if self.two_phase and not remembered.has_two_phase:
            return None
        if end.described.transaction.is_reserved:
            return None
        winners = look.known.transactions
        ended = await self.client.describe(each.transactional_id for each in winners)
        return None if _unended(look.known, ended) else end.described

    async def take_over(
        self, end: DriverEnd | None, transaction_version: TransactionVersion, *, with_rows: bool
    ) -> tuple[Transaction, int]:
        """Fence older drivers, whose last transaction ended as *end* says (None: it is asked), once that has ended
        everywhere.

        Nothing can happen to the id between the description of its end and the fence unless its epoch says so. Then
        nobody knows how what happened has ended, and it must have ended everywhere.

        :raises LostEndError: if an end is lost and nothing proves which.
        """
        if end is None:
            end = await self.ends.driver_end(self.remembered, with_rows=with_rows)
        settled = await self.ends.settle_driver(end, transaction_version, self.remembered, with_rows=with_rows)
        last = None if settled is None else settled.transaction
        for _ in range(RESERVED_EPOCHS + 1):
            driver, timeout_ms = await self.fence()
            if not _follows(driver, last):
                now = await self.ends.driver_end(self.remembered, with_rows=with_rows)
                if now.described is None or now.described.transaction != driver:
                    raise FencedError(f"a newer driver has taken over the sink {self.name!r}; this one stops")
                await self.ends.settle_driver(now, transaction_version, self.remembered, with_rows=with_rows)
            if not driver.is_reserved:
                break
            last = driver
        return driver, timeout_ms

    @property
    def _wanted_timeout_ms(self) -> int:
        timeout_ms = LONGEST_TIMEOUT_MS if self._timeout_ms is None else self._timeout_ms
        # That time-out has a meaning of its own.
        return timeout_ms - (timeout_ms in COMPLETING_MS)

    async def fence(self) -> tuple[Transaction, int]:
        """The driver's id with a new epoch, and the time-out that the brokers accepted.

        From then on no older driver can decide anything, and its open transaction is aborted, unless it was decided.
        """
        timeout_ms = self._wanted_timeout_ms
        while True:
            try:
                driver = await self.client.init_producer_id(driver_id(self.id), timeout_ms)
                return driver, timeout_ms
            except ApiError as error:
                is_too_long = error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
                if not is_too_long or self._timeout_ms is not None or timeout_ms // 2 < _SHORTEST_TIMEOUT_MS:
                    raise
                timeout_ms = timeout_ms // 2 - (timeout_ms // 2 in COMPLETING_MS)

    def try_two_phase(self) -> None:
        """Return if the brokers offer two-phase commit to this principal; the driver's id has to be fenced again.

        :raises ExactlyOnceError: if they do not; the text says what they need.
        """
        try:
            self.client.run(self.client.init_producer_id(driver_id(self.id), LONGEST_TIMEOUT_MS, two_phase=True))
        except ApiError as error:
            if error.code not in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
                raise
            raise ExactlyOnceError(f"{TWO_PHASE_NEEDS}; these refuse it ({error.code.name})") from error

    async def propose(self, plan: Plan, progress: Progress) -> None:
        """Add *progress* to the driver's transaction; nothing is decided until the transaction is committed.

        From then on it is certain that *plan*'s progress is the latest decision. The coordinator that accepted the
        write is the current one, all decisions before the driver's fence have ended there, and since then nobody else
        can have decided, or this driver's transaction cannot be committed.

        :raises OutdatedProgressError: if *plan*'s progress is not the latest decision; the transaction is open.
        :raises FencedError: if a newer driver has taken over.
        """
        try:
            await self.store.write(plan.driver, plan.transaction_version, progress, plan.partition_count, plan.progress)
        except ApiError as error:
            if error.code in FENCED:
                # The progress that only proves something is of no batch.
                batch = "" if progress.version < 0 else f"batch {progress.version} was not committed: "
                raise FencedError(
                    f"{batch}a newer driver has taken over the sink {self.name!r} ({error}); this one stops"
                ) from error
            raise

    def end_decision(self, plan: Plan, progress: Progress) -> None:
        """Commit the driver's transaction with the proposed progress; this is the decision. From then on the batch is
        in Kafka as a whole: if this driver dies, the next one commits its transactions. Raises as :meth:`decide`."""
        (code,) = self.client.run(self.client.end([plan.driver], plan.transaction_version, commit=True)).values()
        if code in FENCED:
            # An answer may have been lost, and a newer driver may have taken over before the retry.
            raise FencedError(
                f"a newer driver has taken over the sink {self.name!r} ({code.name}) and knows whether batch "
                f"{progress.version} was committed before; this one stops"
            )
        if code is not ErrorCode.NONE:
            raise UndecidedError(
                f"batch {progress.version} was not committed: the brokers aborted its transaction ({code.name}), "
                "most likely after transaction.timeout.ms; run it again, and make the batches smaller if this is "
                "repeated"
            )

    def decide(self, plan: Plan, progress: Progress) -> None:
        """Commit *progress* as the sink's latest decision, in the transaction of *plan*'s driver.

        :raises OutdatedProgressError: if *plan*'s progress is not the latest decision; the transaction was aborted.
        :raises FencedError: if a newer driver has taken over; the batch was not decided.
        :raises UndecidedError: if the brokers aborted the driver's transaction.
        """
        self._propose_or_abort(plan, progress)
        self.end_decision(plan, progress)

    def prove(self, plan: Plan) -> None:
        """Return if *plan*'s progress is the latest decision and no newer driver had taken over when this was called;
        the driver's id has to be fenced again. Progress is written for that, and aborted.

        Needed before anything is done that only the latest decision permits, other than a decision of this driver:
        OffsetFetch and DescribeTransactions are also answered by coordinators that were replaced.

        :raises OutdatedProgressError: if it is not.
        :raises FencedError: if a newer driver has taken over.
        """
        self._propose_or_abort(plan, Progress(0, "nobody", plan.transaction_version, self.now_s()))
        self.abort([plan.driver], plan.transaction_version)

    def _propose_or_abort(self, plan: Plan, progress: Progress) -> None:
        try:
            self.client.run(self.propose(plan, progress))
        except OutdatedProgressError:
            self.abort([plan.driver], plan.transaction_version)
            raise

    def finish(self, plan: Plan, described: Mapping[str, TransactionDescription]) -> Ending:
        """Commit the transactions that *plan*'s progress decided, except those *described* as committed. From then on
        their rows are visible. If some cannot be committed, the driver's id has to be fenced again.

        :raises TornBatchError: if the brokers had aborted some of them.
        :raises OutdatedProgressError: if some appear aborted, but the progress is not the latest decision.
        :raises FencedError: if some appear aborted, but a newer driver has taken over and may have continued.
        """
        progress = plan.progress
        if progress is None:
            return Ending.COMMITTED
        unended = _unended(progress, described)
        outcomes = self.client.run(self.client.end(unended, progress.transaction_version, commit=True))
        return self.ending(plan, progress, outcomes)

    def ending(self, plan: Plan, progress: Progress, outcomes: Mapping[Transaction, ErrorCode]) -> Ending:
        """The outcome of *progress*, *plan*'s latest decision, from *outcomes*, the codes of its commits; transactions
        missing there were committed before. Raises as :meth:`finish`."""
        undone = [transaction for transaction, code in outcomes.items() if code is not ErrorCode.NONE]
        if not undone:
            return Ending.COMMITTED
        self.prove(plan)
        forgotten = [each for each in undone if outcomes[each] is ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        if len(forgotten) == len(undone):
            return Ending.FORGOTTEN
        if len(undone) == len(progress.transactions) and not forgotten:
            return Ending.ABORTED
        committed = [transaction for transaction in progress.transactions if transaction not in undone]
        raise TornBatchError(progress.version, undone, committed)

    def abort(self, transactions: Collection[Transaction], transaction_version: TransactionVersion) -> None:
        """Abort *transactions*; none of their rows will ever be visible. Those that have ended already stay as they
        are."""
        self.client.run(self.client.end(transactions, transaction_version, commit=False))

    def settle_writers(self, logs: frozenset[Log], transaction_version: TransactionVersion) -> None:
        """Write ends of tasks' transactions that the brokers have lost, so that readers need not wait for them.

        Brokers lose ends only in partitions without a leader, so logs are searched when this process begins, and when
        some of *logs*, those that may have rows of the sink, have other leaders than when they were searched. A failure
        is logged: what is lost holds readers up, and keeps nobody from writing.
        """
        if logs <= self.remembered.logs:
            return
        searched = logs
        try:
            searched = self.client.run(self.ends.settle_writers(transaction_version))
        except KafkaError as error:
            _log.warning("the logs were not searched for transactions whose end the brokers have lost: %s", error)
        self.remembered.logs = searched

    def warn_of_long(self, plan: Plan) -> None:
        """Warn if *plan*'s batch took long; called after its commit."""
        batch_ms = plan.planned.elapsed_ms(self.clock)
        if not plan.two_phase and batch_ms > plan.timeout_ms // 3:
            _log.warning(
                "this batch took %d ms, more than a third of the time that transactions may stay open (%d ms, "
                "kafka.transaction.timeout.ms); a batch that takes longer than that cannot be committed: make the "
                "batches smaller",
                batch_ms,
                plan.timeout_ms,
            )

    def now_s(self) -> int:
        """The wall time of a decision, s."""
        return self.clock.wall_ms() // 1000


async def _after(pause_ms: int) -> None:
    await Pause(pause_ms)


def _unended(progress: Progress, described: Mapping[str, TransactionDescription]) -> list[Transaction]:
    """The decided transactions, except those *described* as committed."""
    version = progress.transaction_version
    return [
        each
        for each in progress.transactions
        if (known := described.get(each.transactional_id)) is None or not known.is_commit_of(each, version)
    ]


def _follows(driver: Transaction, last: Transaction | None) -> bool:
    """Whether *driver* is the epoch that the fence gives out after *last* (None: an id that was never used, or is
    forgotten), if nothing happened in between. A coordinator that was replaced may know nothing of the id."""
    if last is None or driver.producer_id != last.producer_id:
        return driver.epoch == 0
    return driver.epoch == last.epoch + 1
