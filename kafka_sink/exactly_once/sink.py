"""The first step of both protocols, on the driver, before the first row of a batch: fence older drivers, finish the
previous decision, and abort undecided transactions.

Used on the driver, by one thread at a time. It is safe at any moment and may be repeated: a driver that was paused in
the middle of it and resumes does no harm, because every request is either fenced or names one exact transaction.
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
from kafka_sink.common.model import TransactionVersion
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import (
    NO_OFFSETS,
    BatchNumbering,
    ExactlyOnceError,
    FencedError,
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
#: No practical broker configuration has a lower limit.
_SHORTEST_TIMEOUT_MS: Final = 1000
#: A week: Kafka's default for offsets.retention.minutes.
_DEFAULT_RETENTION_MINUTES: Final = 10_080

#: Codes that mean that the driver no longer owns its transaction.
_FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


class Ending(Enum):
    """The outcome of the transactions of a decided batch."""

    COMMITTED = auto()
    #: The brokers aborted all of them, so the batch counts as undecided.
    ABORTED = auto()
    #: The brokers no longer know the ids (transactional.id.expiration.ms), so the outcome of the transactions is
    #: unknown.
    FORGOTTEN = auto()


@dataclass(frozen=True)
class Plan:
    """One batch as its driver begins it; sent to the tasks and back. *driver* is the driver's transaction, *progress*
    the latest decision when the batch began, *timeout_ms* the time-out of the transactions, *planned* the moment when
    the batch began.

    *sink* is the prefix of its ids, *partition_count* the number of partitions of the progress topic. *is_unsure* is
    True if the outcome of the decided batch is no longer known. *offsets* identifies the rows that the query has
    planned for this batch.
    """

    name: str
    sink: str
    driver: Transaction
    transaction_version: TransactionVersion
    timeout_ms: int
    planned: Moment
    progress: Progress | None
    partition_count: int
    is_unsure: bool = False
    offsets: PlannedOffsets = NO_OFFSETS

    def without_transactions(self) -> Plan:
        """The plan without the list of previously decided transactions, as it is sent to each task."""
        if self.progress is None:
            return self
        return replace(self, progress=replace(self.progress, transactions=()))

    def must_write(self, version: int, writer: str, numbers: BatchNumbering) -> bool:
        """Whether *version* still has to be written; False if it is already committed.

        :raises ProgressError: if the progress is missing or belongs to another writer, or if *version* is, or may be, a
            different batch with the same number.
        """
        progress = self.progress
        if progress is None:
            if numbers is BatchNumbering.OF_A_QUERY and version > 0:
                raise ProgressError(
                    f"batch {version} is not the first, but the consumer group {self.name!r} has no progress of "
                    "earlier batches: they were not written by this sink, or the brokers have forgotten it "
                    "(offsets.retention.minutes, or the progress topic was deleted). If you know that the last "
                    "batch is in Kafka as a whole, or not at all, continue with option allowMissingProgress=true"
                )
            return True
        _require_writer(self.name, progress, writer)
        if numbers is not BatchNumbering.OF_AN_APPLICATION and version < progress.version:
            raise ProgressError(
                f"batch {version} of {writer} is older than batch {progress.version}, which is committed: the "
                "checkpoint is out of date (restored from a copy, or deleted where Spark Connect has no id of the "
                "query), and its batch numbers may stand for other rows now. Continue with the newer checkpoint; or "
                "choose another transactionalIdPrefix or app_id, and allowMissingProgress=true: then the rows since "
                "that checkpoint are written again"
            )
        if version == progress.version and self.is_unsure:
            raise ProgressError(
                f"batch {version} was decided, but the brokers have since forgotten its transactions "
                "(transactional.id.expiration.ms), so it is not known whether all of it is in Kafka. Check with "
                "'kafkalite verify': if it is, continue with the next version; if not, delete the consumer group "
                f"{self.name!r} and write it again, a stream with allowMissingProgress=true"
            )
        self._require_same_rows(progress, version)
        return version >= progress.next_version

    def offsets_of(self, version: int) -> str:
        """The digest of the offsets planned for *version*; empty if they are not known."""
        return self.offsets.digest if self.offsets.version == version else ""

    def _require_same_rows(self, progress: Progress, version: int) -> None:
        """:raises ProgressError: if *version* is committed with other rows than those planned now."""
        planned = self.offsets_of(version)
        if version == progress.version and planned and progress.offsets and planned != progress.offsets:
            raise ProgressError(
                f"batch {version} of {progress.writer} is committed, but with other rows than those now planned for "
                f"this number: the offsets of its sources were {progress.offsets}, and are now {planned} (digests "
                "of the checkpoint's offset log). Most likely the checkpoint is one batch older than that commit "
                "(restored from a copy), and skipping the batch would lose its new rows. Continue with the newer "
                "checkpoint; or choose another transactionalIdPrefix or app_id, and allowMissingProgress=true: then "
                "the rows since this checkpoint are written again"
            )

    def doubt(self, version: int) -> str:
        """The reason why it is not known whether the committed *version* had the rows planned now; empty if it had
        them."""
        if not self.offsets_of(version):
            return self.offsets.unknown or f"the checkpoint has batch {self.offsets.version} instead"
        if self.progress is None or version != self.progress.version or not self.progress.offsets:
            return (
                "the batch was committed without its offsets (by an earlier release, or because they were not "
                "available)"
            )
        return ""


def _require_writer(name: str, progress: Progress, writer: str) -> None:
    """:raises ProgressError: if *progress* of the sink *name* belongs to another writer."""
    if progress.writer != writer:
        raise ProgressError(
            f"the sink {name!r} belongs to {progress.writer}, which has committed up to version {progress.version}, "
            f"and not to {writer}: a sink has one writer (a query with a new checkpoint is another writer); choose "
            f"another transactionalIdPrefix or txnAppId, or delete the consumer group {name!r} if its writer is no "
            "longer used"
        )


class Sink:
    """The driver of a sink. *name* is the prefix of its transactional ids and the name of its group; the progress is
    stored as offsets of *progress_topic*, which must exist.

    :param timeout_ms: transaction.timeout.ms; None for the longest that the brokers allow, at most 15 minutes.
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

        Fences older drivers of the sink, commits their unfinished decisions, and aborts the transactions that they left
        open.

        :param writer: the writer of the batch, if known; the sink of another writer is then left untouched.
        :raises ProgressError: if the sink belongs to another writer.
        :raises TornBatchError: if part of the decided batch is lost.
        :raises ExactlyOnceError: if the cluster or the permissions are insufficient; the text says what is missing.
        :raises BrokersUnreachableError: if no broker could be reached; the text names each address and the cause.
        """
        try:
            return self._plan(writer)
        except UnsupportedVersionError as error:
            raise ExactlyOnceError(
                f"these brokers do not support exactly-once writes: {error}; Apache Kafka 3.6 or newer is required"
            ) from error
        except BrokersUnreachableError as error:
            raise BrokersUnreachableError(
                f"{error}; check bootstrap.servers and that the driver's machine can connect to the brokers' listeners"
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
        transaction_version = self._client.transaction_version()
        # A decision that was read is final, so its transactions can be described before it is certain that it is the
        # latest one.
        winners = () if known is None else known.transactions
        (driver, timeout_ms), ended = self._client.together(
            self._fence(), self._client.describe(each.transactional_id for each in winners)
        )
        progress = self._client.run(self._store.read())
        plan = Plan(
            self._name,
            self._id,
            driver,
            transaction_version,
            timeout_ms,
            Moment.now(self._clock),
            progress,
            partition_count,
        )
        ending = Ending.COMMITTED if progress is None else self._finish(progress, driver, ended)
        if progress is None:
            self._warn_of_short_retention()
            self._rehearse(plan)
            driver, timeout_ms = self._client.run(self._fence())
        elif ending is Ending.ABORTED:
            progress = Progress(progress.version, progress.writer, transaction_version, self._now_s())
            self._decide(plan, progress)
            driver, timeout_ms = self._client.run(self._fence())
        decided: frozenset[Transaction] = frozenset() if progress is None else frozenset(progress.transactions)
        self._abort([transaction for transaction in left_open if transaction not in decided], transaction_version)
        return replace(
            plan,
            driver=driver,
            timeout_ms=timeout_ms,
            planned=Moment.now(self._clock),
            progress=progress,
            is_unsure=ending is Ending.FORGOTTEN,
        )

    def _look(self) -> tuple[Progress | None, list[Transaction], int]:
        """The latest decision that is already stable, the open transactions of tasks, and the number of partitions of
        the progress topic.

        Called before the fence: the tasks of a newer driver begin after its fence, so none of the open transactions is
        theirs.

        :raises ExactlyOnceError: if the topic does not exist.
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
                "(offsets.retention.minutes; Kafka's default is %d): after a longer pause, its next batch is refused",
                self._name,
                minutes,
                _DEFAULT_RETENTION_MINUTES,
            )

    def _rehearse(self, plan: Plan) -> None:
        """Write progress and abort it, so that missing permissions of a new sink are found before any rows are
        written."""
        nothing = Progress(0, "nobody", plan.transaction_version, self._now_s())
        self._client.run(self._store.write(plan.driver, plan.transaction_version, nothing, plan.partition_count))
        self._abort([plan.driver], plan.transaction_version)

    def _partition_count(self) -> Exchange[int]:
        """The number of partitions of the progress topic.

        :raises ExactlyOnceError: if the topic does not exist.
        """
        count = yield from self._client.partition_count(self._progress_topic)
        if count is None:
            raise ExactlyOnceError(
                f"topic {self._progress_topic!r} for the progress (option progressTopic) does not exist or is not "
                "visible; create it, or grant DESCRIBE"
            )
        return count

    def _left_open(self, winners: Collection[Transaction] = ()) -> Exchange[list[Transaction]]:
        """The open transactions of tasks, without those whose ids are in *winners*."""
        names = yield from self._client.list_ongoing(writer_pattern(self._id))
        known = {each.transactional_id for each in winners}
        others = [name for name in names if name not in known and is_writer_id(self._id, name)]
        described = yield from self._client.describe(others)
        return [each.transaction for each in described.values() if each.is_ongoing]

    def _fence(self) -> Exchange[tuple[Transaction, int]]:
        """The driver's id with a new epoch, and the time-out that the brokers accepted."""
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
        """Commit the decided transactions, except those *described* as committed.

        :raises TornBatchError: if the brokers had aborted some of them.
        :raises FencedError: if some appear aborted, but a newer driver has taken over and may have continued.
        """
        unended = [
            each for each in progress.transactions if not _is_committed(each, progress.transaction_version, described)
        ]
        outcomes = self._client.run(self._client.end(unended, progress.transaction_version, commit=True))
        return self._ending(progress, driver, outcomes)

    def _ending(self, progress: Progress, driver: Transaction, outcomes: Mapping[Transaction, ErrorCode]) -> Ending:
        """The outcome of the decided batch from *outcomes*, the codes of its commits; transactions missing there were
        committed before. Raises as :meth:`_finish`."""
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
            # From EndTxn version 5 on, the next epoch also belongs to this driver.
            is_current = known.transaction.epoch - driver.epoch in (0, 1)
        if not is_current:
            raise FencedError(f"a newer driver has taken over the sink {self._name!r}; this one stops")

    def _decide(self, plan: Plan, progress: Progress) -> None:
        """Commit *progress* as the sink's latest decision, in the transaction of *plan*'s driver.

        :raises FencedError: if a newer driver has taken over; the batch was not decided.
        :raises UndecidedError: if the brokers aborted the driver's transaction.
        """
        self._client.run(self._propose(plan, progress))
        self._end_decision(plan, progress)

    def _propose(self, plan: Plan, progress: Progress) -> Exchange[None]:
        """Add *progress* to the driver's transaction; nothing is decided until the transaction is committed.

        :raises FencedError: if a newer driver has taken over.
        """
        try:
            yield from self._store.write(plan.driver, plan.transaction_version, progress, plan.partition_count)
        except ApiError as error:
            if error.code in _FENCED:
                raise FencedError(
                    f"batch {progress.version} was not committed: a newer driver has taken over the sink "
                    f"{self._name!r} ({error}); this one stops"
                ) from error
            raise

    def _end_decision(self, plan: Plan, progress: Progress) -> None:
        """Commit the driver's transaction with the proposed progress; this is the decision. Raises as
        :meth:`_decide`."""
        (code,) = self._client.run(self._client.end([plan.driver], plan.transaction_version, commit=True)).values()
        if code in _FENCED:
            # An answer may have been lost, and a newer driver may have taken over before the retry.
            raise FencedError(
                f"a newer driver has taken over the sink {self._name!r} ({code.name}) and knows whether batch "
                f"{progress.version} was committed before; this one stops"
            )
        if code is not ErrorCode.NONE:
            raise UndecidedError(
                f"batch {progress.version} was not committed: the brokers aborted its transaction ({code.name}), "
                "most likely after transaction.timeout.ms; run it again, and make the batches smaller if this is "
                "repeated"
            )

    def _warn_of_long(self, plan: Plan) -> None:
        """Warn if *plan*'s batch took long; called after its commit."""
        batch_ms = plan.planned.elapsed_ms(self._clock)
        if batch_ms > plan.timeout_ms // 3:
            _log.warning(
                "this batch took %d ms, more than a third of the time that transactions may stay open (%d ms, "
                "kafka.transaction.timeout.ms); a batch that takes longer than that cannot be committed: make the "
                "batches smaller",
                batch_ms,
                plan.timeout_ms,
            )

    def _abort(self, transactions: Collection[Transaction], transaction_version: TransactionVersion) -> None:
        self._client.run(self._client.end(transactions, transaction_version, commit=False))

    def _now_s(self) -> int:
        return self._clock.wall_ms() // 1000


def _is_committed(
    transaction: Transaction, transaction_version: TransactionVersion, described: Mapping[str, TransactionDescription]
) -> bool:
    """Whether the coordinator describes the transaction as committed. In version 2 the end of a transaction begins the
    next epoch; in version 1 each transaction of a sink has its own epoch. A description with that epoch therefore
    reports the end of exactly this transaction."""
    known = described.get(transaction.transactional_id)
    if known is None or known.state not in ("PrepareCommit", "CompleteCommit"):
        return False
    return known.transaction == (
        replace(transaction, epoch=transaction.epoch + 1)
        if transaction_version is TransactionVersion.V2
        else transaction
    )


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
        "transaction.timeout.ms is more than the brokers' transaction.max.timeout.ms; lower the former or raise the "
        "latter"
    ),
}
