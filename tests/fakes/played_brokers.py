"""Two brokers that a test plays, for a producer over a real NetworkClient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import Node
from kafka_sink.protocol.header import RequestHeader
from kafka_sink.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kafka_sink.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_sink.protocol.messages.metadata import MetadataRequest
from kafka_sink.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kafka_sink.protocol.registry import APIS
from kafka_sink.protocol.schema import Struct
from kafka_sink.records.reader import RecordBatchView, read_batches
from tests.fakes import metadata_answers
from tests.fakes.manual_clock import ManualClock
from tests.fakes.producing import TOPIC
from tests.fakes.selectable import FakeSelectable

#: Addresses, so that nothing has to be resolved.
NODES = {1: Node(1, "127.0.0.1", 9001), 2: Node(2, "127.0.0.1", 9002)}
NO_LEADER = -1


class PlayedBrokers:
    """Brokers 1 and 2 answer whatever is not about records at once; produce requests are left to the test.

    :param leaders: who leads partition 0, 1, … of the topic; may be changed later.
    """

    def __init__(self, leaders: Sequence[int], clock: ManualClock) -> None:
        self.leaders = list(leaders)
        self.clock = clock
        self.network = FakeSelectable(clock, self._answer)  # type: ignore[arg-type]
        #: Answers to InitProducerId; with none left the ids 77, 78, … are given out. None leaves one unanswered.
        self.producer_ids: list[InitProducerIdResponse | None] = []
        self.producer_ids_given = 0
        #: What the brokers speak, where it is not everything.
        self.versions: dict[Any, tuple[int, int]] = {}
        #: What metadata answers say of other topics; nothing said means that they do not exist.
        self.topic_errors: dict[str | None, ErrorCode] = {}
        #: Plays produce requests, where the test does not do so itself.
        self.on_produce: Callable[[str, ProduceRequest], ProduceResponse | None] = lambda node, request: None

    def acknowledge_everything(self) -> None:
        """Answer every produce request at once, always with the same offset."""
        self.on_produce = lambda node, request: produce_answer(request, 100, {})

    def requests(self, node: int = 1) -> list[ProduceRequest]:
        """Produce requests that wait for an answer, oldest first."""
        if str(node) not in self.network.connections:
            return []
        return [body for _, body in self.network.requests(str(node)) if isinstance(body, ProduceRequest)]

    def batches(self, node: int = 1, request: int = -1) -> dict[int, RecordBatchView]:
        """What a request carries, by partition; the newest unless said otherwise."""
        return batches_of(self.requests(node)[request])

    def values(self, node: int = 1, request: int = -1) -> dict[int, list[bytes | None]]:
        return {
            partition: [record.value for record in view.records()]
            for partition, view in self.batches(node, request).items()
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

    def _answer(self, connection_id: str, header: RequestHeader, body: Struct) -> Struct | None:
        if isinstance(body, ApiVersionsRequest):
            ranges = {key: (api.versions.min, api.versions.max) for key, api in APIS.items()} | self.versions
            return ApiVersionsResponse(
                api_keys=[
                    ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges.items()
                ]
            )
        if isinstance(body, MetadataRequest):
            partitions = [
                metadata_answers.partition(index, leader, error=5 if leader == NO_LEADER else 0)
                for index, leader in enumerate(self.leaders)
            ]
            not_there = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            unknown = [topic.name for topic in body.topics or () if topic.name not in (None, TOPIC)]
            return metadata_answers.answer(
                metadata_answers.topic(TOPIC, *partitions),
                *(metadata_answers.topic(name, error=self.topic_errors.get(name, not_there)) for name in unknown),
                nodes=tuple(NODES.values()),
            )
        if isinstance(body, InitProducerIdRequest):
            if self.producer_ids:
                return self.producer_ids.pop(0)
            self.producer_ids_given += 1
            return InitProducerIdResponse(producer_id=76 + self.producer_ids_given, producer_epoch=0)
        assert isinstance(body, ProduceRequest)
        return self.on_produce(connection_id, body)


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
