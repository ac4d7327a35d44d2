"""One pass over a topic: finds the leaders and the start offsets, fetches, and retries.

Created by the log reader for each ``read`` and used on its thread. Every wait is bounded: each request has a time-out,
and the pass ends with an error with the reason if a partition has no answer within default.api.timeout.ms. It never
skips data silently, and its metadata requests never create the topic.

Source: Fetch without sessions (KIP-227) and with topic ids (KIP-516); ListOffsets; isolation levels (KIP-98).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from kafka_sink.common.clock import Clock, ExponentialBackoff
from kafka_sink.common.errors import (
    ApiError,
    ErrorCode,
    KafkaTimeoutError,
    ProtocolError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import Node, TopicPartition
from kafka_sink.consumer.config import READ_COMMITTED, ConsumerConfig
from kafka_sink.consumer.fetched_partition import ABORTED, OPEN, AbortedTransactions, ConsumedRecord, FetchedPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import fetch, log_offsets, metadata
from kafka_sink.protocol.schema import ZERO_UUID, RequestBody, Struct
from kafka_sink.records.reader import Looking

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
#: The offset in an answer if no record has the requested timestamp, or a later one.
_NO_OFFSET: Final = -1
#: The factor by which the range of offsets grows for partitions that had too few records in the last one.
_WIDER: Final = 4


class Requester(Protocol):
    """The part of :class:`~kafka_sink.client.blocking.blocking.BlockingClient` that reading needs."""

    def request(self, node: Node | None, api_key: ApiKey, build: Callable[[int], RequestBody[Struct]]) -> Struct:
        """The answer of *node* (None: of any broker) to the request that *build* creates for the negotiated version."""

    def idle(self, duration_ms: int) -> None:
        """Wait for *duration_ms* while the network is polled."""


@dataclass(frozen=True)
class FromTime:
    """A start: the first record of each partition with this timestamp (ms since 1970, UTC) or a later one; the end if
    there is none."""

    timestamp_ms: int


Start = str | int | FromTime

S = TypeVar("S", bound=Struct)
A = TypeVar("A", fetch.PartitionData, log_offsets.ListOffsetsPartitionResponse)


@dataclass(slots=True, eq=False)
class Cursor:
    """The read position of one partition. ``end`` is the offset to stop before; None for no end. Before
    ``stable_end`` all transactions are committed or aborted, and records are fetched with read_committed."""

    topic_partition: TopicPartition
    position: int = 0
    end: int | None = None
    stable_end: int = -1
    #: The number of failed attempts since the last answer, the time of the first of them, and the error of the last
    #: one.
    failures: int = 0
    failing_since_ms: int = 0
    last_error: str = ""

    @property
    def is_done(self) -> bool:
        return self.end is not None and self.position >= self.end

    @property
    def is_stable(self) -> bool:
        return self.position < self.stable_end


class TopicReading:
    """Reads one topic once; see :meth:`begin` and :meth:`begin_newest`. *looking* and *marks_transactions* are those of
    :meth:`LogReader.read`."""

    def __init__(
        self,
        client: Requester,
        topic: str,
        config: ConsumerConfig,
        clock: Clock,
        looking: Looking | None = None,
        *,
        marks_transactions: bool = False,
    ) -> None:
        self._client = client
        self._config = config
        self._clock = clock
        self._looking = looking
        self._log = ContextLogger(__name__, "")
        self._topic = topic
        self._topic_id = ZERO_UUID
        #: The numbers of all partitions, including those without a leader.
        self._partitions: tuple[int, ...] = ()
        #: Partition → its leader and the leader epoch, −1 if the cluster does not return it.
        self._leaders: dict[int, tuple[Node, int]] = {}
        self._is_committed_only = config.isolation_level == READ_COMMITTED
        self._marks_transactions = marks_transactions and not self._is_committed_only
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._cursors: list[Cursor] = []
        self._follows_retention = False
        #: The time since which no answer has records of any partition: brokers may fill answers with others first.
        self._idle_since_ms: int | None = None

    def begin(self, partitions: Collection[int] | None, start: Start, stop_at_end: bool) -> Iterator[ConsumedRecord]:
        """Find the topic and the start and end offsets; the records are fetched by the iteration. See
        :meth:`LogReader.read`. :raises ValueError: if *start* is not an allowed value."""
        is_known = start in (EARLIEST, LATEST) or isinstance(start, FromTime)
        if not is_known and not (isinstance(start, int) and start >= 0):
            raise ValueError(f"start must be {EARLIEST!r}, {LATEST!r} or an offset of 0 or more, not {start!r}")
        self._find(partitions)
        needs_end = stop_at_end or start == LATEST or isinstance(start, FromTime)
        ends = self._list_offsets(self._cursors, log_offsets.LATEST_TIMESTAMP) if needs_end else {}
        self._follows_retention = start == EARLIEST
        if isinstance(start, int):
            starts = dict.fromkeys(self._partitions, start)
        elif isinstance(start, FromTime):
            times = self._list_offsets(self._cursors, start.timestamp_ms)
            starts = {number: ends[number] if at == _NO_OFFSET else at for number, at in times.items()}
        else:
            starts = ends if start == LATEST else self._list_offsets(self._cursors, log_offsets.EARLIEST_TIMESTAMP)
        for cursor in self._cursors:
            partition = cursor.topic_partition.partition
            cursor.position = starts[partition]
            cursor.end = ends[partition] if stop_at_end else None
        return self._records()

    def begin_newest(self, count: int) -> Iterator[ConsumedRecord]:
        """See :meth:`LogReader.read_newest`; the newest offsets come first.

        Markers of transactions and records that a compaction removed have offsets, too. So the last *count* offsets are
        read, and then larger ranges before them in the partitions that had fewer records.
        """
        self._find(None)
        ends = self._list_offsets(self._cursors, log_offsets.LATEST_TIMESTAMP)
        firsts = self._list_offsets(self._cursors, log_offsets.EARLIEST_TIMESTAMP)
        self._follows_retention = True
        return self._newest(count, firsts, ends)

    def _newest(self, count: int, firsts: Mapping[int, int], ends: Mapping[int, int]) -> Iterator[ConsumedRecord]:
        width, missing = count, dict.fromkeys(ends, count)
        while self._cursors:
            for cursor in self._cursors:
                partition = cursor.topic_partition.partition
                cursor.end = ends[partition]
                cursor.position = max(firsts[partition], cursor.end - width)
            ends = {cursor.topic_partition.partition: cursor.position for cursor in self._cursors}
            for record in self._records():
                missing[record.partition] -= 1
                yield record
            width *= _WIDER
            self._cursors = [
                cursor
                for cursor in self._cursors
                if missing[number := cursor.topic_partition.partition] > 0 and ends[number] > firsts[number]
            ]

    def _find(self, partitions: Collection[int] | None) -> None:
        self._find_topic()
        self._cursors = [Cursor(TopicPartition(self._topic, number)) for number in self._chosen(partitions)]
        if self._marks_transactions:
            stable = self._list_offsets(self._cursors, log_offsets.LATEST_TIMESTAMP, committed=True)
            for cursor in self._cursors:
                cursor.stable_end = stable[cursor.topic_partition.partition]

    def _find_topic(self) -> None:
        # Represents the whole topic until its partitions are known.
        cursor = Cursor(TopicPartition(self._topic, -1))
        while not self._partitions:
            try:
                self._refresh()
            except ApiError as error:
                if isinstance(error, UnknownTopicOrPartitionError):
                    raise
                self._failed([cursor], error)
                self._pause(cursor.failures)

    def _refresh(self) -> None:
        """Fetch the metadata of the topic again.

        :raises UnknownTopicOrPartitionError: if the topic does not exist.
        :raises ApiError: if this client may not read the topic, the topic was recreated in the meantime, or no broker
            answers.
        """
        request = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False
        )
        response = self._client.request(None, ApiKey.METADATA, lambda version: request)
        if not isinstance(response, metadata.MetadataResponse) or len(response.topics) != 1:
            raise ProtocolError(f"asked for the metadata of one topic, got {response!r:.200}")
        topic = response.topics[0]
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopicOrPartitionError(f"topic {self._topic!r} does not exist")
        if code := topic.error_code or (ErrorCode.NONE if topic.partitions else ErrorCode.LEADER_NOT_AVAILABLE):
            raise error_for(code, f"topic {self._topic!r}")
        if self._topic_id not in (ZERO_UUID, topic.topic_id):
            text = f"topic {self._topic} was deleted and created again while it was being read"
            raise ApiError(text, ErrorCode.INCONSISTENT_TOPIC_ID)
        nodes = {broker.node_id: Node(broker.node_id, broker.host, broker.port) for broker in response.brokers}
        self._topic_id = topic.topic_id
        self._partitions = tuple(sorted(partition.partition_index for partition in topic.partitions))
        self._leaders = {
            partition.partition_index: (nodes[partition.leader_id], partition.leader_epoch)
            for partition in topic.partitions
            if partition.leader_id in nodes
        }

    def _chosen(self, partitions: Collection[int] | None) -> list[int]:
        existing = self._partitions
        chosen = sorted(set(existing if partitions is None else partitions))
        unknown = [str(number) for number in chosen if number not in existing]
        if unknown:
            raise UnknownTopicOrPartitionError(
                f"topic {self._topic} has no partition {', '.join(unknown)}: it has {existing[0]} to {existing[-1]}"
            )
        return chosen

    def _list_offsets(self, cursors: Collection[Cursor], timestamp: int, *, committed: bool = False) -> dict[int, int]:
        """Partition → offset for *timestamp* (a time or one of the special values), if *committed* only of records
        before open transactions."""
        offsets: dict[int, int] = {}
        while missing := [cursor for cursor in cursors if cursor.topic_partition.partition not in offsets]:
            for node, group in self._by_leader(missing):
                for cursor, answer in self._ask_offsets(node, group, timestamp, committed):
                    if answer.offset < (_NO_OFFSET if timestamp >= 0 else 0):
                        raise ProtocolError(f"{node} returned offset {answer.offset} for {cursor.topic_partition}")
                    offsets[cursor.topic_partition.partition] = answer.offset
            self._recover(missing)
        return offsets

    def _ask_offsets(
        self, node: Node, group: list[Cursor], timestamp: int, committed: bool
    ) -> Iterator[tuple[Cursor, log_offsets.ListOffsetsPartitionResponse]]:
        def build(version: int) -> log_offsets.ListOffsetsRequest:
            partitions = [
                log_offsets.ListOffsetsPartition(
                    partition_index=cursor.topic_partition.partition,
                    current_leader_epoch=self._epoch(cursor),
                    timestamp=timestamp,
                )
                for cursor in group
            ]
            return log_offsets.ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(committed or self._is_committed_only),
                topics=[log_offsets.ListOffsetsTopic(name=self._topic, partitions=partitions)],
                timeout_ms=self._config.request_timeout_ms,
            )

        response = self._ask(node, group, ApiKey.LIST_OFFSETS, build, log_offsets.ListOffsetsResponse)
        answers = [] if response is None else [part for topic in response.topics for part in topic.partitions]
        for cursor, answer in self._match(group, answers):
            if self._accept(cursor, answer.error_code, "looking up an offset of"):
                yield cursor, answer

    def _records(self) -> Iterator[ConsumedRecord]:
        while pending := [cursor for cursor in self._cursors if not cursor.is_done]:
            # The isolation level applies to a whole request, so no request has partitions of both kinds.
            pending = [cursor for cursor in pending if cursor.is_stable] or pending
            groups = self._by_leader(pending)
            for node, group in groups:
                # The requests to the leaders are sent one after the other, so they share the time for which one may
                # wait for new records.
                for cursor, data in self._fetch(node, group, self._config.fetch_max_wait_ms // len(groups)):
                    yield from self._records_of(cursor, data)
            self._recover(pending)
            # Brokers fill an answer in the order of the request, so the order rotates to be fair to all partitions.
            self._cursors.append(self._cursors.pop(0))

    def _fetch(self, node: Node, group: list[Cursor], max_wait_ms: int) -> Iterator[tuple[Cursor, fetch.PartitionData]]:
        config = self._config

        def build(version: int) -> fetch.FetchRequest:
            partitions = [
                fetch.FetchPartition(
                    partition=cursor.topic_partition.partition,
                    current_leader_epoch=self._epoch(cursor),
                    fetch_offset=cursor.position,
                    partition_max_bytes=config.max_partition_fetch_bytes,
                )
                for cursor in group
            ]
            return fetch.FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=config.fetch_min_bytes,
                max_bytes=config.fetch_max_bytes,
                isolation_level=int(self._is_committed_only or group[0].is_stable),
                topics=[fetch.FetchTopic(topic=self._topic, topic_id=self._topic_id, partitions=partitions)],
            )

        response = self._ask(node, group, ApiKey.FETCH, build, fetch.FetchResponse)
        if response is None:
            return
        if response.error_code:
            self._failed(group, error_for(response.error_code, f"reading topic {self._topic} from {node}"))
            return
        answers = [part for topic in response.responses for part in topic.partitions]
        for cursor, data in self._match(group, answers):
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._on_offset_out_of_range(cursor)
            elif self._accept(cursor, data.error_code, f"reading offset {cursor.position} of"):
                yield cursor, data

    def _records_of(self, cursor: Cursor, data: fetch.PartitionData) -> Iterator[ConsumedRecord]:
        aborted, mark = None, OPEN if self._marks_transactions else ""
        if self._is_committed_only or cursor.is_stable:
            mark = ABORTED if self._marks_transactions else ""
            entries = data.aborted_transactions or []
            aborted = AbortedTransactions((entry.producer_id, entry.first_offset) for entry in entries)
        fetched = FetchedPartition(
            cursor.topic_partition,
            data.records if isinstance(data.records, memoryview) else b"",
            cursor.position,
            aborted=aborted,
            max_decompressed_bytes=self._config.max_decompressed_bytes,
            check_crcs=self._config.check_crcs,
            looking=self._looking,
            mark=mark,
        )
        for record in fetched:
            if cursor.end is not None and record.offset >= cursor.end:
                cursor.position, self._idle_since_ms = cursor.end, None
                return
            yield record
        self._note_progress(cursor, fetched.next_offset)

    def _note_progress(self, cursor: Cursor, next_offset: int) -> None:
        """:raises KafkaTimeoutError: if the end is not reached and there was no progress for too long."""
        if next_offset > cursor.position or cursor.end is None:
            cursor.position, self._idle_since_ms = next_offset, None
            return
        now_ms, timeout_ms = self._clock.monotonic_ms(), self._config.default_api_timeout_ms
        if self._idle_since_ms is None:
            self._idle_since_ms = now_ms
        elif now_ms - self._idle_since_ms >= timeout_ms:
            raise KafkaTimeoutError(
                f"{cursor.topic_partition} was to be read up to offset {cursor.end}, but its leader has returned "
                f"nothing from offset {cursor.position} on for {timeout_ms} ms; its log may have been truncated"
            )

    def _on_offset_out_of_range(self, cursor: Cursor) -> None:
        partition = cursor.topic_partition.partition
        first = self._list_offsets([cursor], log_offsets.EARLIEST_TIMESTAMP)[partition]
        if self._follows_retention and cursor.position < first:
            self._log.warning(
                "records %d to %d of %s are lost: they were deleted before they were read",
                cursor.position,
                first - 1,
                cursor.topic_partition,
            )
            cursor.position = first
            return
        end = self._list_offsets([cursor], log_offsets.LATEST_TIMESTAMP)[partition]
        raise error_for(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{cursor.topic_partition} has no offset {cursor.position}: its log begins at {first} and ends before "
            f"{end}",
        )

    def _by_leader(self, cursors: Iterable[Cursor]) -> list[tuple[Node, list[Cursor]]]:
        groups: dict[Node, list[Cursor]] = {}
        for cursor in cursors:
            leader = self._leaders.get(cursor.topic_partition.partition)
            if leader is None:
                self._failed(
                    [cursor], error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{cursor.topic_partition} has no leader")
                )
            else:
                groups.setdefault(leader[0], []).append(cursor)
        return list(groups.items())

    def _epoch(self, cursor: Cursor) -> int:
        leader = self._leaders.get(cursor.topic_partition.partition)
        return -1 if leader is None else leader[1]

    def _ask(
        self,
        node: Node,
        group: list[Cursor],
        api_key: ApiKey,
        build: Callable[[int], RequestBody[Struct]],
        kind: type[S],
    ) -> S | None:
        """The answer of *node*; None if there was none and *group* may be retried."""
        try:
            response = self._client.request(node, api_key, build)
        except ApiError as error:
            self._failed(group, error)
            return None
        if not isinstance(response, kind):
            raise ProtocolError(f"{node} answered {api_key.name} with {type(response).__name__}")
        return response

    def _match(self, group: list[Cursor], answers: Iterable[A]) -> Iterator[tuple[Cursor, A]]:
        """Each cursor with its answer; a cursor without an answer has failed."""
        by_number = {answer.partition_index: answer for answer in answers}
        for cursor in group:
            answer = by_number.get(cursor.topic_partition.partition)
            if answer is None:
                self._failed(
                    [cursor], error_for(ErrorCode.NETWORK_EXCEPTION, "the leader's response does not contain it")
                )
            else:
                yield cursor, answer

    def _accept(self, cursor: Cursor, error_code: int, doing: str) -> bool:
        if error_code != ErrorCode.NONE:
            self._failed([cursor], error_for(error_code, f"{doing} {cursor.topic_partition}"))
            return False
        cursor.failures = 0
        return True

    def _failed(self, cursors: Iterable[Cursor], error: ApiError) -> None:
        """Record a failed attempt.

        :raises ApiError: if a retry would not help, or if retries have taken too long (as with a request that timed
            out).
        """
        if not error.is_retriable or isinstance(error, KafkaTimeoutError):
            raise error
        timeout_ms = self._config.default_api_timeout_ms
        now_ms = self._clock.monotonic_ms()
        for cursor in cursors:
            if not cursor.failures:
                cursor.failing_since_ms = now_ms
            cursor.failures += 1
            cursor.last_error = str(error)
            if now_ms - cursor.failing_since_ms >= timeout_ms:
                raise KafkaTimeoutError(
                    f"no answer for {cursor.topic_partition} within {timeout_ms} ms: {error}"
                ) from error

    def _recover(self, cursors: Collection[Cursor]) -> None:
        """After a round with failed attempts: wait, and refresh the leaders."""
        failures = max(cursor.failures for cursor in cursors)
        if not failures:
            return
        failed = [cursor for cursor in cursors if cursor.failures]
        self._log.info("retrying: %s", failed[0].last_error)
        self._pause(failures)
        try:
            self._refresh()
        except ApiError as error:
            self._failed(failed, error)

    def _pause(self, failures: int) -> None:
        self._client.idle(self._backoff.backoff_ms(failures - 1))
