"""The log of one partition: segments in order of offset, the newest one open for appends.

Called by any handler thread and by the housekeeping thread; one lock guards all of it. Must never acknowledge before
``write()`` has returned, must never decode records to store or to serve them, must never show an offset at or beyond
the end of the log, and to readers of committed records none at or beyond the last stable offset.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_sink.broker.log import recovery
from kafka_sink.broker.log.filesystem import FileSystem
from kafka_sink.broker.log.producer_state import (
    AbortedTransaction,
    AppendedBatch,
    ProducerState,
    ProducerStateManager,
    VerificationGuard,
)
from kafka_sink.broker.log.retention import expired_segments
from kafka_sink.broker.log.segment import Segment, TimestampOffset
from kafka_sink.broker.log.segments import Segments
from kafka_sink.common.errors import ApiError, CorruptRecordError, ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP
from kafka_sink.records.batch import BatchHeader, parse_header, set_log_append_time
from kafka_sink.records.control import EndTransactionMarker, marker_batch
from kafka_sink.records.layout import INT32, MAGIC_AT, SIZE_PREFIX
from kafka_sink.records.reader import read_batches


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one log, after topic settings were laid over the broker's."""

    segment_bytes: int
    index_interval_bytes: int
    flush_interval_messages: int
    flush_interval_ms: int
    retention_bytes: int
    retention_ms: int
    log_append_time: bool
    producer_expiration_ms: int


