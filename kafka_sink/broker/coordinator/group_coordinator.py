"""The group coordinator: group membership and committed offsets.

There is one object for all nodes. Callers are request handlers on any thread, the transaction coordinator when a
transaction has ended, the threads that change the cluster, and the timer's thread when a deadline has passed. One lock
guards all groups; a change is in the file before it is acknowledged. Answers and other callbacks must never run while
the lock is held.

Source: apache/kafka ``GroupCoordinatorService``, ``GroupMetadataManager``, ``OffsetMetadataManager``.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.coordinator.consumer_group import ConsumerGroup
from kafka_sink.broker.coordinator.consumer_groups import ConsumerGroups, ConsumerHeartbeat, HeartbeatResult
from kafka_sink.broker.coordinator.group_membership import GroupMembership
from kafka_sink.broker.coordinator.group_metadata import (
    CONSUMER,
    UNKNOWN_MEMBER,
    Committer,
    Group,
    GroupListing,
    GroupSnapshot,
    GroupState,
    JoinAnswer,
    JoinRequest,
    JoinResult,
    Leaving,
    SyncAnswer,
    SyncRequest,
    SyncResult,
    describe,
    subscribed_topics,
)
from kafka_sink.broker.coordinator.group_offsets import CommittedOffset, GroupOffsets
from kafka_sink.broker.coordinator.group_store import GroupStore, too_large
from kafka_sink.broker.coordinator.store import CoordinatorStore
from kafka_sink.broker.delays import Timer
from kafka_sink.common.clock import FOREVER_MS, Clock
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import TopicPartition

_MINUTE_MS: Final = 60_000
#: Kafka's clients offer three at most; the time to choose one grows with their number.
_MOST_PROTOCOLS: Final = 100


class GroupCoordinator:
    """The groups of a cluster.

    :raises ApiError: COORDINATOR_NOT_AVAILABLE, from every method, if the file cannot be read or written.
    """

    def __init__(
        self, config: BrokerConfig, store: CoordinatorStore, clock: Clock, timer: Timer, cluster: ClusterState
    ) -> None:
        self._config = config
        self._clock = clock
        self._timer = timer
        self._cluster = cluster
        self._log = ContextLogger(__name__, "group coordinator")
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._store = GroupStore(store, config.message_max_bytes)
        self._offsets = GroupOffsets(store)
        self._membership = GroupMembership(config.group_initial_rebalance_delay_ms, self._save)
        self._groups: dict[str, Group] = {}
        #: The groups of the consumer protocol; a group has one protocol only.
        self._consumers = ConsumerGroups(config, self._store, cluster)
        # Group → the node that coordinates it, as of the last call of follow.
        self._placed: dict[str, int] = {}
        self._running: frozenset[int] | None = None
        self._wake_ms = FOREVER_MS
        self.follow()

    def start(self) -> None:
        self._timer.schedule(
            self._clock.monotonic_ms() + self._config.offsets_retention_check_interval_ms, self._expire_offsets
        )

    def follow(self) -> None:
        """Apply a change of the cluster: if nodes started or stopped, groups that other nodes coordinate now are loaded
        again.

        Their pending joins and syncs are answered, so that their members look for the new coordinator, and their
        members have their full session timeout to send a heartbeat.
        """
        with self._locked() as now_ms:
            running = frozenset(self._cluster.nodes)
            if running == self._running:
                return
            for group_id, node_id in list(self._placed.items()):
                if self._cluster.coordinator_for(group_id) != node_id:
                    group = self._forget(group_id)
                    if group is not None:
                        self._membership.resign(group)
            for group in self._store.load():
                if group.group_id not in self._groups:
                    self._groups[group.group_id] = group
                    self._placed[group.group_id] = self._cluster.coordinator_for(group.group_id)
                    for member in group.members.values():
                        member.deadline_ms = now_ms + member.session_timeout_ms
                    self._wake_for(group)
            for group_id in self._consumers.load(now_ms):
                self._placed[group_id] = self._cluster.coordinator_for(group_id)
            self._wake_at(self._consumers.next_deadline_ms())
            self._running = running

    def join(self, request: JoinRequest, answer: JoinAnswer) -> None:
        """*answer* is called, on any thread, when the next generation begins or if the member cannot be part of it."""
        refused = self._too_much(request)
        if refused is None and request.protocol_type == CONSUMER:
            topics = {name: subscribed_topics(metadata) for name, metadata in request.protocols.items()}
            request = replace(request, topics=topics)
        with self._locked() as now_ms:
            try:
                if refused is not None:
                    raise refused
                self._check_id(request.group_id)
                low_ms, high_ms = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
                if not low_ms <= request.session_timeout_ms <= high_ms:
                    text = (
                        f"a session time-out must be between {low_ms} and {high_ms} ms, got "
                        f"{request.session_timeout_ms}"
                    )
                    raise ApiError(text, ErrorCode.INVALID_SESSION_TIMEOUT)
                consumers = self._consumers.get(request.group_id)
                if consumers is not None and not consumers.is_empty:
                    text = f"the members of group {request.group_id} use group.protocol=consumer"
                    raise ApiError(text, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
                group = self._groups.get(request.group_id)
                if group is None and request.member_id != UNKNOWN_MEMBER:
                    raise ApiError("no such group", ErrorCode.UNKNOWN_MEMBER_ID)
                group = group or self._create(request.group_id)
            except ApiError as error:
                result = JoinResult(error.code, request.member_id)
                self._membership.answers.append(lambda: answer(result))
                return
            self._membership.join(group, request, answer, now_ms)
            self._wake_for(group)

    def _too_much(self, request: JoinRequest) -> ApiError | None:
        """The error of a member that offers more protocols than are compared, or whose metadata could not be stored."""
        if len(request.protocols) > _MOST_PROTOCOLS:
            text = f"{len(request.protocols)} protocols are offered, expected {_MOST_PROTOCOLS} at most"
            return ApiError(text, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        size = sum(map(len, request.protocols.values()))
        return None if size <= self._config.message_max_bytes else too_large(request.group_id, size)

    def sync(self, request: SyncRequest, answer: SyncAnswer) -> None:
        """*answer* is called, on any thread, with the member's assignment or with an error."""
        with self._locked() as now_ms:
            try:
                group = self._member_group(request.group_id)
                self._membership.sync(group, request, answer, now_ms)
                self._wake_for(group)
            except ApiError as error:
                result = SyncResult(error.code)
                self._membership.answers.append(lambda: answer(result))

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> None:
        """Extend the session of a member.

        :raises ApiError: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
            REBALANCE_IN_PROGRESS.
        """
        with self._locked() as now_ms:
            group = self._member_group(group_id)
            try:
                self._membership.heartbeat(group, member_id, instance_id, generation, now_ms)
            finally:
                self._wake_for(group)

    def leave(self, group_id: str, leaving: Sequence[Leaving]) -> list[ErrorCode]:
        """Remove members; returns an error code for each. :raises ApiError: INVALID_GROUP_ID."""
        with self._locked() as now_ms:
            self._check_id(group_id)
            consumers = self._consumers.get(group_id)
            if consumers is not None:
                return self._consumers.leave(consumers, leaving)
            group = self._groups.get(group_id)
            if group is None:
                return [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
            outcomes = self._membership.leave(group, leaving, now_ms)
            self._wake_for(group)
            return outcomes

    def consumer_heartbeat(self, request: ConsumerHeartbeat) -> HeartbeatResult:
        """Process a heartbeat of the consumer protocol (KIP-848), with which a member also joins and leaves.

        An empty classic group becomes one of the consumer protocol and keeps its offsets.

        :raises ApiError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID,
            FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID, INVALID_REGULAR_EXPRESSION.
        """
        request.check()
        with self._locked() as now_ms:
            group_id = request.group_id
            classic = self._groups.get(group_id)
            if classic is not None and not classic.is_empty:
                raise ApiError(
                    f"the members of group {group_id} use group.protocol=classic: stop all of them first",
                    ErrorCode.GROUP_ID_NOT_FOUND,
                )
            result = self._consumers.heartbeat(request, now_ms)
            self._groups.pop(group_id, None)
            self._placed[group_id] = self._cluster.coordinator_for(group_id)
            self._wake_at(self._consumers.next_deadline_ms())
            return result

    def commit(
        self,
        group_id: str,
        committer: Committer,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        retention_ms: int | None = None,
        knows_epochs: bool = True,
    ) -> dict[TopicPartition, ErrorCode]:
        """Store committed offsets; returns an error code for each. They are kept for *retention_ms*, if given.

        *knows_epochs*: the client's version of the request is one for both protocols (9 or later).

        :raises ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS;
            STALE_MEMBER_EPOCH, UNSUPPORTED_VERSION for members of the consumer protocol; GROUP_ID_NOT_FOUND
            (ILLEGAL_GENERATION if the client does not know epochs) if a member commits to a group that does not exist.
        """
        with self._locked() as now_ms:
            wall_ms = self._clock.wall_ms()
            # A client may request a retention beyond the largest timestamp.
            expire_ms = min(wall_ms + retention_ms, FOREVER_MS) if retention_ms is not None else None
            consumers = self._consumers.get(group_id)
            if consumers is not None:
                if not (consumers.is_empty or knows_epochs):
                    text = "members of the consumer protocol need version 9 of OffsetCommit"
                    raise ApiError(text, ErrorCode.UNSUPPORTED_VERSION)
                outcomes, accepted = self._judge_for(consumers, committer, offsets, ErrorCode.STALE_MEMBER_EPOCH)
                self._offsets.commit(group_id, accepted, wall_ms, expire_ms=expire_ms)
                return outcomes
            unknown_group = ErrorCode.GROUP_ID_NOT_FOUND if knows_epochs else ErrorCode.ILLEGAL_GENERATION
            group = self._group_to_commit_to(group_id, committer, unknown_group)
            self._check_committer(group, committer)
            if group.state is GroupState.COMPLETING_REBALANCE:
                raise ApiError(f"group {group_id} rebalances", ErrorCode.REBALANCE_IN_PROGRESS)
            member = group.members.get(committer.member_id)
            if member is not None:
                member.deadline_ms = now_ms + member.session_timeout_ms
                self._wake_for(group)
            outcomes, accepted = self._judge(offsets)
            self._offsets.commit(group_id, accepted, wall_ms, expire_ms=expire_ms)
            return outcomes

    def commit_in_transaction(
        self, group_id: str, committer: Committer, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, ErrorCode]:
        """Store pending offsets until :meth:`complete_transaction`; returns an error code for each.

        The caller must have checked with the transaction coordinator that the producer may commit them.

        :raises ApiError: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
        """
        with self._locked():
            self._check_id(group_id)
            consumers = self._consumers.get(group_id)
            group = None
            if consumers is None:
                group = self._group_to_commit_to(group_id, committer, ErrorCode.ILLEGAL_GENERATION)
            anonymous = committer.generation < 0 and not committer.member_id and committer.instance_id is None
            if consumers is not None and not anonymous:
                outcomes, accepted = self._judge_for(consumers, committer, offsets, ErrorCode.ILLEGAL_GENERATION)
            else:
                if group is not None and not anonymous:
                    self._check_committer(group, committer)
                outcomes, accepted = self._judge(offsets)
            self._offsets.commit(group_id, accepted, self._clock.wall_ms(), producer_id=producer_id)
            return outcomes

    def complete_transaction(self, producer_id: int, groups: Collection[str], committed: bool) -> None:
        """Complete a transaction: its pending offsets in *groups* become committed, or are discarded."""
        with self._lock:
            self._offsets.complete(producer_id, groups, committed=committed)

    def fetch(
        self, group_id: str, member_id: str | None = None, member_epoch: int = -1
    ) -> dict[TopicPartition, CommittedOffset]:
        """The committed offsets; empty if the group does not exist.

        :raises ApiError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, for a member of a group of the consumer protocol.
        """
        with self._lock:
            consumers = self._consumers.get(group_id)
            if consumers is not None:
                consumers.check_reader(member_id, member_epoch)
            return self._offsets.fetch(group_id)

    def pending(self, group_id: str) -> frozenset[TopicPartition]:
        """Partitions with offsets of an open transaction."""
        with self._lock:
            return self._offsets.pending(group_id)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Delete offsets of topics to which the group is not subscribed; returns an error code for each.

        :raises ApiError: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP if the group has members whose
            subscriptions are unknown.
        """
        with self._lock:
            self._check_id(group_id)
            group = self._consumers.get(group_id) or self._known(group_id)
            if isinstance(group, Group) and group.protocol_type != CONSUMER and not group.is_empty:
                raise ApiError(f"group {group_id} has members", ErrorCode.NON_EMPTY_GROUP)
            outcomes = {
                partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                if group.is_subscribed_to(partition.topic)
                else ErrorCode.NONE
                for partition in partitions
            }
            self._offsets.delete(group_id, [partition for partition, code in outcomes.items() if not code])
            return outcomes

    def forget_topics(self, topics: Sequence[str]) -> None:
        """Delete all offsets of topics that were deleted."""
        with self._lock:
            self._offsets.forget_topics(topics)

    def describe(self, group_id: str) -> GroupSnapshot:
        """A classic group. :raises ApiError: GROUP_ID_NOT_FOUND."""
        with self._lock:
            if self._consumers.get(group_id) is not None:
                raise ApiError(f"Group {group_id} is not a classic group.", ErrorCode.GROUP_ID_NOT_FOUND)
            return describe(self._known(group_id))

    def describe_consumers(self, group_id: str) -> ConsumerGroup:
        """A group of the consumer protocol, which is not changed afterwards. :raises ApiError: GROUP_ID_NOT_FOUND."""
        with self._lock:
            group = self._consumers.get(group_id)
            if group is None:
                self._known(group_id)
                raise ApiError(f"Group {group_id} is not a consumer group.", ErrorCode.GROUP_ID_NOT_FOUND)
            return group

    def all(self) -> list[GroupListing]:
        with self._lock:
            classic = [
                GroupListing(group.group_id, "classic", group.protocol_type or "", group.state.value)
                for group in self._groups.values()
            ]
            return classic + [
                GroupListing(group.group_id, "consumer", CONSUMER, group.state) for group in self._consumers.all()
            ]

    def delete(self, group_id: str) -> None:
        """Delete a group without members, and its offsets. :raises ApiError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        with self._lock:
            if not (self._consumers.get(group_id) or self._known(group_id)).is_empty:
                raise ApiError(f"group {group_id} has members", ErrorCode.NON_EMPTY_GROUP)
            self._store.delete(group_id)
            self._forget(group_id)

    def _check_id(self, group_id: str) -> None:
        if not group_id:
            raise ApiError("the group id must not be empty", ErrorCode.INVALID_GROUP_ID)

    def _known(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(f"Group {group_id} not found.", ErrorCode.GROUP_ID_NOT_FOUND)
        return group

    def _member_group(self, group_id: str) -> Group:
        """The group of which the caller claims to be a member."""
        self._check_id(group_id)
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(f"there is no group {group_id}", ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    def _group_to_commit_to(self, group_id: str, committer: Committer, unknown_group: ErrorCode) -> Group:
        group = self._groups.get(group_id)
        if group is not None:
            return group
        if committer.generation >= 0:
            raise ApiError(f"there is no group {group_id}", unknown_group)
        return self._create(group_id)

    @staticmethod
    def _check_committer(group: Group, committer: Committer) -> None:
        """Members must commit in the current generation; others may commit only while the group has no members."""
        if committer.generation < 0 and group.state is GroupState.EMPTY:
            return
        group.check_member(committer.member_id, committer.instance_id)
        group.check_generation(committer.generation)

    def _judge(
        self, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> tuple[dict[TopicPartition, ErrorCode], dict[TopicPartition, CommittedOffset]]:
        most = self._config.offset_metadata_max_bytes
        # The option's unit is bytes, but Kafka counts the characters of a Java string: UTF-16 code units.
        accepted = {
            partition: offset
            for partition, offset in offsets.items()
            if len(offset.metadata.encode("utf-16-le", "surrogatepass")) // 2 <= most
        }
        outcomes = {
            partition: ErrorCode.NONE if partition in accepted else ErrorCode.OFFSET_METADATA_TOO_LARGE
            for partition in offsets
        }
        return outcomes, accepted

    def _judge_for(
        self,
        group: ConsumerGroup,
        committer: Committer,
        offsets: Mapping[TopicPartition, CommittedOffset],
        stale: ErrorCode,
    ) -> tuple[dict[TopicPartition, ErrorCode], dict[TopicPartition, CommittedOffset]]:
        """As :meth:`_judge`, for a group of the consumer protocol; *stale* is the error of a wrong epoch."""
        try:
            refused = self._consumers.refused_commits(group, committer, offsets)
        except ApiError as error:
            if error.code is ErrorCode.STALE_MEMBER_EPOCH:
                raise ApiError(str(error), stale) from error
            raise
        outcomes, accepted = self._judge({each: offset for each, offset in offsets.items() if each not in refused})
        return {**outcomes, **dict.fromkeys(refused, stale)}, accepted

    def _create(self, group_id: str) -> Group:
        group = Group(group_id, self._clock.wall_ms())
        self._store.save(group)
        self._consumers.forget(group_id)
        self._groups[group_id] = group
        self._placed[group_id] = self._cluster.coordinator_for(group_id)
        return group

    def _forget(self, group_id: str) -> Group | None:
        """Drop a group, and return it if it is a classic one."""
        del self._placed[group_id]
        self._consumers.forget(group_id)
        return self._groups.pop(group_id, None)

    def _save(self, group: Group) -> None:
        if group.state is GroupState.EMPTY:
            group.empty_since_ms = self._clock.wall_ms()
        self._store.save(group)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Hold the lock and yield the time (monotonic); answers that became due are given after it is released."""
        try:
            with self._lock:
                try:
                    yield self._clock.monotonic_ms()
                finally:
                    due, self._membership.answers[:] = list(self._membership.answers), []
        finally:
            for answer in due:
                try:
                    answer()
                except Exception:
                    # A failure of one client's answer must not affect the answers to other clients.
                    self._log.exception("could not send a response")

    def _wake_for(self, group: Group) -> None:
        """Schedule the timer for the next deadline of *group*, unless it fires earlier anyway."""
        self._wake_at(self._membership.next_deadline_ms(group))

    def _wake_at(self, deadline_ms: int) -> None:
        if deadline_ms < self._wake_ms:
            self._wake_ms = deadline_ms
            self._timer.schedule(deadline_ms, self._wake)

    def _wake(self) -> None:
        with self._locked() as now_ms:
            if now_ms < self._wake_ms:
                # An earlier run has postponed this one.
                return
            self._wake_ms = FOREVER_MS
            next_ms = self._consumers.expire(now_ms)
            for group in list(self._groups.values()):
                next_ms = min(next_ms, self._membership.expire(group, now_ms))
            self._wake_at(next_ms)

    def _expire_offsets(self) -> None:
        retention_ms = self._config.offsets_retention_minutes * _MINUTE_MS
        try:
            with self._lock:
                groups: list[Group | ConsumerGroup] = [*self._groups.values(), *self._consumers.all()]
                for group in groups:
                    nothing_left = self._offsets.expire(group, retention_ms, self._clock.wall_ms())
                    if nothing_left and group.is_empty:
                        self._store.delete(group.group_id)
                        self._forget(group.group_id)
        finally:
            self.start()
