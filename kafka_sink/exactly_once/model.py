"""Plain values of both protocols, and the errors that end a batch.

Created on the driver and in tasks, and pickled between them. They never hold a connection.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

from kafka_sink.common.clock import Moment
from kafka_sink.common.errors import ApiError, KafkaError
from kafka_sink.common.model import NO_TIMEOUT_MS, Node, ProducerIdAndEpoch, TopicPartition, TransactionVersion
from kafka_sink.common.remedies import Situation, remedy
from kafka_sink.exactly_once.transactions import Transaction, accept_command, delete_progress_command

#: The alternative if the brokers do not support exactly-once writes.
WRITE_AT_LEAST_ONCE: Final = (
    "Write at least once instead: a stream without deliveryGuarantee=exactly-once and transactionalIdPrefix, a batch "
    "without txnAppId and app_id"
)


class BatchNumbering(Enum):
    """The numbering of a sink's versions. It determines which version may come first and which may be repeated.

    Spark numbers the batches of a query from 0 and repeats only the last one: an earlier number after a later one is a
    different batch. An application may begin with any version and may repeat any version.
    """

    OF_A_QUERY = "query"
    #: As above, but this sink did not write the first batches, or its progress is lost.
    OF_A_QUERY_UNDER_WAY = "query under way"
    OF_AN_APPLICATION = "application"


class RowRange(NamedTuple):
    """Rows of one transaction in one partition: the offset of the first one, and the one after the last."""

    first: int
    end: int


@dataclass(frozen=True)
class PlannedOffsets:
    """Identifies the rows of batch *version* by the *digest* of its sources' offsets, which the query recorded before
    it ran the batch. Two plans with the same version and different digests have different rows.

    Without a digest, *unknown* gives the reason: it completes the sentence "this is not known, because …".
    """

    version: int = -1
    digest: str = ""
    unknown: str = ""


#: For versions that an application numbers.
NO_OFFSETS: Final = PlannedOffsets(unknown="versions of an application are not compared")


@dataclass(frozen=True)
class Skipped:
    """Why *version* is not written: *last* is the sink's last committed version.

    If that is *version* itself, *doubt* is the reason why it is not known whether it had the rows planned now; empty if
    it had them. If it is a later one, it is not known whether *version* was ever committed.
    """

    version: int
    last: int
    doubt: str = ""

    @property
    def is_older(self) -> bool:
        return self.version < self.last

    @property
    def decision(self) -> Literal["skipped", "older"]:
        """The decision in the report of the write."""
        return "older" if self.is_older else "skipped"


@dataclass(frozen=True)
class Progress:
    """The latest decision: every version below *next_version* is committed.

    *writer* is the query (or application) that made the decision at *decided_s* (seconds since 1970, by its clock).
    *transactions* are the transactions that it decided to commit; they belong to *version*. *offsets* is the digest of
    the offsets planned for that version; empty if they were not known. *decider* is the producer of the driver's
    transaction that decided it; None if release 1.0.0 did. *ends* are the offsets after the rows of that transaction;
    there are none in the parallel protocol.
    """

    next_version: int
    writer: str
    transaction_version: TransactionVersion
    decided_s: int
    transactions: tuple[Transaction, ...] = ()
    offsets: str = ""
    decider: ProducerIdAndEpoch | None = None
    ends: tuple[tuple[TopicPartition, int], ...] = ()

    @property
    def version(self) -> int:
        return self.next_version - 1


@dataclass(frozen=True)
class Plan:
    """One batch as its driver begins it; sent to the tasks and back. *driver* is the driver's transaction, *progress*
    the latest decision when the batch began, *timeout_ms* the time-out of the transactions, *planned* its beginning.

    With *two_phase*, the transactions of tasks never time out (KIP-939), and *timeout_ms* is only the driver's. *sink*
    is the prefix of its ids, *partition_count* the number of partitions of the progress topic. *is_unsure* is True if
    the outcome of the decided batch is no longer known. *offsets* identifies the rows that the query has planned.
    """

    sink: str
    driver: Transaction
    transaction_version: TransactionVersion
    timeout_ms: int
    planned: Moment
    progress: Progress | None
    partition_count: int
    is_unsure: bool = False
    offsets: PlannedOffsets = NO_OFFSETS
    two_phase: bool = False

    @property
    def tasks_timeout_ms(self) -> int:
        """The time-out of the tasks' transactions, as brokers describe it."""
        return NO_TIMEOUT_MS if self.two_phase else self.timeout_ms

    def after(self, decided: Progress) -> Plan:
        """The plan of this driver once it has decided *decided*, with the epoch that it has from then on."""
        epoch = self.driver.epoch + (self.transaction_version is TransactionVersion.V2)
        progress = replace(decided, decider=self.driver.producer)
        return replace(self, driver=replace(self.driver, epoch=epoch), progress=progress)

    def without_transactions(self) -> Plan:
        """The plan without the lists of the previous decision, as it is sent to each task."""
        if self.progress is None:
            return self
        return replace(self, progress=replace(self.progress, transactions=(), ends=()))

    def must_write(self, version: int, writer: str, numbers: BatchNumbering) -> bool:
        """Whether *version* still has to be written; False if it or a later one is already committed.

        :raises ProgressError: if the progress is missing or belongs to another writer, or if *version* is, or may be, a
            different batch with the same number.
        """
        progress, (name, _) = self.progress, self.sink.rsplit("/", 1)
        if progress is None:
            if numbers is BatchNumbering.OF_A_QUERY and version > 0:
                raise ProgressError(
                    f"batch {version} is not the first, but the consumer group {name!r} has no progress of "
                    "earlier batches: they were not written by this sink, or the brokers have forgotten it "
                    "(offsets.retention.minutes, or the progress topic was deleted). Spark may have written this batch "
                    "before. If no row of it is in Kafka, continue with option allowMissingProgress=true, which writes "
                    "it. If it is there ('kafkalite verify'; write what is missing with another program), run "
                    f"`{accept_command(self.sink, version, writer)}` and start again without that option"
                )
            return True
        require_writer(self.sink, progress, writer)
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
                "(transactional.id.expiration.ms), so it is not known whether all of it is in Kafka. Compare it with "
                "its source ('kafkalite verify'). If it is there (write what is missing with another program), run "
                f"`{accept_command(self.sink, version)}`; if no row of it is, "
                f"`{accept_command(self.sink, version - 1)}`. Then start again: the sink resumes after that batch"
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

    def skipped(self, version: int) -> Skipped:
        """Why *version*, which this plan does not permit to write, is not written."""
        return Skipped(version, version if self.progress is None else self.progress.version, self._doubt(version))

    def _doubt(self, version: int) -> str:
        if not self.offsets_of(version):
            return self.offsets.unknown or f"the checkpoint has batch {self.offsets.version} instead"
        if self.progress is None or version != self.progress.version or not self.progress.offsets:
            return (
                "the batch was committed without its offsets (by an earlier release, or because they were not "
                "available)"
            )
        return ""


