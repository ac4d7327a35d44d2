"""Brokers for a producer with a real NetworkClient: they store records, or leave the responses to the test."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import Node
from kafka_sink.protocol.header import RequestHeader
from kafka_sink.protocol.messages.connection import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kafka_sink.protocol.messages.metadata import LeaderIdAndEpoch, MetadataRequest, MetadataResponse, NodeEndpoint
from kafka_sink.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kafka_sink.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from kafka_sink.protocol.registry import APIS
from kafka_sink.protocol.schema import Struct
from kafka_sink.records.reader import Record, RecordBatchView, read_batches
from tests.fakes import metadata_answers
from tests.fakes.clock import FakeClock
from tests.fakes.producing import TOPIC
from tests.fakes.selectable import FakeSelectable

NO_LEADER = -1

#: Answers of one produce attempt of a partition: a code, a whole answer, or silence.
SILENCE = object()
Verdict = ErrorCode | PartitionProduceResponse | object


class FakeBrokers:
    """Brokers with one topic: they store every batch, unless a test has put verdicts in :attr:`verdicts`.

    ``leaders[partition] = (node id, epoch)``. A batch over ``max_message_bytes`` is refused as too large.
    :meth:`attach` gives the brokers their clock and their network.
    """

    clock: FakeClock
    network: FakeSelectable

    def __init__(self, leaders: Sequence[int] = (1,), nodes: int = 1) -> None:
        self.nodes = {number: Node(number, "127.0.0.1", 9000 + number) for number in range(1, nodes + 1)}
        self.leaders = {partition: (leader, 0) for partition, leader in enumerate(leaders)}
        self.verdicts: dict[int, deque[Verdict]] = defaultdict(deque)
        self.max_message_bytes = 2**31
        self.throttle_ms = 0
        self.tells_leaders = False
        self.stored: dict[int, list[Record]] = defaultdict(list)
        self.batches: dict[int, list[RecordBatchView]] = defaultdict(list)
        self.produced: list[tuple[str, int, int]] = []
        self.metadata_requests = 0
        #: Version ranges by API, where the brokers do not support all versions.
        self.ranges: dict[Any, tuple[int, int]] = {}
        #: Error codes of other topics in metadata responses; a topic without one does not exist.
        self.topic_errors: dict[str | None, ErrorCode] = {}

    def attach(self, clock: FakeClock) -> FakeSelectable:
        """Create the network of these brokers, whose time is that of *clock*."""
        self.clock = clock
        self.network = FakeSelectable(clock, self)
        return self.network

    def __call__(self, connection_id: str, header: RequestHeader, body: Struct) -> Struct | None:
        if isinstance(body, ApiVersionsRequest):
            ranges = {key: (api.versions.min, api.versions.max) for key, api in APIS.items()} | self.ranges
            return ApiVersionsResponse(
                api_keys=[
                    ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges.items()
                ]
            )
        if isinstance(body, MetadataRequest):
            self.metadata_requests += 1
            return self.metadata(body)
        if isinstance(body, InitProducerIdRequest):
            return self.init_producer_id()
        assert isinstance(body, ProduceRequest)
        return self._produce(connection_id, body)

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        partitions = [
            metadata_answers.partition(index, leader, epoch, error=5 if leader == NO_LEADER else 0)
            for index, (leader, epoch) in self.leaders.items()
        ]
        not_there = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        unknown = [topic.name for topic in request.topics or () if topic.name not in (None, TOPIC)]
        return metadata_answers.answer(
            metadata_answers.topic(TOPIC, *partitions),
            *(metadata_answers.topic(name, error=self.topic_errors.get(name, not_there)) for name in unknown),
            nodes=tuple(self.nodes.values()),
        )

    def init_producer_id(self) -> InitProducerIdResponse | None:
        return InitProducerIdResponse(producer_id=9, producer_epoch=0)

    def _produce(self, connection_id: str, request: ProduceRequest) -> ProduceResponse | None:
        answers = []
        for data in request.topic_data[0].partition_data:
            assert isinstance(data.records, memoryview)
            (batch,) = read_batches(data.records)
            assert batch.verify_crc()
            self.produced.append((connection_id, data.index, self.clock.now_ms))
            self.batches[data.index].append(batch)
            answer = self._judge(connection_id, data.index, batch)
            if answer is None:
                return None
            answers.append(answer)
        return ProduceResponse(
            responses=[TopicProduceResponse(name=TOPIC, partition_responses=answers)],
            throttle_time_ms=self.throttle_ms,
            node_endpoints=[
                NodeEndpoint(node_id=node.id, host=node.host, port=node.port) for node in self.nodes.values()
            ]
            if self.tells_leaders
            else [],
        )

    def _judge(self, connection_id: str, partition: int, batch: RecordBatchView) -> PartitionProduceResponse | None:
        if self.verdicts[partition]:
            verdict = self.verdicts[partition].popleft()
            if verdict is SILENCE:
                return None
            if isinstance(verdict, PartitionProduceResponse):
                return verdict
            if verdict is not ErrorCode.NONE:
                assert isinstance(verdict, ErrorCode)
                return PartitionProduceResponse(index=partition, error_code=verdict, base_offset=-1)
        leader, epoch = self.leaders[partition]
        if connection_id != str(leader):
            return PartitionProduceResponse(
                index=partition,
                error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                base_offset=-1,
                current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                if self.tells_leaders
                else LeaderIdAndEpoch(),
            )
        if batch.header.size_in_bytes > self.max_message_bytes:
            return PartitionProduceResponse(index=partition, error_code=ErrorCode.MESSAGE_TOO_LARGE, base_offset=-1)
        base_offset = len(self.stored[partition])
        self.stored[partition] += batch.records()
        return PartitionProduceResponse(index=partition, base_offset=base_offset)

    def values(self, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.stored[partition]]

    def produced_at(self, partition: int = 0) -> list[int]:
        return [at_ms for _, index, at_ms in self.produced if index == partition]


class PlayedBrokers(FakeBrokers):
    """Two brokers that leave produce requests to the test.

    :param leaders: who leads partition 0, 1, … of the topic.
    """

    def __init__(self, leaders: Sequence[int]) -> None:
        super().__init__(leaders, nodes=2)
        #: Answers to InitProducerId; with none left the ids 77, 78, … are given out. None leaves one unanswered.
        self.producer_ids: list[InitProducerIdResponse | None] = []
        self.producer_ids_given = 0
        #: Plays produce requests, where the test does not do so itself.
        self.on_produce: Callable[[str, ProduceRequest], ProduceResponse | None] = lambda node, request: None

    def move(self, *leaders: int) -> None:
        """Make *leaders* the leaders of partition 0, 1, …"""
        self.leaders = {partition: (leader, 0) for partition, leader in enumerate(leaders)}

    @property
    def led_by(self) -> set[int]:
        return {leader for leader, _ in self.leaders.values() if leader != NO_LEADER}

    def init_producer_id(self) -> InitProducerIdResponse | None:
        if self.producer_ids:
            return self.producer_ids.pop(0)
        self.producer_ids_given += 1
        return InitProducerIdResponse(producer_id=76 + self.producer_ids_given, producer_epoch=0)

    def _produce(self, connection_id: str, request: ProduceRequest) -> ProduceResponse | None:
        return self.on_produce(connection_id, request)

    def acknowledge_everything(self) -> None:
        """Answer every produce request at once, always with the same offset."""
        self.on_produce = lambda node, request: produce_answer(request, 100, {})

    def requests(self, node: int = 1) -> list[ProduceRequest]:
        """Return the produce requests without a response, oldest first."""
        if str(node) not in self.network.connections:
            return []
        return [body for _, body in self.network.requests(str(node)) if isinstance(body, ProduceRequest)]

    def sent_batches(self, node: int = 1, request: int = -1) -> dict[int, RecordBatchView]:
        """Return the batches of a request by partition; by default, of the newest request."""
        return batches_of(self.requests(node)[request])

    def sent_values(self, node: int = 1, request: int = -1) -> dict[int, list[bytes | None]]:
        return {
            partition: [record.value for record in view.records()]
            for partition, view in self.sent_batches(node, request).items()
        }

    def answer(self, node: int = 1, base_offset: int = 100, **answers: Any) -> None:
        """Answer the oldest produce request: success, but for the partitions in *answers* (``p0=ErrorCode…``)."""
        request = self.requests(node)[0]
        errors = {int(name[1:]): code for name, code in answers.items()}
        self.network.reply(str(node), produce_answer(request, base_offset, errors))

    def fail(self, code: ErrorCode, node: int = 1, message: str | None = None) -> None:
        """Answer the oldest produce request with *code* for every partition."""
        request = self.requests(node)[0]
        errors = dict.fromkeys(batches_of(request), code)
        self.network.reply(str(node), produce_answer(request, -1, errors, message))

    def lose(self, node: int = 1, cause: str = "connection reset") -> None:
        self.network.lose(str(node), cause)


def batches_of(request: ProduceRequest) -> dict[int, RecordBatchView]:
    """The batches of *request* by partition, their CRCs checked."""
    found: dict[int, RecordBatchView] = {}
    for topic in request.topic_data:
        for part in topic.partition_data:
            assert isinstance(part.records, memoryview)
            (view,) = read_batches(part.records)
            assert view.verify_crc()
            found[part.index] = view
    return found


def produce_answer(
    request: ProduceRequest, base_offset: int, errors: dict[int, ErrorCode], message: str | None = None
) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(
                        index=part.index,
                        error_code=errors.get(part.index, ErrorCode.NONE),
                        base_offset=-1 if part.index in errors else base_offset,
                        error_message=message,
                    )
                    for part in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
