"""Compacts a log: keeps the last record of each key.

Called by the thread for compaction, without the lock of the log: it reads closed segments, writes new ones beside them,
and the log replaces them, group by group. Memory is bounded by the number of keys that the settings allow, and by one
batch. It must not change other segments, and an unfinished compaction must leave no trace.

One empty batch replaces a sequence of removed batches, so that the offsets in a segment are contiguous and damage is
detected as in any other segment.

Source: apache/kafka ``Cleaner``, ``CleanedTransactionMetadata``; KIP-58 (lags), KIP-534 (delete horizon).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import Final

from kafka_sink.broker.log.compaction import Compaction
from kafka_sink.broker.log.partition_log import PartitionLog
from kafka_sink.broker.log.producer_state import AbortedRange
from kafka_sink.broker.log.segment import Segment
from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP
from kafka_sink.records.batch import BatchHeader, parse_header
from kafka_sink.records.compacted import KeyedRecord, emptied, filtered, gap, keyed_records
from kafka_sink.records.control import read_marker
from kafka_sink.records.reader import RecordBatchView

#: The memory of a digest and a number in a dictionary.
_BYTES_PER_KEY: Final = 200


class _StoppedError(Exception):
    """The compaction must end, because the log is about to be closed."""


def compact(log: PartitionLog, wall_ms: int, stopping: Callable[[], bool] = lambda: False) -> bool:
    """Compact *log* once if it is due at *wall_ms*; returns whether something was compacted.

    *stopping* is called before each batch, and ends the work if it returns True.

    :raises CorruptRecordError: if the log is damaged; it will not be compacted until it is opened again.
    :raises OSError: if the disk fails, a batch has too many keys, or the log is deleted in the meantime.
    """
    compaction = log.begin_compaction(wall_ms)
    if compaction is None:
        return False
    try:
        return _Cleaner(log, compaction, stopping).run()
    except _StoppedError:
        return False
    except CorruptRecordError:
        log.refuse_compaction()
        raise


class _Keys:
    """The offset of the last record of each key from *start* to before *end*."""

    def __init__(self, most_bytes: int, start: int) -> None:
        self._most = most_bytes // _BYTES_PER_KEY
        self._offsets: dict[bytes, int] = {}
        self._start = start
        #: The first offset that was not read.
        self.end = start

    def add(self, batch: RecordBatchView) -> bool:
        """Add the records of the next batch; False if they do not all fit.

        :raises OSError: if they would not even fit alone.
        """
        for _, record in keyed_records(batch):
            offset = batch.base_offset + record.offset_delta
            if record.key is None or offset < self._start:
                continue
            if len(self._offsets) >= self._most:
                if self.end > self._start:
                    return False
                text = "a batch has more keys than log.cleaner.dedupe.buffer.size has room for: make it larger"
                raise OSError(errno.ENOMEM, text)
            self._offsets[_digest(record.key)] = offset
        return True

    def is_last(self, offset: int, key: bytes | None) -> bool:
        """Whether no record with *key* beyond *offset* is known; False without a key."""
        return key is not None and offset >= self._offsets.get(_digest(key), NO_OFFSET)


def _digest(key: bytes) -> bytes:
    # Keys may be long; a collision is as unlikely as in Kafka's map of MD5 sums.
    return blake2b(key, digest_size=16).digest()


class _Transactions:
    """Finds the batches of aborted transactions and the markers without batches, while the log is read."""

    def __init__(self, aborted: Iterable[AbortedRange]) -> None:
        self._coming = sorted(aborted, key=lambda aborted_range: -aborted_range.first_offset)
        # Producer id → its aborted transaction, and whether a batch of it was seen.
        self._aborted: dict[int, tuple[AbortedRange, bool]] = {}
        self._committed: set[int] = set()
        #: Aborted transactions of which only the marker remains.
        self.without_batches: list[AbortedRange] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of data, the next of the log, belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        entry = self._aborted.get(header.producer_id)
        if entry is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = entry[0], True
        return True

    def is_needless(self, batch: RecordBatchView) -> bool:
        """Whether a control batch, the next of the log, ends a transaction of which no batch is left."""
        self._begin_up_to(batch.last_offset)
        marker = read_marker(batch.data)
        if marker is None:
            return False
        if marker.committed:
            was_seen = marker.producer_id in self._committed
            self._committed.discard(marker.producer_id)
            return not was_seen
        aborted, was_seen = self._aborted.pop(marker.producer_id, (None, False))
        if aborted is not None and not was_seen:
            self.without_batches.append(aborted)
        return not was_seen

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            aborted = self._coming.pop()
            self._aborted.setdefault(aborted.producer_id, (aborted, False))


class _Cleaner:
    """One compaction of *log*."""

    def __init__(self, log: PartitionLog, compaction: Compaction, stopping: Callable[[], bool]) -> None:
        self._log = log
        self._compaction = compaction
        self._stopping = stopping
        self._keys = _Keys(compaction.rules.map_bytes, compaction.first_dirty)
        self._transactions = _Transactions(compaction.aborted)
        self._horizon_ms = compaction.wall_ms + compaction.rules.delete_retention_ms

    def run(self) -> bool:
        # Recovery has to know of a compaction before markers are missing.
        self._log.note_compacted(self._compaction.first_dirty)
        self._read_keys()
        for group in self._compaction.groups(self._keys.end):
            if not self._rewrite(group):
                return False
        self._log.note_compacted(self._keys.end)
        return True

    def _read_keys(self) -> None:
        dirty = [segment for segment in self._compaction.segments if segment.next_offset > self._compaction.first_dirty]
        # The markers of earlier transactions are not read.
        ended_here = (aborted for aborted in self._compaction.aborted if aborted.last_offset >= dirty[0].base_offset)
        transactions = _Transactions(ended_here)
        for segment in dirty:
            for batch in self._batches(segment):
                if batch.is_control:
                    transactions.is_needless(batch)
                elif not transactions.is_aborted(batch.header) and not self._keys.add(batch):
                    return
                self._keys.end = max(self._keys.end, batch.last_offset + 1)

    def _batches(self, segment: Segment) -> Iterator[RecordBatchView]:
        for batch in segment.batches():
            if self._stopping():
                raise _StoppedError
            yield batch

    def _rewrite(self, group: list[Segment]) -> bool:
        """Replace *group* by one segment; False if the log has deleted one of them."""
        cleaned = group[0].successor()
        try:
            self._write(group, cleaned)
            cleaned.file.flush()
        except Exception:
            with suppress(OSError):
                cleaned.discard()
            raise
        if self._log.replace(group, cleaned, frozenset(self._transactions.without_batches)):
            return True
        cleaned.discard()
        return False

    def _write(self, group: list[Segment], cleaned: Segment) -> None:
        removed: list[BatchHeader] = []
        for segment in group:
            for batch in self._batches(segment):
                kept = self._kept(batch)
                epoch = batch.header.partition_leader_epoch
                if removed and (kept is not None or removed[0].partition_leader_epoch != epoch):
                    _append_gap(cleaned, removed, NO_TIMESTAMP)
                    removed = []
                if kept is None:
                    removed = [removed[0] if removed else batch.header, batch.header]
                else:
                    _append(cleaned, kept)
        if removed:
            # Retention needs the time of a segment without records; Kafka uses that of its file.
            newest = max(segment.max_timestamp for segment in group)
            _append_gap(cleaned, removed, newest if cleaned.max_timestamp == NO_TIMESTAMP else NO_TIMESTAMP)

    def _kept(self, batch: RecordBatchView) -> Buffer | None:
        """*batch* without the records to remove; None if nothing remains."""
        header = batch.header
        is_last = self._compaction.is_last_of_producer(header)
        horizon = header.delete_horizon_ms
        is_due = horizon is not None and horizon <= self._compaction.wall_ms
        if header.is_control:
            is_needless = self._transactions.is_needless(batch)
            if not is_needless or is_last:
                return batch.data
            return None if is_due else filtered(batch, lambda record: True, self._horizon_ms, dated=True)
        if self._transactions.is_aborted(header):
            return emptied(header) if is_last else None
        if header.base_offset >= self._keys.end:
            return batch.data

        def keeps(record: KeyedRecord) -> bool:
            offset = header.base_offset + record.offset_delta
            return self._keys.is_last(offset, record.key) and (record.has_value or not is_due)

        kept = filtered(batch, keeps, self._horizon_ms)
        return emptied(header) if kept is None and is_last else kept


def _append(cleaned: Segment, batch: Buffer) -> None:
    header = parse_header(batch)
    cleaned.append(header, header.base_offset, header.partition_leader_epoch, (batch,))


def _append_gap(cleaned: Segment, removed: list[BatchHeader], max_timestamp: int) -> None:
    first, last = removed[0], removed[-1]
    _append(cleaned, gap(first.base_offset, last.last_offset, first.partition_leader_epoch, max_timestamp))
