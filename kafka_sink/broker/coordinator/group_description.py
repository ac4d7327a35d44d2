"""A group as administrators see it.

Made by :class:`GroupCoordinator` under its lock, read by handlers. Must never point into the group, which goes on.

Source: apache/kafka ``ClassicGroup`` and ``ClassicGroupMember``, their ``describe``.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_sink.broker.coordinator.group_metadata import Group, GroupState


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member as administrators see it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as administrators see it; *protocol_name* and what members say are told while it is stable."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...]


def describe(group: Group) -> GroupDescription:
    """What *group* is now."""
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
