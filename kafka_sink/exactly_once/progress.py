"""The store of a sink's latest decision: the committed offsets of a consumer group with the sink's name.

The offset of partition 0 of the progress topic is the next version to write. Its metadata contain the version before
it, the writer, the digest of the planned rows, the driver's transaction that decided it, and two lists: the
transactions of the version, and the offsets after its rows (of the atomic protocol). Longer lists continue in the
metadata of the following partitions. The progress is only written within a transaction of the sink's driver, so it is
fenced with the driver. A plain commit of this group would not be fenced.

A transaction takes 6 to 18 characters of the list. The random part of a process is written once for all of its
transactions; numbers and producer ids are written as differences from the previous transaction. The bytes are written
as Base64, or densely: Kafka counts characters and not bytes (``offset.metadata.max.bytes``), and a Chinese character
has 14 bits where Base64 has 6.

:class:`ProgressStore` is used on the driver, by one thread at a time.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final, NamedTuple

from kafka_sink.columns.varint import encode_varint
from kafka_sink.common.bounded import INT16_MAX, INT32_MAX, INT64_MAX, Cursor, whole_number
from kafka_sink.common.model import OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition, TransactionVersion
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import OutdatedProgressError, Progress, ProgressError, UndecidedError
from kafka_sink.exactly_once.transactions import (
    PROCESS_BYTES,
    Transaction,
    delete_progress_command,
    sink_id,
    split_writer_id,
    writer_id,
)

#: The first of 2¹⁴ characters of the block "CJK Unified Ideographs", which are all assigned, are one UTF-16 unit each,
#: and have no other form.
_FIRST_DENSE: Final = 0x4E00
_BITS: Final = 14
#: So many bytes are a whole number of characters.
_GROUP_BYTES: Final = 7
_SHIFTS: Final = (42, 28, 14, 0)

#: Kafka's offset.metadata.max.bytes, which counts characters.
_METADATA_LIMIT: Final = 4096
_FORMAT: Final = "kafkalite3"
#: The formats of release 1.0.0, without the version, the decider and the ends, and before it, also without the digest.
_SECOND_FORMAT: Final = "kafkalite2"
_FIRST_FORMAT: Final = "kafkalite1"
#: The number of partitions in the first read; enough for a list of about 10,000 transactions.
_FIRST_READ: Final = 16
#: Far more than Kafka stores in one request: their metadata have 40 MB.
_MOST_PARTS: Final = 10_000
#: The end of the year 9999.
_LAST_MOMENT_S: Final = 253_402_300_799
#: The bytes of the shortest entry of the list of transactions, and of the list of ends.
_LEAST_ENTRY: Final = 3
_LEAST_END: Final = 2


def encode_lists(progress: Progress, sink: str, *, dense: bool = False) -> str:
    """Encode the transactions of *progress*, all of the *sink*'s writers, and the ends of its rows, as text: Base64, or
    *dense*, which has 2.3 times fewer characters."""
    entries = sorted((*split_writer_id(sink, txn.transactional_id), txn) for txn in progress.transactions)
    groups = [(process, list(group)) for process, group in groupby(entries, lambda entry: entry[0])]
    topics = [(topic, list(group)) for topic, group in groupby(progress.ends, lambda entry: entry[0].topic)]
    if not groups and not topics:
        return ""
    out = bytearray(encode_varint(len(groups)))
    for process, of_process in groups:
        out += process + encode_varint(len(of_process))
        last_number = last_producer_id = 0
        for _, number, transaction in of_process:
            out += encode_varint(number - last_number)
            out += encode_varint(transaction.producer_id - last_producer_id)
            out += encode_varint(transaction.epoch)
            last_number, last_producer_id = number, transaction.producer_id
    for topic, of_topic in topics:
        name = topic.encode()
        out += encode_varint(len(name)) + name + encode_varint(len(of_topic))
        last_partition = 0
        for partition, end in of_topic:
            out += encode_varint(partition.partition - last_partition) + encode_varint(end)
            last_partition = partition.partition
    return _dense(bytes(out)) if dense else base64.b64encode(out).decode("ascii")


def _dense(data: bytes) -> str:
    padding = -(len(data) + 1) % _GROUP_BYTES
    padded = bytes([padding]) + data + bytes(padding)
    groups = (
        int.from_bytes(padded[start : start + _GROUP_BYTES], "big") for start in range(0, len(padded), _GROUP_BYTES)
    )
    return "".join(chr(_FIRST_DENSE + (group >> shift) % (1 << _BITS)) for group in groups for shift in _SHIFTS)


def _undense(text: str) -> bytes:
    """The bytes that :func:`_dense` wrote as *text*.

    :raises ValueError: if *text* was not made by it.
    """
    digits = [ord(character) - _FIRST_DENSE for character in text]
    if len(digits) % len(_SHIFTS) or not all(0 <= digit < 1 << _BITS for digit in digits):
        raise ValueError("not a list of transactions: other characters, or a part is missing")
    padded = b"".join(
        sum(digit << shift for digit, shift in zip(digits[start:], _SHIFTS, strict=False)).to_bytes(_GROUP_BYTES, "big")
        for start in range(0, len(digits), len(_SHIFTS))
    )
    return padded[1 : len(padded) - padded[0]]


class Lists(NamedTuple):
    """The lists that :func:`encode_lists` encodes."""

    transactions: tuple[Transaction, ...]
    ends: tuple[tuple[TopicPartition, int], ...] = ()


def decode_lists(sink: str, text: str, *, with_ends: bool = True) -> Lists:
    """Decode the text of :func:`encode_lists`, or, not *with_ends*, of release 1.0.0; the transactions are sorted
    by process and number.

    :raises ValueError: if the text was made by neither.
    """
    try:
        data = base64.b64decode(text, validate=True) if text.isascii() else _undense(text)
    except binascii.Error as error:
        raise ValueError(f"not a list of transactions: {error}") from error
    cursor = Cursor(data, lambda problem: ValueError(f"not a list of transactions: {problem}"))
    transactions: list[Transaction] = []
    processes = cursor.zigzag(0, cursor.left) if with_ends and cursor.left else 0
    while processes or (cursor.left and not with_ends):
        transactions += _transactions_of_process(sink, cursor)
        processes -= with_ends
    ends: list[tuple[TopicPartition, int]] = []
    while cursor.left:
        topic, partition = cursor.take(cursor.zigzag(1, cursor.left)).decode(), 0
        for _ in range(cursor.zigzag(1, cursor.left // _LEAST_END)):
            partition += cursor.zigzag(0, INT32_MAX - partition)
            ends.append((TopicPartition(topic, partition), cursor.zigzag(0, INT64_MAX)))
    return Lists(tuple(transactions), tuple(ends))


def _transactions_of_process(sink: str, cursor: Cursor) -> Iterator[Transaction]:
    process = cursor.take(PROCESS_BYTES)
    number = producer_id = 0
    for _ in range(cursor.zigzag(1, cursor.left // _LEAST_ENTRY)):
        number += cursor.zigzag(0, INT64_MAX - number)
        producer_id += cursor.zigzag(-producer_id, INT64_MAX - producer_id)
        yield Transaction(writer_id(sink, process, number), producer_id, cursor.zigzag(0, INT16_MAX))


def latest_batch(committed: OffsetAndMetadata) -> Progress | None:
    """The progress in the offset of partition 0 of its topic, without the lists; None if no sink has committed it."""
    first = _FirstPart.if_any(committed)
    return None if first is None else first.progress


class _FirstPart(NamedTuple):
    """The content of the offset of partition 0: the *progress* without its lists, and the beginning of their *text*,
    which continues in the metadata of *parts* - 1 further partitions. *version* is the one that the metadata name; None
    in older formats."""

    progress: Progress
    parts: int
    version: int | None
    text: str

    @classmethod
    def of(cls, committed: OffsetAndMetadata) -> _FirstPart:
        """:raises ValueError: if no sink wrote *committed*."""
        form, *fields = committed.metadata.split("|")
        decider = version = None
        if form == _FORMAT:
            level, parts, named, writer, decided_s, offsets, producer_id, epoch, text = fields
            decider = ProducerIdAndEpoch(whole_number(producer_id), whole_number(epoch, 0, INT16_MAX))
            version = whole_number(named, -1)
        elif form in (_SECOND_FORMAT, _FIRST_FORMAT):
            level, parts, writer, decided_s, *digest, text = fields
            (offsets,) = digest if form == _SECOND_FORMAT else ("",)
        else:
            raise ValueError(form)
        progress = Progress(
            committed.offset,
            writer,
            TransactionVersion(whole_number(level)),
            whole_number(decided_s, -_LAST_MOMENT_S, _LAST_MOMENT_S),
            offsets=offsets,
            decider=decider,
        )
        return cls(progress, whole_number(parts, 1, _MOST_PARTS), version, text)

    @classmethod
    def if_any(cls, first: OffsetAndMetadata | None) -> _FirstPart | None:
        """The content of *first*, the offset of partition 0; None if there is none, or no sink wrote it."""
        try:
            return None if first is None else cls.of(first)
        except ValueError:
            return None


class ProgressStore:
    """The progress of the sink *group*, stored as offsets of *topic*."""

    def __init__(self, client: CoordinatorClient, group: str, topic: str) -> None:
        self._client = client
        self._group = group
        self._sink = sink_id(group, topic)
        self._topic = topic

    async def read(self, *, require_stable: bool = True, waits: bool = True) -> Progress | None:
        """The latest decision; None if there is none, or if the brokers have deleted it.

        :param require_stable: wait for a decision that is in progress; that of a dead driver ends with the next fence.
        :param waits: if False, raise UNSTABLE_OFFSET_COMMIT (an ApiError) instead of waiting.

        :raises ProgressError: if the group has an offset that this sink did not write.
        """
        offsets = await self._fetch(require_stable=require_stable, waits=waits)
        first = offsets.get(0)
        if first is None:
            return None
        try:
            begin = _FirstPart.of(first)
            version, text = begin.progress.version, begin.text
            if begin.version not in (None, version):
                raise ValueError(f"version {begin.version}")
            for partition in range(1, begin.parts):
                of_part, more = offsets[partition].metadata.split("|")
                if of_part != str(version):
                    raise ValueError(f"partition {partition} has version {of_part}")
                text += more
            lists = decode_lists(self._sink, text, with_ends=begin.version is not None)
            return replace(begin.progress, transactions=lists.transactions, ends=lists.ends)
        except (ValueError, KeyError) as error:
            raise ProgressError(
                f"the consumer group {self._group!r} has offset {first.offset} with metadata "
                f"{first.metadata[:60]!r} for {self._topic}-0, which is not the progress of this sink. If a newer "
                "release wrote it, use that release. If another application uses the group, or a tool has copied or "
                "translated the offsets of another cluster, choose another name for the sink, or delete these offsets "
                f"if no application needs them: `{delete_progress_command(self._group, self._topic)}`"
            ) from error

    async def _fetch(self, *, require_stable: bool, waits: bool) -> dict[int, OffsetAndMetadata]:
        """The offsets that contain the progress, read in one request. The topic may have many more partitions than
        these, or fewer; partitions that do not exist have no offset."""
        count = _FIRST_READ
        while True:
            offsets = await self._client.fetch_offsets(
                self._group, self._topic, range(count), require_stable=require_stable, waits=waits
            )
            begin = _FirstPart.if_any(offsets.get(0))
            if begin is None or begin.parts <= count:
                return offsets
            # Read all of them again: those read before may belong to another version by now.
            count = begin.parts

    async def write(
        self,
        transaction: Transaction,
        transaction_version: TransactionVersion,
        progress: Progress,
        partition_count: int,
        before: Progress | None,
    ) -> None:
        """Add *progress* to the driver's *transaction*; it takes effect when the transaction is committed. The topic
        has *partition_count* partitions.

        :param before: the decision that *progress* follows, as it was read.
        :raises OutdatedProgressError: if the latest decision is another one; the transaction is open.
        :raises UndecidedError: if the list of transactions needs more partitions than the progress topic has.
        :raises ApiError: INVALID_PRODUCER_EPOCH or PRODUCER_FENCED if a newer driver has taken over.
        """
        texts = self._texts(progress, transaction.producer, partition_count)
        offsets = {
            TopicPartition(self._topic, partition): OffsetAndMetadata(progress.next_version, text)
            for partition, text in enumerate(texts)
        }
        first = TopicPartition(self._topic, 0)
        latest = await self._client.commit_offsets(transaction, transaction_version, self._group, offsets, first)
        if not self._is_as_read(latest, before):
            deleted = "was deleted meanwhile (with its topic or group), or " if latest is None else ""
            said = "none" if before is None else f"version {before.version}"
            now = "none" if latest is None else f"version {latest.offset - 1}"
            raise OutdatedProgressError(
                f"the progress of the sink {self._group!r} {deleted}was read from a group coordinator that had been "
                f"replaced: it said {said}, and the latest is {now}"
            )

    def _is_as_read(self, latest: OffsetAndMetadata | None, before: Progress | None) -> bool:
        """Whether *latest*, the committed offset of partition 0, is the beginning of *before*."""
        first = _FirstPart.if_any(latest)
        if first is None or before is None:
            return latest is None and before is None
        if first.progress != replace(before, transactions=(), ends=()):
            return False
        if before.decider is not None or not before.transactions or first.parts > 1:
            return True
        # Two decisions of the same second may differ only in their transactions.
        return decode_lists(self._sink, first.text, with_ends=False).transactions == before.transactions

    def _texts(self, progress: Progress, decider: ProducerIdAndEpoch, partition_count: int) -> Sequence[str]:
        """The metadata of the partitions, from 0 on."""

        def header(parts: int) -> str:
            level, version = progress.transaction_version.value, progress.version
            fields = (_FORMAT, level, parts, version, progress.writer, progress.decided_s, progress.offsets, *decider)
            return "".join(f"{field}|" for field in fields)

        prefix = f"{progress.version}|"
        # The header contains the number of parts; its length is computed with the largest possible number.
        first, rest = _METADATA_LIMIT - len(header(partition_count)), _METADATA_LIMIT - len(prefix)
        for dense in (False, True):
            text = encode_lists(progress, self._sink, dense=dense)
            more = [prefix + text[start : start + rest] for start in range(first, len(text), rest)]
            if len(more) < partition_count:
                return [header(1 + len(more)) + text[:first], *more]
        raise UndecidedError(
            f"the progress needs {1 + len(more)} partitions for {len(progress.transactions)} transactions and the ends "
            f"of rows in {len(progress.ends)} partitions, but topic {self._topic!r} (option progressTopic) has "
            f"{partition_count}; coalesce the batch to fewer tasks, write it to fewer partitions, or choose a topic "
            "with more partitions, and allowMissingProgress=true for the first batch with it"
        )
