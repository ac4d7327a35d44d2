"""Blocking requests to the leaders of partitions about the transactions in their logs.

The ``async`` methods are exchanges, see :mod:`blocking`. Each sends requests to all leaders at once and retries after
retriable errors, until its deadline. Only :meth:`LeaderRequests.write_marker` changes anything: it ends the transaction
that begins at the offset given by its caller.

Source: ListOffsets (KIP-98: the last stable offset), DescribeProducers and WriteTxnMarkers (KIP-664); apache/kafka
``kafka-transactions.sh abort``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, starmap
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from kafka_sink.client.blocking.blocking import Exchange, RequestSpec, Round, Tries
from kafka_sink.client.metadata.cluster import Cluster, PartitionInfo
from kafka_sink.client.requests.admin_requests import list_offsets, listed_offsets
from kafka_sink.client.requests.outcomes import only_one
from kafka_sink.common.errors import ApiError, DisconnectError, ErrorCode, KafkaTimeoutError, error_for
from kafka_sink.common.model import Node, TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import transaction_admin as m
from kafka_sink.protocol.messages.log_offsets import LATEST_TIMESTAMP
from kafka_sink.protocol.schema import Struct

#: How long a leader may take to read an offset from remote storage, which the end of a log never needs, ms.
_LEADER_MS: Final = 10_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LogTransaction:
    """A transaction in one log: its producer, its first offset, and the time of its last write (ms since 1970).

    *epoch* is that of the producer's last batch or marker in this log.
    """

    producer_id: int
    epoch: int
    start_offset: int
    last_written_ms: int
    coordinator_epoch: int


class _PartAnswer(NamedTuple):
    """The answer of a leader about one partition."""

    partition: TopicPartition
    code: int
    value: Any
    message: str | None = None


_Build: TypeAlias = Callable[[Sequence[TopicPartition]], RequestSpec]
_Read: TypeAlias = Callable[[Struct], Iterable[_PartAnswer]]


class LeaderRequests:
    """*fetch_cluster* is the exchange that fetches topics' metadata (None: of all topics), and *tries* creates the
    attempts of an exchange that begins now.

    Requests for a partition are retried until its leader answers or the deadline has passed. A *hasty* call omits such
    a partition instead.
    """

    def __init__(
        self, fetch_cluster: Callable[[Sequence[str] | None], Exchange[Cluster]], tries: Callable[[], Tries]
    ) -> None:
        self._fetch_cluster = fetch_cluster
        self._tries = tries
        #: From the latest metadata; a broker that no longer leads a partition returns an error.
        self._cluster = Cluster()

    async def partitions_of(self, topics: Collection[str] | None) -> list[PartitionInfo]:
        """The partitions of *topics*; None: of all that this principal may see, except Kafka's internal ones."""
        cluster = self._cluster = await self._fetch_cluster(None if topics is None else list(topics))
        return [info for info in cluster.partitions if info.topic not in cluster.internal_topics]

    async def end_offsets(
        self, partitions: Collection[TopicPartition], *, stable: bool, hasty: bool = False
    ) -> dict[TopicPartition, int]:
        """The high watermark of each partition, or with *stable* its last stable offset: where its first open
        transaction begins, at most the high watermark. Partitions that do not exist are omitted.

        :raises ApiError: TOPIC_AUTHORIZATION_FAILED without DESCRIBE on a topic.
        """

        def build(led: Sequence[TopicPartition]) -> RequestSpec:
            request = list_offsets(led, LATEST_TIMESTAMP, _LEADER_MS, is_stable=stable)
            return RequestSpec(ApiKey.LIST_OFFSETS, lambda version: request)

        def read(body: Any) -> Iterable[_PartAnswer]:
            return starmap(_PartAnswer, listed_offsets(body))

        return await self._ask(partitions, build, read, hasty=hasty)

    async def open_transactions(
        self, partitions: Collection[TopicPartition], *, hasty: bool = False
    ) -> dict[TopicPartition, list[LogTransaction]]:
        """All open transactions in the logs of *partitions*, those of each log by first offset. Logs without any, and
        partitions that do not exist, are omitted.

        :raises ApiError: TOPIC_AUTHORIZATION_FAILED without READ on a topic.
        """

        def build(led: Sequence[TopicPartition]) -> RequestSpec:
            topics = [
                m.TopicPartitions(topic, [partition.partition for partition in group])
                for topic, group in groupby(led, lambda partition: partition.topic)
            ]
            request = m.DescribeProducersRequest(topics=topics)
            return RequestSpec(ApiKey.DESCRIBE_PRODUCERS, lambda version: request)

        def read(body: Any) -> Iterable[_PartAnswer]:
            for topic in body.topics:
                for partition in topic.partitions:
                    place = TopicPartition(topic.name, partition.partition_index)
                    yield _PartAnswer(
                        place, partition.error_code, _open_of(partition.active_producers), partition.error_message
                    )

        transactions = await self._ask(partitions, build, read, hasty=hasty)
        return {partition: opened for partition, opened in transactions.items() if opened}

    async def open_before(
        self, ends: Mapping[TopicPartition, int], *, hasty: bool = False
    ) -> dict[TopicPartition, list[LogTransaction]]:
        """The open transactions that begin before the given offset of their partition; partitions without any are
        omitted. A leader whose last stable offset has reached it gets no DescribeProducers request.

        :raises ApiError: as :meth:`open_transactions`.
        """
        stable = await self.end_offsets(ends, stable=True, hasty=hasty)
        unsettled = [partition for partition, offset in stable.items() if offset < ends[partition]]
        if not unsettled:
            return {}
        transactions = await self.open_transactions(unsettled, hasty=hasty)
        early = {
            partition: [transaction for transaction in opened if transaction.start_offset < ends[partition]]
            for partition, opened in transactions.items()
        }
        return {partition: opened for partition, opened in early.items() if opened}

    async def write_marker(self, partition: TopicPartition, transaction: LogTransaction, *, commit: bool) -> None:
        """End *transaction* in the log of *partition*, as its coordinator would.

        :raises ApiError: INVALID_PRODUCER_EPOCH if its producer continues with a newer epoch;
            CLUSTER_AUTHORIZATION_FAILED; other codes if the leader refused.
        """
        marker = m.WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            transaction_result=commit,
            topics=[m.TopicPartitions(partition.topic, [partition.partition])],
            # A log without a recorded coordinator epoch accepts any epoch.
            coordinator_epoch=max(transaction.coordinator_epoch, 0),
        )
        request = m.WriteTxnMarkersRequest(markers=[marker])

        def read(body: Any) -> Iterable[_PartAnswer]:
            code = only_one(only_one(only_one(body.markers).topics).partitions).error_code
            yield _PartAnswer(partition, code, None, f"the marker of producer id {transaction.producer_id}")

        await self._ask([partition], lambda led: RequestSpec(ApiKey.WRITE_TXN_MARKERS, lambda version: request), read)

    async def _ask(
        self, partitions: Collection[TopicPartition], build: _Build, read: _Read, *, hasty: bool = False
    ) -> dict[TopicPartition, Any]:
        """The value that *read* takes from its leader's answer, for each of *partitions* that exists."""
        left = sorted(partitions)
        values: dict[TopicPartition, Any] = {}
        tries = self._tries()
        is_repeated = False
        while left:
            if is_repeated or any(self._cluster.leader_for(partition) is None for partition in left):
                self._cluster = await self._fetch_cluster(sorted({partition.topic for partition in left}))
            cluster = self._cluster
            left = [partition for partition in left if cluster.partition(partition) is not None]
            by_leader: dict[Node, list[TopicPartition]] = {}
            for partition in left:
                leader = cluster.leader_for(partition)
                if leader is not None:
                    by_leader.setdefault(leader, []).append(partition)
            requests = [(leader, build(led)) for leader, led in by_leader.items()]
            answers = (await Round(requests, tries.left_ms)) if requests else ()
            lost: dict[TopicPartition, ApiError] = {}
            for led, answer in zip(by_leader.values(), answers, strict=True):
                if isinstance(answer, DisconnectError | KafkaTimeoutError):
                    lost |= dict.fromkeys(led, answer)
                    continue
                if isinstance(answer, ApiError):
                    raise answer
                for part in read(answer):
                    error = _refusal(part)
                    if error is None:
                        values[part.partition] = part.value
                    else:
                        lost[part.partition] = error
            left = [partition for partition in left if partition not in values and not hasty]
            if left:
                why = lost.get(left[0]) or error_for(ErrorCode.LEADER_NOT_AVAILABLE, "it has no leader now")
                await tries.pause(f"a question to the leader of {left[0]}", why)
                is_repeated = True
        return values


def _refusal(part: _PartAnswer) -> ApiError | None:
    """The error after which the request is retried; None if it has succeeded.

    :raises ApiError: if the error is not retriable.
    """
    code = ErrorCode.of(part.code)
    if code is ErrorCode.NONE:
        return None
    error = error_for(code, f"{part.partition}: {part.message or code.name}")
    if code.is_retriable:
        return error
    raise error


def _open_of(producers: Iterable[Any]) -> list[LogTransaction]:
    transactions = [
        LogTransaction(
            producer.producer_id,
            producer.producer_epoch,
            producer.current_txn_start_offset,
            producer.last_timestamp,
            producer.coordinator_epoch,
        )
        for producer in producers
        if producer.current_txn_start_offset >= 0
    ]
    return sorted(transactions, key=lambda transaction: transaction.start_offset)
