"""What both protocols begin with, on the driver, before the first row of a batch: nobody else decides any more, what
was decided before is finished, and what nobody will decide is aborted.

Used on the driver, by one thread at a time. Safe at any moment and any number of times: a driver that was frozen and
wakes up in the middle of it does no harm, because everything is either fenced or names one transaction exactly.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from kafka_sink.client.exchange import Exchange
from kafka_sink.common.clock import SYSTEM_CLOCK, Clock, Moment
from kafka_sink.common.errors import ApiError, BrokersUnreachableError, ErrorCode, UnsupportedVersionError
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import (
    NO_OFFSETS,
    BatchNumbering,
    ExactlyOnceError,
    FencedError,
    Flow,
    PlannedOffsets,
    Progress,
    ProgressError,
    TornBatchError,
    Transaction,
    UndecidedError,
)
from kafka_sink.exactly_once.names import driver_id, is_writer_id, sink_id, writer_pattern
from kafka_sink.exactly_once.progress import ProgressStore
from kafka_sink.exactly_once.transaction_description import TransactionDescription

_log = logging.getLogger(__name__)

#: Kafka's default for transaction.max.timeout.ms.
LONGEST_TIMEOUT_MS: Final = 900_000
#: No broker is set up with less on purpose.
_SHORTEST_TIMEOUT_MS: Final = 1000
#: A week: Kafka's default for offsets.retention.minutes.
_DEFAULT_RETENTION_MINUTES: Final = 10_080

#: Codes that say that the driver's transaction is not its own any more.
_FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


class Ending(Enum):
    """What became of the transactions of a batch that was decided."""

    COMMITTED = auto()
    #: All of them, by the brokers: so it counts as never decided.
    ABORTED = auto()
    #: The brokers do not know the ids any more (transactional.id.expiration.ms), nor how their transactions ended.
    FORGOTTEN = auto()


@dataclass(frozen=True)
class Plan:
    """One batch as its driver begins it; goes to the tasks and back. *driver* is the driver's transaction, *progress*
    what was decided when it began, *timeout_ms* the transactions' time-out, *planned* when that was.

    *sink* is what its ids begin with, *partition_count* how many partitions the progress topic has, *is_unsure* whether
    nobody knows any more how the decided batch ended, *offsets* which rows its query has planned for this batch.
    """

    name: str
    sink: str
    driver: Transaction
    flow: Flow
    timeout_ms: int
    planned: Moment
    progress: Progress | None
    partition_count: int
    is_unsure: bool = False
    offsets: PlannedOffsets = NO_OFFSETS

    def without_transactions(self) -> Plan:
        """The plan without the list of the transactions that were decided before, as every task's message has it."""
        if self.progress is None:
            return self
        return replace(self, progress=replace(self.progress, transactions=()))

    def must_write(self, version: int, writer: str, numbers: BatchNumbering) -> bool:
        """Whether *version* still has to be written; False when it is committed already.

        :raises ProgressError: the progress is missing, or another writer's; or *version* cannot be told from another
            batch of that number, or is another one.
        """
        progress = self.progress
        if progress is None:
            if numbers is BatchNumbering.OF_A_QUERY and version > 0:
                raise ProgressError(
                    f"batch {version} is not the first, but the consumer group {self.name!r} has no progress of the "
                    "batches before: they were not written by this sink, or the brokers have forgotten it "
                    "(offsets.retention.minutes, or the progress topic was deleted). If the last batch is known to be "
                    "in Kafka as a whole, or not at all, go on with option allowMissingProgress=true"
                )
            return True
        _require_writer(self.name, progress, writer)
        if numbers is not BatchNumbering.OF_AN_APPLICATION and version < progress.version:
            raise ProgressError(
                f"batch {version} of {writer} comes after batch {progress.version}, which is committed: its checkpoint "
                "is older than that (restored, or deleted where Spark Connect names no query), and under the same "
                "numbers Spark may have put other rows. Go on with the newer checkpoint; or choose another "
                "transactionalIdPrefix or app_id, and allowMissingProgress=true: then the rows since that checkpoint "
                "are written again"
            )
        if version == progress.version and self.is_unsure:
            raise ProgressError(
                f"batch {version} was decided, but the brokers have forgotten its transactions since then "
                "(transactional.id.expiration.ms), so nobody knows whether all of it is in Kafka. Compare with "
                "'kafkalite verify': if it is, go on with the next version; if not, delete the consumer group "
                f"{self.name!r} and write it again, a stream with allowMissingProgress=true"
            )
        self._require_same_rows(progress, version)
        return version >= progress.next_version

    def offsets_of(self, version: int) -> str:
        """The digest of the offsets that are planned for *version*; empty where they are not known."""
        return self.offsets.digest if self.offsets.version == version else ""

    def _require_same_rows(self, progress: Progress, version: int) -> None:
        """:raises ProgressError: *version* is known to be planned with other rows than those committed under it."""
        planned = self.offsets_of(version)
        if version == progress.version and planned and progress.offsets and planned != progress.offsets:
            raise ProgressError(
                f"batch {version} of {progress.writer} is committed, but with other rows than are planned for this "
                f"number now: its sources' offsets were {progress.offsets}, and are {planned} (digests of what the "
                "checkpoint's offset log says). Most likely the checkpoint is one batch older than that commit "
                "(restored from a copy), and to skip the batch would lose the rows that are new in it. Go on with the "
                "newer checkpoint; or choose another transactionalIdPrefix or app_id, and allowMissingProgress=true: "
                "then the rows since this checkpoint are written again"
            )

    def doubt(self, version: int) -> str:
        """Why nobody knows whether *version*, which is committed, had the rows planned now; empty where it had."""
        if not self.offsets_of(version):
            return self.offsets.unknown or f"the checkpoint tells of batch {self.offsets.version} instead"
        if self.progress is None or version != self.progress.version or not self.progress.offsets:
            return (
                "the batch was committed without note of its offsets (by an earlier release, or out of sight of them)"
            )
        return ""


