r"""The groups of the consumer protocol: heartbeats, members that leave or expire, and the validation of commits.

:class:`GroupCoordinator` calls this module under its lock. Every heartbeat is answered at once, so nothing waits here.
A change is made to a copy of the group, which replaces the group when it has been stored.

Regular expressions that clients send have RE2's syntax, as in Kafka, whose RE2/J is a translation of RE2. RE2 itself
matches them (inside Arrow), because some patterns take exponential time in Python's ``re``, which also accepts what RE2
refuses (look-around, references back) and refuses what RE2 accepts (``\z``, ``\pL``, ``[[:alpha:]]``).

Source: KIP-848; apache/kafka ``GroupMetadataManager.consumerGroupHeartbeat``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import uuid4

from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.cluster.topic_state import TopicState
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.coordinator.consumer_group import (
    ASSIGNORS,
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    Assignment,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    TopicIdPartition,
    may_commit,
)
from kafka_sink.broker.coordinator.group_metadata import UNKNOWN_MEMBER, Committer, Leaving
from kafka_sink.broker.coordinator.group_store import GroupStore
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import TopicPartition


def check_pattern(pattern: str) -> None:
    """:raises ValueError: if *pattern* is not valid."""
    # Imported here, because nothing else in the broker needs Arrow and its import would delay the start.
    import pyarrow as pa
    import pyarrow.compute as pc

    pc.match_substring_regex(pa.array([""]), pattern=pattern)


def full_matches(pattern: str, texts: Iterable[str]) -> list[str]:
    """Those of *texts* that *pattern* matches from their beginning to their end.

    :raises ValueError: if the pattern is not valid.
    """
    # Validated without the added brackets, with which an invalid pattern such as "a)|(b" would be valid.
    check_pattern(pattern)
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = list(texts)
    matches = pc.match_substring_regex(pa.array(texts, pa.string()), pattern=rf"\A(?:{pattern})\z").to_pylist()
    return [text for text, is_match in zip(texts, matches, strict=True) if is_match]


#: Kafka's default of group.consumer.regex.refresh.interval.ms: the interval at which patterns are matched again even if
#: the topics are the same, because permissions may have changed.
_REGEX_REFRESH_MS: Final = 600_000
_RETRY_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """A heartbeat of a member. None, and a rebalance time-out of −1, mean "unchanged"."""

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topic_names: frozenset[str] | None
    topic_regex: str | None
    assignor: str | None
    owned: Assignment | None
    client_id: str
    client_host: str
    #: Whether the client may describe a topic that its pattern matches.
    may_describe: Callable[[str], bool]
    #: From version 1 on members choose their ids (KIP-1082).
    names_itself: bool

    def check(self) -> None:
        """Validate the heartbeat by itself; called without the lock, because the first pattern has to load RE2.

        :raises ApiError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION.
        """
        problem = self._problem()
        if problem is not None:
            raise ApiError(problem, ErrorCode.INVALID_REQUEST)
        if self.assignor is not None and self.assignor not in ASSIGNORS:
            raise ApiError(
                f"ServerAssignor {self.assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}.",
                ErrorCode.UNSUPPORTED_ASSIGNOR,
            )
        if self.topic_regex:
            try:
                check_pattern(self.topic_regex)
            except ValueError as error:
                raise ApiError(
                    f"SubscribedTopicRegex {self.topic_regex!r} is not a valid regular expression of RE2: {error}",
                    ErrorCode.INVALID_REGULAR_EXPRESSION,
                ) from error

    def _problem(self) -> str | None:
        has_id = self.names_itself or self.epoch > JOINING or self.epoch == LEAVING
        needed = [("MemberId", self.member_id if has_id else None), ("GroupId", self.group_id)]
        for name, value in (*needed, ("InstanceId", self.instance_id), ("RackId", self.rack_id)):
            if value is not None and not value.strip():
                return f"{name} can't be empty."
        if self.epoch == JOINING:
            if self.rebalance_timeout_ms == -1:
                return "RebalanceTimeoutMs must be provided in first request."
            if self.owned is None or self.owned:
                return "TopicPartitions must be empty when (re-)joining."
            if self.topic_names is None and self.topic_regex is None:
                return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        elif self.epoch == LEAVING_FOR_A_WHILE and self.instance_id is None:
            return "InstanceId can't be null."
        elif self.epoch < LEAVING_FOR_A_WHILE:
            return "MemberEpoch is invalid."
        return None

    @property
    def is_full(self) -> bool:
        """Whether all fields are set, as after an error; the answer then always has the assignment."""
        says_topics = self.topic_names is not None or self.topic_regex is not None
        return self.epoch == JOINING or (self.rebalance_timeout_ms != -1 and says_topics and self.owned is not None)


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The answer to a heartbeat; the assignment is None if it is unchanged."""

    member_id: str
    epoch: int
    assignment: Assignment | None = None


