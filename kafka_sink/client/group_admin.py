"""Administration of consumer groups: list and describe groups, read and set their committed offsets, delete groups.

Blocking, on the calling thread; every call ends within default.api.timeout.ms. It never joins a group.

Source: ListGroups, DescribeGroups, DeleteGroups, OffsetFetch, OffsetCommit (as an administrator: without member,
generation -1); apache/kafka ``ConsumerProtocol`` for the format of member assignments.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any, Final

from kafka_sink.client.admin import AdminConfig
from kafka_sink.client.blocking import BlockingClient, RequestSpec
from kafka_sink.client.coordinator_requests import CoordinatorRequests, gravest
from kafka_sink.common import config as c
from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import ErrorCode, error_for
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kafka_sink.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafka_sink.protocol.messages.find_coordinator import GROUP
from kafka_sink.protocol.messages.list_groups import ListGroupsRequest
from kafka_sink.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kafka_sink.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from kafka_sink.protocol.schema import Struct

#: From the next versions on, topics are identified by id, and describing a group that does not exist is an error.
_OFFSETS_MAX_VERSION: Final = 9
_DESCRIBE_MAX_VERSION: Final = 5
_DEAD: Final = "Dead"


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


class GroupAdmin:
    """Use it as a context manager. The arguments are those of :class:`~kafka_sink.client.admin.AdminClient`."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        properties: Mapping[str, Any] = MappingProxyType({}),
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        config = c.parse(AdminConfig, {**properties, "bootstrap.servers": bootstrap_servers})
        timeout_ms = config.default_api_timeout_ms
        client_id = config.client_id or "kafkalite-admin"
        self._client = BlockingClient(config, client_id=client_id, timeout_ms=timeout_ms, clock=clock)
        self._requests = CoordinatorRequests(self._client, timeout_ms, clock)

    def list_groups(self) -> dict[str, str]:
        """All groups with their states, sorted by name; the state is empty on brokers before 2.6.

        :raises ApiError: if a broker refused, or cannot be reached.
        """
        found: dict[str, str] = {}
        for node in self._client.fetch_cluster([]).nodes:
            body = self._client.request(node, ApiKey.LIST_GROUPS, lambda _: ListGroupsRequest())
            if body.error_code:
                raise error_for(body.error_code, f"groups of {node}")
            found |= {group.group_id: group.group_state for group in body.groups}
        return dict(sorted(found.items()))

    def describe(self, group_id: str) -> GroupDescription:
        """:raises ApiError: GROUP_ID_NOT_FOUND if the group does not exist; GROUP_AUTHORIZATION_FAILED and the like."""
        spec = RequestSpec(
            ApiKey.DESCRIBE_GROUPS, lambda _: DescribeGroupsRequest(groups=[group_id]), _DESCRIBE_MAX_VERSION
        )

        def code_of(body: Struct) -> ErrorCode:
            assert isinstance(body, DescribeGroupsResponse)
            return ErrorCode.of(body.groups[0].error_code)

        body = self._requests.run(self._requests.ask((GROUP, group_id), spec, code_of))
        assert isinstance(body, DescribeGroupsResponse)
        group = body.groups[0]
        if group.group_state == _DEAD:
            raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        members = tuple(
            GroupMember(each.member_id, each.client_id, each.client_host, _assigned(each.member_assignment))
            for each in group.members
        )
        coordinator = self._requests.coordinator((GROUP, group_id)).id
        return GroupDescription(group_id, group.group_state, group.protocol_data, coordinator, members)

    def offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """The committed offsets of the group by partition. Waits for a transaction that is changing them."""

        def build(version: int) -> Struct:
            if version >= 8:
                groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None)]
                return OffsetFetchRequest(groups=groups, require_stable=True)
            return OffsetFetchRequest(group_id=group_id, topics=None, require_stable=version >= 7)

        def code_of(body: Struct) -> ErrorCode:
            parts = _fetched(body)
            return gravest([parts.error_code, *(part.error_code for each in parts.topics for part in each.partitions)])

        spec = RequestSpec(ApiKey.OFFSET_FETCH, build, _OFFSETS_MAX_VERSION)
        parts = _fetched(self._requests.run(self._requests.ask((GROUP, group_id), spec, code_of)))
        return {
            TopicPartition(each.name, part.partition_index): part.committed_offset
            for each in sorted(parts.topics, key=lambda topic: topic.name)
            for part in sorted(each.partitions, key=lambda part: part.partition_index)
            if part.committed_offset >= 0
        }

    def set_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit *offsets* for the group, which must not have members.

        :raises ApiError: UNKNOWN_MEMBER_ID if the group has members; UNKNOWN_TOPIC_OR_PARTITION.
        """
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in sorted(offsets.items()):
            entry = OffsetCommitRequestPartition(partition, offset, committed_metadata="")
            topics.setdefault(topic, []).append(entry)
        request = OffsetCommitRequest(
            group_id=group_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=entries) for name, entries in topics.items()],
        )

        def code_of(body: Struct) -> ErrorCode:
            assert isinstance(body, OffsetCommitResponse)
            return gravest(part.error_code for each in body.topics for part in each.partitions)

        spec = RequestSpec(ApiKey.OFFSET_COMMIT, lambda _: request, _OFFSETS_MAX_VERSION)
        self._requests.run(self._requests.ask((GROUP, group_id), spec, code_of))

    def delete(self, group_id: str) -> None:
        """Delete a group with its offsets.

        :raises ApiError: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP if the group has members.
        """

        def code_of(body: Struct) -> ErrorCode:
            assert isinstance(body, DeleteGroupsResponse)
            return ErrorCode.of(body.results[0].error_code)

        request = DeleteGroupsRequest(groups_names=[group_id])
        spec = RequestSpec(ApiKey.DELETE_GROUPS, lambda _: request)
        self._requests.run(self._requests.ask((GROUP, group_id), spec, code_of))

    def close(self) -> None:
        """Close all connections. Closing again does nothing."""
        self._client.close()

    def __enter__(self) -> GroupAdmin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _fetched(body: Struct) -> Any:
    """The group's part of the answer, in any version."""
    assert isinstance(body, OffsetFetchResponse)
    return body.groups[0] if body.groups else body


def _assigned(data: bytes) -> frozenset[TopicPartition]:
    """The partitions in a consumer's assignment; empty if the bytes have another format."""
    found: set[TopicPartition] = set()
    try:
        _, topics = struct.unpack_from(">hi", data)
        at = 6
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", data, at)
            name = bytes(data[at + 2 : at + 2 + length]).decode()
            (count,) = struct.unpack_from(">i", data, at + 2 + length)
            at += 6 + length
            found |= {TopicPartition(name, number) for number in struct.unpack_from(f">{count}i", data, at)}
            at += 4 * count
    except (struct.error, UnicodeDecodeError):
        return frozenset()
    return frozenset(found)
