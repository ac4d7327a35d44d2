"""The requests of group members (join, sync, heartbeat, leave), and the rebalance from one generation to the next.

:class:`GroupCoordinator` and its timer call this module under its lock. It must not block: a member that has to wait is
stored with its answer callback. Answers that are due are collected in :attr:`GroupMembership.answers` and given after
the lock is released.

Source: apache/kafka ``GroupMetadataManager`` (classic groups); KIP-345 (static members), KIP-394 (member ids),
KIP-814 (a static leader that comes back).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import uuid4

from kafka_sink.broker.coordinator.group_metadata import (
    NO_LEADER,
    UNKNOWN_MEMBER,
    ClassicMember,
    Group,
    GroupState,
    JoinAnswer,
    JoinRequest,
    JoinResult,
    Leaving,
    SyncAnswer,
    SyncRequest,
    SyncResult,
)
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.log_context import ContextLogger

#: A new member cannot send heartbeats while its join waits; its client may have failed and joined again as another one.
NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000


class GroupMembership:
    """*save* stores a group before a change is visible, or raises ApiError."""

    def __init__(self, initial_rebalance_delay_ms: int, save: Callable[[Group], None]) -> None:
        self._initial_rebalance_delay_ms = initial_rebalance_delay_ms
        self._save = save
        self._log = ContextLogger(__name__, "")
        #: Answers that are due, in order.
        self.answers: list[Callable[[], None]] = []

    def rebalance_or_complete(self, group: Group, reason: str, now_ms: int) -> None:
        """Start a rebalance after a member joined or changed its metadata, or complete the current one if possible."""
        if group.can_rebalance:
            self.prepare(group, reason, now_ms)
        else:
            self.maybe_complete(group, now_ms)

    def prepare(self, group: Group, reason: str, now_ms: int) -> None:
        """Start a rebalance: all members have to join again. The *reason* is logged."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.give_assignments(group, {}, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        group.pending_syncs.clear()
        group.sync_deadline_ms = FOREVER_MS
        first = group.state is GroupState.EMPTY
        group.transition_to(GroupState.PREPARING_REBALANCE)
        self._log.info("group %s rebalances after generation %d: %s", group.group_id, group.generation, reason)
        if first:
            delay_ms = self._initial_rebalance_delay_ms
            group.join_deadline_ms = now_ms + delay_ms
            group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            group.member_came = False
            if delay_ms == 0:
                self._complete(group, now_ms)
        elif group.all_joined:
            self._complete(group, now_ms)
        else:
            group.join_deadline_ms = now_ms + group.rebalance_timeout_ms

    def maybe_complete(self, group: Group, now_ms: int) -> None:
        """Begin the next generation if all members have joined."""
        # The first one is delayed (group.initial.rebalance.delay.ms), so that not every new member causes one.
        first = group.previous_state is GroupState.EMPTY
        if group.state is GroupState.PREPARING_REBALANCE and not first and group.all_joined:
            self._complete(group, now_ms)

    def _complete(self, group: Group, now_ms: int) -> None:
        """Begin the next generation with the members that have joined; static members may rejoin later."""
        group.join_deadline_ms = FOREVER_MS
        for member in list(group.members.values()):
            if member.join_answer is None and member.instance_id is None:
                self._log.info("group %s continues without %s", group.group_id, member.member_id)
                group.remove(member.member_id)
        if group.members and not self._elect_leader(group):
            # Only static members are left, of which none has joined; session timeouts remove those that are gone.
            group.join_deadline_ms = now_ms + group.rebalance_timeout_ms
            return
        group.next_generation()
        if group.state is GroupState.EMPTY:
            try:
                self._save(group)
            except ApiError:
                # The file still has the previous generation; after a restart its members will expire.
                self._log.exception("group %s is empty, but this cannot be stored", group.group_id)
            return
        for member in group.members.values():
            self.complete_join(member, self.joined(group, member.member_id))
            member.deadline_ms = now_ms + member.session_timeout_ms
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        group.sync_deadline_ms = now_ms + group.rebalance_timeout_ms

    def _elect_leader(self, group: Group) -> bool:
        """Make sure that the leader has joined; elect another one if necessary. False if no member has joined."""
        if group.leader is not None and group.members[group.leader].join_answer is not None:
            return True
        joined = next((member for member in group.members.values() if member.join_answer is not None), None)
        if joined is not None:
            group.leader = joined.member_id
        return joined is not None

    def give_assignments(self, group: Group, assignments: Mapping[str, bytes], error: ErrorCode, now_ms: int) -> None:
        """Answer all waiting syncs, with the assignment or with *error*."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync_answer is not None:
                result = self.synced(group, member) if error is ErrorCode.NONE else SyncResult(error)
                self.complete_sync(member, result)
                # The deadline is not enforced while a sync waits, so the session starts again.
                member.deadline_ms = now_ms + member.session_timeout_ms

    def remove(self, group: Group, member: ClassicMember, why: str) -> None:
        """Remove a member; the caller handles the effect on the other members."""
        self._log.info("%s is removed from group %s: %s", member.member_id, group.group_id, why)
        # If the client is still alive, the error tells it to join as a new member.
        self.complete_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER))
        self.complete_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)

    def expire(self, group: Group, now_ms: int) -> int:
        """Handle all deadlines that have passed; returns the next deadline."""
        self._expire_members(group, now_ms)
        if group.join_deadline_ms <= now_ms:
            self._expire_join(group, now_ms)
        if group.sync_deadline_ms <= now_ms:
            missing = sorted(group.pending_syncs)
            for member_id in missing:
                self.remove(group, group.members[member_id], "it did not sync in time")
            self.prepare(group, f"{missing} did not sync in time", now_ms)
        return self.next_deadline_ms(group)

    @staticmethod
    def next_deadline_ms(group: Group) -> int:
        members = min((member.deadline_ms for member in group.members.values()), default=FOREVER_MS)
        pending = min(group.pending_joins.values(), default=FOREVER_MS)
        return min(members, pending, group.join_deadline_ms, group.sync_deadline_ms)

    def _expire_join(self, group: Group, now_ms: int) -> None:
        first = group.previous_state is GroupState.EMPTY
        if first and group.member_came and group.initial_delay_left_ms > 0:
            # A member joined during the delay; more may follow.
            group.member_came = False
            delay_ms = min(self._initial_rebalance_delay_ms, group.initial_delay_left_ms)
            group.initial_delay_left_ms = max(group.initial_delay_left_ms - self._initial_rebalance_delay_ms, 0)
            group.join_deadline_ms = now_ms + delay_ms
        else:
            self._complete(group, now_ms)

    def _expire_members(self, group: Group, now_ms: int) -> None:
        for member_id in [joining for joining, until_ms in group.pending_joins.items() if until_ms <= now_ms]:
            group.remove(member_id)
            self._complete_if_all_joined(group, now_ms)
        for member in [member for member in group.members.values() if member.deadline_ms <= now_ms]:
            if member.waits:
                member.deadline_ms = FOREVER_MS
            elif group.members.get(member.member_id) is member and member.deadline_ms <= now_ms:
                # Removing another member may have removed this one, or extended its deadline.
                self.remove(group, member, "it sent no heartbeat in time")
                self._after_removal(group, member.member_id, now_ms)

    def _after_removal(self, group: Group, member_id: str, now_ms: int) -> None:
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare(group, f"{member_id} was removed", now_ms)
        else:
            self._complete_if_all_joined(group, now_ms)

    def _complete_if_all_joined(self, group: Group, now_ms: int) -> None:
        if group.state is GroupState.PREPARING_REBALANCE and group.all_joined:
            self._complete(group, now_ms)

    def resign(self, group: Group) -> None:
        """Answer all waiting members, because another node coordinates the group now; they retry there."""
        for member in group.members.values():
            self.complete_join(member, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id))
            self.complete_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR))

    def complete_join(self, member: ClassicMember, result: JoinResult) -> None:
        """Answer the member's join, if one waits."""
        if member.join_answer is not None:
            self.answers.append(partial(member.join_answer, result))
            member.join_answer = None

    def complete_sync(self, member: ClassicMember, result: SyncResult) -> None:
        """Answer the member's sync, if one waits."""
        if member.sync_answer is not None:
            self.answers.append(partial(member.sync_answer, result))
            member.sync_answer = None

    @staticmethod
    def joined(group: Group, member_id: str, *, leader: str | None = None, skip_assignment: bool = False) -> JoinResult:
        """The join response for a member of the current generation: the leader gets all members, unless another one
        is named as *leader*."""
        leads = leader is None and group.leader == member_id
        return JoinResult(
            ErrorCode.NONE,
            member_id,
            group.generation,
            group.protocol_type,
            group.protocol_name,
            leader or group.leader or NO_LEADER,
            skip_assignment,
            group.joined_members() if leads else (),
        )

    @staticmethod
    def synced(group: Group, member: ClassicMember) -> SyncResult:
        return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)

    def join(self, group: Group, request: JoinRequest, answer: JoinAnswer, now_ms: int) -> None:
        """Add a member to the next generation. It is answered when all members have joined, or if it cannot join."""
        if not group.supports(request.protocol_type, request.protocols):
            self._refuse_join(answer, request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif request.member_id == UNKNOWN_MEMBER:
            self._join_unknown(group, request, answer, now_ms)
        elif request.member_id in group.pending_joins:
            self._add(group, request, request.member_id, answer, now_ms)
        else:
            try:
                member = group.check_member(request.member_id, request.instance_id)
            except ApiError as error:
                self._refuse_join(answer, request.member_id, error.code)
                return
            self._rejoin(group, member, request, answer, now_ms)

    def _join_unknown(self, group: Group, request: JoinRequest, answer: JoinAnswer, now_ms: int) -> None:
        member_id = f"{request.client_id if request.instance_id is None else request.instance_id}-{uuid4()}"
        if request.instance_id is not None:
            old_id = group.static_members.get(request.instance_id)
            if old_id is None:
                self._add(group, request, member_id, answer, now_ms)
            else:
                self._replace_static(group, group.members[old_id], request, member_id, answer, now_ms)
        elif request.needs_known_id:
            group.pending_joins[member_id] = now_ms + request.session_timeout_ms
            self._refuse_join(answer, member_id, ErrorCode.MEMBER_ID_REQUIRED)
        else:
            self._add(group, request, member_id, answer, now_ms)

    def _add(self, group: Group, request: JoinRequest, member_id: str, answer: JoinAnswer, now_ms: int) -> None:
        member = ClassicMember(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            topics=request.topics,
            deadline_ms=now_ms + NEW_MEMBER_TIMEOUT_MS,
            is_new=True,
            join_answer=answer,
        )
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.member_came = True
        group.add(member, request.protocol_type)
        self.rebalance_or_complete(group, f"{member_id} joins, reason: {request.reason}", now_ms)

    def _rejoin(
        self, group: Group, member: ClassicMember, request: JoinRequest, answer: JoinAnswer, now_ms: int
    ) -> None:
        if group.state is GroupState.EMPTY:
            self._refuse_join(answer, member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            return
        leads = group.leader == member.member_id
        changed = list(member.protocols.items()) != list(request.protocols.items())
        lost_its_answer = group.state is GroupState.COMPLETING_REBALANCE and not changed
        follows_on = group.state is GroupState.STABLE and not changed and not leads
        if lost_its_answer or follows_on:
            self.answers.append(partial(answer, self.joined(group, member.member_id)))
            return
        self._update(member, request, answer)
        self.rebalance_or_complete(group, f"{member.member_id} rejoins, reason: {request.reason}", now_ms)

    def _update(self, member: ClassicMember, request: JoinRequest, answer: JoinAnswer) -> None:
        member.protocols = request.protocols
        member.topics = request.topics
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.join_answer = answer

    def _replace_static(
        self, group: Group, old: ClassicMember, request: JoinRequest, member_id: str, answer: JoinAnswer, now_ms: int
    ) -> None:
        leader_before = group.leader
        member = group.replace_static(old, member_id)
        self.complete_join(old, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
        self.complete_sync(old, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        self._update(member, request, answer)
        member.deadline_ms = now_ms + member.session_timeout_ms
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
            self._go_on_with_static(group, old, member, leader_before, request)
        elif group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            # The old member id may be in the leader's member list or in its assignments.
            self.prepare(group, f"instance {member.instance_id} returned as {member_id}", now_ms)
        else:
            self.maybe_complete(group, now_ms)

    def _go_on_with_static(
        self, group: Group, old: ClassicMember, member: ClassicMember, leader_before: str | None, request: JoinRequest
    ) -> None:
        """Replace the member id without a rebalance: the generation continues for the other members."""
        try:
            self._save(group)
        except ApiError as error:
            group.replace_static(member, old.member_id)
            group.members[old.member_id] = old
            self.complete_join(member, JoinResult(error.code, UNKNOWN_MEMBER))
            return
        if request.may_skip_assignment:
            result = self.joined(group, member.member_id, skip_assignment=group.leader == member.member_id)
        else:
            # The answer names another member as leader, so this member does not send new assignments.
            result = self.joined(group, member.member_id, leader=leader_before)
        self.complete_join(member, result)

    def sync(self, group: Group, request: SyncRequest, answer: SyncAnswer, now_ms: int) -> None:
        """Request the member's assignment; the answer is given once the leader has sent the assignments.

        :raises ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
            REBALANCE_IN_PROGRESS.
        """
        member = group.check_member(request.member_id, request.instance_id)
        group.check_generation(request.generation)
        for requested, present in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol_name),
        ):
            if requested is not None and present is not None and requested != present:
                text = f"group {group.group_id} uses {present!r}, not {requested!r}"
                raise ApiError(text, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise ApiError(f"group {group.group_id} rebalances", ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            group.sync_deadline_ms = FOREVER_MS
        member.sync_answer = answer
        if group.state is GroupState.STABLE:
            self.complete_sync(member, self.synced(group, member))
        elif group.leader == member.member_id:
            self._take_assignments(group, request.assignments, now_ms)

    def _take_assignments(self, group: Group, assignments: Mapping[str, bytes], now_ms: int) -> None:
        before = {member_id: member.assignment for member_id, member in group.members.items()}
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        try:
            self._save(group)
        except ApiError as error:
            for member in group.members.values():
                member.assignment = before[member.member_id]
            self.give_assignments(group, {}, error.code, now_ms)
            self.prepare(group, "its assignments could not be stored", now_ms)
            return
        self.give_assignments(group, assignments, ErrorCode.NONE, now_ms)
        group.transition_to(GroupState.STABLE)

    def heartbeat(self, group: Group, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """Extend the session of a member.

        :raises ApiError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION; REBALANCE_IN_PROGRESS if the member
            has to join again.
        """
        member = group.check_member(member_id, instance_id)
        group.check_generation(generation)
        member.deadline_ms = now_ms + member.session_timeout_ms
        if group.state is GroupState.PREPARING_REBALANCE:
            raise ApiError(f"group {group.group_id} rebalances", ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self, group: Group, leaving: Sequence[Leaving], now_ms: int) -> list[ErrorCode]:
        """Remove members; returns an error code for each. The other members rebalance."""
        outcomes = [self._leave(group, item) for item in leaving]
        if ErrorCode.NONE in outcomes:
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                gone = ", ".join(item.member_id or str(item.instance_id) for item in leaving)
                self.prepare(group, f"{gone} left", now_ms)
            else:
                self.maybe_complete(group, now_ms)
        return outcomes

    def _leave(self, group: Group, leaving: Leaving) -> ErrorCode:
        member_id = leaving.member_id
        if member_id == UNKNOWN_MEMBER:
            # Administrators specify instance ids, because only the coordinator has the member ids.
            static_id = group.static_members.get(leaving.instance_id) if leaving.instance_id is not None else None
            if static_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = static_id
        elif member_id in group.pending_joins:
            group.remove(member_id)
            return ErrorCode.NONE
        try:
            member = group.check_member(member_id, leaving.instance_id)
        except ApiError as error:
            return error.code
        self.remove(group, member, f"it left, reason: {leaving.reason}")
        return ErrorCode.NONE

    def _refuse_join(self, answer: JoinAnswer, member_id: str, error: ErrorCode) -> None:
        self.answers.append(partial(answer, JoinResult(error, member_id)))
