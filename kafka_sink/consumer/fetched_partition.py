"""Decodes the records of one partition in a fetch answer.

Called by the log reader on its caller's thread. It uses no socket and no clock. It never returns a record of a control
batch or, if aborted transactions are given, a record of one of them.

Source: apache/kafka ``CompletedFetch``; control records and aborted transactions: KIP-98.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop
from typing import Final, NamedTuple

from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.model import NO_TIMESTAMP, Header, TopicPartition
from kafka_sink.records.message_sets import read_all_formats
from kafka_sink.records.reader import DEFAULT_MAX_DECOMPRESSED_BYTES, Looking, RecordBatchView

# The key of a control record is two int16: its version and its type, 0 for an abort.
_ABORT: Final = b"\x00\x00"
#: The states of transactions whose records are marked.
ABORTED: Final = "aborted"
OPEN: Final = "open"


class ConsumedRecord(NamedTuple):
    """A record of the log. ``timestamp`` is in ms since the epoch, −1 if the record has none; the brokers have set it
    if ``is_log_append_time``. A record with a ``problem``, which is only returned with ``looking``, is damaged, and its
    ``value`` has its bytes in the log. ``transaction`` is :data:`ABORTED` or :data:`OPEN` if transactions are marked
    and readers with read_committed do not get the record, or not yet."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    is_log_append_time: bool = False
    problem: str = ""
    transaction: str = ""


class AbortedTransactions:
    """Determines which batches belong to aborted transactions; the batches must be passed in the order of their
    offsets.

    A fetch answer lists (producer id, first offset) of every aborted transaction with records in it. A transaction is
    active from its first offset to the abort marker of its producer.
    """

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        self._ahead = [(first_offset, producer_id) for producer_id, first_offset in transactions]
        heapify(self._ahead)
        self._in_force: set[int] = set()

    def contains(self, batch: RecordBatchView) -> bool:
        """Whether *batch* contains data of an aborted transaction."""
        if not batch.is_transactional:
            return False
        while self._ahead and self._ahead[0][0] <= batch.last_offset:
            self._in_force.add(heappop(self._ahead)[1])
        return batch.header.producer_id in self._in_force

    def end(self, producer_id: int) -> None:
        """Record that the abort marker of *producer_id* was passed."""
        self._in_force.discard(producer_id)


class FetchedPartition:
    """The records of one partition in one fetch answer, from *position* on.

    Iterate over it once, to the end. ``next_offset`` is then the start of the next fetch, also after batches without
    records to return.

    :param aborted: the aborted transactions, whose records are left out.
    :param mark: returns their records with this ``transaction``; without *aborted*, marks those of all transactions.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        data: Buffer,
        position: int,
        *,
        aborted: AbortedTransactions | None = None,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
        check_crcs: bool = True,
        looking: Looking | None = None,
        mark: str = "",
    ) -> None:
        self.next_offset = position
        self._topic_partition = topic_partition
        self._data = data
        self._position = position
        self._aborted = aborted
        self._max_decompressed_bytes = max_decompressed_bytes
        self._check_crcs = check_crcs
        self._looking = looking
        self._mark = mark

    def __iter__(self) -> Iterator[ConsumedRecord]:
        """Decode the records, on demand.

        :raises CorruptRecordError: if a batch is damaged or decompresses to too many bytes; the text names partition
            and offset. With *looking* a record has the problem instead, unless the end of the batch is unknown.
        """
        try:
            for batch in read_all_formats(self._data):
                if batch.last_offset >= self._position:
                    yield from self._records(batch)
                    self.next_offset = batch.last_offset + 1
        except CorruptRecordError as error:
            raise CorruptRecordError(f"{self._topic_partition} at offset {self.next_offset}: {error}") from error
        size = memoryview(self._data).nbytes
        if size and self.next_offset == self._position:
            # The next answer would be the same, and without this error a reader would repeat the request forever.
            raise CorruptRecordError(
                f"{self._topic_partition} at offset {self._position}: no complete batch in an answer of {size} bytes"
            )

    def _records(self, batch: RecordBatchView) -> Iterator[ConsumedRecord]:
        topic, partition = self._topic_partition
        is_log_append_time = batch.header.is_log_append_time
        if self._check_crcs and not batch.verify_crc():
            problem = f"the batch does not match its CRC {batch.header.crc:#010x}"
            if self._looking is None or batch.last_offset < batch.base_offset:
                raise CorruptRecordError(problem)
            offset = max(batch.base_offset, self._position)
            yield ConsumedRecord(topic, partition, offset, NO_TIMESTAMP, None, b"", (), problem=problem)
            return
        is_marked = batch.is_transactional if self._aborted is None else self._aborted.contains(batch)
        if batch.is_control:
            if self._aborted is not None:
                keys = (record.key for record in batch.records(self._max_decompressed_bytes))
                if any(key is not None and key[2:4] == _ABORT for key in keys):
                    self._aborted.end(batch.header.producer_id)
            return
        if is_marked and self._aborted is not None and not self._mark:
            return
        mark = self._mark if is_marked else ""
        records = batch.records(self._max_decompressed_bytes, start=self._position, looking=self._looking)
        for offset, timestamp, key, value, headers, problem in records:
            # The same as ConsumedRecord(…), without its call in Python.
            yield tuple.__new__(
                ConsumedRecord,
                (topic, partition, offset, timestamp, key, value, headers, is_log_append_time, problem, mark),
            )
