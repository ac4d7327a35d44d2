"""What members ask of a group, and what they are told.

Made by handlers, and answered on any thread. Values and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kafka_sink.common.errors import ErrorCode

#: What a member sends that has no id yet.
UNKNOWN_MEMBER: Final = ""
NO_LEADER: Final = ""


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """What a member says of itself. *needs_known_id*: without an id it is only given one (KIP-394);
    *may_skip_assignment*: a static leader that comes back need not hand in assignments (KIP-814)."""

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


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """*assignments* by member id come from the leader; other members send none."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Leaving:
    """A member that goes, by its id; a static one may be named by its instance id alone."""

    member_id: str
    instance_id: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Committer:
    """Who commits offsets. Generation −1 with an empty member id is somebody who needs no membership."""

    generation: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the leader is told of it; *metadata* is what it says to the chosen protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The answer to a join; everything but *error* and *member_id* means something only when there is no error."""

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
    """The answer to a sync: the member's part."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


JoinAnswer: TypeAlias = Callable[[JoinResult], None]
SyncAnswer: TypeAlias = Callable[[SyncResult], None]
