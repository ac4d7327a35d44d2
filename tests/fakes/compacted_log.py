"""A compacted log on a disk in memory, and a model of what its readers may see."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from kafka_sink.broker.log.cleaner import compact
from kafka_sink.broker.log.compaction import CompactionRules
from kafka_sink.broker.log.partition_log import LogConfig, PartitionLog
from kafka_sink.common.model import NO_OFFSET
from kafka_sink.records.batch import parse_header
from kafka_sink.records.compression import CompressionType
from kafka_sink.records.control import EndTransactionMarker
from kafka_sink.records.reader import Record, RecordBatchView, read_batches
from tests.fakes.log_config import log_config
from tests.fakes.memory_filesystem import MemoryFileSystem
from tests.fakes.record_batches import make_batch

DIRECTORY = Path("/data/t-0")
HOUR_MS = 3_600_000
CONFIG = log_config(
    segment_bytes=1000,
    segment_ms=HOUR_MS,
    index_interval_bytes=200,
    producer_expiration_ms=1000 * HOUR_MS,
    deletes=False,
    compaction=CompactionRules(
        delete_retention_ms=HOUR_MS, min_lag_ms=0, max_lag_ms=2**63 - 1, min_dirty_ratio=0.3, map_bytes=1 << 20
    ),
)


@dataclass
class Row:
    """A record that was written. *outcome*: "" outside of transactions, else "open", "committed" or "aborted".

    *compacted_ms* is the time of the first compaction that processed it.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    outcome: str = ""
    compacted_ms: int | None = None


class Seen(NamedTuple):
    """The result of reading a log: all batches, and the records that a client returns to its user."""

    batches: list[RecordBatchView]
    records: list[Record]


