"""Administration of consumer groups: list and describe groups, read and set their committed offsets, delete groups.

Blocking, on the calling thread; every call ends within default.api.timeout.ms. It never joins a group.

Source: ListGroups, DescribeGroups, ConsumerGroupDescribe (KIP-848), DeleteGroups, OffsetFetch, OffsetDelete,
OffsetCommit (as an administrator: without member, generation -1); apache/kafka ``ConsumerProtocol`` for the format of
member assignments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

from kafka_sink.client.blocking.admin import Administration
from kafka_sink.client.blocking.coordinator_requests import CoordinatorRequests
from kafka_sink.client.requests.admin_requests import OFFSETS_MAX_VERSION, OffsetFetch
from kafka_sink.client.requests.outcomes import CoordinatorKey, CoordinatorRequest, Done, Errors, only_one
from kafka_sink.common.bounded import Cursor
from kafka_sink.common.errors import ApiError, ErrorCode, error_for
from kafka_sink.common.model import OffsetAndMetadata, TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import group_admin as m
from kafka_sink.protocol.messages import group_offsets
from kafka_sink.protocol.messages.metadata import GROUP
from kafka_sink.protocol.schema import Struct

#: From the next version on, describing a group that does not exist is an error.
_DESCRIBE_MAX_VERSION: Final = 5
_DEAD: Final = "Dead"
#: The size of a topic without partitions in an assignment: two lengths.
_LEAST_TOPIC_BYTES: Final = 6
_LONGEST_TOPIC_NAME: Final = 249

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member and its assigned partitions (empty unless it is a consumer)."""

    member_id: str
    client_id: str
    host: str
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group; *state* is Kafka's name (Empty, Stable, PreparingRebalance, …)."""

    group_id: str
    state: str
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...]


