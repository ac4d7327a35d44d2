"""The leaders of the partitions of one topic, from the latest metadata.

Used by the log reader on its thread. It refreshes only on request, and its metadata requests never create the topic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kafka_sink.common.errors import ApiError, ErrorCode, ProtocolError, UnknownTopicOrPartitionError, error_for
from kafka_sink.common.model import Node
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kafka_sink.protocol.schema import ZERO_UUID, RequestBody, Struct


class Requester(Protocol):
    """The part of :class:`~kafka_sink.client.blocking.blocking.BlockingClient` that reading needs."""

    def request(self, node: Node | None, api_key: ApiKey, build: Callable[[int], RequestBody[Struct]]) -> Struct:
        """The answer of *node* (None: of any broker) to the request that *build* makes for the negotiated version."""
        ...

    def idle(self, duration_ms: int) -> None:
        """Wait for *duration_ms* while the network is polled."""
        ...


@dataclass(frozen=True, slots=True)
class PartitionLeader:
    """A partition's leader and its leader epoch, −1 if the cluster does not return it."""

    node: Node
    epoch: int


class TopicLeaders:
    """The leaders of *topic*; empty until :meth:`refresh`."""

    def __init__(self, client: Requester, topic: str) -> None:
        self.topic = topic
        self.topic_id = ZERO_UUID
        #: The numbers of all partitions, including those without a leader.
        self.partitions: tuple[int, ...] = ()
        self._leaders: dict[int, PartitionLeader] = {}
        self._client = client

    def leader(self, partition: int) -> PartitionLeader | None:
        """The leader of *partition*; None while there is none."""
        return self._leaders.get(partition)

    def refresh(self) -> None:
        """Fetch the metadata again.

        :raises UnknownTopicOrPartitionError: if the topic does not exist.
        :raises ApiError: if this client may not read the topic, the topic was recreated in the meantime, or no broker
            answers.
        """
        response = self._client.request(None, ApiKey.METADATA, self._request)
        if not isinstance(response, MetadataResponse) or len(response.topics) != 1:
            raise ProtocolError(f"asked for the metadata of one topic, got {response!r:.200}")
        topic = response.topics[0]
        self._check(topic)
        nodes = {broker.node_id: Node(broker.node_id, broker.host, broker.port) for broker in response.brokers}
        self.topic_id = topic.topic_id
        self.partitions = tuple(sorted(partition.partition_index for partition in topic.partitions))
        self._leaders = {
            partition.partition_index: PartitionLeader(nodes[partition.leader_id], partition.leader_epoch)
            for partition in topic.partitions
            if partition.leader_id in nodes
        }

    def _request(self, version: int) -> MetadataRequest:
        return MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)

    def _check(self, topic: MetadataResponseTopic) -> None:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopicOrPartitionError(f"topic {self.topic!r} does not exist")
        if topic.error_code != ErrorCode.NONE:
            raise error_for(topic.error_code, f"topic {self.topic!r}")
        if self.topic_id not in (ZERO_UUID, topic.topic_id):
            raise ApiError(
                f"topic {self.topic} was deleted and created again while it was being read",
                ErrorCode.INCONSISTENT_TOPIC_ID,
            )
