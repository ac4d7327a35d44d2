"""The requests of group members: join, sync, heartbeat, leave.

:class:`GroupCoordinator` calls this module under its lock. It must not block: a member that has to wait is stored with
its answer callback, and :mod:`group_rebalance` answers it later.

Source: apache/kafka ``GroupMetadataManager`` (classic groups); KIP-345 (static members), KIP-394 (member ids),
KIP-814 (a static leader that comes back).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import uuid4

from kafka_sink.broker.coordinator.group_metadata import Group, GroupState, Member
from kafka_sink.broker.coordinator.group_rebalance import GroupRebalance
from kafka_sink.broker.coordinator.group_requests import (
    UNKNOWN_MEMBER,
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

#: A new member cannot send heartbeats while its join waits; its client may have failed and joined again as another one.
NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000


class GroupMembership:
    """*save* stores a group before a change is visible, or raises ApiError; a group has at most *max_size* members."""

    def __init__(self, rebalance: GroupRebalance, max_size: int, save: Callable[[Group], None]) -> None:
        self._rebalance = rebalance
        self._max_size = max_size
        self._save = save

    # --- join --------------------------------------------------------------------------------------------------------

    def join(self, group: Group, request: JoinRequest, answer: JoinAnswer, now_ms: int) -> None:
        """Add a member to the next generation. It is answered when all members have joined, or if it cannot join."""
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            self._refuse_join(answer, UNKNOWN_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not group.supports(request.protocol_type, request.protocols):
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

    def _has_room(self, group: Group, member_id: str) -> bool:
        if group.state is GroupState.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            # Members whose join already waits keep their place; members that rejoin later are rejected.
            return (member is not None and member.join_answer is not None) or group.waiting_joins < self._max_size
        return member is not None or len(group.members) < self._max_size

    def _join_unknown(self, group: Group, request: JoinRequest, answer: JoinAnswer, now_ms: int) -> None:
        member_id = f"{request.client_id if request.instance_id is None else request.instance_id}-{uuid4()}"
        if request.instance_id is not None:
            known = group.static_members.get(request.instance_id)
            if known is None:
                self._add(group, request, member_id, answer, now_ms)
            else:
                self._replace_static(group, group.members[known], request, member_id, answer, now_ms)
        elif request.needs_known_id:
            group.pending_joins[member_id] = now_ms + request.session_timeout_ms
            self._refuse_join(answer, member_id, ErrorCode.MEMBER_ID_REQUIRED)
        else:
            self._add(group, request, member_id, answer, now_ms)

    def _add(self, group: Group, request: JoinRequest, member_id: str, answer: JoinAnswer, now_ms: int) -> None:
        member = Member(
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
        self._rebalance.rebalance_or_complete(group, f"{member_id} joins, reason: {request.reason}", now_ms)

    def _rejoin(self, group: Group, member: Member, request: JoinRequest, answer: JoinAnswer, now_ms: int) -> None:
        if group.state is GroupState.EMPTY:
            self._refuse_join(answer, member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            return
        leads = group.leader == member.member_id
        changed = not member.says_the_same(request.protocols)
        lost_its_answer = group.state is GroupState.COMPLETING_REBALANCE and not changed
        follows_on = group.state is GroupState.STABLE and not changed and not leads
        if lost_its_answer or follows_on:
            members = group.joined_members() if leads else ()
            self._rebalance.answers.append(
                partial(answer, self._rebalance.joined(group, member.member_id, members=members))
            )
            return
        self._update(member, request, answer)
        self._rebalance.rebalance_or_complete(group, f"{member.member_id} rejoins, reason: {request.reason}", now_ms)

    def _update(self, member: Member, request: JoinRequest, answer: JoinAnswer) -> None:
        member.protocols = request.protocols
        member.topics = request.topics
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.join_answer = answer

    def _replace_static(
        self, group: Group, old: Member, request: JoinRequest, member_id: str, answer: JoinAnswer, now_ms: int
    ) -> None:
        leader_before = group.leader
        member = group.replace_static(old, member_id)
        self._rebalance.complete_join(old, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
        self._rebalance.complete_sync(old, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        self._update(member, request, answer)
        member.deadline_ms = now_ms + member.session_timeout_ms
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
            self._go_on_with_static(group, old, member, leader_before, request)
        elif group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            # The old member id may be in the leader's member list or in its assignments.
            self._rebalance.prepare(group, f"instance {member.instance_id} returned as {member_id}", now_ms)
        else:
            self._rebalance.maybe_complete(group, now_ms)

    def _go_on_with_static(
        self, group: Group, old: Member, member: Member, leader_before: str | None, request: JoinRequest
    ) -> None:
        """Replace the member id without a rebalance: the generation continues for the other members."""
        try:
            self._save(group)
        except ApiError as error:
            group.replace_static(member, old.member_id)
            group.members[old.member_id] = old
            self._rebalance.complete_join(member, JoinResult(error.code, UNKNOWN_MEMBER))
            return
        if request.may_skip_assignment:
            leads = group.leader == member.member_id
            members = group.joined_members() if leads else ()
            result = self._rebalance.joined(group, member.member_id, members=members, skip_assignment=leads)
        else:
            # The answer names another member as leader, so this member does not send new assignments.
            result = self._rebalance.joined(group, member.member_id, leader=leader_before)
        self._rebalance.complete_join(member, result)

    # --- sync --------------------------------------------------------------------------------------------------------

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
            self._rebalance.complete_sync(member, self._rebalance.synced(group, member))
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
            self._rebalance.give_assignments(group, {}, error.code, now_ms)
            self._rebalance.prepare(group, "its assignments could not be stored", now_ms)
            return
        self._rebalance.give_assignments(group, assignments, ErrorCode.NONE, now_ms)
        group.transition_to(GroupState.STABLE)

    # --- heartbeat and leave -----------------------------------------------------------------------------------------

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
        outcomes = [self._leave(group, each) for each in leaving]
        if ErrorCode.NONE in outcomes:
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                gone = ", ".join(each.member_id or str(each.instance_id) for each in leaving)
                self._rebalance.prepare(group, f"{gone} left", now_ms)
            else:
                self._rebalance.maybe_complete(group, now_ms)
        return outcomes

    def _leave(self, group: Group, leaving: Leaving) -> ErrorCode:
        member_id = leaving.member_id
        if member_id == UNKNOWN_MEMBER:
            # Administrators specify instance ids, because only the coordinator has the member ids.
            known = group.static_members.get(leaving.instance_id) if leaving.instance_id is not None else None
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = known
        elif member_id in group.pending_joins:
            group.remove(member_id)
            return ErrorCode.NONE
        try:
            member = group.check_member(member_id, leaving.instance_id)
        except ApiError as error:
            return error.code
        self._rebalance.remove(group, member, f"it left, reason: {leaving.reason}")
        return ErrorCode.NONE

    def _refuse_join(self, answer: JoinAnswer, member_id: str, error: ErrorCode) -> None:
        self._rebalance.answers.append(partial(answer, JoinResult(error, member_id)))
