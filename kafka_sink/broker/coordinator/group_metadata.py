"""One classic group: its members' requests, its generation, and its state machine; and a group as requests report it.

Handlers create the requests; :mod:`group_membership` changes the group under the coordinator's lock. This module must
not read a clock, store anything or send answers; the caller does all of that.

Source: apache/kafka ``ClassicGroup``, ``ClassicGroupMember``, ``ClassicGroupState``; KIP-345 (static members).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from kafka_sink.common.bounded import Cursor
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import ApiError, ErrorCode

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


#: The protocol type of consumers; the coordinator can parse the subscriptions in their metadata.
CONSUMER: Final = "consumer"


class GroupState(Enum):
    """The state of a group; the values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


#: The states that may precede each state. Dead is reported only for groups that do not exist.
_MAY_FOLLOW: Final = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY},
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
}


@dataclass(slots=True)
class ClassicMember:
    """One member. *protocols*: protocol name → the member's metadata, in order of preference; *topics*: protocol name →
    the topics in that metadata, None if it cannot be parsed."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Mapping[str, bytes]
    assignment: bytes = b""
    topics: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    #: When its session expires (monotonic).
    deadline_ms: int = FOREVER_MS
    #: Whether it has not been part of a generation yet.
    is_new: bool = False
    #: The callbacks that answer a waiting join or sync.
    join_answer: JoinAnswer | None = None
    sync_answer: SyncAnswer | None = None

    @property
    def waits(self) -> bool:
        """Whether it waits for an answer and cannot send heartbeats. False for a new member: its client may be gone."""
        return not self.is_new and (self.join_answer is not None or self.sync_answer is not None)


@dataclass(slots=True)
class Group:
    """A group. One without a protocol type holds only offsets, of a consumer without membership ("simple")."""

    group_id: str
    #: When the group was created or became empty (wall clock).
    empty_since_ms: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    generation: int = 0
    leader: str | None = None
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.EMPTY
    members: dict[str, ClassicMember] = field(default_factory=dict)
    #: Instance id → member id.
    static_members: dict[str, str] = field(default_factory=dict)
    #: Member ids that were assigned and whose join is awaited → deadline (monotonic).
    pending_joins: dict[str, int] = field(default_factory=dict)
    #: Members of the new generation that have not sent a sync yet.
    pending_syncs: set[str] = field(default_factory=set)
    #: Topics to which members are subscribed; None if that is unknown.
    subscribed_topics: frozenset[str] | None = None
    #: When the rebalance continues without the missing members (monotonic).
    join_deadline_ms: int = FOREVER_MS
    #: When members that have not sent a sync are removed (monotonic).
    sync_deadline_ms: int = FOREVER_MS
    #: The remaining delay of a first rebalance. member_came: whether a member joined during the delay.
    initial_delay_left_ms: int = 0
    member_came: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, and no rebalance is in progress that may add one."""
        return self.state is GroupState.EMPTY

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Add *member*; the first member becomes the leader and determines the group's protocol type."""
        if not self.members:
            self.leader = member.member_id
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.pending_joins.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove a member, or a member id whose join is awaited; a leader is replaced by another member."""
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.discard(member_id)

    def replace_static(self, old: ClassicMember, new_member_id: str) -> ClassicMember:
        """Give a static member the new id *new_member_id*; it keeps the assignment of *old*."""
        assert old.instance_id is not None
        new = ClassicMember(
            new_member_id,
            old.instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
            old.topics,
        )
        # The new entry takes the old one's position, because the order determines the next leader.
        self.members = {
            new_member_id if known == old.member_id else known: new if known == old.member_id else member
            for known, member in self.members.items()
        }
        self.static_members[old.instance_id] = new_member_id
        self.leader = new_member_id if self.leader == old.member_id else self.leader
        self.pending_syncs = {new_member_id if known == old.member_id else known for known in self.pending_syncs}
        return new

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member.

        :raises ApiError: UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID if another process uses the instance id now.
        """
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is not None and known != member_id:
                text = f"instance {instance_id} of group {self.group_id} is {known}, not {member_id}"
                raise ApiError(text, ErrorCode.FENCED_INSTANCE_ID)
            if known is None:
                raise ApiError(f"group {self.group_id} has no instance {instance_id}", ErrorCode.UNKNOWN_MEMBER_ID)
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(f"group {self.group_id} has no member {member_id!r}", ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def check_generation(self, generation: int) -> None:
        """:raises ApiError: ILLEGAL_GENERATION."""
        if generation != self.generation:
            text = f"group {self.group_id} is in generation {self.generation}, not {generation}"
            raise ApiError(text, ErrorCode.ILLEGAL_GENERATION)

    @property
    def all_joined(self) -> bool:
        return not self.pending_joins and all(member.join_answer is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a member with *protocols* has at least one protocol in common with all other members."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in protocols)
        return protocol_type == self.protocol_type and not self._common_protocols().isdisjoint(protocols)

    def select_protocol(self) -> str:
        """The protocol that most members prefer, among those that all members support. The group must have members."""
        common = self._common_protocols()
        votes = Counter(next(name for name in member.protocols if name in common) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def _common_protocols(self) -> set[str]:
        spoken = [set(member.protocols) for member in self.members.values()]
        return set.intersection(*spoken) if spoken else set()

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """All members, as the leader receives them in its join response."""
        name = self.protocol_name or ""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.protocols.get(name, b""))
            for member in self.members.values()
        )

    def transition_to(self, state: GroupState) -> None:
        """Change the state to *state*. :raises AssertionError: if the transition is not allowed, which is a bug."""
        assert self.state in _MAY_FOLLOW[state], f"group {self.group_id} cannot go from {self.state} to {state}"
        self.previous_state, self.state = self.state, state

    @property
    def can_rebalance(self) -> bool:
        return self.state in _MAY_FOLLOW[GroupState.PREPARING_REBALANCE]

    def next_generation(self) -> None:
        """Begin the next generation with the current members; all expected members have joined."""
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.read_subscriptions()
        self.transition_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY)
        self.pending_syncs.clear()

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members are subscribed to *topic*, or are consumers with unknown subscriptions."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER
        return topic in self.subscribed_topics

    def kept_since_ms(self, topic: str, commit_ms: int) -> int | None:
        """The start of the retention time of an offset (wall clock); None while it may not expire."""
        if self.protocol_type is None:
            since_ms = commit_ms
        elif self.state is GroupState.EMPTY:
            since_ms = self.empty_since_ms
        elif self.state is GroupState.STABLE and self.subscribed_topics is not None:
            since_ms = commit_ms
        else:
            return None
        return None if self.is_subscribed_to(topic) else since_ms

    def read_subscriptions(self) -> frozenset[str] | None:
        """The topics that members subscribe to; None if they are not consumers or their metadata cannot be parsed."""
        if self.protocol_type != CONSUMER:
            return None
        name = self.protocol_name or ""
        topics: set[str] = set()
        for member in self.members.values():
            subscribed = member.topics.get(name)
            if subscribed is None:
                return None
            topics |= subscribed
        return frozenset(topics)


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a ConsumerProtocolSubscription, whose first fields are the same in all versions; None if it cannot
    be parsed. Takes about a second for a mebibyte of empty names, so it is called without a lock."""
    cursor = Cursor(metadata, ValueError)
    try:
        cursor.int16()
        return frozenset([cursor.text() for _ in range(cursor.count(2))])
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group of either protocol; *kind* is the protocol of its members, ``classic`` or ``consumer``."""

    group_id: str
    kind: str
    protocol_type: str
    state: str


class MemberDescription(NamedTuple):
    """Description of a member; descriptions do not reference the group, which continues to change."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """Description of a group; *protocol_name* and the members' metadata are set only while the group is stable."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...]


def describe(group: Group) -> GroupSnapshot:
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
    return GroupSnapshot(group.group_id, group.state, group.protocol_type or "", name, members)