def _require_writer(name: str, progress: Progress, writer: str) -> None:
    """:raises ProgressError: *progress* of the sink *name* is another one's."""
    if progress.writer != writer:
        raise ProgressError(
            f"the sink {name!r} belongs to {progress.writer}, which has committed up to version {progress.version}, "
            f"and not to {writer}: one sink has one writer (a query whose checkpoint was deleted is another one); "
            "choose another transactionalIdPrefix or txnAppId, or delete the consumer group "
            f"{name!r} if its writer is gone for good"
        )


class Sink:
    """A sink's driver: *name* stands before its transactional ids and names its group, *progress_topic* is an existing
    topic under whose name the progress is kept.

    :param timeout_ms: transaction.timeout.ms; None for the longest that the brokers allow, 15 minutes at most.
    """

    def __init__(
        self,
        client: CoordinatorClient,
        name: str,
        progress_topic: str,
        *,
        timeout_ms: int | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._name = name
        self._id = sink_id(name, progress_topic)
        self._progress_topic = progress_topic
        self._store = ProgressStore(client, name, progress_topic)
        self._timeout_ms = timeout_ms
        self._clock = clock

    def plan(self, writer: str | None = None) -> Plan:
        """Begin a batch.

        Fences older drivers of the sink, commits what they decided and did not finish, and aborts what they left.

        :param writer: who will write, where that is known yet: it disturbs nobody whose sink it is.
        :raises ProgressError: the sink is not *writer*'s.
        :raises TornBatchError: part of what was decided is lost.
        :raises ExactlyOnceError: the cluster or the permissions do not suffice; the text says what is missing.
        :raises BrokersUnreachableError: no broker could be reached; names each address and its cause.
        """
        try:
            return self._plan(writer)
        except UnsupportedVersionError as error:
            raise ExactlyOnceError(
                f"these brokers cannot do exactly once: {error}; it needs Apache Kafka 3.6 or newer"
            ) from error
        except BrokersUnreachableError as error:
            raise BrokersUnreachableError(
                f"{error}; check bootstrap.servers and that the brokers' listeners are open to the driver's machine"
            ) from error
        except ApiError as error:
            remedy = _REMEDIES.get(error.code)
            if remedy is None:
                raise
            raise ExactlyOnceError(f"{error}: {remedy.format(sink=self._name, topic=self._progress_topic)}") from error

    def _plan(self, writer: str | None) -> Plan:
        known, left_open, partition_count = self._look()
        self._client.require_verification()
        if known is not None and writer is not None:
            _require_writer(self._name, known, writer)
        flow = self._client.flow()
        # What is known was decided for good, so it may be looked at before it is certain that it is the newest.
        winners = () if known is None else known.transactions
        (driver, timeout_ms), ended = self._client.together(
            self._fence(), self._client.describe(each.transactional_id for each in winners)
        )
        progress = self._client.run(self._store.read())
        plan = Plan(self._name, self._id, driver, flow, timeout_ms, Moment.now(self._clock), progress, partition_count)
        ending = Ending.COMMITTED if progress is None else self._finish(progress, driver, ended)
        if progress is None:
            self._warn_of_short_retention()
            self._rehearse(plan)
            driver, timeout_ms = self._client.run(self._fence())
        elif ending is Ending.ABORTED:
            progress = Progress(progress.version, progress.writer, flow, self._now_s())
            self._decide(plan, progress)
            driver, timeout_ms = self._client.run(self._fence())
        decided: frozenset[Transaction] = frozenset() if progress is None else frozenset(progress.transactions)
        self._abort([transaction for transaction in left_open if transaction not in decided], flow)
        return replace(
            plan,
            driver=driver,
            timeout_ms=timeout_ms,
            planned=Moment.now(self._clock),
            progress=progress,
            is_unsure=ending is Ending.FORGOTTEN,
        )

    def _look(self) -> tuple[Progress | None, list[Transaction], int]:
        """What was decided as far as it is certain already, which transactions of tasks are open, and the number of
        partitions of the progress topic.

        Before the fence: what is open now was not begun by a newer driver, whose tasks begin after it.

        :raises ExactlyOnceError: there is no such topic.
        """
        partition_count, known, left_open = self._client.together(
            self._partition_count(), self._store.read(require_stable=False), self._left_open()
        )
        return known, left_open, partition_count

    def _warn_of_short_retention(self) -> None:
        minutes = self._client.run(self._client.broker_setting("offsets.retention.minutes"))
        if minutes is not None and int(minutes) < _DEFAULT_RETENTION_MINUTES:
            _log.warning(
                "the brokers forget the progress of the sink %r %s minutes after its last batch "
                "(offsets.retention.minutes; Kafka's default is %d): if it rests for longer, its next batch is refused",
                self._name,
                minutes,
                _DEFAULT_RETENTION_MINUTES,
            )

    def _rehearse(self, plan: Plan) -> None:
        """Write progress and abort it: what a sink that never decided anything may not do comes out before its rows."""
        nothing = Progress(0, "nobody", plan.flow, self._now_s())
        self._client.run(self._store.write(plan.driver, plan.flow, nothing, plan.partition_count))
        self._abort([plan.driver], plan.flow)

    def _partition_count(self) -> Exchange[int]:
        """Of the progress topic. :raises ExactlyOnceError: there is none."""
        count = yield from self._client.partition_count(self._progress_topic)
        if count is None:
            raise ExactlyOnceError(
                f"topic {self._progress_topic!r}, under whose name the progress is to be kept (option progressTopic), "
                "does not exist or may not be seen; create it, or grant DESCRIBE"
            )
        return count

    def _left_open(self, winners: Collection[Transaction] = ()) -> Exchange[list[Transaction]]:
        """The open transactions of tasks whose ids are not those of *winners*."""
        names = yield from self._client.list_ongoing(writer_pattern(self._id))
        known = {each.transactional_id for each in winners}
        others = [name for name in names if name not in known and is_writer_id(self._id, name)]
        described = yield from self._client.describe(others)
        return [each.transaction for each in described.values() if each.is_ongoing]

    def _fence(self) -> Exchange[tuple[Transaction, int]]:
        """The driver's id with the next epoch, and the time-out that the brokers allowed."""
        timeout_ms = LONGEST_TIMEOUT_MS if self._timeout_ms is None else self._timeout_ms
        while True:
            try:
                driver = yield from self._client.init_producer_id(driver_id(self._id), timeout_ms)
                return driver, timeout_ms
            except ApiError as error:
                is_too_long = error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
                if not is_too_long or self._timeout_ms is not None or timeout_ms // 2 < _SHORTEST_TIMEOUT_MS:
                    raise
                timeout_ms //= 2

    def _finish(
        self, progress: Progress, driver: Transaction, described: Mapping[str, TransactionDescription]
    ) -> Ending:
        """Commit what was decided, as far as it is not *described* as committed.

        :raises TornBatchError: they had aborted some of it.
        :raises FencedError: so it seems, but a newer driver is there, who may have gone on.
        """
        unended = [each for each in progress.transactions if not _is_committed(each, progress.flow, described)]
        outcomes = self._client.run(self._client.end(unended, progress.flow, commit=True))
        return self._ending(progress, driver, outcomes)

    def _ending(self, progress: Progress, driver: Transaction, outcomes: Mapping[Transaction, ErrorCode]) -> Ending:
        """What became of the batch that was decided, by what was answered where its transactions were to be committed;
        those that are no part of *outcomes* were committed before. Raises as :meth:`_finish`."""
        undone = [transaction for transaction, code in outcomes.items() if code is not ErrorCode.NONE]
        if not undone:
            return Ending.COMMITTED
        self._check_current(driver)
        forgotten = [each for each in undone if outcomes[each] is ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        if len(forgotten) == len(undone):
            return Ending.FORGOTTEN
        if len(undone) == len(progress.transactions) and not forgotten:
            return Ending.ABORTED
        committed = [transaction for transaction in progress.transactions if transaction not in undone]
        raise TornBatchError(progress.version, undone, committed)

    def _check_current(self, driver: Transaction) -> None:
        described = self._client.run(self._client.describe([driver.transactional_id]))
        known = described.get(driver.transactional_id)
        if known is None or known.transaction.producer_id != driver.producer_id:
            is_current = False
        else:
            # From EndTxn version 5 on the next epoch is this driver's own.
            is_current = known.transaction.epoch - driver.epoch in (0, 1)
        if not is_current:
            raise FencedError(f"a newer driver has taken over the sink {self._name!r}; this one stops")

    def _decide(self, plan: Plan, progress: Progress) -> None:
        """Make *progress* the sink's, for good, in the transaction of *plan*'s driver.

        :raises FencedError: a newer driver is there; it was not decided.
        :raises UndecidedError: the brokers aborted the driver's transaction.
        """
        self._client.run(self._propose(plan, progress))
        self._end_decision(plan, progress)

    def _propose(self, plan: Plan, progress: Progress) -> Exchange[None]:
        """Put *progress* into the driver's transaction; until that is committed, nothing is decided.

        :raises FencedError: a newer driver is there.
        """
        try:
            yield from self._store.write(plan.driver, plan.flow, progress, plan.partition_count)
        except ApiError as error:
            if error.code in _FENCED:
                raise FencedError(
                    f"batch {progress.version} was not committed: a newer driver has taken over the sink "
                    f"{self._name!r} ({error}); this one stops"
                ) from error
            raise

    def _end_decision(self, plan: Plan, progress: Progress) -> None:
        """Commit the driver's transaction with what was proposed: this is the decision. Raises as :meth:`_decide`."""
        (code,) = self._client.run(self._client.end([plan.driver], plan.flow, commit=True)).values()
        if code in _FENCED:
            # An answer may have been lost, and the newer driver come before the next one.
            raise FencedError(
                f"a newer driver has taken over the sink {self._name!r} ({code.name}) and knows whether batch "
                f"{progress.version} was committed before; this one stops"
            )
        if code is not ErrorCode.NONE:
            raise UndecidedError(
                f"batch {progress.version} was not committed: the brokers aborted its transaction ({code.name}), most "
                "likely after transaction.timeout.ms; run it again, in smaller batches if that happens again"
            )

    def _warn_of_long(self, plan: Plan) -> None:
        """After the commit of *plan*'s batch."""
        batch_ms = plan.planned.elapsed_ms(self._clock)
        if batch_ms > plan.timeout_ms // 3:
            _log.warning(
                "this batch took %d ms, more than a third of the time that transactions may be open (%d ms, "
                "kafka.transaction.timeout.ms): beyond it nothing could be committed; make smaller batches",
                batch_ms,
                plan.timeout_ms,
            )

    def _abort(self, transactions: Collection[Transaction], flow: Flow) -> None:
        self._client.run(self._client.end(transactions, flow, commit=False))

    def _now_s(self) -> int:
        return self._clock.wall_ms() // 1000


def _is_committed(transaction: Transaction, flow: Flow, described: Mapping[str, TransactionDescription]) -> bool:
    """Whether its coordinator says so. In version 2 the end of a transaction begins the next epoch, in version 1 each
    transaction of a sink has an epoch of its own: what is described under that epoch is this very transaction's end."""
    known = described.get(transaction.transactional_id)
    if known is None or known.state not in ("PrepareCommit", "CompleteCommit"):
        return False
    return known.transaction == (replace(transaction, epoch=transaction.epoch + 1) if flow is Flow.V2 else transaction)


_REMEDIES: Final = {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "grant WRITE and DESCRIBE on the transactional ids that begin with {sink!r} to this principal"
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        "the progress is kept in the consumer group {sink!r}; grant READ on it to this principal"
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        "the progress is kept as offsets of topic {topic!r}; grant READ on it to this principal"
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "transaction.timeout.ms is more than the brokers' transaction.max.timeout.ms; lower the one or raise the other"
    ),
}