def require_writer(sink: str, progress: Progress, writer: str) -> None:
    """:raises ProgressError: if *progress* of the *sink* with these ids belongs to another writer."""
    if progress.writer != writer:
        name, topic = sink.rsplit("/", 1)
        raise ProgressError(
            f"the sink {name!r} belongs to {progress.writer}, which has committed up to version {progress.version}, "
            f"and not to {writer}: a sink has one writer (a query with a new checkpoint is another writer); choose "
            "another transactionalIdPrefix or txnAppId; or, if that writer is no longer used, delete its progress: "
            f"`{delete_progress_command(name, topic)}`. Either way this one writes all rows that it reads, also those "
            "that the other has written"
        )


class Log(NamedTuple):
    """A partition under one leader, in the leader epoch *epoch* (None: not known)."""

    partition: TopicPartition
    leader: Node
    epoch: int | None


@dataclass
class Remembered:
    """The state of a sink that a process caches between batches, to send fewer requests. It may discard it.

    *logs* are those that were last searched for lost markers, each with its leader at that time. *other_logs* are those
    of the topics besides the progress topic, as of the instant *other_logs_ms*. *has_two_phase*: the brokers have
    offered two-phase commit. *driver* is the driver's transaction of the last batch that this process planned, and
    *ends* the offsets after its rows if this process committed it. *recent_ids* are those of the last decided batches'
    transactions, the latest first; tasks use a few ids in turn. *had_rows*: that batch was atomic. A batch is planned
    and written in its *turn*: two threads must not continue after the same batch.
    """

    logs: frozenset[Log] = frozenset()
    other_logs: frozenset[Log] = frozenset()
    other_logs_ms: int | None = None
    has_two_phase: bool = False
    driver: Transaction | None = None
    ends: Mapping[TopicPartition, int] | None = None
    recent_ids: tuple[str, ...] = ()
    had_rows: bool = False
    turn: threading.RLock = field(default_factory=threading.RLock, repr=False)
    #: The number of batches that this process has planned, and the function that waits for the observation ahead.
    planned: int = 0
    ahead: Callable[[], Any] | None = None


