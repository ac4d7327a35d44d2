"""A group as DescribeGroups and ListGroups report it.

:class:`GroupCoordinator` creates descriptions under its lock; handlers read them. They must not reference the group,
which continues to change.

Source: apache/kafka ``ClassicGroup`` and ``ClassicGroupMember``, their ``describe``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kafka_sink.broker.coordinator.group_metadata import Group, GroupState


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group of either protocol; *kind* is the protocol of its members, ``classic`` or ``consumer``."""

    group_id: str
    kind: str
    protocol_type: str
    state: str


class MemberDescription(NamedTuple):
    """Description of a member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """Description of a group; *protocol_name* and the members' metadata are set only while the group is stable."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...]


def describe(group: Group) -> GroupDescription:
    """Describe the current state of *group*."""
    stable = group.state is GroupState.STABLE
    name = group.protocol_name or "" if stable else ""
    members = tuple(
        MemberDescription(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.protocols.get(name, b"") if stable else b"",
            member.assignment,
        )
        for member in group.members.values()
    )
    return GroupDescription(group.group_id, group.state, group.protocol_type or "", name, members)
