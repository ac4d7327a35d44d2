"""The steps of a sink's driver: its exchanges with the brokers, and its decisions.

Used on the driver, by one thread at a time. A driver may die or be overtaken between any two steps: the docstring of
each states what is certain after it. A step of a driver that was paused and resumes does no harm, because every request
is either fenced or names one exact transaction. The table of :mod:`~kafka_sink.exactly_once.situation` and the two
protocols determine the steps of a batch and their order.

If a broker dies at the wrong moment, the markers of a transaction may never be written, although its coordinator
describes it as complete (KAFKA-20734). The next marker of the same producer id then decides about its rows as well. So
the driver first writes missing markers again: it adds the partitions to a transaction of the same id, without writing
to them, and ends that one. This needs no permission that the sink does not have.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from kafka_sink.client.blocking.leader_requests import LogTransaction
from kafka_sink.client.metadata.cluster import PartitionInfo
from kafka_sink.client.requests.transactional_requests import TWO_PHASE_NEEDS
from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import ApiError, ErrorCode, KafkaError
from kafka_sink.common.model import TopicPartition, TransactionVersion
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient, unless_overtaken
from kafka_sink.exactly_once.model import (
    ExactlyOnceError,
    FencedError,
    Log,
    LostEndError,
    OutdatedProgressError,
    Plan,
    Progress,
    UndecidedError,
)
from kafka_sink.exactly_once.progress import ProgressStore
from kafka_sink.exactly_once.situation import OpenRows
from kafka_sink.exactly_once.transactions import (
    COMPLETING_MS,
    FENCED,
    NO_RECORD_MS,
    Transaction,
    TransactionDescription,
    driver_id,
    is_writer_id,
    record_of,
    repair_id,
    sink_id,
    writer_pattern,
)

_log = logging.getLogger(__name__)

#: Time-outs from Kafka's default for transaction.max.timeout.ms downwards, ms; brokers allow at least one in practice.
_TIMEOUTS_MS: Final = tuple(900_000 >> halvings for halvings in range(10))

_SLICE_S: Final = 0.5

#: The metadata of topics besides the progress topic are cached for this time for each of their logs, ms, because such a
#: topic may be large; but not longer than the second one. A lost marker may be found that much later.
MS_FOR_A_LOG: Final = 10
_LONGEST_VALID_MS: Final = 60_000


class SinkDriver:
    """One driver of a sink. *name* is the prefix of the sink's transactional ids and the name of its group; the
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
        self.two_phase = two_phase
        self._topics = None if topics is None else {progress_topic, *topics}
        self._timeout_ms = timeout_ms
        #: The options on which an observation depends: one made ahead is valid only for a driver with the same.
        self.wanted = (timeout_ms, two_phase, self._topics)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Within, no other thread of this process plans or writes a batch of the sink: each would fence the other."""
        turn = self.remembered.turn
        if not turn.acquire(timeout=_SLICE_S):
            _log.info("another thread of this process writes to the sink %r; this one waits for its turn", self.name)
            # In slices: an asynchronous exception from another thread does not interrupt a lock wait.
            while not turn.acquire(timeout=_SLICE_S):
                pass
        try:
            yield
        finally:
            turn.release()

    def now_s(self) -> int:
        """The wall time of a decision, s."""
        return self.clock.wall_ms() // 1000

    # --- observe: nothing is changed ---------------------------------------------------------------------------------

    async def partitions(self) -> tuple[PartitionInfo, ...]:
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

    async def other_logs(self) -> frozenset[Log]:
        """The logs of the rows' other topics, cached for MS_FOR_A_LOG for each log, and for a minute at most."""
        remembered, now_ms = self.remembered, self.clock.monotonic_ms()
        others = None if self._topics is None else self._topics - {self.progress_topic}
        if others is not None and not others:
            return frozenset()
        if remembered.other_logs_ms is not None:
            valid_ms = min(MS_FOR_A_LOG * len(remembered.other_logs), _LONGEST_VALID_MS)
            if now_ms - remembered.other_logs_ms < valid_ms:
                return remembered.other_logs
        partitions = await self.client.leaders.partitions_of(others)
        remembered.other_logs, remembered.other_logs_ms = logs_of(partitions), now_ms
        return remembered.other_logs

    async def peek(self) -> tuple[Progress | None, bool]:
        """The progress, and whether it is stable: no transaction holds a newer one."""
        try:
            return await self.store.read(waits=False), True
        except ApiError as error:
            if error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise
        return await self.store.read(require_stable=False), False

    async def left_open(self, winners: Collection[Transaction] = ()) -> list[Transaction]:
        """The open transactions of tasks, without those whose ids are in *winners*, and without those whose lost
        commit is being written again."""
        names = await self.client.list_ids(["Ongoing"], writer_pattern(self.id))
        winning = {winner.transactional_id for winner in winners}
        others = [name for name in names if name not in winning and is_writer_id(self.id, name)]
        described = await self.client.describe(others)
        return [it.transaction for it in described.values() if it.is_ongoing and not it.is_repair]

    def is_own_commit(self, last: TransactionDescription) -> bool:
        """Whether the driver's id is as this process left it: *last* is the commit of its last batch."""
        own = self.remembered.driver
        return own is not None and any(last.is_commit_of(own, version) for version in TransactionVersion)

    async def last_transaction(self, *, with_rows: bool) -> tuple[TransactionDescription | None, OpenRows]:
        """The description of the driver's id, and the rows that its producer id has open although the id's last
        transaction is complete. They are only read *with_rows*: transactions of other drivers contain no rows."""
        name = driver_id(self.id)
        last = (await self.client.describe([name])).get(name)
        if last is None or not with_rows or not (last.is_over or last.is_repair):
            return last, {}
        own_ends = self.remembered.ends if self.is_own_commit(last) else None
        if own_ends is not None and not await self.behind(own_ends):
            return last, {}
        partitions = [partition.topic_partition for partition in await self.client.leaders.partitions_of(self._topics)]
        ends = await self.client.leaders.end_offsets(partitions, stable=False)
        opened = await self._open_before(ends)
        return last, _of_producer(opened, last.transaction.producer_id)

    async def record(self) -> TransactionDescription | None:
        """The description of the id that records a lost commit; None if there is none, as for most sinks."""
        name = repair_id(self.id)
        return (await self.client.describe([name])).get(name)

    async def behind(self, ends: Mapping[TopicPartition, int]) -> frozenset[TopicPartition]:
        """The partitions of *ends* whose last stable offset has not reached the given offset. A replaced leader may
        return a lower offset, but never a higher one: a stable offset stays stable."""
        stable = await self.client.leaders.end_offsets(ends, stable=True)
        return frozenset(partition for partition, offset in stable.items() if offset < ends[partition])

    async def without_end(self, decided: Progress) -> frozenset[TopicPartition]:
        """Those of :meth:`behind` where the driver of *decided* has rows open, or whose leader does not know its rows.
        In the others a transaction of another producer is open."""
        ends, by = dict(decided.ends), decided.decider
        if by is None or not (behind := await self.behind(ends)):
            return frozenset()
        known = await self.client.leaders.end_offsets(behind, stable=False)
        own = _of_producer(await self._open_before({part: ends[part] for part in behind}), by.producer_id)
        return frozenset(part for part in behind if part in own or known[part] < ends[part])

    async def _open_before(self, ends: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, list[LogTransaction]]:
        try:
            return await self.client.leaders.open_before(ends)
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            raise ExactlyOnceError(
                f"{error}: a transaction is open there, and only with READ on the topic can the sink determine whether "
                "it is its own; grant READ to this principal"
            ) from error

    # --- fence -------------------------------------------------------------------------------------------------------

    @property
    def wanted_timeout_ms(self) -> int:
        """The time-out of the driver's transactions, ms; never one of those that record a lost commit."""
        timeout_ms = _TIMEOUTS_MS[0] if self._timeout_ms is None else self._timeout_ms
        return timeout_ms - (timeout_ms in COMPLETING_MS)

    async def fence(self) -> tuple[Transaction, int]:
        """The driver's id with a new epoch, and the time-out that the brokers accepted.

        From then on no older driver can decide. An open transaction of the id is aborted; a decided one is completed.
        After either, or a lost response, the request is not repeated: it would overwrite the only record of how that
        transaction ended.

        :raises ApiError: CONCURRENT_TRANSACTIONS if the id had an open or unfinished transaction.
        :raises DisconnectError: if the response was lost.
        """
        timeouts_ms = _TIMEOUTS_MS if self._timeout_ms is None else (self.wanted_timeout_ms,)
        final = (ErrorCode.CONCURRENT_TRANSACTIONS,)
        return await self._begin_epoch(driver_id(self.id), timeouts_ms, repeat_lost=False, final=final)

    async def _begin_epoch(self, name: str, timeouts_ms: Sequence[int], **options: Any) -> tuple[Transaction, int]:
        """The id with a new epoch, and the first of *timeouts_ms* that the brokers allow; *options* are those of
        :meth:`CoordinatorClient.init_producer_id`."""
        for timeout_ms in timeouts_ms[:-1]:
            try:
                return await self.client.init_producer_id(name, timeout_ms, **options), timeout_ms
            except ApiError as error:
                if error.code is not ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                    raise
        return await self.client.init_producer_id(name, timeouts_ms[-1], **options), timeouts_ms[-1]

    def try_two_phase(self) -> None:
        """Return if the brokers offer two-phase commit to this principal. Then the driver's id must be fenced again.

        :raises ExactlyOnceError: if they do not; the text says what they need.
        """
        try:
            self.client.run(self.client.init_producer_id(driver_id(self.id), _TIMEOUTS_MS[0], two_phase=True))
        except ApiError as error:
            if error.code not in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
                raise
            raise ExactlyOnceError(f"{TWO_PHASE_NEEDS}; these refuse it ({error.code.name})") from error
        self.remembered.has_two_phase = True

    def fenced(self, why: object, version: int = -1) -> FencedError:
        """The error of a driver that is not the latest one; *why* is the evidence, *version* the batch, if any."""
        batch = "" if version < 0 else f"batch {version} was not committed: "
        return FencedError(f"{batch}a newer driver has taken over the sink {self.name!r} ({why}); this one stops")

    # --- decide ------------------------------------------------------------------------------------------------------

    async def propose(self, plan: Plan, progress: Progress, of_tasks: Sequence[Transaction] = ()) -> None:
        """Add *progress* to the driver's transaction; nothing is decided until the transaction is committed.

        On return *plan*'s progress is certain to be the latest decision. The coordinator that accepted the write is the
        current one and has completed all decisions before the driver's fence. If another driver has decided since then,
        this driver's transaction cannot be committed.

        :raises OutdatedProgressError: if *plan*'s progress is not the latest decision; the transaction and those
            *of_tasks* were aborted.
        :raises FencedError: if the driver's epoch is no longer the current one.
        """
        try:
            await self.store.write(plan.driver, plan.transaction_version, progress, plan.partition_count, plan.progress)
        except OutdatedProgressError:
            await self.client.end([*of_tasks, plan.driver], plan.transaction_version, commit=False)
            raise
        except ApiError as error:
            if error.code in FENCED:
                raise self.fenced(error, progress.version) from error
            raise

    def end_decision(self, plan: Plan, progress: Progress) -> None:
        """Commit the driver's transaction with the proposed progress; this is the decision. From then on the batch is
        in Kafka as a whole: if this driver dies, the next one commits its transactions. Raises as :meth:`decide`."""
        (code,) = self.client.run(self.client.end([plan.driver], plan.transaction_version, commit=True)).values()
        if code in FENCED:
            # A response may have been lost, and a newer driver may have taken over before the retry.
            why = f"{code.name}; it knows whether batch {progress.version} was committed before"
            raise self.fenced(why)
        if code is not ErrorCode.NONE:
            raise UndecidedError(
                f"batch {progress.version} was not committed: the brokers aborted its transaction ({code.name}), "
                "most likely after transaction.timeout.ms; run it again, and make the batches smaller if this is "
                "repeated"
            )

    def decide(self, plan: Plan, progress: Progress) -> None:
        """Commit *progress* as the sink's latest decision, in the transaction of *plan*'s driver.

        :raises OutdatedProgressError: if *plan*'s progress is not the latest decision; the transaction was aborted.
        :raises FencedError: if a newer driver has taken over; it knows whether the batch was decided before.
        :raises UndecidedError: if the brokers aborted the driver's transaction.
        """
        self.client.run(self.propose(plan, progress))
        self.end_decision(plan, progress)

    def prove(self, plan: Plan) -> None:
        """Return if *plan*'s progress is the latest decision and no newer driver had taken over when this was called.
        The driver writes a progress for that, and aborts it; afterwards its id must be fenced again.

        Required before any action that only the latest decision permits, except a decision of this driver: replaced
        coordinators also answer OffsetFetch and DescribeTransactions.

        :raises OutdatedProgressError: if it is not.
        :raises FencedError: if a newer driver has taken over.
        """
        nobody = Progress(0, "nobody", plan.transaction_version, self.now_s())
        self.client.run(self.propose(plan, nobody))
        self.abort([plan.driver], plan.transaction_version)

    def abort(self, transactions: Collection[Transaction], transaction_version: TransactionVersion) -> None:
        """Abort *transactions*; their rows will never be visible. Those that have ended are not changed."""
        self.client.run(self.client.end(transactions, transaction_version, commit=False))

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

    # --- lost markers ------------------------------------------------------------------------------------------------

    async def write_end_again(
        self,
        description: TransactionDescription,
        partitions: Collection[TopicPartition],
        transaction_version: TransactionVersion,
        *,
        commit: bool,
        with_group: bool,
    ) -> None:
        """Write the markers of the last transaction of *description* again in *partitions*, and *with_group* for its
        offsets. Nothing happens if the id has another producer by now.

        Until the next InitProducerId, the coordinator's description of the id proves how a complete transaction ended.
        A commit that is written again is recorded in the id itself, by a time-out that no other transaction has
        (``COMPLETING_MS``). Two drivers may do this at the same time: every request names the exact epoch.
        """
        group = self.name if with_group else None
        _log.warning(
            "the %s of the transaction %s is missing in %s: the brokers lost it (KAFKA-20734), or replaced brokers "
            "answered; the sink writes it again",
            "commit" if commit else "abort",
            description.transaction,
            ", ".join([*map(str, sorted(partitions)), *([f"the offsets of group {group!r}"] if with_group else ())]),
        )
        transaction = description.transaction
        with unless_overtaken(transaction):
            if commit and not description.is_repair:
                if transaction.transactional_id == driver_id(self.id):
                    # Late fences of two frozen drivers could abort the transaction that writes the commit again, and
                    # then overwrite its time-out, so the repair id records it as well.
                    committed = transaction.epoch - (transaction_version is TransactionVersion.V2)
                    await self.client.init_producer_id(repair_id(self.id), record_of(committed))
                transaction, _ = await self._begin_epoch(
                    transaction.transactional_id, COMPLETING_MS, expected=transaction
                )
            await self.client.add_to_transaction(transaction, partitions, group)
            await self.client.end([transaction], transaction_version, commit=commit)

    async def clear_record(self, record: Transaction) -> None:
        """Record that no commit is lost, unless another driver has changed *record*."""
        with unless_overtaken(record):
            await self.client.init_producer_id(record.transactional_id, NO_RECORD_MS, expected=record)

    async def search(self, logs: frozenset[Log], transaction_version: TransactionVersion) -> None:
        """Write markers of tasks' transactions that the brokers have lost, so that readers need not wait for them.

        Brokers lose markers only in partitions without a leader, so logs are searched when this process begins, and
        when some of *logs*, those that may have rows of the sink, have other leaders than at the last search.
        Partitions whose leader does not answer are left out, to be searched the next time. A failure is only logged:
        lost markers delay readers, but do not prevent writes.
        """
        leaders, searched = self.client.leaders, logs
        try:
            partitions = await leaders.partitions_of(self._topics)
            ends = await leaders.end_offsets([info.topic_partition for info in partitions], stable=False, hasty=True)
            opened = await leaders.open_before(ends, hasty=True)
            if opened:
                await self._end_writers(opened, transaction_version)
            searched = logs_of(partition for partition in partitions if partition.topic_partition in ends)
        except KafkaError as error:
            _log.warning(
                "the logs were not searched for transactions whose commit or abort marker is missing: %s", error
            )
        self.remembered.logs = searched

    async def _end_writers(
        self, opened: Mapping[TopicPartition, Collection[LogTransaction]], transaction_version: TransactionVersion
    ) -> None:
        """End the transactions of *opened* that belong to ids of tasks whose last transaction is complete. Those whose
        outcome is not proven are logged with the command that ends them."""
        producer_ids = {txn.producer_id for transactions in opened.values() for txn in transactions}
        names = await self.client.list_ids(producer_ids=producer_ids)
        described = await self.client.describe(name for name in names if is_writer_id(self.id, name))
        for description in described.values():
            rows = _of_producer(opened, description.transaction.producer_id)
            if not rows or not (description.is_over or description.is_repair):
                continue
            commit = description.proves_commit((row.epoch for row in rows.values()), transaction_version)
            if commit is None:
                what = f"of {description.transaction} is open, and that id is {description.state}"
                _log.warning("%s", unproven(self.name, what, rows))
                continue
            await self.write_end_again(description, rows.keys(), transaction_version, commit=commit, with_group=False)


