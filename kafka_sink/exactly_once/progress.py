"""Where a sink keeps what it decided last: the committed offsets of a consumer group that has the sink's name.

The offset of partition 0 of the progress topic is the next version to write, its metadata say who decided, which rows
were planned and which transactions belong to the version before it; a longer list goes on in the metadata of the next
partitions. It is only ever written within a transaction of the sink's driver, and so fenced with it: a plain commit of
this group would not be.

Used on the driver, by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafka_sink.common.model import OffsetAndMetadata, TopicPartition
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.manifest import decode_transactions, encode_transactions
from kafka_sink.exactly_once.model import Flow, Progress, ProgressError, Transaction, UndecidedError
from kafka_sink.exactly_once.names import sink_id

#: Kafka's offset.metadata.max.bytes, which counts characters.
_METADATA_LIMIT: Final = 4096

_FORMAT: Final = "kafkalite2"
#: Without the digest of the offsets that were planned.
_OLDER_FORMAT: Final = "kafkalite1"

#: Partitions that are read without being asked for: as many as a list of some 10,000 transactions takes.
_FIRST_READ: Final = 16


class ProgressStore:
    """The progress of the sink *group* under the name of *topic*, which has *partition_count* partitions."""

    def __init__(self, client: CoordinatorClient, group: str, topic: str, partition_count: int) -> None:
        self._client = client
        self._group = group
        self._sink = sink_id(group, topic)
        self._topic = topic
        self._partition_count = partition_count

    def read(self, *, require_stable: bool = True) -> Progress | None:
        """What was decided last; None where nothing was, or the brokers have forgotten it.

        :param require_stable: wait for a decision under way; a dead driver's is only ended by the next fence.

        :raises ProgressError: the group has an offset that is none of this sink's.
        """
        found = self._fetch(require_stable=require_stable)
        first = found.get(0)
        if first is None:
            return None
        try:
            form, *fields = first.metadata.split("|")
            if form == _OLDER_FORMAT:
                fields.insert(4, "")
            elif form != _FORMAT:
                raise ValueError(form)
            flow, parts, writer, decided_s, offsets, text = fields
            for partition in range(1, int(parts)):
                version, more = found[partition].metadata.split("|")
                if int(version) != first.offset - 1:
                    raise ValueError(f"partition {partition} is of version {version}")
                text += more
            transactions = decode_transactions(self._sink, text)
            return Progress(first.offset, writer, Flow(int(flow)), int(decided_s), transactions, offsets)
        except (ValueError, KeyError) as error:
            raise ProgressError(
                f"the consumer group {self._group!r} has offset {first.offset} with metadata {first.metadata[:60]!r} "
                f"for {self._topic}-0, which is no progress of this sink: somebody else uses the group; choose another "
                "name for the sink, or delete the group if it is of no use"
            ) from error

    def _fetch(self, *, require_stable: bool) -> dict[int, OffsetAndMetadata]:
        """The offsets that hold the progress, read in one request: a topic may have far more partitions than these."""
        asked = min(_FIRST_READ, self._partition_count)
        while True:
            found = self._client.fetch_offsets(self._group, self._topic, range(asked), require_stable=require_stable)
            needed = min(_parts_of(found.get(0)), self._partition_count)
            if needed <= asked:
                return found
            # All of them anew: those read before may belong to another version by now.
            asked = needed

    def write(self, transaction: Transaction, flow: Flow, progress: Progress) -> None:
        """Add *progress* to the driver's *transaction*; it holds once that is committed.

        :raises UndecidedError: too many transactions for the partitions of the progress topic.
        :raises ApiError: INVALID_PRODUCER_EPOCH, PRODUCER_FENCED: a newer driver has taken over.
        """
        texts = self._texts(progress)
        offsets = {
            TopicPartition(self._topic, partition): OffsetAndMetadata(progress.next_version, text)
            for partition, text in enumerate(texts)
        }
        self._client.commit_offsets(transaction, flow, self._group, offsets)

    def _texts(self, progress: Progress) -> Sequence[str]:
        text = encode_transactions(self._sink, progress.transactions)
        prefix = f"{progress.version}|"
        rest = _METADATA_LIMIT - len(prefix)
        # The first part's own header says how many there are: its length is taken with the largest such number.
        head = _METADATA_LIMIT - len(self._header(progress, self._partition_count))
        pieces = [text[:head]] + [text[start : start + rest] for start in range(head, len(text), rest)]
        if len(pieces) > self._partition_count:
            raise UndecidedError(
                f"the list of {len(progress.transactions)} transactions needs {len(pieces)} partitions, but topic "
                f"{self._topic!r} (option progressTopic) has {self._partition_count}; coalesce the batch to fewer "
                "tasks, or name a topic with more partitions"
            )
        return [self._header(progress, len(pieces)) + pieces[0], *(prefix + piece for piece in pieces[1:])]

    @staticmethod
    def _header(progress: Progress, parts: int) -> str:
        return f"{_FORMAT}|{progress.flow.value}|{parts}|{progress.writer}|{progress.decided_s}|{progress.offsets}|"


def _parts_of(first: OffsetAndMetadata | None) -> int:
    """How many offsets hold the progress that begins with *first*; 1 where that is none."""
    fields = first.metadata.split("|") if first is not None else []
    return int(fields[2]) if len(fields) > 2 and fields[2].isdecimal() else 1
