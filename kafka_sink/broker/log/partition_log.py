"""The log of one partition: segments in offset order, the newest one open for appends.

Called by any handler thread and by the housekeeping thread; one lock guards the whole log. An append must not be
acknowledged before ``write()`` has returned, and records must not be decoded to store or to serve them. No offset at or
beyond the log end offset may be visible, and to read_committed readers none at or beyond the last stable offset.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_sink.broker.log import recovery
from kafka_sink.broker.log.compaction import Compaction, CompactionRules, segments_to_compact
from kafka_sink.broker.log.filesystem import FileSystem
from kafka_sink.broker.log.producer_state import AbortedRange, KnownProducer, ProducerStateManager, VerificationGuard
from kafka_sink.broker.log.segment import Segment, TimestampOffset
from kafka_sink.broker.log.segments import Segments
from kafka_sink.common.errors import ApiError, CorruptRecordError, ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, TransactionVersion
from kafka_sink.records.batch import BatchHeader, parse_header, set_log_append_time
from kafka_sink.records.control import EndTransactionMarker, marker_batch
from kafka_sink.records.layout import INT32, MAGIC_AT, SIZE_PREFIX
from kafka_sink.records.reader import read_batches


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The effective settings of one log: topic settings and, where they are not set, the broker's."""

    segment_bytes: int
    segment_ms: int
    index_interval_bytes: int
    flush_interval_messages: int
    flush_interval_ms: int
    retention_bytes: int
    retention_ms: int
    log_append_time: bool
    producer_expiration_ms: int
    #: Whether retention deletes segments (``cleanup.policy`` has ``delete``).
    deletes: bool = True
    #: None if the log is not compacted.
    compaction: CompactionRules | None = None


@dataclass(frozen=True, slots=True)
class AppendInfo:
    """The result of an append: its first offset, log append time if used (else −1), and log start offset."""

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class LogRead:
    """The result of a read, with the state of the log at that moment (see :meth:`PartitionLog.appended_bytes`)."""

    records: bytes
    end_offset: int
    start_offset: int
    appended_bytes: int
    last_stable_offset: int
    #: For read_committed readers only: the aborted transactions among *records*.
    aborted: tuple[AbortedRange, ...] = ()
    #: Whether the read began in an earlier segment than that of its end.
    is_closed: bool = False


def _stamped(batch: memoryview, wall_ms: int) -> tuple[memoryview, BatchHeader]:
    """A copy of *batch* whose records have the timestamp *wall_ms*, with its header."""
    copy = bytearray(batch)
    set_log_append_time(copy, wall_ms)
    return memoryview(copy), parse_header(copy)


