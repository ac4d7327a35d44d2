"""Brokers that hold one topic and answer Metadata, ListOffsets and Fetch without a network; faults on request."""

from __future__ import annotations

import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kafka_sink.common.errors import DisconnectError, ErrorCode
from kafka_sink.common.model import Node
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kafka_sink.protocol.messages.log_offsets import (
    EARLIEST_TIMESTAMP,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafka_sink.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafka_sink.protocol.schema import Struct
from kafka_sink.records import layout
from tests.fakes.clock import FakeClock
from tests.fakes.record_batches import make_batch

TOPIC_ID = uuid.UUID(int=7)
_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@dataclass
class FakePartition:
    """Batches by base offset; ``first_offset`` may be moved on, as retention does."""

    leader: int = 1
    leader_epoch: int = 3
    first_offset: int = 0
    end_offset: int = 0
    last_stable_offset: int | None = None
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    aborted: list[tuple[int, int]] = field(default_factory=list)

    def append(self, *values: bytes, is_control: bool = False) -> None:
        batch = make_batch(values, is_control=is_control)
        layout.INT64.pack_into(batch, layout.BASE_OFFSET_AT, self.end_offset)
        self.batches.append((self.end_offset, bytes(batch)))
        self.end_offset += len(values)

    def readable_end(self, isolation_level: int) -> int:
        is_held_back = isolation_level == 1 and self.last_stable_offset is not None
        return self.last_stable_offset if is_held_back and self.last_stable_offset is not None else self.end_offset


class FakeLogCluster:
    """Plays :class:`~kafka_sink.consumer.topic_reading.Requester`.

    ``faults[api_key]`` are played one an answer, before anything else: an exception is raised, a code is answered for
    every partition. ``on_idle`` runs whenever the reader waits.
    """

    def __init__(self, partitions: int = 1, *, nodes: int = 1, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.partitions = {number: FakePartition(leader=1 + number % nodes) for number in range(partitions)}
        self.node_ids = tuple(range(1, nodes + 1))
        self.topic_id = TOPIC_ID
        self.topic_error = ErrorCode.NONE
        self.faults: dict[ApiKey, deque[Exception | ErrorCode]] = defaultdict(deque)
        self.requests: list[tuple[int | None, Struct]] = []
        self.on_idle: Callable[[], None] = lambda: None
        self.max_batches = 1

    def request(self, node: Node | None, api_key: ApiKey, build: Callable[[int], Struct]) -> Struct:
        request = build(13)
        self.requests.append((None if node is None else node.id, request))
        fault = self.faults[api_key].popleft() if self.faults[api_key] else ErrorCode.NONE
        if isinstance(fault, Exception):
            raise fault
        if isinstance(request, MetadataRequest):
            return self._metadata(fault)
        assert node is not None
        if node.id not in self.node_ids:
            raise DisconnectError(f"{node}: connection refused")
        if isinstance(request, ListOffsetsRequest):
            return self.offsets(request, fault)
        assert isinstance(request, FetchRequest)
        return self.fetch(node.id, request, fault)

    def idle(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        self.on_idle()

    def sent(self, kind: type[Struct]) -> list[Struct]:
        return [request for _, request in self.requests if isinstance(request, kind)]

    def _metadata(self, fault: ErrorCode) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(partition_index=number, leader_id=part.leader, leader_epoch=part.leader_epoch)
            for number, part in self.partitions.items()
        ]
        code = fault or self.topic_error
        topic = MetadataResponseTopic(
            error_code=code, name="t", topic_id=self.topic_id, partitions=[] if code else partitions
        )
        brokers = [MetadataResponseBroker(node_id=node, host="fake", port=9000 + node) for node in self.node_ids]
        return MetadataResponse(brokers=brokers, topics=[topic])

    def offsets(self, request: ListOffsetsRequest, fault: ErrorCode) -> ListOffsetsResponse:
        answers = []
        for asked in request.topics[0].partitions:
            part = self.partitions.get(asked.partition_index, FakePartition())
            is_first = asked.timestamp == EARLIEST_TIMESTAMP
            answers.append(
                ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index,
                    error_code=fault if asked.partition_index in self.partitions else _UNKNOWN,
                    offset=part.first_offset if is_first else part.readable_end(request.isolation_level),
                )
            )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=answers)])

    def fetch(self, node_id: int, request: FetchRequest, fault: ErrorCode) -> FetchResponse:
        if request.topics[0].topic_id != self.topic_id:
            fault = ErrorCode.UNKNOWN_TOPIC_ID
        answers = [self._partition_data(node_id, asked, fault, request) for asked in request.topics[0].partitions]
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=self.topic_id, partitions=answers)])

    def _partition_data(
        self, node_id: int, asked: FetchPartition, fault: ErrorCode, request: FetchRequest
    ) -> PartitionData:
        part = self.partitions.get(asked.partition, FakePartition())
        end = part.readable_end(request.isolation_level)
        code = fault if asked.partition in self.partitions else _UNKNOWN
        if not code and node_id != part.leader:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif not code and not part.first_offset <= asked.fetch_offset <= part.end_offset:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        return PartitionData(
            partition_index=asked.partition,
            error_code=code,
            high_watermark=part.end_offset,
            aborted_transactions=[AbortedTransaction(producer_id=p, first_offset=o) for p, o in part.aborted],
            records=memoryview(b"" if code else b"".join(self._batches_from(part, asked.fetch_offset, end))),
        )

    def _batches_from(self, part: FakePartition, offset: int, end: int) -> Sequence[bytes]:
        following = [next_base for next_base, _ in part.batches[1:]] + [part.end_offset]
        found = [
            batch
            for (base, batch), next_base in zip(part.batches, following, strict=False)
            if next_base > offset and base < end
        ]
        return found[: self.max_batches]