@dataclass(slots=True)
class _Watched:
    """A group and the deadlines of its members (monotonic), which are not stored."""

    group: ConsumerGroup
    #: Member id → the end of its session, and the deadline for its revocation of partitions.
    sessions: dict[str, int] = field(default_factory=dict)
    revocations: dict[str, int] = field(default_factory=dict)
    #: The topics against which patterns were last matched, and the time of the next match.
    matched: Mapping[str, TopicState] | None = None
    match_again_ms: int = 0


class ConsumerGroups:
    """Groups by id.

    :raises ApiError: COORDINATOR_NOT_AVAILABLE, from every method that changes a group, if it cannot be stored.
    """

    def __init__(self, config: BrokerConfig, store: GroupStore, cluster: ClusterState) -> None:
        self._config = config
        self._store = store
        self._cluster = cluster
        self._log = ContextLogger(__name__, "")
        self._watched: dict[str, _Watched] = {}

    def load(self, now_ms: int) -> list[str]:
        """Load the groups that are not known yet, and return their ids; members have their full session time-out."""
        loaded = [group for group in self._store.load_consumers() if group.group_id not in self._watched]
        if any(group.regexes for group in loaded):
            # Loads RE2 now, and not while a heartbeat waits.
            check_pattern("")
        for group in loaded:
            watched = self._watched[group.group_id] = _Watched(group)
            for member in group.members.values():
                watched.sessions[member.member_id] = now_ms + self._config.group_consumer_session_timeout_ms
                self._watch_revocation(watched, member, now_ms)
        return [group.group_id for group in loaded]

    def get(self, group_id: str) -> ConsumerGroup | None:
        watched = self._watched.get(group_id)
        return watched.group if watched is not None else None

    def all(self) -> list[ConsumerGroup]:
        return [watched.group for watched in self._watched.values()]

    def forget(self, group_id: str) -> None:
        """Drop a group that was deleted, or that another node coordinates now."""
        self._watched.pop(group_id, None)

    def heartbeat(self, request: ConsumerHeartbeat, now_ms: int) -> HeartbeatResult:
        """Process a valid heartbeat of a member, which may join, leave or change its subscription.

        :raises ApiError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID,
            UNRELEASED_INSTANCE_ID.
        """
        watched = self._watched.get(request.group_id)
        if watched is None:
            if request.epoch != JOINING:
                raise ApiError(f"Consumer group {request.group_id} not found.", ErrorCode.GROUP_ID_NOT_FOUND)
            watched = _Watched(ConsumerGroup(request.group_id))
        if request.epoch in (LEAVING, LEAVING_FOR_A_WHILE):
            return self._leave(watched, request)
        group = watched.group.copy()
        existing = self._cluster.topics
        before = self._member(group, request)
        member = group.members[before.member_id] = _updated(before, request)
        changed = member.topic_names != before.topic_names or member.topic_regex != before.topic_regex
        matched = self._match(watched, group, existing, request, now_ms, anew=member.topic_regex != before.topic_regex)
        group.follow_topics(existing, changed=changed)
        if group.epoch > group.assignment_epoch:
            group.assign(existing)
        member = group.members[before.member_id] = group.reconcile(member, existing, request.owned)
        self._put(watched, group)
        watched.sessions[member.member_id] = now_ms + self._config.group_consumer_session_timeout_ms
        if matched:
            watched.matched, watched.match_again_ms = existing, now_ms + _REGEX_REFRESH_MS
        if member != before:
            self._watch_revocation(watched, member, now_ms)
        tells = request.is_full or member.assigned.keys() != before.assigned.keys()
        return HeartbeatResult(member.member_id, member.epoch, frozenset(member.assigned) if tells else None)

    def _member(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
        """The member that sent the heartbeat; a new one if it joins."""
        member_id = request.member_id or str(uuid4())
        if request.instance_id is not None:
            if request.epoch == JOINING:
                return self._joining_instance(group, member_id, request.instance_id)
            member = group.static_member(request.instance_id, member_id)
        elif request.epoch == JOINING:
            member = group.members.get(member_id) or ConsumerMember(member_id)
        else:
            member = group.member(member_id)
        member.check_epoch(request.epoch, request.owned)
        return member

    @staticmethod
    def _joining_instance(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
        known = group.instance(instance_id)
        if known is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        if known.epoch != LEAVING_FOR_A_WHILE:
            raise ApiError(
                f"instance {instance_id} of group {group.group_id} is {known.member_id}, which has not left: give each "
                "member a group.instance.id of its own, or wait until its session expires",
                ErrorCode.UNRELEASED_INSTANCE_ID,
            )
        return group.replace_static(known, member_id)

    def _match(
        self,
        watched: _Watched,
        group: ConsumerGroup,
        existing: Mapping[str, TopicState],
        request: ConsumerHeartbeat,
        now_ms: int,
        *,
        anew: bool,
    ) -> bool:
        """Match the members' patterns with the topics if the result may have changed; returns whether it did so."""
        used = {member.topic_regex for member in group.members.values()} - {""}
        due = existing is not watched.matched or now_ms >= watched.match_again_ms
        if not anew and not (used and due):
            return False
        group.regexes = {
            regex: frozenset(filter(request.may_describe, full_matches(regex, existing))) for regex in sorted(used)
        }
        return True

    def _leave(self, watched: _Watched, request: ConsumerHeartbeat) -> HeartbeatResult:
        group = watched.group.copy()
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = group.static_member(request.instance_id, request.member_id)
        if request.epoch == LEAVING_FOR_A_WHILE:
            group.members[member.member_id] = replace(member, epoch=LEAVING_FOR_A_WHILE, revoking={})
            self._put(watched, group)
            watched.revocations.pop(member.member_id, None)
        else:
            self._remove(watched, [member.member_id], "it left")
        return HeartbeatResult(member.member_id, request.epoch)

    def leave(self, group: ConsumerGroup, leaving: Collection[Leaving]) -> list[ErrorCode]:
        """Remove members that an administrator names (LeaveGroup); returns an error code for each."""
        outcomes, gone = [], {}
        for leaving_member in leaving:
            try:
                if leaving_member.instance_id is None:
                    member = group.member(leaving_member.member_id)
                else:
                    known = group.instance(leaving_member.instance_id)
                    only_instance = leaving_member.member_id == UNKNOWN_MEMBER and known is not None
                    member_id = known.member_id if only_instance and known is not None else leaving_member.member_id
                    member = group.static_member(leaving_member.instance_id, member_id)
            except ApiError as error:
                outcomes.append(error.code)
            else:
                gone[member.member_id] = leaving_member.reason
                outcomes.append(ErrorCode.NONE)
        if gone:
            self._remove(self._watched[group.group_id], gone, f"it left, reasons: {set(gone.values())}")
        return outcomes

    def expire(self, now_ms: int) -> int:
        """Remove the members whose deadline has passed; returns the next deadline."""
        for watched in list(self._watched.values()):
            for deadlines, why in (
                (watched.sessions, "it sent no heartbeat in time"),
                (watched.revocations, "it did not give up its partitions within its rebalance time-out"),
            ):
                lost = [member_id for member_id, until_ms in deadlines.items() if until_ms <= now_ms]
                try:
                    if lost:
                        self._remove(watched, lost, why)
                except ApiError:
                    gone = ", ".join(lost)
                    self._log.exception("%s should be removed, but this cannot be stored; it is tried again", gone)
                    deadlines.update(dict.fromkeys(lost, now_ms + _RETRY_MS))
        return self.next_deadline_ms()

    def next_deadline_ms(self) -> int:
        deadlines = (
            min((*watched.sessions.values(), *watched.revocations.values()), default=FOREVER_MS)
            for watched in self._watched.values()
        )
        return min(deadlines, default=FOREVER_MS)

    def _remove(self, watched: _Watched, member_ids: Collection[str], why: str) -> None:
        group = watched.group.copy()
        self._log.info("%s is removed from group %s: %s", ", ".join(member_ids), group.group_id, why)
        group.forget(member_ids)
        group.follow_topics(self._cluster.topics, changed=True)
        self._put(watched, group)

    def _put(self, watched: _Watched, group: ConsumerGroup) -> None:
        """Store *group*, unless nothing changed, and publish it."""
        if group != watched.group or group.group_id not in self._watched:
            self._store.save_consumers(group)
            if group.epoch != watched.group.epoch:
                self._log.info("group %s begins epoch %d", group.group_id, group.epoch)
        watched.group = group
        self._watched[group.group_id] = watched
        for deadlines in (watched.sessions, watched.revocations):
            for member_id in deadlines.keys() - group.members.keys():
                del deadlines[member_id]

    @staticmethod
    def _watch_revocation(watched: _Watched, member: ConsumerMember, now_ms: int) -> None:
        if member.state is MemberState.UNREVOKED and member.epoch != LEAVING_FOR_A_WHILE:
            watched.revocations[member.member_id] = now_ms + member.rebalance_timeout_ms
        else:
            watched.revocations.pop(member.member_id, None)

    def refused_commits(
        self, group: ConsumerGroup, committer: Committer, partitions: Collection[TopicPartition]
    ) -> set[TopicPartition]:
        """Those of *partitions* whose offset a member may not commit: unknown ones and, with an older epoch than its
        current one, those that it does not own or received after that epoch.

        :raises ApiError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
        """
        member = group.check_committer(committer)
        if member is None:
            return set()
        topics = self._cluster.topics
        known = {each: topics[each.topic].topic_id for each in partitions if each.topic in topics}
        allowed = {
            each
            for each, topic_id in known.items()
            if may_commit(member, committer.generation, TopicIdPartition(topic_id, each.partition))
        }
        return set(partitions) - allowed


def _updated(member: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
    """*member* with the fields of its heartbeat."""
    fields: dict[str, Any] = {
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "topic_names": request.topic_names,
        "topic_regex": request.topic_regex,
        "assignor": request.assignor,
        "rebalance_timeout_ms": request.rebalance_timeout_ms if request.rebalance_timeout_ms != -1 else None,
    }
    return replace(
        member,
        client_id=request.client_id,
        client_host=request.client_host,
        **{name: value for name, value in fields.items() if value is not None},
    )
