"""Requests of group members and their results.

Handlers create the requests; answers are given on any thread. Plain values without behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kafka_sink.common.errors import ErrorCode

#: The member id in requests of a member that has not been assigned one yet.
UNKNOWN_MEMBER: Final = ""
NO_LEADER: Final = ""


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """The data of a join request. *needs_known_id*: a member without an id is only assigned one (KIP-394);
    *may_skip_assignment*: a static leader that comes back does not have to send assignments (KIP-814)."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Mapping[str, bytes]
    needs_known_id: bool
    may_skip_assignment: bool
    reason: str
    #: Protocol name → the topics that the member subscribes to, None if that is unknown; the coordinator reads them.
    topics: Mapping[str, frozenset[str] | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """*assignments* by member id are sent by the leader; other members send none."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Leaving:
    """A member that leaves, identified by its member id; a static member may be identified by its instance id alone."""

    member_id: str
    instance_id: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Committer:
    """The client that commits offsets. Generation −1 with an empty member id is a client without membership."""

    generation: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the leader receives it; *metadata* is the member's metadata for the selected protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The result of a join; fields other than *error* and *member_id* are valid only without an error."""

    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_LEADER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The result of a sync: the member's assignment."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


JoinAnswer: TypeAlias = Callable[[JoinResult], None]
SyncAnswer: TypeAlias = Callable[[SyncResult], None]
