"""The rebalance of a group from one generation to the next, and its deadlines.

This is the part of the state machine that needs no request: :mod:`group_membership` and the coordinator's timer call it
under the coordinator's lock. Answers that are due are collected in :attr:`GroupRebalance.answers` and given after the
lock is released. This module must not block.

Source: apache/kafka ``GroupMetadataManager`` (classic groups).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from kafka_sink.broker.coordinator.group_metadata import Group, GroupState, Member
from kafka_sink.broker.coordinator.group_requests import NO_LEADER, UNKNOWN_MEMBER, JoinedMember, JoinResult, SyncResult
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.log_context import ContextLogger


class GroupRebalance:
    """*save* stores a group before a change is visible, or raises ApiError."""

    def __init__(self, initial_rebalance_delay_ms: int, save: Callable[[Group], None]) -> None:
        self._initial_rebalance_delay_ms = initial_rebalance_delay_ms
        self._save = save
        self._log = ContextLogger(__name__, "")
        #: Answers that are due, in order.
        self.answers: list[Callable[[], None]] = []

    # --- rebalance ---------------------------------------------------------------------------------------------------

    def rebalance_or_complete(self, group: Group, reason: str, now_ms: int) -> None:
        """Start a rebalance after a member joined or changed its metadata, or complete the present one if possible."""
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
        # A first rebalance is delayed (group.initial.rebalance.delay.ms), so that not every new member causes a
        # rebalance.
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
            # Only static members are left and none of them has joined; session timeouts will remove those that are
            # gone.
            group.join_deadline_ms = now_ms + group.rebalance_timeout_ms
            return
        group.next_generation()
        if group.state is GroupState.EMPTY:
            self._save_empty(group)
            return
        for member in group.members.values():
            leads = group.leader == member.member_id
            members = group.joined_members() if leads else ()
            self.complete_join(member, self.joined(group, member.member_id, members=members))
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

    def _save_empty(self, group: Group) -> None:
        try:
            self._save(group)
        except ApiError:
            # The file still has the previous generation; after a restart its members will expire.
            self._log.exception("group %s is empty, but this cannot be stored", group.group_id)

    def give_assignments(self, group: Group, assignments: Mapping[str, bytes], error: ErrorCode, now_ms: int) -> None:
        """Answer all waiting syncs, with the assignment or with *error*."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync_answer is not None:
                result = self.synced(group, member) if error is ErrorCode.NONE else SyncResult(error)
                self.complete_sync(member, result)
                # The deadline is not enforced while a sync waits, so the session starts again.
                member.deadline_ms = now_ms + member.session_timeout_ms

    def remove(self, group: Group, member: Member, why: str) -> None:
        """Remove a member; the caller handles the effect on the other members."""
        self._log.info("%s is removed from group %s: %s", member.member_id, group.group_id, why)
        # If the client is still alive, the error tells it to join as a new member.
        self.complete_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER))
        self.complete_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)

    # --- time --------------------------------------------------------------------------------------------------------

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
        """The next deadline of *group*."""
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
        for member_id in [known for known, until_ms in group.pending_joins.items() if until_ms <= now_ms]:
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

    # --- answers -----------------------------------------------------------------------------------------------------

    def resign(self, group: Group) -> None:
        """Answer all waiting members, because another node coordinates the group now; they retry there."""
        for member in group.members.values():
            self.complete_join(member, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id))
            self.complete_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR))

    def complete_join(self, member: Member, result: JoinResult) -> None:
        """Answer the member's join, if one waits."""
        if member.join_answer is not None:
            self.answers.append(partial(member.join_answer, result))
            member.join_answer = None

    def complete_sync(self, member: Member, result: SyncResult) -> None:
        """Answer the member's sync, if one waits."""
        if member.sync_answer is not None:
            self.answers.append(partial(member.sync_answer, result))
            member.sync_answer = None

    @staticmethod
    def joined(
        group: Group,
        member_id: str,
        *,
        members: tuple[JoinedMember, ...] = (),
        leader: str | None = None,
        skip_assignment: bool = False,
    ) -> JoinResult:
        """The join response for a member of the present generation."""
        return JoinResult(
            ErrorCode.NONE,
            member_id,
            group.generation,
            group.protocol_type,
            group.protocol_name,
            leader or group.leader or NO_LEADER,
            skip_assignment,
            members,
        )

    @staticmethod
    def synced(group: Group, member: Member) -> SyncResult:
        """The sync response for a member: its assignment."""
        return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)