class Memories:
    """The cached state of the sinks of one cluster, by the prefix of their ids.

    The same addresses may lead to another cluster later (after a move, or a restore). Ids of a sink of that name may
    have the same producer ids and epochs there, and belong to another sink.
    """

    def __init__(self) -> None:
        self._cluster_id: str | None = None
        self._sinks: defaultdict[str, Remembered] = defaultdict(Remembered)

    def __getitem__(self, sink: str) -> Remembered:
        return self._sinks[sink]

    def belong_to(self, cluster_id: str | None) -> None:
        """Set the cluster id that Metadata returned (KIP-78); discard the cached state if it was of another cluster."""
        if self._cluster_id not in (None, cluster_id):
            for remembered in list(self._sinks.values()):
                vars(remembered).update(vars(Remembered(turn=remembered.turn)))
        self._cluster_id = cluster_id


class ExactlyOnceError(KafkaError):
    """The batch was not committed, and continuing would break exactly-once delivery."""

    remedy = "the text says what to do"


class FencedError(ExactlyOnceError):
    """Another driver with this name is running, or ran later; its transactions were not touched."""

    remedy = "run one query per name; the other one continues. An application writes its versions one after another"


class UndecidedError(ExactlyOnceError):
    """The batch was not committed and none of its rows will ever be visible. It may be run again."""

    remedy = (
        "run it again: a stream is started again, a `write` is called again with the same version, before any later one"
    )


class OutdatedProgressError(UndecidedError):
    """The driver planned the batch by a progress record that was not the latest: it read the record from a group
    coordinator that had been replaced. Nothing was committed."""

    remedy = "run it again, as above; if it is repeated, look for a broker that is cut off from the controller"


class AttemptError(ExactlyOnceError):
    """An attempt at a batch failed, and none of its rows will ever be visible; another attempt may succeed."""

    remedy = "none is needed if an attempt succeeds; the error after the last one names the first cause and the last"


class LostEndError(ExactlyOnceError):
    """The brokers have lost the end of a transaction, and nothing proves how it ended. The text names the partition,
    the offset, the producer and the command that ends it."""

    remedy = (
        "the text names partition, offset, producer and command: end the transaction with `kafkalite txn hanging "
        "TOPIC PARTITION --commit-at OFFSET`, or with `--abort-at` if that is refused; then compare its batch with "
        "the source (`kafkalite verify`) and write missing rows with another program. If the text says that a lost "
        "commit was aborted while it was being written again: compare the two batches that it names with their "
        "source, and run the command that it gives for the last one that is there"
    )


class ProgressError(ExactlyOnceError):
    """The progress in Kafka does not fit the checkpoint: it is older, newer, missing, or of another writer."""

    remedy = (
        "the text names the difference, and the command or the option with which the sink continues; [Exactly "
        "once](streaming.md#exactly-once) has the rules"
    )


class TornBatchError(ExactlyOnceError):
    """The driver decided to commit the batch, but the brokers aborted some of its transactions after
    transaction.timeout.ms. The rows of the transactions in `lost` are not in Kafka; those of `committed` are."""

    remedy = (
        "the text names every transaction. The sink writes nothing until you say that the batch is complete: compare "
        "it with its source (`kafkalite verify`), write the missing rows with another program or do without them, run"
        " the `kafkalite txn accept` of the text, and start the sink again"
    )

    version: int = -1
    lost: Sequence[Transaction] = ()
    committed: Sequence[Transaction] = ()

    def __init__(self, version: int, lost: Sequence[Transaction], committed: Sequence[Transaction] = ()) -> None:
        super().__init__(_torn(version, lost, len(committed)))
        self.version, self.lost, self.committed = version, lost, committed

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.version, self.lost, self.committed)


def _torn(version: int, lost: Sequence[Transaction], committed: int) -> str:
    sink, _, _ = lost[0].transactional_id.rsplit(".", 2)
    return (
        f"batch {version} was decided, but no driver completed it within transaction.timeout.ms: the "
        f"brokers aborted {len(lost)} of its {len(lost) + committed} transactions, and their rows are "
        f"missing: {', '.join(map(str, lost))}. Until an operator has decided, the sink writes nothing. Compare "
        "the batch with its source ('kafkalite verify') and write the missing rows with another program, or do "
        f"without them; then run `{accept_command(sink, version)}` and start the sink again, which goes on with "
        "the next batch"
    )


@contextmanager
def explained(sink: str) -> Iterator[None]:
    """Add the remedy to an error of the brokers. *sink* is the prefix of the sink's ids, ``name/topic``.

    :raises ExactlyOnceError: instead of an ApiError with a known remedy.
    """
    try:
        yield
    except ApiError as error:
        name, topic = sink.rsplit("/", 1)
        what_to_do = remedy(Situation.SINK, error.code, sink=name, topic=topic)
        if not what_to_do:
            raise
        raise ExactlyOnceError(f"{error}: {what_to_do}") from error