@dataclass(frozen=True, slots=True)
class AppendInfo:
    """Where a batch is: its first and last offset, the log's time if that rules (else −1), and the log's start."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class LogRead:
    """What a read found, with the state of the log at that moment (see :meth:`PartitionLog.appended_bytes`)."""

    records: bytes
    end_offset: int
    start_offset: int
    appended_bytes: int
    last_stable_offset: int
    #: For readers of committed records only: whose records among *records* to leave out.
    aborted: tuple[AbortedTransaction, ...] = ()


class PartitionLog:
    """An append-only sequence of record batches, addressed by offset."""

    def __init__(self, directory: Path, filesystem: FileSystem, config: LogConfig, wall_ms: int) -> None:
        """Open *directory*, whatever state it was left in; what a crash tore off the end is cut away.

        Where a marker is damaged, every use answers KAFKA_STORAGE_ERROR and names the file.
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
        #: Bytes that were cut off because they were no whole, sound batches.
        self.truncated_bytes = recovered.truncated_bytes
        self._segments: Segments = recovered.segments
        self._producers: ProducerStateManager = recovered.producers
        self._unflushed_messages = 0
        # When :meth:`flush_if_older` first saw that something is to be flushed.
        self._unflushed_since_ms: int | None = None
        self._appended_bytes = 0
        # First offset of an open transaction → bytes appended before it, for those begun since the log was opened.
        self._appended_before: dict[int, int] = {}
        self._failure: ApiError | None = None
        if recovered.damage is not None:
            advice = "other logs go on; put a copy of the file back, or delete the topic"
            self._log.error("it cannot be used: %s; %s", recovered.damage, advice)
            self._failure = ApiError(recovered.damage, ErrorCode.KAFKA_STORAGE_ERROR)

    # --- appending ---------------------------------------------------------------------------------------------------

    def append(
        self,
        batch: memoryview,
        header: BatchHeader,
        leader_epoch: int,
        wall_ms: int,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Store one validated batch at the end; when this returns, the operating system has it.

        A transactional batch that opens a transaction here needs a *guard* from :meth:`begin_verification` under which
        the coordinator has said yes.

        :raises ApiError: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH; INVALID_TXN_STATE when the batch is of
            no open transaction; KAFKA_STORAGE_ERROR when the disk refused it (nothing of it stays);
            UNKNOWN_TOPIC_OR_PARTITION when the log was deleted meanwhile.
        """
        if self._config.log_append_time:
            stamped = bytearray(batch)
            set_log_append_time(stamped, wall_ms)
            batch = memoryview(stamped)
            header = parse_header(stamped)
        with self._lock:
            self._raise_if_failed()
            if header.has_producer_id:
                duplicate = self._producers.check(header)
                if duplicate is not None:
                    return self._duplicate_info(duplicate)
            if header.is_transactional:
                self._raise_unless_in_transaction(header, guard)
            base_offset = self._segments.end_offset
            before = self._appended_bytes
            self._write(batch, header, base_offset, leader_epoch)
            self._producers.update(header, base_offset, wall_ms)
            if self._producers.first_unstable_offset is not None:
                self._note_open_transaction(header, base_offset, before)
            self._flush_if_due(header.record_count)
            return AppendInfo(
                base_offset,
                base_offset + header.last_offset_delta,
                wall_ms if self._config.log_append_time else NO_TIMESTAMP,
                self._segments.start_offset,
                duplicate=False,
            )

    def _raise_unless_in_transaction(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        if self._producers.has_open_transaction(header.producer_id, header.producer_epoch):
            return
        if not self._producers.is_verified(guard):
            text = f"the batch of producer {header.producer_id} is not part of an ongoing transaction"
            raise ApiError(text, ErrorCode.INVALID_TXN_STATE)

    def _note_open_transaction(self, header: BatchHeader, base_offset: int, appended_before: int) -> None:
        state = self._producers.states.get(header.producer_id)
        if state is not None and state.transaction_first_offset == base_offset:
            self._appended_before[base_offset] = appended_before

    def append_marker(
        self, marker: EndTransactionMarker, leader_epoch: int, wall_ms: int, *, bumps_epoch: bool = False
    ) -> AppendInfo:
        """End a producer's transaction here with a control batch; fences older epochs even when none is open.

        *bumps_epoch*: each transaction has an epoch of its own, and the marker that of the next one.

        :raises ApiError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED; else as :meth:`append`.
        """
        batch = memoryview(marker_batch(marker, wall_ms))
        header = parse_header(batch)
        with self._lock:
            self._raise_if_failed()
            self._producers.check_marker(marker, bumps_epoch=bumps_epoch)
            state = self._producers.states.get(marker.producer_id)
            ended = state.transaction_first_offset if state is not None else NO_OFFSET
            base_offset = self._segments.end_offset
            self._write(batch, header, base_offset, leader_epoch)
            self._producers.complete(marker, base_offset, wall_ms)
            self._appended_before.pop(ended, None)
            self._flush_if_due(header.record_count)
            return AppendInfo(base_offset, base_offset, wall_ms, self._segments.start_offset, duplicate=False)

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, wall_ms: int, *, bumps_epoch: bool = False
    ) -> VerificationGuard | None:
        """What :meth:`append` needs to open a transaction here, None when this one is open already (KIP-890).

        Ask the coordinator after this call, and append only if it says that the partition is in the transaction.
        Call :meth:`end_verification` when that is done. *sequence* is the batch's first one. *bumps_epoch*: each
        transaction of this client has an epoch of its own.

        :raises ApiError: INVALID_PRODUCER_EPOCH.
        """
        with self._lock:
            if self._producers.has_open_transaction(producer_id, epoch):
                return None
            return self._producers.begin_verification(producer_id, epoch, sequence, wall_ms, bumps_epoch=bumps_epoch)

    def end_verification(self, guard: VerificationGuard) -> None:
        """The batch is appended, or will not be; another one that comes under *guard* is refused from now on."""
        with self._lock:
            self._producers.end_verification(guard)

    def _duplicate_info(self, batch: AppendedBatch) -> AppendInfo:
        return AppendInfo(
            batch.base_offset, batch.last_offset, batch.timestamp, self._segments.start_offset, duplicate=True
        )

    def _write(self, batch: memoryview, header: BatchHeader, base_offset: int, leader_epoch: int) -> None:
        active = self._segments.active
        last_offset = base_offset + header.last_offset_delta
        size = active.size
        try:
            if not active.has_room(header.size_in_bytes, last_offset, self._config.segment_bytes):
                recovery.write_snapshot(self.directory, self._filesystem, base_offset, self._producers)
                active = self._segments.roll()
                size = active.size
            # A writer that looked at its epoch before the leader changed may come last; epochs never go back, as
            # recovery takes one that does for damage.
            leader_epoch = max(leader_epoch, self._segments.last_epoch)
            # Offset and epoch lie before what the checksum covers: the batch itself goes to the file as received.
            placed = SIZE_PREFIX.pack(base_offset, header.batch_length) + INT32.pack(leader_epoch)
            active.append(header, base_offset, leader_epoch, (placed, batch[MAGIC_AT : header.size_in_bytes]))
        except OSError as error:
            self._log.error("append failed: %s", error)
            self._cut_torn_write(active, size)
            raise ApiError(f"append failed: {error}", ErrorCode.KAFKA_STORAGE_ERROR) from error
        self._appended_bytes += header.size_in_bytes

    def _cut_torn_write(self, active: Segment, size: int) -> None:
        try:
            active.truncate(size)
        except OSError as error:
            # Whatever came next would stand behind half a batch, where no reader gets to.
            self._failure = ApiError(f"a torn write could not be undone: {error}", ErrorCode.KAFKA_STORAGE_ERROR)

    def _flush_if_due(self, messages: int) -> None:
        self._unflushed_messages += messages
        if self._unflushed_messages < self._config.flush_interval_messages:
            return
        try:
            self._segments.flush()
        except OSError as error:
            raise self._flush_failed(error) from error
        self._unflushed_messages = 0

    def _flush_failed(self, error: OSError) -> ApiError:
        # After a failed fsync nobody knows what is on the disk, and asking again may lie (fsyncgate): stop here.
        self._failure = ApiError(f"flush failed: {error}", ErrorCode.KAFKA_STORAGE_ERROR)
        return self._failure

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            raise ApiError(str(self._failure), self._failure.code)

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """Offset of the oldest record that is kept."""
        with self._lock:
            return self._segments.start_offset

    @property
    def end_offset(self) -> int:
        """Offset that the next record gets."""
        with self._lock:
            return self._segments.end_offset

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed records stop: the first record of the oldest open transaction, else the end."""
        with self._lock:
            return self._last_stable_offset()

    def _last_stable_offset(self) -> int:
        unstable = self._producers.first_unstable_offset
        # An open transaction may have begun with records that were deleted (DeleteRecords).
        return self._segments.end_offset if unstable is None else max(unstable, self._segments.start_offset)

    def producers(self) -> dict[int, ProducerState]:
        """A copy of what is known of the producers, by id (DescribeProducers)."""
        with self._lock:
            return {producer: replace(state) for producer, state in self._producers.states.items()}

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        with self._lock:
            return self._segments.size

    def appended_bytes(self, *, committed: bool = False) -> int:
        """Bytes appended since the log was opened; with *committed* those below the last stable offset. Grows only."""
        with self._lock:
            return self._readable_bytes(committed=committed)

    def _readable_bytes(self, *, committed: bool) -> int:
        unstable = self._producers.first_unstable_offset if committed else None
        # A transaction that was open when the log was opened came before all that was appended since.
        return self._appended_bytes if unstable is None else self._appended_before.get(unstable, 0)

    def read(self, offset: int, max_bytes: int, *, whole_first_batch: bool, committed: bool = False) -> LogRead:
        """Batches from the one that holds *offset* on, straight from a segment's bytes.

        With *committed* it ends at the last stable offset, and tells the aborted transactions among the batches.

        :raises ApiError: OFFSET_OUT_OF_RANGE; KAFKA_STORAGE_ERROR when the disk fails; UNKNOWN_TOPIC_OR_PARTITION when
            the log was deleted meanwhile.
        """
        with self._reading():
            start, end = self._segments.start_offset, self._segments.end_offset
            if not start <= offset <= end:
                raise ApiError(f"offset {offset} is outside of {start} to {end}", ErrorCode.OFFSET_OUT_OF_RANGE)
            stable = self._last_stable_offset()
            readable = stable if committed else end
            records = self._segments.read(offset, readable, max_bytes, whole_first_batch=whole_first_batch)
            aborted = self._aborted_in(records, offset) if committed and records else ()
            return LogRead(records, end, start, self._readable_bytes(committed=committed), stable, aborted)

    def _aborted_in(self, records: bytes, offset: int) -> tuple[AbortedTransaction, ...]:
        candidates = self._producers.aborted_between(offset, self._segments.end_offset)
        if not candidates:
            return ()
        # Those that only concern later batches come with them: a log may hold more than an answer should.
        end = max((batch.last_offset + 1 for batch in read_batches(records)), default=offset)
        return tuple(aborted for aborted in candidates if aborted.first_offset < end)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record with at least this timestamp (ms), None when all are older.

        :raises ApiError: CORRUPT_MESSAGE when the batch in question cannot be unpacked; else as :meth:`read`.
        """
        with self._reading():
            return self._segments.offset_for_timestamp(timestamp)

    def max_timestamp_record(self) -> TimestampOffset | None:
        """The first record that bears the largest timestamp of the log, None when the log is empty.

        :raises ApiError: CORRUPT_MESSAGE when its batch cannot be unpacked; else as :meth:`read`.
        """
        with self._reading():
            return self._segments.max_timestamp_record()

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch up to *epoch* under which records were written, and the offset after its last one.

        *epoch* itself and the log's start when all that is kept was written under later ones. Raises as :meth:`read`.
        """
        with self._reading():
            return self._segments.end_of_epoch(epoch)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Hold the lock, and say in Kafka's words what goes wrong meanwhile."""
        with self._lock:
            self._raise_if_failed()
            try:
                yield
            except CorruptRecordError as error:
                raise ApiError(str(error), ErrorCode.CORRUPT_MESSAGE) from error
            except OSError as error:
                self._log.error("read failed: %s", error)
                raise ApiError(f"read failed: {error}", ErrorCode.KAFKA_STORAGE_ERROR) from error

    # --- housekeeping ------------------------------------------------------------------------------------------------

    def seal_rolled_segments(self) -> None:
        """Flush segments that were rolled since the last call and write their indexes. OSErrors are the caller's."""
        while True:
            with self._lock:
                if self._failure is not None or not self._segments.unsealed:
                    return
                segment = self._segments.unsealed[0]
            # Outside the lock: a flush may take seconds, and nobody appends to a rolled segment.
            flushed = self._flush_if_there(segment)
            with self._lock:
                # It may be deleted by now, and another topic's log be in its directory: no index must get there.
                if flushed and self._failure is None and segment in self._segments.unsealed:
                    segment.seal()
                    self._segments.unsealed.remove(segment)

    def _flush_if_there(self, segment: Segment) -> bool:
        """Flush without the lock; False for a segment that was closed meanwhile. :raises OSError: it was not."""
        try:
            segment.flush()
        except OSError:
            with self._lock:
                if self._failure is None and segment in self._segments:
                    raise
            return False
        return True

    def flush_if_older(self, monotonic_ms: int) -> None:
        """Flush what has waited for ``flush.ms`` since a call first saw it. A failure ends the log, as in an append."""
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
            # Outside the lock: it may take seconds, and nobody's answer waits for it.
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
        """Let the log begin at *offset* (DeleteRecords, KIP-107); returns its start, which never goes back.

        −1 stands for the end of the log. What is gone stays gone: it is on the disk when this returns.

        :raises ApiError: OFFSET_OUT_OF_RANGE beyond the end; KAFKA_STORAGE_ERROR; UNKNOWN_TOPIC_OR_PARTITION.
        """
        with self._reading():
            end = self._segments.end_offset
            wanted = end if offset == -1 else offset
            if not 0 <= wanted <= end:
                raise ApiError(f"offset {offset} is not from 0 to {end}", ErrorCode.OFFSET_OUT_OF_RANGE)
            self._segments.delete_before(wanted)
            self._producers.forget_aborted_before(self._segments.start_offset)
            return self._segments.start_offset

    def apply_retention(self, wall_ms: int) -> int:
        """Delete the oldest segments that time or size no longer keeps; returns how many. The active one stays."""
        with self._lock:
            if self._failure is not None:
                return 0
            self._producers.expire(wall_ms)
            config = self._config
            expired = expired_segments(list(self._segments), config.retention_bytes, config.retention_ms, wall_ms)
            for _ in range(expired):
                self._segments.drop_oldest()
            self._producers.forget_aborted_before(self._segments.start_offset)
            return expired

    def reconfigure(self, config: LogConfig) -> None:
        """Settings that hold from now on; segments that exist keep the index they have."""
        with self._lock:
            self._config = config

    def hand_over(self) -> None:
        """Close for another process to open; whoever still wants to use it is told to look for the new leader.

        It is closed even if that fails. :raises OSError: not everything is on the disk.
        """
        try:
            self.close()
        finally:
            with self._lock:
                self._release("handed over", ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def close(self) -> None:
        """Flush everything, seal it and release the files; the next start need not check what is vouched for.

        It is closed even if that fails. :raises OSError: not everything is on the disk.
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
        """Give the directory another name, to be removed there, and release the files.

        :raises OSError: it cannot be renamed; the log is as it was.
        """
        with self._lock:
            # In one go: nobody must find an open log whose directory is gone.
            self._filesystem.rename(self.directory, target)
            self._release("removed")

    def abandon(self) -> None:
        """Release the files as they are: they are about to be removed."""
        with self._lock:
            self._release("removed")

    def _release(self, how: str, code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) -> None:
        self._failure = ApiError(f"the log was {how}", code)
        for segment in self._segments:
            segment.close()
