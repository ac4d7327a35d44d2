"""Plan: one batch as its driver begins it, and what it permits to be written.

A value without a connection. The driver makes it, the tasks receive it, and the driver gets it back at the commit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafka_sink.common.clock import Moment
from kafka_sink.common.model import NO_TIMEOUT_MS, TransactionVersion
from kafka_sink.exactly_once.model import (
    NO_OFFSETS,
    BatchNumbering,
    PlannedOffsets,
    Progress,
    ProgressError,
    Skipped,
    Transaction,
)
from kafka_sink.exactly_once.names import accept_command, delete_progress_command


@dataclass(frozen=True)
class Plan:
    """One batch as its driver begins it; sent to the tasks and back. *driver* is the driver's transaction, *progress*
    the latest decision when the batch began, *timeout_ms* the time-out of the transactions, *planned* the moment when
    the batch began.

    With *two_phase*, the transactions of tasks never time out (KIP-939), and *timeout_ms* is only the driver's. *sink*
    is the prefix of its ids, *partition_count* the number of partitions of the progress topic. *is_unsure* is True if
    the outcome of the decided batch is no longer known. *offsets* identifies the rows that the query has planned for
    this batch.
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
        progress = self.progress
        if progress is None:
            if numbers is BatchNumbering.OF_A_QUERY and version > 0:
                raise ProgressError(
                    f"batch {version} is not the first, but the consumer group {self.name!r} has no progress of "
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
                f"`{accept_command(self.sink, version - 1)}`. Then start again: the sink goes on after that batch"
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
