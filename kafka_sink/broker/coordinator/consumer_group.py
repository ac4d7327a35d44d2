"""One group of the consumer protocol: its members, their target assignments and their current assignments.

An assignor computes a target for all members, and each member reconciles itself by its heartbeats: it revokes the
partitions outside its target, acknowledges that, and receives the others as soon as no other member owns them. Every
partition of a subscribed topic is assigned to exactly one member that subscribes to it. :mod:`consumer_groups` changes
a group under the coordinator's lock. This module must not read a clock, store anything or send answers.

Source: KIP-848; apache/kafka ``UniformAssignor``, ``RangeAssignor``, ``ConsumerGroup``, ``ConsumerGroupMember``,
``CurrentAssignmentBuilder``, ``TargetAssignmentBuilder``; KIP-1251 (epochs of assigned partitions).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from kafka_sink.broker.cluster.topic_state import TopicState
from kafka_sink.broker.coordinator.group_metadata import Committer
from kafka_sink.common.errors import ApiError, ErrorCode


class TopicIdPartition(NamedTuple):
    """One partition of the topic with this id."""

    topic_id: UUID
    partition: int


Assignment: TypeAlias = frozenset[TopicIdPartition]


@dataclass(frozen=True, slots=True)
class Subscriber:
    """The input of assignors about a member: the ids of its existing topics, and its previous target."""

    topics: frozenset[UUID]
    target: Assignment
    instance_id: str | None


#: Computes the target of each member from the members by id and the number of partitions of each of their topics.
Assignor: TypeAlias = Callable[[Mapping[str, Subscriber], Mapping[UUID, int]], dict[str, Assignment]]


def assign_uniformly(members: Mapping[str, Subscriber], partitions: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Assign numbers of partitions that differ by at most one, if subscriptions allow, without needless moves."""
    held: dict[str, dict[UUID, list[int]]] = {
        member_id: {topic: [] for topic in member.topics} for member_id, member in members.items()
    }
    missing = {topic: set(range(count)) for topic, count in partitions.items()}
    for member_id, member in members.items():
        for topic, partition in sorted(member.target):
            if topic in member.topics and partition in missing[topic]:
                held[member_id][topic].append(partition)
                missing[topic].discard(partition)
    load = {member_id: sum(map(len, topics.values())) for member_id, topics in held.items()}
    subscribers = {
        topic: [member_id for member_id, member in members.items() if topic in member.topics] for topic in partitions
    }

    def give(topic: UUID, partition: int, member_id: str) -> None:
        held[member_id][topic].append(partition)
        load[member_id] += 1

    # Topics with the most partitions for each subscriber come first, because they leave the least choice.
    topics = sorted(subscribers, key=lambda topic: (-partitions[topic] / len(subscribers[topic]), topic))
    for topic in topics:
        for partition in sorted(missing[topic]):
            give(topic, partition, min(subscribers[topic], key=load.__getitem__))
    moved = True
    while moved:
        moved = False
        for topic in topics:
            # Each move makes the sum of the squares of all loads smaller, so this ends.
            while True:
                most = max((each for each in subscribers[topic] if held[each][topic]), key=load.__getitem__)
                least = min(subscribers[topic], key=load.__getitem__)
                if load[most] - load[least] < 2:
                    break
                give(topic, held[most][topic].pop(), least)
                load[most] -= 1
                moved = True
    return _assignments(held)


