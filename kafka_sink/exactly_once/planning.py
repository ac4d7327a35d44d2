"""The beginning of a batch, the same in both protocols: observe, decide, perform.

:class:`Planner` observes the sink and performs the moves that :func:`~kafka_sink.exactly_once.situation.next_move`
decides, until the batch may begin. Used on the driver, by one thread at a time. A plan may be interrupted at any point
and repeated: a driver that was paused during it and resumes does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from kafka_sink.client.blocking.blocking import Pause
from kafka_sink.common.bounded import known_number
from kafka_sink.common.clock import Moment
from kafka_sink.common.errors import (
    ApiError,
    BrokersUnreachableError,
    DisconnectError,
    ErrorCode,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from kafka_sink.exactly_once.model import (
    WRITE_AT_LEAST_ONCE,
    ExactlyOnceError,
    LostEndError,
    OutdatedProgressError,
    Plan,
    Progress,
    TornBatchError,
    explained,
    require_writer,
)
from kafka_sink.exactly_once.sink_driver import SinkDriver, logs_of, unproven
from kafka_sink.exactly_once.situation import LAST_MOVES, Batch, End, Move, Situation, follows, next_move
from kafka_sink.exactly_once.transactions import FENCED, Transaction, accept_command, driver_id, repair_id

_log = logging.getLogger(__name__)

#: The time for a coordinator to write markers, or for a group to apply them, before the wait is logged, ms. A marker
#: that is still missing after it, although the transaction is complete, was lost.
PATIENCE_MS: Final = 2000

#: The markers of this process's last batch may not be written yet when its driver plans the next one.
_FIRST_PAUSE_MS: Final = 2
_LONGEST_PAUSE_MS: Final = 1000

#: A week: Kafka's default for offsets.retention.minutes.
_DEFAULT_RETENTION_MINUTES: Final = 10_080

#: The number of ids of recent batches that the first observation describes, before it knows those of the last batch. A
#: worker uses eight ids in turn, so this is enough for batches of 32 tasks; larger ones take another round of requests.
_MOST_RECENT_IDS: Final = 256
_IDS_OF_A_TASK: Final = 8

#: The maximum number of plans of a batch because of an outdated progress. A current coordinator reported it, so the
#: second plan is enough unless that one is replaced, too.
_PLANS: Final = 3

#: The number of batches that a process plans before it observes ahead.
PLANNED_ALONE: Final = 1
#: The maximum age of an observation ahead with which a batch may begin, ms; later the plan observes again.
AHEAD_VALID_MS: Final = 10_000
#: The pause before each observation ahead, ms: the markers of the batch may not be written yet.
LOOKS_AHEAD_MS: Final = (0, 2, 4, 8)


class Seen(NamedTuple):
    """The first observation of a plan, begun at *at_ms*; valid for plans with the options *wanted*."""

    situation: Situation
    at_ms: int
    wanted: object


def plan_batch(
    driver: SinkDriver,
    writer: str | None = None,
    version: int | None = None,
    *,
    with_rows: bool = False,
    accepted: int | None = None,
) -> Plan:
    """Begin a batch of the sink of *driver*.

    Fences older drivers of the sink, commits their unfinished decisions, and aborts the transactions that they left
    open. None of this is necessary if only this process has used the sink since its last commit (rule 4).

    :param writer: the writer of the batch, if known; the sink of another writer is then left untouched.
    :param version: the version to write, if known; if a later one is committed, the plan permits no write.
    :param accepted: the version that an operator accepts as the last complete one. If this batch is torn, its outcome
        counts as unknown; a commit that is lost for good does not stop the plan.
    :param with_rows: the driver's own transaction will contain rows.
    :raises ProgressError: if the sink belongs to another writer.
    :raises TornBatchError: if part of the decided batch is lost.
    :raises FencedError: if a newer driver has taken over during the plan.
    :raises LostEndError: if the brokers have lost a marker of a transaction, and nothing proves how it ended.
    :raises ExactlyOnceError: if the cluster or the permissions are insufficient; the text says what is missing.
    :raises KafkaTimeoutError: if a response or a marker is missing; BrokersUnreachableError if no broker was reached.
    """
    try:
        with explained(driver.id), driver.turn():
            ahead, driver.remembered.ahead = driver.remembered.ahead, None
            planner = Planner(driver, with_rows=with_rows)
            seen = None if ahead is None else ahead()
            for _ in range(_PLANS - 1):
                with suppress(OutdatedProgressError):
                    return planner.plan(writer, version, accepted, seen)
                planner, seen = Planner(driver, with_rows=with_rows), None
            return planner.plan(writer, version, accepted, seen)
    except UnsupportedVersionError as error:
        # The error's own advice, to upgrade, does not help users of a managed service.
        missing, _, _ = str(error).partition("; ")
        raise ExactlyOnceError(
            f"these brokers do not support exactly-once writes: {missing}. {WRITE_AT_LEAST_ONCE}; or use brokers of "
            "Apache Kafka 3.6 or newer, or a service that offers its transactions"
        ) from error
    except BrokersUnreachableError as error:
        raise BrokersUnreachableError(
            f"{error}; check bootstrap.servers and that the driver's machine can connect to the addresses that the "
            "brokers advertise (advertised.listeners)"
        ) from error
    except ApiError as error:
        if error.code in FENCED:
            raise driver.fenced(error) from error
        raise


def look_ahead(driver: SinkDriver, *, with_rows: bool = False) -> None:
    """Observe the sink for the next batch on a background thread; called when this process has committed a batch.

    An observation of this process's own commit stays valid: a driver that fences later stops this one at
    TxnOffsetCommit. The next :func:`plan_batch` waits for it and discards any other observation. A process that has
    planned only one batch of the sink may never plan another, and does not observe ahead.
    """
    remembered = driver.remembered
    if remembered.planned > PLANNED_ALONE:
        planner = Planner(driver, with_rows=with_rows)
        remembered.ahead = driver.client.in_background(planner.seen_ahead)


class Planner:
    """One plan of a batch of the sink of *driver*; *with_rows* as in :func:`plan_batch`."""

    def __init__(self, driver: SinkDriver, *, with_rows: bool) -> None:
        self._driver = driver
        self._client = driver.client
        # The sink may have been used with the other protocol before, also by this process.
        self._with_rows = with_rows or not driver.remembered.logs or driver.remembered.had_rows
        self._is_atomic = with_rows
        self._wanted = (with_rows, driver.wanted)
        self._begun_ms = driver.clock.monotonic_ms()
        self._pauses = 0
        self._is_logged = False
        self._moves: Mapping[Move, Callable[[Situation], Situation]] = {
            Move.DESCRIBE: self._describe,
            Move.SEE: self._see,
            Move.WAIT: self._wait,
            Move.ABORT_OPEN: self._abort_open,
            Move.COMMIT_AGAIN: self._write_end_again,
            Move.ABORT_AGAIN: self._write_end_again,
            Move.FENCE: self._fence,
            Move.COMMIT_DECIDED: self._commit_decided,
            Move.PROVE: self._prove,
            Move.ROLL_BACK: self._roll_back,
            Move.TRY_TWO_PHASE: self._try_two_phase,
            Move.CLEAR_RECORD: self._clear_record,
            Move.ABORT_LEFT: self._abort_left,
            Move.SEARCH: self._search,
            Move.REFUSE_WRITER: self._stop,
            Move.STOP_LOST_END: self._stop,
            Move.STOP_FENCED: self._stop,
            Move.STOP_TORN: self._stop,
        }

    def seen_ahead(self) -> Seen | None:
        """The observation of the sink, if it shows the commit of this process's last batch and nothing after it."""
        for pause_ms in LOOKS_AHEAD_MS:
            if pause_ms:
                self._client.run(_paused(pause_ms))
            seen = self._observe()
            if next_move(seen.situation) is Move.DESCRIBE:
                seen = seen._replace(situation=self._describe(seen.situation))
            if next_move(seen.situation) is Move.FOLLOW:
                return seen
        return None

    def plan(self, writer: str | None, version: int | None, accepted: int | None, seen: Seen | None) -> Plan:
        """The plan, after all moves before it; it begins with *seen*, the observation ahead, if that is still valid.
        Raises as :func:`plan_batch`."""
        now_ms = self._driver.clock.monotonic_ms()
        if seen is None or seen.wanted != self._wanted or now_ms - seen.at_ms > AHEAD_VALID_MS:
            seen = self._observe()
        self._client.require_verification()
        situation = replace(seen.situation, writer=writer, batch_version=version, accepted=accepted)
        while (move := next_move(situation)) not in LAST_MOVES:
            _log.debug("sink %s: %s", self._driver.id, move.name)
            situation = self._moves[move](situation)
        if move is Move.BEGIN:
            plan = self._held(situation)
        elif move is Move.FOLLOW and situation.last is not None:
            plan = self._plan_with(situation, situation.last.transaction, situation.last.timeout_ms)
        else:
            plan = self._plan_with(situation, Transaction(driver_id(self._driver.id), -1, -1), 0)
        remembered = self._driver.remembered
        if move is not Move.SKIP:
            remembered.driver, remembered.ends, remembered.had_rows = plan.driver, None, self._is_atomic
            remembered.planned += 1
        recent = dict.fromkeys([*situation.decided_ids, *remembered.recent_ids])
        are_few = len(situation.decided_ids) * _IDS_OF_A_TASK <= _MOST_RECENT_IDS
        remembered.recent_ids = tuple(recent)[:_MOST_RECENT_IDS] if are_few else ()
        return plan

    def _held(self, s: Situation) -> Plan:
        assert s.fence is not None
        return self._plan_with(s, s.fence, s.timeout_ms)

    def _plan_with(self, s: Situation, transaction: Transaction, timeout_ms: int) -> Plan:
        return Plan(
            self._driver.id,
            transaction,
            s.version,
            timeout_ms,
            Moment.now(self._driver.clock),
            s.progress,
            s.partition_count,
            is_unsure=s.batch is Batch.FORGOTTEN,
            two_phase=self._driver.two_phase,
        )

    # --- observe -----------------------------------------------------------------------------------------------------

    def _observe(self) -> Seen:
        """The first observation, before the fence: the tasks of a newer driver begin after its fence, so none of the
        open transactions is theirs. It changes nothing."""
        driver, remembered, at_ms = self._driver, self._driver.remembered, self._driver.clock.monotonic_ms()
        name, recent = driver_id(driver.id), remembered.recent_ids
        own_ends = remembered.ends if self._with_rows else {}
        partitions, others, (progress, is_stable), left_open, described, behind = self._client.together(
            driver.partitions(),
            driver.other_logs(),
            driver.peek(),
            driver.left_open(),
            self._client.describe([name, *recent]),
            driver.behind(own_ends or {}),
        )
        last = described.get(name)
        decided = () if progress is None else progress.transactions
        is_known = all(txn.transactional_id in recent for txn in decided)
        logs = logs_of(partitions) | others
        situation = Situation(
            self._client.transaction_version(),
            driver.wanted_timeout_ms,
            own=remembered.driver,
            last=last,
            progress=progress,
            is_stable=is_stable,
            # The progress may have been read before the description. Nothing can have happened in between if the
            # description still is the commit of this process's last batch. Then only its own rows may be open.
            is_in_order=last is not None and driver.is_own_commit(last) and own_ends is not None and not behind,
            left_open=tuple(left_open),
            described=described if decided and is_known else None,
            has_new_leaders=not logs <= remembered.logs,
            needs_two_phase=driver.two_phase and not remembered.has_two_phase,
            partition_count=len(partitions),
            logs=logs,
        )
        return Seen(situation, at_ms, self._wanted)

    def _see(self, s: Situation) -> Situation:
        """*s* with a new description of the driver's id, and the progress as it is read after that."""
        driver, run = self._driver, self._client.run
        (last, rows), record = self._client.together(
            driver.last_transaction(with_rows=self._with_rows), driver.record()
        )
        progress, is_stable = run(driver.peek())
        decided = progress if self._with_rows and last is not None else None
        behind = frozenset() if decided is None else run(driver.without_end(decided))
        return replace(
            s.with_progress(progress),
            last=last,
            open_rows=rows,
            behind=behind,
            record=record,
            is_stable=is_stable,
            is_in_order=True,
            is_patient=self._driver.clock.monotonic_ms() - self._begun_ms <= PATIENCE_MS,
        )

    def _describe(self, s: Situation) -> Situation:
        return replace(s, described=self._client.run(self._client.describe(s.decided_ids)))

    # --- wait --------------------------------------------------------------------------------------------------------

    def _pause(self, what: str) -> None:
        """Pause while the plan waits for *what*, longer each time.

        :raises KafkaTimeoutError: if the plan has taken longer than the client's time-out.
        """
        waited_ms = self._driver.clock.monotonic_ms() - self._begun_ms
        if waited_ms > self._client.timeout_ms:
            raise KafkaTimeoutError(f"waited {self._client.timeout_ms} ms for {what}")
        if waited_ms > PATIENCE_MS and not self._is_logged:
            self._is_logged = True
            _log.warning("still waiting for %s", what)
        self._client.run(_paused(min(_FIRST_PAUSE_MS << self._pauses, _LONGEST_PAUSE_MS)))
        self._pauses += 1

    def _wait(self, s: Situation) -> Situation:
        last = s.last
        if last is None:
            what = f"a transaction that holds the progress of {self._driver.name!r}"
        elif s.end is End.ENDING:
            participants = ", ".join(sorted(map(str, last.partitions))) or "its group's offsets"
            what = f"the end ({last.state}) of the transaction {last.transaction} in {participants}"
        else:
            what = f"a transaction of {last.transaction} that holds the progress ({last.state})"
        self._pause(what)
        return self._see(s)

    # --- end open transactions, write lost markers -------------------------------------------------------------------

    def _abort_open(self, s: Situation) -> Situation:
        assert s.last is not None
        self._pause(f"the abort of the transaction {s.last.transaction}")
        self._client.run(self._client.fence_open(s.last.transaction))
        return self._see(s)

    def _write_end_again(self, s: Situation) -> Situation:
        assert s.last is not None
        self._pause(f"the end of {s.last.transaction}, which is written again")
        with_group = not s.is_stable or s.last.is_repair or not s.is_in_progress
        commit = s.end is not End.LOST_ABORT
        partitions = s.open_rows.keys() | s.behind
        self._client.run(
            self._driver.write_end_again(s.last, partitions, s.version, commit=commit, with_group=with_group)
        )
        return self._see(s)

    # --- fence -------------------------------------------------------------------------------------------------------

    def _fence(self, s: Situation) -> Situation:
        """*s* with the fence, and the progress that is read after it. The decided transactions are described at the
        same time as the fence, because a decision is final."""
        record = repair_id(self._driver.id)
        before = s.fence or (None if s.last is None else s.last.transaction)
        try:
            (fence, timeout_ms), described = self._client.together(
                self._driver.fence(), self._client.describe([*s.decided_ids, record])
            )
        except ApiError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS and not isinstance(error, DisconnectError):
                raise
            # The id shows a lost commit that is being written again only until the next InitProducerId.
            self._pause(f"an answer to InitProducerId of {driver_id(self._driver.id)}")
            return self._see(replace(s, fence=None))
        s = replace(s, fence=fence, fenced_after=before, timeout_ms=timeout_ms)
        s = replace(s, described=described, record=described.get(record))
        if not follows(fence, before):
            s = self._see(s)
        return s.with_progress(self._client.run(self._driver.store.read()))

    # --- after the fence ---------------------------------------------------------------------------------------------

    def _commit_decided(self, s: Situation) -> Situation:
        assert s.progress is not None
        version = s.progress.transaction_version
        return replace(s, outcomes=self._client.run(self._client.end(s.unended, version, commit=True)))

    def _prove(self, s: Situation) -> Situation:
        if s.progress is None:
            self._warn_of_short_retention()
        self._driver.prove(self._held(s))
        return self._see(replace(s, fence=None, is_proven=True))

    def _roll_back(self, s: Situation) -> Situation:
        plan = self._held(s)
        assert s.progress is not None
        progress = Progress(s.progress.version, s.progress.writer, s.version, self._driver.now_s())
        self._driver.decide(plan, progress)
        return self._see(replace(s.with_progress(plan.after(progress).progress), fence=None, is_proven=True))

    def _try_two_phase(self, s: Situation) -> Situation:
        self._driver.try_two_phase()
        return self._see(replace(s, fence=None, needs_two_phase=False))

    def _clear_record(self, s: Situation) -> Situation:
        assert s.record is not None
        self._client.run(self._driver.clear_record(s.record.transaction))
        return replace(s, record=None)

    def _abort_left(self, s: Situation) -> Situation:
        self._driver.abort(s.undecided, s.version)
        return replace(s, left_open=())

    def _search(self, s: Situation) -> Situation:
        self._client.run(self._driver.search(s.logs, s.version))
        return replace(s, has_new_leaders=False)

    # --- stop --------------------------------------------------------------------------------------------------------

    def _stop(self, s: Situation) -> Situation:
        """:raises ExactlyOnceError: always; its class depends on *s*."""
        move, progress = next_move(s), s.progress
        if move is Move.REFUSE_WRITER:
            assert progress is not None and s.writer is not None
            require_writer(self._driver.id, progress, s.writer)
        if move is Move.STOP_FENCED:
            why = "its fence is not the last one"
            raise self._driver.fenced(why)
        if move is Move.STOP_TORN:
            assert progress is not None and s.outcomes is not None
            raise torn(progress, s.outcomes)
        raise self._lost_end(s)

    def _lost_end(self, s: Situation) -> LostEndError:
        last = s.last
        if s.end is End.REPAIR_ABORTED or s.is_decision_lost:
            latest, writer = (-1, s.writer) if s.progress is None else (s.progress.version, None)
            accept = accept_command(self._driver.id, latest + 1, writer)
            return LostEndError(
                f"the brokers lost the commit of a transaction of {driver_id(self._driver.id)} (KAFKA-20734), and it "
                "may have been aborted while it was written again: at its time-out, or by another driver's fence. The "
                f"last batch is {latest} or {latest + 1}: compare both with their source ('kafkalite verify'). If "
                f"batch {latest + 1} is there (write missing rows with another program), run `{accept}`; otherwise, "
                f"`{accept_command(self._driver.id, latest, writer)}`. Then start the sink again: it resumes "
                "after that batch"
            )
        if last is None:
            what = "is open, and its id is not known to the brokers"
        else:
            what = f"of {last.transaction} is open, and that id is {last.state}"
        return unproven(self._driver.name, what, s.open_rows)

    def _warn_of_short_retention(self) -> None:
        minutes = known_number(self._client.run(self._client.broker_setting("offsets.retention.minutes")))
        if minutes is not None and minutes < _DEFAULT_RETENTION_MINUTES:
            _log.warning(
                "the brokers forget the progress of the sink %r %s minutes after its last batch "
                "(offsets.retention.minutes; Kafka's default is %d): after a longer pause, its next batch is refused",
                self._driver.name,
                minutes,
                _DEFAULT_RETENTION_MINUTES,
            )


async def _paused(pause_ms: int) -> None:
    await Pause(pause_ms)


def torn(progress: Progress, outcomes: Mapping[Transaction, ErrorCode]) -> TornBatchError:
    """The error of a decided batch of which the brokers aborted a part; *outcomes* are the codes of its commits."""
    lost = [txn for txn, code in outcomes.items() if code is not ErrorCode.NONE]
    return TornBatchError(progress.version, lost, [txn for txn in progress.transactions if txn not in lost])
