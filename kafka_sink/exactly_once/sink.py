"""What both protocols begin with, on the driver, before the first row of a batch: nobody else decides any more, what
was decided before is finished, and what nobody will decide is aborted.

Used on the driver, by one thread at a time. Safe at any moment and any number of times: a driver that was frozen and
wakes up in the middle of it does no harm, because everything is either fenced or names one transaction exactly.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import ApiError, ErrorCode, UnsupportedVersionError
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import (
    ExactlyOnceError,
    FencedError,
    Flow,
    Progress,
    ProgressError,
    TornBatchError,
    Transaction,
    UndecidedError,
)
from kafka_sink.exactly_once.names import driver_id, is_writer_id, writer_pattern
from kafka_sink.exactly_once.progress import ProgressStore

#: Kafka's default for transaction.max.timeout.ms.
LONGEST_TIMEOUT_MS: Final = 900_000
#: No broker is set up with less on purpose.
_SHORTEST_TIMEOUT_MS: Final = 1000

#: Codes that say that the driver's transaction is not its own any more.
_FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


@dataclass(frozen=True)
class Plan:
    """One batch as its driver begins it; goes to the tasks and back. *driver* is the driver's transaction, *progress*
    what was decided when it began, *timeout_ms* the transactions' time-out, *planned_ms* the driver's wall clock."""

    sink: str
    driver: Transaction
    flow: Flow
    timeout_ms: int
    planned_ms: int
    progress: Progress | None

    def must_write(self, version: int, writer: str, *, begins_at: int | None) -> bool:
        """Whether *version* still has to be written; False when it is committed already.

        :param begins_at: versions after this one need progress of earlier ones; None: any may be the first.
        :raises ProgressError: the progress is missing, or another writer's.
        """
        progress = self.progress
        if progress is None:
            if begins_at is not None and version > begins_at:
                raise ProgressError(
                    f"batch {version} is not the first, but the consumer group {self.sink!r} has no progress of the "
                    "batches before: they were not written by this sink, or the brokers have forgotten it "
                    "(offsets.retention.minutes, or the progress topic was deleted). If the last batch is known to be "
                    "in Kafka as a whole, or not at all, go on with option allowMissingProgress=true"
                )
            return True
        if progress.writer != writer:
            raise ProgressError(
                f"the sink {self.sink!r} belongs to {progress.writer}, which has committed up to version "
                f"{progress.version}, and not to {writer}: one sink has one writer (a query whose checkpoint was "
                "deleted is another one); choose another transactionalIdPrefix or txnAppId, or delete the consumer "
                f"group {self.sink!r} if its writer is gone for good"
            )
        return version >= progress.next_version


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
        self._progress_topic = progress_topic
        self._timeout_ms = timeout_ms
        self._clock = clock

    def plan(self) -> Plan:
        """Begin a batch.

        Fences older drivers of the sink, commits what they decided and did not finish, and aborts what they left.

        :raises TornBatchError: part of what was decided is lost.
        :raises ExactlyOnceError: the cluster or the permissions do not suffice; the text says what is missing.
        """
        try:
            return self._plan()
        except UnsupportedVersionError as error:
            raise ExactlyOnceError(
                f"these brokers cannot do exactly once: {error}; it needs Apache Kafka 3.0 or newer"
            ) from error
        except ApiError as error:
            remedy = _REMEDIES.get(error.code)
            if remedy is None:
                raise
            raise ExactlyOnceError(f"{error}: {remedy.format(sink=self._name, topic=self._progress_topic)}") from error

    def _plan(self) -> Plan:
        store = self._store()
        flow = self._client.flow()
        # Before the fence: a transaction that is open now was not begun by a newer driver, whose tasks begin after it.
        left_open = self._left_open()
        driver, timeout_ms = self._fence()
        progress = store.read()
        if progress is not None and progress.transactions and not self._finish(progress, driver):
            undone = Progress(progress.version, progress.writer, flow, self._now_s())
            self._decide(driver, flow, undone)
            driver, timeout_ms = self._fence()
            progress = undone
        decided: frozenset[Transaction] = frozenset() if progress is None else frozenset(progress.transactions)
        abandoned = [transaction for transaction in left_open if transaction not in decided]
        self._client.end(abandoned, flow, commit=False)
        return Plan(self._name, driver, flow, timeout_ms, self._clock.wall_ms(), progress)

    def _store(self) -> ProgressStore:
        count = self._client.partition_count(self._progress_topic)
        if count is None:
            raise ExactlyOnceError(
                f"topic {self._progress_topic!r}, under whose name the progress is to be kept (option progressTopic), "
                "does not exist or may not be seen; create it, or grant DESCRIBE"
            )
        return ProgressStore(self._client, self._name, self._progress_topic, count)

    def _left_open(self) -> list[Transaction]:
        names = [
            name for name in self._client.list_ongoing(writer_pattern(self._name)) if is_writer_id(self._name, name)
        ]
        return [each.transaction for each in self._client.describe(names).values() if each.is_ongoing]

    def _fence(self) -> tuple[Transaction, int]:
        """The driver's id with the next epoch, and the time-out that the brokers allowed."""
        timeout_ms = LONGEST_TIMEOUT_MS if self._timeout_ms is None else self._timeout_ms
        while True:
            try:
                return self._client.init_producer_id(driver_id(self._name), timeout_ms), timeout_ms
            except ApiError as error:
                is_too_long = error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
                if not is_too_long or self._timeout_ms is not None or timeout_ms // 2 < _SHORTEST_TIMEOUT_MS:
                    raise
                timeout_ms //= 2

    def _finish(self, progress: Progress, driver: Transaction) -> bool:
        """Commit what was decided. False when the brokers had aborted all of it: then it was never decided.

        :raises TornBatchError: they had aborted some of it.
        :raises FencedError: so it seems, but a newer driver is there, who may have gone on.
        """
        outcomes = self._client.end(progress.transactions, progress.flow, commit=True)
        lost = [transaction for transaction, code in outcomes.items() if code is not ErrorCode.NONE]
        if not lost:
            return True
        self._check_current(driver)
        if len(lost) == len(outcomes):
            return False
        committed = [transaction for transaction in outcomes if transaction not in lost]
        raise TornBatchError(progress.version, lost, committed)

    def _check_current(self, driver: Transaction) -> None:
        known = self._client.describe([driver.transactional_id]).get(driver.transactional_id)
        if known is None or known.transaction.producer_id != driver.producer_id:
            is_current = False
        else:
            # From EndTxn version 5 on the next epoch is this driver's own.
            is_current = known.transaction.epoch - driver.epoch in (0, 1)
        if not is_current:
            raise FencedError(f"a newer driver has taken over the sink {self._name!r}; this one stops")

    def _decide(self, driver: Transaction, flow: Flow, progress: Progress) -> None:
        """Make *progress* the sink's, for good.

        :raises FencedError: a newer driver is there; it was not decided.
        :raises UndecidedError: the brokers aborted the driver's transaction.
        """
        try:
            self._store().write(driver, flow, progress)
        except ApiError as error:
            if error.code in _FENCED:
                raise FencedError(
                    f"batch {progress.version} was not committed: a newer driver has taken over the sink "
                    f"{self._name!r} ({error}); this one stops"
                ) from error
            raise
        (code,) = self._client.end([driver], flow, commit=True).values()
        if code in _FENCED:
            raise FencedError(
                f"batch {progress.version} was not committed: a newer driver has taken over the sink {self._name!r} "
                f"({code.name}); this one stops"
            )
        if code is not ErrorCode.NONE:
            raise UndecidedError(
                f"batch {progress.version} was not committed: the brokers aborted its transaction ({code.name}), most "
                "likely after transaction.timeout.ms; run it again, in smaller batches if that happens again"
            )

    def _abort(self, transactions: Collection[Transaction], flow: Flow) -> None:
        self._client.end(transactions, flow, commit=False)

    def _now_s(self) -> int:
        return self._clock.wall_ms() // 1000


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