class CompactedLog:
    """Writes to a log and records all writes; time passes only in :meth:`sleep`."""

    def __init__(self, seed: int = 0, config: LogConfig = CONFIG) -> None:
        self.config = config
        self.disk = MemoryFileSystem()
        self.random = random.Random(seed)
        self.now_ms = 1_000_000
        self.rows: dict[int, Row] = {}
        #: A finished compaction has processed all offsets before it.
        self.compacted = 0
        self._sequences: dict[int, int] = {}
        self._open: dict[int, list[Row]] = {}
        self.log = self.opened(self.disk)

    def opened(self, disk: MemoryFileSystem) -> PartitionLog:
        return PartitionLog(DIRECTORY, disk, self.config, self.now_ms)

    def reopen(self) -> None:
        self.log = self.opened(self.disk)

    def on(self, disk: MemoryFileSystem) -> CompactedLog:
        """The same log on *disk*, with the same model."""
        other = CompactedLog(self.random.randrange(1 << 30), self.config)
        other.now_ms, other.rows, other.disk = self.now_ms, {at: replace(row) for at, row in self.rows.items()}, disk
        other.reopen()
        return other

    def sleep(self, ms: int) -> None:
        self.now_ms += ms

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(
        self, *pairs: tuple[bytes | None, bytes | None], producer: int = -1, in_transaction: bool = False
    ) -> None:
        """Append a batch of (key, value); *producer* −1 has no id."""
        sequence = self._sequences.get(producer, 0)
        batch = memoryview(
            make_batch(
                [value for _, value in pairs],
                keys=[key for key, _ in pairs],
                base_timestamp=self.now_ms,
                compression=self.random.choice(list(CompressionType)),
                is_transactional=in_transaction,
                producer_id=producer,
                producer_epoch=0 if producer >= 0 else -1,
                base_sequence=sequence if producer >= 0 else -1,
            )
        )
        guard = self.log.begin_verification(producer, 0, sequence, self.now_ms) if in_transaction else None
        base = self.log.append(batch, parse_header(batch), 0, self.now_ms, guard).base_offset
        if guard is not None:
            self.log.end_verification(guard)
        self._sequences[producer] = sequence + len(pairs)
        outcome = "open" if in_transaction else ""
        rows = [Row(base + i, self.now_ms + i, *pair, outcome) for i, pair in enumerate(pairs)]
        self.rows |= {row.offset: row for row in rows}
        if in_transaction:
            self._open.setdefault(producer, []).extend(rows)

    def end(self, producer: int, *, commit: bool) -> None:
        """End the transaction of *producer*, if one is open."""
        self.log.append_marker(EndTransactionMarker(producer, 0, commit, 0), 0, self.now_ms)
        for row in self._open.pop(producer, ()):
            row.outcome = "committed" if commit else "aborted"

    def write_at_random(self) -> None:
        """Write a batch or the end of a transaction, of one of three producers."""
        number = self.random.random
        producer = self.random.choice((-1, 1, 2, 3))
        pairs = [
            (b"key-%d" % self.random.randrange(7), None if number() < 0.2 else self.random.randbytes(8))
            for _ in range(self.random.randint(1, 4))
        ]
        if producer < 2:
            self.write(*pairs, producer=producer)
        elif number() < 0.3:
            self.end(producer, commit=number() < 0.5)
        else:
            self.write(*pairs, producer=producer, in_transaction=True)

    # --- compacting --------------------------------------------------------------------------------------------------

    def compact(self, meanwhile: Callable[[], object] = lambda: None) -> bool:
        """Compact the log if it is due; *meanwhile* is called before every batch."""

        def step() -> bool:
            meanwhile()
            return False

        stable = self.log.last_stable_offset
        for row in self.rows.values():
            # Only the log knows whether a record was compacted; records from the last stable offset on must not be.
            if row.offset < stable and row.compacted_ms is None:
                row.compacted_ms = self.now_ms
        done = compact(self.log, self.now_ms, step)
        self.compacted = max(
            (int(path.stem) for path in self.disk.files if path.suffix == ".compacted"), default=self.compacted
        )
        return done

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, start: int | None = None, *, committed: bool = False, log: PartitionLog | None = None) -> Seen:
        """Read from *start* to the end as a client does, which omits aborted records by the list of aborted
        transactions."""
        log = log or self.log
        seen = Seen([], [])
        position = log.start_offset if start is None else start
        end = log.last_stable_offset if committed else log.end_offset
        aborting: set[int] = set()
        while position < end:
            found = log.read(position, 500, whole_first_batch=True, committed=committed)
            aborted = sorted(found.aborted, key=lambda each: each.first_offset)
            before = position
            for batch in read_batches(found.records):
                assert batch.verify_crc() and position <= batch.last_offset, batch.header
                aborting |= {each.producer_id for each in aborted if each.first_offset <= batch.last_offset}
                aborted = [each for each in aborted if each.first_offset > batch.last_offset]
                seen.batches.append(batch)
                if batch.is_control:
                    aborting.discard(batch.header.producer_id)
                elif not (batch.is_transactional and batch.header.producer_id in aborting):
                    seen.records.extend(batch.records(start=position))
                position = batch.last_offset + 1
            assert position > before, f"a fetch at {position} brought nothing"
        return seen

    def check(self, log: PartitionLog | None = None) -> None:
        """Check that readers get records that the model allows, from the first offset and from a random one."""
        log = log or self.log
        start, end = log.start_offset, log.end_offset
        last, stable = self.last_offsets(end), log.last_stable_offset
        whole = self.read(start, log=log)
        for first, seen in ((start, whole), (at := self.random.randint(start, end), self.read(at, log=log))):
            found = {record.offset: record for record in seen.records}
            assert list(found) == sorted(found)
            for offset, record in found.items():
                row = self.rows[offset]
                assert (record.timestamp, record.key, record.value) == (row.timestamp, row.key, row.value)
            for row in self.rows.values():
                if row.offset >= first and row.offset not in found:
                    self._check_may_be_gone(row, last)
        committed = {record.offset for record in self.read(at, committed=True, log=log).records}
        visible = ("", "committed")
        assert committed == {offset for offset in found if offset < stable and self.rows[offset].outcome in visible}
        self._check_look_ups(log, whole)

    def _check_may_be_gone(self, row: Row, last: dict[bytes | None, int]) -> None:
        assert row.compacted_ms is not None, f"{row} was not compacted yet"
        if row.outcome != "aborted" and row.key is not None and last[row.key] <= row.offset:
            retention_ms = self.config.compaction.delete_retention_ms if self.config.compaction else 0
            assert row.value is None and row.compacted_ms + retention_ms <= self.now_ms, f"{row} is gone"

    def last_offsets(self, end: int) -> dict[bytes | None, int]:
        """Return the last offset before *end* of each key, among the records that a compaction has processed."""
        settled = (row for row in self.rows.values() if row.outcome in ("", "committed") and row.offset < end)
        return {row.key: row.offset for row in settled if row.compacted_ms is not None}

    def _check_look_ups(self, log: PartitionLog, seen: Seen) -> None:
        """Check look-ups of offsets by timestamp and of the newest record, with markers included."""
        known = [(record.offset, record.timestamp) for batch in seen.batches for record in batch.records()]
        known = [(offset, timestamp) for offset, timestamp in known if offset >= log.start_offset]
        for wanted in (0, self.random.randint(1_000_000, self.now_ms), self.now_ms + 1000):
            first = next(((timestamp, offset) for offset, timestamp in known if timestamp >= wanted), None)
            found = log.offset_for_timestamp(wanted)
            assert (None if found is None else (found.timestamp, found.offset)) == first
        newest = max((timestamp for _, timestamp in known), default=None)
        found = log.max_timestamp_record()
        assert (None if found is None else found.timestamp) == newest

    def check_compacted(self) -> None:
        """Check that a finished compaction has left no record that it must remove."""
        last = self.last_offsets(self.compacted)
        for record in self.read().records:
            row = self.rows[record.offset]
            if row.offset < self.compacted:
                assert row.outcome != "aborted" and row.key is not None and row.offset == last[row.key], row

    def check_producers(self) -> None:
        """Check that epoch and last sequence of every producer can be restored from the log without a snapshot."""
        disk = self.disk.clone()
        disk.files = {path: file for path, file in disk.files.items() if path.suffix != ".snapshot"}
        log = self.opened(disk)
        for producer, state in self.log.producers().items():
            if state.batches and state.batches[-1].last_offset >= self.log.start_offset:
                again = log.producers()[producer]
                assert (again.epoch, again.last_sequence) == (state.epoch, state.last_sequence)
                opens = [each.transaction_first_offset for each in (again, state)]
                assert opens.count(NO_OFFSET) in (0, 2)

    def table(self) -> dict[bytes | None, bytes]:
        """Return the last value of each key for a reader of committed records that has read since the beginning."""
        return table_of((row.key, row.value) for row in self.rows.values() if row.outcome in ("", "committed"))


def table_of(pairs: object) -> dict[bytes | None, bytes]:
    """The last value of each key, without those whose last record is a tombstone."""
    last = dict(pairs)  # type: ignore[call-overload]
    return {key: value for key, value in last.items() if value is not None}
