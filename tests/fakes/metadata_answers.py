"""Metadata answers in a few words."""

from __future__ import annotations

import uuid

from kafka_sink.common.model import Node
from kafka_sink.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ONE, TWO = Node(1, "one", 9092), Node(2, "two", 9092, "rack")
ID_A, ID_B = uuid.UUID(int=1), uuid.UUID(int=2)


def broker(node: Node) -> MetadataResponseBroker:
    return MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)


def partition(index: int, leader: int, epoch: int = 0, error: int = 0) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[1, 2],
        isr_nodes=[1],
        offline_replicas=[9],
        error_code=error,
    )


def topic(
    name: str, *partitions: MetadataResponsePartition, error: int = 0, topic_id: uuid.UUID = ID_A
) -> MetadataResponseTopic:
    return MetadataResponseTopic(name=name, partitions=list(partitions), error_code=error, topic_id=topic_id)


def answer(*topics: MetadataResponseTopic, nodes: tuple[Node, ...] = (ONE, TWO)) -> MetadataResponse:
    return MetadataResponse(
        brokers=[broker(node) for node in nodes], topics=list(topics), cluster_id="c", controller_id=2
    )