class PartitionLog:
    """An append-only sequence of record batches, addressed by offset."""

    def __init__(self, directory: Path, filesystem: FileSystem, config: LogConfig, wall_ms: int) -> None:
        """Open *directory* in any state; an incomplete tail, left by a crash, is truncated.

        If a marker is damaged, every operation fails with KAFKA_STORAGE_ERROR, and the error names the file.
        """
        self.directory = directory
        self._filesystem = filesystem
        self._config = config
        self._log = ContextLogger(__name__, f"log {directory.name}")
        self._lock = threading.Lock()
        # Guarded by the lock from here on.
        filesystem.make_directories(directory)
        recovered = recovery.open_log(
            directory, filesystem, config.index_interval_bytes, config.producer_expiration_ms, wall_ms
        )
        #: Bytes that recovery truncated, because they were not complete, valid batches.
        self.truncated_bytes = recovered.truncated_bytes
        self._segments: Segments = recovered.segments
        self._producers: ProducerStateManager = recovered.producers
        self._unflushed_messages = 0
        # When :meth:`flush_if_older` first found unflushed data.
        self._unflushed_since_ms: int | None = None
        self._appended_bytes = 0
        # First offset of an open transaction → bytes appended before it, for transactions since the log was opened.
        self._appended_before: dict[int, int] = {}
        self._failure: ApiError | None = None
        self._is_compactable = True
        if recovered.damage is not None:
            advice = "other logs are not affected; restore the file from a copy, or delete the topic"
            self._log.error("the log cannot be used: %s; %s", recovered.damage, advice)
            self._failure = ApiError(recovered.damage, ErrorCode.KAFKA_STORAGE_ERROR)

    def append(
        self,
        batch: memoryview,
        header: BatchHeader,
        leader_epoch: int,
        wall_ms: int,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Append one validated batch; when this returns, the operating system has it.

        A transactional batch that begins a transaction in this log needs a *guard* from :meth:`begin_verification`
        under which the coordinator has confirmed the transaction.

        :raises ApiError: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH; INVALID_TXN_STATE if the batch does not
            belong to an open transaction; KAFKA_STORAGE_ERROR if the disk failed (no part of the batch remains);
            UNKNOWN_TOPIC_OR_PARTITION if the log was deleted in the meantime.
        """
        if self._config.log_append_time:
            batch, header = _stamped(batch, wall_ms)
        with self._lock:
            self._raise_if_failed()
            if header.has_producer_id:
                kept = self._producers.check(header)
                if kept is not None:
                    return AppendInfo(kept.base_offset, kept.timestamp, self._segments.start_offset)
            if header.is_transactional:
                self._raise_unless_in_transaction(header, guard)
            base_offset = self._segments.end_offset
            before = self._appended_bytes
            self._write(batch, header, base_offset, leader_epoch)
            self._producers.update(header, base_offset, wall_ms)
            if self._producers.first_unstable_offset is not None:
                state = self._producers.states.get(header.producer_id)
                if state is not None and state.transaction_first_offset == base_offset:
                    self._appended_before[base_offset] = before
            self._flush_if_due(header.record_count)
            timestamp = wall_ms if self._config.log_append_time else NO_TIMESTAMP
            return AppendInfo(base_offset, timestamp, self._segments.start_offset)

    def _raise_unless_in_transaction(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        if self._producers.has_open_transaction(header.producer_id, header.producer_epoch):
            return
        if not self._producers.is_verified(guard):
            text = f"the batch of producer {header.producer_id} is not part of an ongoing transaction"
            raise ApiError(text, ErrorCode.INVALID_TXN_STATE)

    def append_marker(
        self,
        marker: EndTransactionMarker,
        leader_epoch: int,
        wall_ms: int,
        *,
        transaction_version: TransactionVersion = TransactionVersion.V1,
    ) -> AppendInfo:
        """End a producer's transaction with a control batch; this also fences older epochs if no transaction is open.

        In *transaction_version* 2 each transaction has its own epoch, and the marker has the epoch of the next one.

        :raises ApiError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED; else as :meth:`append`.
        """
        batch = memoryview(marker_batch(marker, wall_ms))
        header = parse_header(batch)
        with self._lock:
            self._raise_if_failed()
            self._producers.check_marker(marker, transaction_version=transaction_version)
            state = self._producers.states.get(marker.producer_id)
            ended = state.transaction_first_offset if state is not None else NO_OFFSET
            base_offset = self._segments.end_offset
            self._write(batch, header, base_offset, leader_epoch)
            self._producers.complete(marker, base_offset, wall_ms)
            self._appended_before.pop(ended, None)
            self._flush_if_due(header.record_count)
            return AppendInfo(base_offset, wall_ms, self._segments.start_offset)

    def begin_verification(
        self,
        producer_id: int,
        epoch: int,
        sequence: int,
        wall_ms: int,
        *,
        transaction_version: TransactionVersion = TransactionVersion.V1,
    ) -> VerificationGuard | None:
        """A guard for :meth:`append`, to begin a transaction in this log; None if it is open already (KIP-890).

        The caller then asks the coordinator, and appends only if the partition is part of the transaction. It calls
        :meth:`end_verification` afterwards. *sequence* is the first sequence number of the batch,
        *transaction_version* that of the producer.

        :raises ApiError: INVALID_PRODUCER_EPOCH.
        """
        with self._lock:
            if self._producers.has_open_transaction(producer_id, epoch):
                return None
            return self._producers.begin_verification(
                producer_id, epoch, sequence, wall_ms, transaction_version=transaction_version
            )

    def end_verification(self, guard: VerificationGuard) -> None:
        """End the verification after the batch was appended or rejected; later appends under *guard* are rejected."""
        with self._lock:
            self._producers.end_verification(guard)

    def _write(self, batch: memoryview, header: BatchHeader, base_offset: int, leader_epoch: int) -> None:
        active = self._segments.active
        last_offset = base_offset + header.last_offset_delta
        size = active.size
        try:
            has_room = active.has_room(header.size_in_bytes, last_offset, self._config.segment_bytes)
            if not has_room or active.age_at(header.max_timestamp) > self._config.segment_ms:
                recovery.write_snapshot(self.directory, self._filesystem, base_offset, self._producers)
                active = self._segments.roll()
                size = active.size
            # The leader may have changed after this writer read its epoch. Epochs must not go back, because recovery
            # treats that as damage.
            leader_epoch = max(leader_epoch, self._segments.last_epoch)
            # Offset and epoch precede the bytes that the checksum covers, so the batch is written as received.
            placed = SIZE_PREFIX.pack(base_offset, header.batch_length) + INT32.pack(leader_epoch)
            active.append(header, base_offset, leader_epoch, (placed, batch[MAGIC_AT : header.size_in_bytes]))
        except OSError as error:
            self._log.error("append failed: %s", error)
            try:
                active.file.truncate(size)
            except OSError as torn:
                # Later batches would follow an incomplete batch, where readers cannot reach them.
                self._failure = ApiError(f"a torn write could not be undone: {torn}", ErrorCode.KAFKA_STORAGE_ERROR)
            raise ApiError(f"append failed: {error}", ErrorCode.KAFKA_STORAGE_ERROR) from error
        self._appended_bytes += header.size_in_bytes

    def _flush_if_due(self, messages: int) -> None:
        self._unflushed_messages += messages
        if self._unflushed_messages < self._config.flush_interval_messages:
            return
        try:
            for segment in (*self._segments.unsealed, self._segments.active):
                segment.file.flush()
        except OSError as error:
            raise self._flush_failed(error) from error
        self._unflushed_messages = 0

    def _flush_failed(self, error: OSError) -> ApiError:
        # After a failed fsync the content of the disk is unknown, and another fsync may succeed wrongly (fsyncgate):
        # stop.
        self._failure = ApiError(f"flush failed: {error}", ErrorCode.KAFKA_STORAGE_ERROR)
        return self._failure

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            raise ApiError(str(self._failure), self._failure.code)

    @property
    def start_offset(self) -> int:
        """The offset of the oldest record that is kept."""
        with self._lock:
            return self._segments.start_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        with self._lock:
            return self._segments.end_offset

    @property
    def last_stable_offset(self) -> int:
        """The limit for read_committed: the first record of the oldest open transaction, else the log end offset."""
        with self._lock:
            return self._last_stable_offset()

    def _last_stable_offset(self) -> int:
        unstable = self._producers.first_unstable_offset
        # The first records of an open transaction may have been deleted (DeleteRecords).
        return self._segments.end_offset if unstable is None else max(unstable, self._segments.start_offset)

    def producers(self) -> dict[int, KnownProducer]:
        """A copy of the producer states, by producer id (DescribeProducers)."""
        with self._lock:
            return {producer: replace(state) for producer, state in self._producers.states.items()}

    @property
    def size(self) -> int:
        with self._lock:
            return self._segments.size

    def appended_bytes(self, *, committed: bool = False) -> int:
        """Bytes appended since the log was opened; with *committed*, below the last stable offset. Never decreases."""
        with self._lock:
            return self._readable_bytes(committed=committed)

    def _readable_bytes(self, *, committed: bool) -> int:
        unstable = self._producers.first_unstable_offset if committed else None
        # A transaction that was open when the log was opened precedes all later appends.
        return self._appended_bytes if unstable is None else self._appended_before.get(unstable, 0)

    def read(self, offset: int, max_bytes: int, *, whole_first_batch: bool, committed: bool = False) -> LogRead:
        """Batches from the one with *offset* on, as the stored bytes of one segment.

        With *committed* the result ends at the last stable offset and includes the aborted transactions among the
        batches.

        :raises ApiError: OFFSET_OUT_OF_RANGE; KAFKA_STORAGE_ERROR if the disk fails; UNKNOWN_TOPIC_OR_PARTITION if
            the log was deleted in the meantime.
        """
        with self._reading():
            start, end = self._segments.start_offset, self._segments.end_offset
            if not start <= offset <= end:
                raise ApiError(
                    f"offset {offset} is out of range: the log has offsets {start} to {end}",
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                )
            stable = self._last_stable_offset()
            readable = stable if committed else end
            has_gaps = self._config.compaction is not None or self._segments.compacted_offset > 0
            records = self._segments.read(
                offset, readable, max_bytes, whole_first_batch=whole_first_batch, has_gaps=has_gaps
            )
            aborted = self._aborted_in(records, offset) if committed and records else ()
            is_closed = self._segments.is_closed_at(offset, readable)
            return LogRead(records, end, start, self._readable_bytes(committed=committed), stable, aborted, is_closed)

    def _aborted_in(self, records: bytes, offset: int) -> tuple[AbortedRange, ...]:
        candidates = self._producers.aborted_between(offset, self._segments.end_offset)
        if not candidates:
            return ()
        # Aborted transactions of later batches are returned with those: a log may have more than fit an answer.
        end = max((batch.last_offset + 1 for batch in read_batches(records)), default=offset)
        return tuple(aborted for aborted in candidates if aborted.first_offset < end)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record with at least this timestamp (ms), None if all records are older.

        :raises ApiError: CORRUPT_MESSAGE if the batch with the record cannot be decompressed; else as :meth:`read`.
        """
        with self._reading():
            return self._segments.offset_for_timestamp(timestamp)

    def max_timestamp_record(self) -> TimestampOffset | None:
        """The first record with the largest timestamp of the log, None if the log is empty.

        :raises ApiError: CORRUPT_MESSAGE if its batch cannot be decompressed; else as :meth:`read`.
        """
        with self._reading():
            return self._segments.max_timestamp_record()

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch up to *epoch* that has records, and the offset after its last record.

        Returns *epoch* itself and the log start offset if all remaining records have later epochs. Raises as
        :meth:`read`.
        """
        with self._reading():
            return self._segments.end_of_epoch(epoch)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Hold the lock, and translate errors into ApiError."""
        with self._lock:
            self._raise_if_failed()
            try:
                yield
            except CorruptRecordError as error:
                raise ApiError(str(error), ErrorCode.CORRUPT_MESSAGE) from error
            except OSError as error:
                self._log.error("read failed: %s", error)
                raise ApiError(f"read failed: {error}", ErrorCode.KAFKA_STORAGE_ERROR) from error

    def seal_rolled_segments(self) -> None:
        """Flush segments that were rolled since the last call and write their indexes. OSErrors propagate."""
        while True:
            with self._lock:
                if self._failure is not None or not self._segments.unsealed:
                    return
                segment = self._segments.unsealed[0]
            # Without the lock: a flush may take seconds, and rolled segments are not appended to.
            self._flush_if_there(segment)
            with self._lock:
                # The segment may be deleted, and its directory hold another topic's log by now: write no index.
                if self._failure is None and segment in self._segments.unsealed:
                    segment.seal()
                    self._segments.unsealed.remove(segment)

    def _flush_if_there(self, segment: Segment) -> None:
        """Flush without the lock. :raises OSError: if that failed, unless the segment was closed in the meantime."""
        try:
            segment.file.flush()
        except OSError:
            with self._lock:
                if self._failure is None and segment in self._segments:
                    raise

    def flush_if_older(self, monotonic_ms: int) -> None:
        """Flush data that is older than ``flush.ms``, counted from the first call that found it unflushed.

        A failure ends the log, as in an append.
        """
        with self._lock:
            if self._failure is not None or not self._unflushed_messages:
                self._unflushed_since_ms = None
                return
            if self._unflushed_since_ms is None:
                self._unflushed_since_ms = monotonic_ms
            if monotonic_ms - self._unflushed_since_ms < self._config.flush_interval_ms:
                return
            pending = [*self._segments.unsealed, self._segments.active]
            messages, self._unflushed_since_ms = self._unflushed_messages, None
        try:
            # Without the lock: a flush may take seconds, and no answer waits for it.
            for segment in pending:
                self._flush_if_there(segment)
        except OSError as error:
            with self._lock:
                if self._failure is None:
                    self._log.error("%s", self._flush_failed(error))
            return
        with self._lock:
            self._unflushed_messages = max(0, self._unflushed_messages - messages)

    def delete_records_before(self, offset: int) -> int:
        """Advance the log start offset to *offset* (DeleteRecords, KIP-107); returns the log start offset, which never
        goes back.

        −1 selects the log end offset. The change is on disk when this returns.

        :raises ApiError: OFFSET_OUT_OF_RANGE beyond the end; KAFKA_STORAGE_ERROR; UNKNOWN_TOPIC_OR_PARTITION.
        """
        with self._reading():
            end = self._segments.end_offset
            wanted = end if offset == -1 else offset
            if not 0 <= wanted <= end:
                raise ApiError(f"offset {offset} is not between 0 and {end}", ErrorCode.OFFSET_OUT_OF_RANGE)
            self._segments.delete_before(wanted)
            self._producers.forget_aborted_before(self._segments.start_offset)
            return self._segments.start_offset

    def apply_retention(self, wall_ms: int) -> int:
        """Delete the oldest segments that exceed retention time or size, never the active one; returns their number."""
        with self._lock:
            if self._failure is not None:
                return 0
            self._producers.expire(wall_ms)
            config = self._config
            if not config.deletes:
                return 0
            expired = self._segments.expired(config.retention_bytes, config.retention_ms, wall_ms)
            for _ in range(expired):
                self._segments.drop_oldest()
            self._producers.forget_aborted_before(self._segments.start_offset)
            return expired

    def begin_compaction(self, wall_ms: int) -> Compaction | None:
        """The compaction that is due at *wall_ms*; None if there is none."""
        with self._lock:
            rules, segments = self._config.compaction, self._segments
            if rules is None or self._failure is not None or not self._is_compactable:
                return None
            first_dirty = max(segments.compacted_offset, segments.start_offset)
            due = segments_to_compact(tuple(segments), first_dirty, self._last_stable_offset(), rules, wall_ms)
            if not due:
                return None
            last_batches = {
                producer: (state.batches[-1].last_offset if state.batches else NO_OFFSET, state.epoch)
                for producer, state in self._producers.states.items()
            }
            aborted = tuple(self._producers.aborted)
            return Compaction(
                tuple(due), first_dirty, rules, self._config.segment_bytes, last_batches, aborted, wall_ms
            )

    def replace(self, segments: Sequence[Segment], cleaned: Segment, ended: Collection[AbortedRange]) -> bool:
        """Replace *segments* by *cleaned*, their flushed compaction; False if one of them no longer exists.

        No record of the aborted transactions *ended* remains. :raises OSError: if the disk fails.
        """
        with self._lock:
            if self._failure is not None or not self._segments.follow_each_other(segments):
                return False
            segments[0].unseal()
            try:
                self._segments.replace(segments, cleaned)
            except OSError as error:
                cleaned.file.close()
                self._failure = ApiError(f"a segment could not be replaced: {error}", ErrorCode.KAFKA_STORAGE_ERROR)
                raise
            self._producers.forget_aborted(ended)
            for replaced in segments[1:]:
                replaced.delete()
            return True

    def note_compacted(self, offset: int) -> None:
        """Store that everything before *offset* is compacted. :raises OSError: if the disk fails."""
        with self._lock:
            if self._failure is None and offset != self._segments.compacted_offset:
                self._segments.note_compacted(offset)

    def refuse_compaction(self) -> None:
        """Do not compact the log from now on, because it is damaged."""
        with self._lock:
            self._is_compactable = False

    def reconfigure(self, config: LogConfig) -> None:
        """Replace the settings; existing segments keep their index interval."""
        with self._lock:
            self._config = config

    def close(self) -> None:
        """Flush and seal all segments and close the files; the next start need not verify sealed bytes.

        It is closed even if an error is raised. :raises OSError: if not all data is on disk.
        """
        with self._lock:
            try:
                if self._failure is None and not all(segment.is_sealed for segment in self._segments):
                    end = self._segments.end_offset
                    for segment in self._segments:
                        segment.seal()
                    recovery.write_snapshot(self.directory, self._filesystem, end, self._producers)
            finally:
                self._release("closed")

    def move_away(self, target: Path) -> None:
        """Rename the directory, so that it can be removed under its new name, and close the files.

        :raises OSError: if it cannot be renamed; the log is unchanged.
        """
        with self._lock:
            # Both under the lock: no other thread may find an open log whose directory is gone.
            self._filesystem.rename(self.directory, target)
            self._release("removed")

    def abandon(self) -> None:
        """Close the files without flushing, because they are about to be removed."""
        with self._lock:
            self._release("removed")

    def _release(self, how: str) -> None:
        self._failure = ApiError(f"the log was {how}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for segment in self._segments:
            segment.file.close()
