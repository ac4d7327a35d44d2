"""The bodies of the admin client's requests about settings, leaders and offsets, and the parsing of their answers.

Pure functions: the admin client sends the requests, on its caller's thread.

Source: DescribeConfigs (KIP-226), IncrementalAlterConfigs (KIP-339), ElectLeaders (KIP-183),
AlterPartitionReassignments (KIP-455), OffsetFetch (KIP-447, KIP-709, KIP-848).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, TypeAlias

from kafka_sink.client.requests.outcomes import CoordinatorKey, CoordinatorRequest, Done, Errors
from kafka_sink.common.errors import ErrorCode, error_for
from kafka_sink.common.model import Node, OffsetAndMetadata, TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import configs, group_offsets, log_offsets, replicas
from kafka_sink.protocol.messages.metadata import GROUP
from kafka_sink.protocol.schema import Struct

#: The resource types "topic" and "broker" of DescribeConfigs.
_TOPIC: Final = 2
_BROKER: Final = 4
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


def describe_topics_configs(names: Sequence[str]) -> configs.DescribeConfigsRequest:
    return configs.DescribeConfigsRequest(
        resources=[configs.DescribeConfigsResource(_TOPIC, name, None) for name in names]
    )


def describe_broker_config(node: Node, name: str) -> configs.DescribeConfigsRequest:
    """The request for a setting of *node*. It must be sent to that node: a broker returns only its own settings."""
    return configs.DescribeConfigsRequest(resources=[configs.DescribeConfigsResource(_BROKER, str(node.id), [name])])


def visible_settings(answer: Struct) -> dict[str, str]:
    """Setting → value, of all resources in *answer*, without those that the brokers do not show."""
    assert isinstance(answer, configs.DescribeConfigsResponse)
    return {each.name: each.value for result in answer.results for each in result.configs if each.value is not None}


def described(result: configs.DescribeConfigsResult) -> dict[str, ConfigValue]:
    return {
        config.name: ConfigValue(config.value, _SOURCES.get(config.config_source, "unknown"))
        for config in result.configs
    }


def alter_topic_configs(
    name: str, settings: Mapping[str, str], delete: Iterable[str], *, validate_only: bool
) -> configs.IncrementalAlterConfigsRequest:
    changes = [configs.IncrementalAlterableConfig(key, _SET, value) for key, value in settings.items()]
    changes += [configs.IncrementalAlterableConfig(key, _DELETE, None) for key in delete]
    return configs.IncrementalAlterConfigsRequest(
        resources=[configs.IncrementalAlterConfigsResource(_TOPIC, name, changes)], validate_only=validate_only
    )


def reassign(
    partition: TopicPartition, order: Sequence[int], timeout_ms: int
) -> replicas.AlterPartitionReassignmentsRequest:
    entry = replicas.ReassignablePartition(partition.partition, list(order))
    return replicas.AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms, topics=[replicas.ReassignableTopic(partition.topic, [entry])]
    )


def elect_preferred(partition: TopicPartition, timeout_ms: int) -> replicas.ElectLeadersRequest:
    topics = [replicas.TopicPartitions(partition.topic, [partition.partition])]
    return replicas.ElectLeadersRequest(election_type=_PREFERRED, topic_partitions=topics, timeout_ms=timeout_ms)


def reassignment_outcomes(response: replicas.AlterPartitionReassignmentsResponse) -> Iterator[Outcome]:
    yield "reassignment", response.error_code, response.error_message
    for topic in response.responses:
        for item in topic.partitions:
            yield f"{topic.name}-{item.partition_index}", item.error_code, item.error_message


def election_outcomes(response: replicas.ElectLeadersResponse) -> Iterator[Outcome]:
    yield "election", response.error_code, None
    for topic in response.replica_election_results:
        for item in topic.partition_result:
            yield f"{topic.topic}-{item.partition_id}", item.error_code, item.error_message


#: The next version identifies topics by id, which this client does not use.
OFFSETS_MAX_VERSION: Final = 9

#: The first version that can wait for transactions, and the first with several groups.
_STABLE_VERSION: Final = 7
_GROUPS_VERSION: Final = 8

Offsets: TypeAlias = dict[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True)
class OffsetFetch(CoordinatorRequest[Offsets]):
    """Fetches the committed offsets of a group; partitions without an offset are omitted.

    :param topics: the partitions of each topic; None for all offsets of the group.
    :param waits_for_transactions: wait for the end of transactions that would change the offsets. Old brokers cannot
        wait and answer at once.
    :param refuses_old_brokers: send no request to a broker that cannot wait.
    """

    api_key = ApiKey.OFFSET_FETCH

    group_id: str
    topics: Mapping[str, Sequence[int]] | None
    waits_for_transactions: bool = True
    refuses_old_brokers: bool = False

    @property
    def coordinator(self) -> CoordinatorKey:
        return GROUP, self.group_id

    @property
    def max_version(self) -> int:
        return OFFSETS_MAX_VERSION

    def build(self, version: int) -> Struct:
        if self.refuses_old_brokers and version < _STABLE_VERSION:
            raise error_for(
                ErrorCode.UNSUPPORTED_VERSION, "OffsetFetch with require_stable needs brokers of version 2.5 or newer"
            )
        require_stable = self.waits_for_transactions and version >= _STABLE_VERSION
        topics = None
        if self.topics is not None:
            topics = [
                group_offsets.OffsetFetchRequestTopic(name=name, partition_indexes=list(indexes))
                for name, indexes in self.topics.items()
            ]
        if version >= _GROUPS_VERSION:
            group = group_offsets.OffsetFetchRequestGroup(group_id=self.group_id, topics=topics)
            return group_offsets.OffsetFetchRequest(groups=[group], require_stable=require_stable)
        return group_offsets.OffsetFetchRequest(group_id=self.group_id, topics=topics, require_stable=require_stable)

    def read(self, body: Struct) -> Done[Offsets] | Errors[Offsets]:
        response = self._expect(body, group_offsets.OffsetFetchResponse)
        answer: Any = response.groups[0] if response.groups else response
        if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            # Some coordinators return this code for a group without offsets, as KIP-848 permits; Kafka's do not.
            return Done({})
        parts = {
            TopicPartition(topic.name, part.partition_index): part
            for topic in answer.topics
            for part in topic.partitions
        }
        codes = [
            ErrorCode.of(code) for code in (answer.error_code, *(part.error_code for part in parts.values())) if code
        ]
        if codes:
            return Errors(codes, f"the offsets of the group {self.group_id!r} could not be fetched")
        return Done(
            {
                partition: OffsetAndMetadata(part.committed_offset, part.metadata or "")
                for partition, part in parts.items()
                if part.committed_offset >= 0
            }
        )


def list_offsets(
    partitions: Sequence[TopicPartition], timestamp: int, timeout_ms: int, *, is_stable: bool = False
) -> log_offsets.ListOffsetsRequest:
    """The request for the offsets at *timestamp* (or a special one) of *partitions*, which are in order; if *is_stable*
    of committed records only."""
    topics = [
        log_offsets.ListOffsetsTopic(
            name=topic,
            partitions=[
                log_offsets.ListOffsetsPartition(partition_index=number, timestamp=timestamp) for _, number in group
            ],
        )
        for topic, group in groupby(partitions, attrgetter("topic"))
    ]
    return log_offsets.ListOffsetsRequest(
        replica_id=-1, isolation_level=1 if is_stable else 0, topics=topics, timeout_ms=timeout_ms
    )


def listed_offsets(answer: log_offsets.ListOffsetsResponse) -> Iterator[tuple[TopicPartition, int, int]]:
    """The partition, the error code and the offset of each part of *answer*."""
    for topic in answer.topics:
        for part in topic.partitions:
            yield TopicPartition(topic.name, part.partition_index), part.error_code, part.offset