class GroupAdmin(Administration):
    """Use it as a context manager. Its arguments are those of
    :class:`~kafka_sink.client.blocking.admin.AdminClient`."""

    @cached_property
    def _requests(self) -> CoordinatorRequests:
        return CoordinatorRequests(self._client, self._timeout_ms, self._clock)

    def list_groups(self) -> dict[str, str]:
        """All groups with their states, sorted by name; the state is empty on brokers before 2.6.

        :raises ApiError: if a broker refused, or cannot be reached.
        """
        states: dict[str, str] = {}
        for node in self._client.fetch_cluster([]).nodes:
            body = self._client.request(node, ApiKey.LIST_GROUPS, lambda _: m.ListGroupsRequest())
            if body.error_code:
                raise error_for(body.error_code, f"groups of {node}")
            states |= {group.group_id: group.group_state for group in body.groups}
        return dict(sorted(states.items()))

    def describe(self, group_id: str) -> GroupDescription:
        """:raises ApiError: GROUP_ID_NOT_FOUND if the group does not exist; GROUP_AUTHORIZATION_FAILED and the like."""
        group = self._requests.run(self._requests.ask(_DescribeGroup(group_id)))
        if group.group_state == _DEAD:
            return self._describe_consumers(group_id)
        members = tuple(
            GroupMember(member.member_id, member.client_id, member.client_host, assigned_in(member.member_assignment))
            for member in group.members
        )
        coordinator = self._requests.coordinator((GROUP, group_id)).id
        return GroupDescription(group_id, group.group_state, group.protocol_data, coordinator, members)

    def _describe_consumers(self, group_id: str) -> GroupDescription:
        """A group with group.protocol=consumer, which DescribeGroups reports as Dead."""
        try:
            group = self._requests.run(self._requests.ask(_DescribeConsumers(group_id)))
        except ApiError as error:
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
            raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}") from error
        members = tuple(
            GroupMember(
                member.member_id,
                member.client_id,
                member.client_host,
                frozenset(
                    TopicPartition(topic.topic_name, index)
                    for topic in member.assignment.topic_partitions
                    for index in topic.partitions
                ),
            )
            for member in group.members
        )
        coordinator = self._requests.coordinator((GROUP, group_id)).id
        return GroupDescription(group_id, group.group_state, group.assignor_name, coordinator, members)

    def offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """The committed offsets of the group by partition. Waits for a transaction that is changing them."""
        return {partition: committed.offset for partition, committed in self.committed(group_id).items()}

    def committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """The same, with their committed metadata."""
        offsets = self._requests.run(self._requests.ask(OffsetFetch(group_id, topics=None)))
        return {partition: offsets[partition] for partition in sorted(offsets)}

    def set_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit *offsets* for the group, which must not have members.

        :raises ApiError: UNKNOWN_MEMBER_ID if the group has members; UNKNOWN_TOPIC_OR_PARTITION.
        """
        self._requests.run(self._requests.ask(_OffsetCommit(group_id, offsets)))

    def delete(self, group_id: str) -> None:
        """Delete a group with its offsets.

        :raises ApiError: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP if the group has members.
        """
        self._requests.run(self._requests.ask(_DeleteGroup(group_id)))

    def delete_offsets(self, group_id: str, topic: str) -> int:
        """Delete the offsets that the group has committed for *topic*; return the number of partitions.

        :raises ApiError: GROUP_ID_NOT_FOUND; GROUP_SUBSCRIBED_TO_TOPIC if a member reads the topic.
        """
        partitions = [partition for partition in self.committed(group_id) if partition.topic == topic]
        if partitions:
            self._requests.run(self._requests.ask(_DeleteOffsets(group_id, partitions)))
        return len(partitions)


@dataclass(frozen=True)
class _GroupRequest(CoordinatorRequest[T]):
    group_id: str

    @property
    def coordinator(self) -> CoordinatorKey:
        return GROUP, self.group_id


class _DescribeGroup(_GroupRequest[m.DescribedGroup]):
    api_key = ApiKey.DESCRIBE_GROUPS

    @property
    def max_version(self) -> int:
        return _DESCRIBE_MAX_VERSION

    def build(self, version: int) -> Struct:
        return m.DescribeGroupsRequest(groups=[self.group_id])

    def read(self, body: Struct) -> Done[m.DescribedGroup] | Errors[m.DescribedGroup]:
        group = only_one(self._expect(body, m.DescribeGroupsResponse).groups)
        return self._read_code(group.error_code, group, f"the group {self.group_id!r} could not be described")


class _DescribeConsumers(_GroupRequest[m.DescribedConsumerGroup]):
    api_key = ApiKey.CONSUMER_GROUP_DESCRIBE

    def build(self, version: int) -> Struct:
        return m.ConsumerGroupDescribeRequest(group_ids=[self.group_id], include_authorized_operations=False)

    def read(self, body: Struct) -> Done[m.DescribedConsumerGroup] | Errors[m.DescribedConsumerGroup]:
        group = only_one(self._expect(body, m.ConsumerGroupDescribeResponse).groups)
        return self._read_code(group.error_code, group, f"the group {self.group_id!r} could not be described")


@dataclass(frozen=True)
class _OffsetCommit(_GroupRequest[None]):
    api_key = ApiKey.OFFSET_COMMIT

    offsets: Mapping[TopicPartition, int]

    @property
    def max_version(self) -> int:
        return OFFSETS_MAX_VERSION

    def build(self, version: int) -> Struct:
        topics: dict[str, list[group_offsets.OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            entry = group_offsets.OffsetCommitRequestPartition(partition, offset, committed_metadata="")
            topics.setdefault(topic, []).append(entry)
        return group_offsets.OffsetCommitRequest(
            group_id=self.group_id,
            topics=[
                group_offsets.OffsetCommitRequestTopic(name=name, partitions=entries)
                for name, entries in topics.items()
            ],
        )

    def read(self, body: Struct) -> Done[None] | Errors[None]:
        topics = self._expect(body, group_offsets.OffsetCommitResponse).topics
        codes = [ErrorCode.of(part.error_code) for topic in topics for part in topic.partitions if part.error_code]
        if codes:
            return Errors(codes, f"the offsets of the group {self.group_id!r} could not be set")
        return Done(None)


class _DeleteGroup(_GroupRequest[None]):
    api_key = ApiKey.DELETE_GROUPS

    def build(self, version: int) -> Struct:
        return m.DeleteGroupsRequest(groups_names=[self.group_id])

    def read(self, body: Struct) -> Done[None] | Errors[None]:
        code = only_one(self._expect(body, m.DeleteGroupsResponse).results).error_code
        return self._read_code(code, None, f"the group {self.group_id!r} could not be deleted")


@dataclass(frozen=True)
class _DeleteOffsets(_GroupRequest[None]):
    api_key = ApiKey.OFFSET_DELETE

    places: Sequence[TopicPartition]

    def build(self, version: int) -> Struct:
        topics: dict[str, list[group_offsets.OffsetDeleteRequestPartition]] = {}
        for topic, partition in self.places:
            topics.setdefault(topic, []).append(group_offsets.OffsetDeleteRequestPartition(partition))
        return group_offsets.OffsetDeleteRequest(
            group_id=self.group_id,
            topics=[group_offsets.OffsetDeleteRequestTopic(name, parts) for name, parts in topics.items()],
        )

    def read(self, body: Struct) -> Done[None] | Errors[None]:
        answer = self._expect(body, group_offsets.OffsetDeleteResponse)
        parts = [part.error_code for topic in answer.topics for part in topic.partitions]
        codes = [ErrorCode.of(code) for code in (answer.error_code, *parts) if code]
        if codes:
            return Errors(codes, f"offsets of the group {self.group_id!r} could not be deleted")
        return Done(None)


def assigned_in(data: bytes) -> frozenset[TopicPartition]:
    """The partitions in a consumer's assignment; empty if the bytes have another format."""
    partitions: list[TopicPartition] = []
    cursor = Cursor(data, ValueError)
    try:
        cursor.int16()
        for _ in range(cursor.count(_LEAST_TOPIC_BYTES)):
            topic = cursor.text(_LONGEST_TOPIC_NAME)
            partitions += [TopicPartition(topic, cursor.int32()) for _ in range(cursor.count(4))]
    except ValueError:
        return frozenset()
    return frozenset(partitions)