def assign_ranges(members: Mapping[str, Subscriber], partitions: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Assign a range of each topic to each member, in the order of their ids, so that topics with the same number of
    partitions are divided in the same way. Static members come first, in the order of their instance ids."""
    order = sorted(members, key=lambda each: (members[each].instance_id is None, members[each].instance_id or each))
    subscribers = Counter(topic for member in members.values() for topic in member.topics)
    extra = {topic: partitions[topic] % count for topic, count in subscribers.items()}
    start = Counter[UUID]()
    held: dict[str, dict[UUID, list[int]]] = {}
    for member_id in order:
        held[member_id] = {}
        for topic in members[member_id].topics:
            end = start[topic] + partitions[topic] // subscribers[topic] + (extra[topic] > 0)
            extra[topic] -= 1
            held[member_id][topic] = list(range(start[topic], end))
            start[topic] = end
    return _assignments(held)


def _assignments(held: Mapping[str, Mapping[UUID, list[int]]]) -> dict[str, Assignment]:
    return {
        member_id: frozenset(
            TopicIdPartition(topic, partition) for topic, indexes in topics.items() for partition in indexes
        )
        for member_id, topics in held.items()
    }


#: Assignors by the name that members select (``group.remote.assignor``); the first is the default.
ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
DEFAULT_ASSIGNOR: Final = "uniform"


#: The epoch of a heartbeat to join, to leave, or to leave as a static member that will rejoin.
JOINING: Final = 0
LEAVING: Final = -1
LEAVING_FOR_A_WHILE: Final = -2
#: Partition → the epoch in which it was assigned to the member.
Owned: TypeAlias = Mapping[TopicIdPartition, int]


class MemberState(Enum):
    """The state of a member: it has its target, has to revoke partitions, or waits for partitions of other members."""

    STABLE = "stable"
    UNREVOKED = "unrevoked"
    UNRELEASED = "unreleased"


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member. *topic_regex* is empty without one; *rack_id* is reported and has no effect, as in Kafka.

    The member may use *assigned*; it still owns *revoking* until it acknowledges their revocation.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    assignor: str | None = None
    epoch: int = JOINING
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    revoking: Owned = field(default_factory=dict)

    def check_epoch(self, epoch: int, owned: Assignment | None) -> None:
        """Return if *epoch* is valid in a heartbeat of the member. The previous epoch is valid if the member owns no
        other partitions than the assigned ones: the response with the current epoch may have been lost.

        :raises ApiError: FENCED_MEMBER_EPOCH.
        """
        lost = epoch == self.previous_epoch and owned is not None and owned <= self.assigned.keys()
        if epoch in (JOINING, self.epoch) or (epoch < self.epoch and lost):
            return
        raise ApiError(
            f"member {self.member_id} is in epoch {self.epoch}, not {epoch}; it must abandon all its partitions and "
            "join again",
            ErrorCode.FENCED_MEMBER_EPOCH,
        )


@dataclass(slots=True)
class ConsumerGroup:
    """A group. Its values are replaced and never changed, so that :meth:`copy` is cheap."""

    group_id: str
    epoch: int = 1
    #: The epoch for whose members and topics *targets* were computed.
    assignment_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    #: Member id → its target assignment.
    targets: dict[str, Assignment] = field(default_factory=dict)
    #: The members' patterns → the topics that matched at the last evaluation.
    regexes: dict[str, frozenset[str]] = field(default_factory=dict)
    #: The subscribed topics that existed in *epoch*: id → number of partitions.
    topics: dict[UUID, int] = field(default_factory=dict)

    def copy(self) -> ConsumerGroup:
        return replace(self, members=dict(self.members), targets=dict(self.targets))

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> str:
        """Kafka's name of the group's state."""
        if self.is_empty:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        return "Stable" if all(map(self._is_reconciled, self.members.values())) else "Reconciling"

    @property
    def assignor(self) -> str:
        """The assignor that most members have selected."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return max(votes, key=votes.__getitem__, default=DEFAULT_ASSIGNOR)

    def member(self, member_id: str) -> ConsumerMember:
        """:raises ApiError: UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            text = f"Member {member_id} is not a member of group {self.group_id}."
            raise ApiError(text, ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def instance(self, instance_id: str) -> ConsumerMember | None:
        return next((each for each in self.members.values() if each.instance_id == instance_id), None)

    def static_member(self, instance_id: str, member_id: str) -> ConsumerMember:
        """:raises ApiError: UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID if another process uses the instance id now."""
        member = self.instance(instance_id)
        if member is None:
            raise ApiError(f"Instance id {instance_id} is unknown.", ErrorCode.UNKNOWN_MEMBER_ID)
        if member.member_id != member_id:
            text = f"instance {instance_id} of group {self.group_id} is {member.member_id}, not {member_id}"
            raise ApiError(text, ErrorCode.FENCED_INSTANCE_ID)
        return member

    def replace_static(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Give a static member a new id; it keeps its assignment and its target."""
        del self.members[old.member_id]
        new = self.members[member_id] = replace(old, member_id=member_id, epoch=JOINING, previous_epoch=JOINING)
        self.targets[member_id] = self.targets.pop(old.member_id, frozenset())
        return new

    def forget(self, member_ids: Iterable[str]) -> None:
        """Drop members and their targets; the caller begins a new epoch."""
        for member_id in member_ids:
            del self.members[member_id]
            self.targets.pop(member_id, None)
        used = {member.topic_regex for member in self.members.values()}
        self.regexes = {regex: topics for regex, topics in self.regexes.items() if regex in used}

    def names_of(self, member: ConsumerMember) -> frozenset[str]:
        """The names of the topics that *member* subscribes to; not all of them have to exist."""
        return member.topic_names | self.regexes.get(member.topic_regex, frozenset())

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self.names_of(member) for member in self.members.values())

    def follow_topics(self, existing: Mapping[str, TopicState], *, changed: bool) -> None:
        """Begin a new epoch if the subscriptions have *changed*, or the topics that they name."""
        names = {name for member in self.members.values() for name in self.names_of(member)}
        topics = {existing[name].topic_id: len(existing[name].partitions) for name in sorted(names & existing.keys())}
        if changed or topics != self.topics:
            self.topics = topics
            self.epoch += 1

    def kept_since_ms(self, topic: str, commit_ms: int) -> int | None:
        """The start of the retention time of an offset; None while it may not expire."""
        return None if self.is_subscribed_to(topic) else commit_ms

    def assign(self, existing: Mapping[str, TopicState]) -> None:
        """Compute the targets of the current epoch."""
        subscribers = {
            member_id: Subscriber(
                self._topic_ids(member, existing), self.targets.get(member_id, frozenset()), member.instance_id
            )
            for member_id, member in self.members.items()
        }
        self.targets = ASSIGNORS[self.assignor](subscribers, self.topics)
        self.assignment_epoch = self.epoch

    def reconcile(
        self, member: ConsumerMember, existing: Mapping[str, TopicState], owned: Assignment | None
    ) -> ConsumerMember:
        """*member* one step closer to its target; *owned* is what the client reports that it owns, None = unchanged."""
        if self._is_reconciled(member):
            return member
        topic_ids = self._topic_ids(member, existing)
        waits = member.state is MemberState.UNREVOKED and _has_any(owned, member.revoking)
        # Until the revocation is acknowledged, it receives no partitions, but may lose those of unsubscribed topics.
        wanted = member.assigned.keys() if waits else self.targets.get(member.member_id, frozenset())
        target = {partition for partition in wanted if partition.topic_id in topic_ids}
        kept = {partition: epoch for partition, epoch in member.assigned.items() if partition in target}
        revoking = {partition: epoch for partition, epoch in member.assigned.items() if partition not in target}
        if waits:
            if not revoking:
                return member
            revoking = {**member.revoking, **revoking}
        if revoking and _has_any(owned, revoking):
            return replace(
                member, state=MemberState.UNREVOKED, previous_epoch=member.epoch, assigned=kept, revoking=revoking
            )
        others = (other for other in self.members.values() if other.member_id != member.member_id)
        held = {partition for other in others for partition in (*other.assigned, *other.revoking)}
        free = target - kept.keys() - held
        return replace(
            member,
            state=MemberState.STABLE if len(kept) + len(free) == len(target) else MemberState.UNRELEASED,
            epoch=self.assignment_epoch,
            previous_epoch=member.epoch,
            assigned={**kept, **dict.fromkeys(sorted(free), self.assignment_epoch)},
            revoking={},
        )

    def _topic_ids(self, member: ConsumerMember, existing: Mapping[str, TopicState]) -> frozenset[UUID]:
        ids = (existing[name].topic_id for name in self.names_of(member) & existing.keys())
        return frozenset(topic_id for topic_id in ids if topic_id in self.topics)

    def _is_reconciled(self, member: ConsumerMember) -> bool:
        return member.state is MemberState.STABLE and member.epoch == self.assignment_epoch

    def check_committer(self, committer: Committer) -> ConsumerMember | None:
        """The member that commits; None for a client without membership, which may do so while there are no members.

        :raises ApiError: UNKNOWN_MEMBER_ID; STALE_MEMBER_EPOCH if its epoch is larger than the current one.
        """
        if committer.generation < 0 and not self.members:
            return None
        member = self.member(committer.member_id)
        if committer.generation > member.epoch:
            raise self._stale(member, committer.generation)
        return member

    def check_reader(self, member_id: str | None, epoch: int) -> None:
        """Return if a client may fetch offsets. :raises ApiError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise self._stale(member, epoch)

    @staticmethod
    def _stale(member: ConsumerMember, epoch: int) -> ApiError:
        text = f"member {member.member_id} is in epoch {member.epoch}, not {epoch}"
        return ApiError(text, ErrorCode.STALE_MEMBER_EPOCH)


def may_commit(member: ConsumerMember, epoch: int, partition: TopicIdPartition) -> bool:
    """Whether *member* may commit in *epoch*: the current one, or one since which it has owned the partition."""
    assignment_epoch = member.assigned.get(partition, member.revoking.get(partition))
    return epoch == member.epoch or (assignment_epoch is not None and assignment_epoch <= epoch)


def _has_any(owned: Assignment | None, partitions: Owned) -> bool:
    """Whether the client reports that it owns any of *partitions*; True without a report."""
    return owned is None or not owned.isdisjoint(partitions)