def logs_of(partitions: Iterable[PartitionInfo]) -> frozenset[Log]:
    """The logs of those of *partitions* that have a leader; others cannot be searched."""
    return frozenset(
        Log(info.topic_partition, info.leader, info.leader_epoch) for info in partitions if info.leader is not None
    )


def unproven(group: str, what: str, rows: OpenRows) -> LostEndError:
    """The error for a transaction whose marker is lost in *rows*, or in the offsets of *group*; *what* names it."""
    ongoing = [
        f"{partition} from offset {txn.start_offset} on (producer id {txn.producer_id}, epoch {txn.epoch})"
        for partition, txn in sorted(rows.items())
    ] or [f"the offsets of the group {group!r}"]
    partition = next(iter(sorted(rows)), TopicPartition("__consumer_offsets", -1))
    command = f"kafkalite txn hanging {partition.topic}" + (f" {partition.partition}" if rows else "")
    return LostEndError(
        f"a transaction {what}: the brokers lost its commit or abort marker (KAFKA-20734) in {', '.join(ongoing)}, and "
        "nothing proves whether it was committed or aborted, so the sink writes nothing more. "
        f"'{command}' shows the transaction; end it there with --commit-at, or with --abort-at if that is refused, "
        "then compare its batch with the source ('kafkalite verify') and write missing rows with another program"
    )


def _of_producer(opened: Mapping[TopicPartition, Collection[LogTransaction]], producer_id: int) -> OpenRows:
    return {partition: txn for partition, txns in opened.items() for txn in txns if txn.producer_id == producer_id}
