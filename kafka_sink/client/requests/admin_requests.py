"""The bodies of the admin client's requests about settings and leaders, and the parsing of their answers.

Pure functions: the admin client sends the requests, on its caller's thread.

Source: DescribeConfigs (KIP-226), IncrementalAlterConfigs (KIP-339), ElectLeaders
(KIP-183), AlterPartitionReassignments (KIP-455).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kafka_sink.protocol.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)

_TOPIC: Final = 2
_SET: Final = 0
_DELETE: Final = 1
_PREFERRED: Final = 0
_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
}

#: (resource, error code, error message of the broker)
Outcome = tuple[str, int, str | None]


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A setting: its value (None if the broker does not show it) and the source of the value as text."""

    value: str | None
    source: str


def describe_topics_configs(names: Sequence[str]) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(resources=[DescribeConfigsResource(_TOPIC, name, None) for name in names])


def described(result: DescribeConfigsResult) -> dict[str, ConfigValue]:
    return {
        config.name: ConfigValue(config.value, _SOURCES.get(config.config_source, "unknown"))
        for config in result.configs
    }


def alter_topic_configs(
    name: str, configs: Mapping[str, str], delete: Iterable[str], *, validate_only: bool
) -> IncrementalAlterConfigsRequest:
    changes = [IncrementalAlterableConfig(key, _SET, value) for key, value in configs.items()]
    changes += [IncrementalAlterableConfig(key, _DELETE, None) for key in delete]
    return IncrementalAlterConfigsRequest(
        resources=[IncrementalAlterConfigsResource(_TOPIC, name, changes)], validate_only=validate_only
    )


def reassign(partition: TopicPartition, replicas: Sequence[int], timeout_ms: int) -> AlterPartitionReassignmentsRequest:
    entry = ReassignablePartition(partition.partition, list(replicas))
    return AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms, topics=[ReassignableTopic(partition.topic, [entry])]
    )


def elect_preferred(partition: TopicPartition, timeout_ms: int) -> ElectLeadersRequest:
    topics = [TopicPartitions(partition.topic, [partition.partition])]
    return ElectLeadersRequest(election_type=_PREFERRED, topic_partitions=topics, timeout_ms=timeout_ms)


def reassignment_outcomes(response: AlterPartitionReassignmentsResponse) -> Iterator[Outcome]:
    yield "reassignment", response.error_code, response.error_message
    for topic in response.responses:
        for item in topic.partitions:
            yield f"{topic.name}-{item.partition_index}", item.error_code, item.error_message


def election_outcomes(response: ElectLeadersResponse) -> Iterator[Outcome]:
    yield "election", response.error_code, None
    for topic in response.replica_election_results:
        for item in topic.partition_result:
            yield f"{topic.topic}-{item.partition_id}", item.error_code, item.error_message
