"""Membership of classic groups: every state, timeout and refusal, on a clock that only the test advances."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_sink.broker.coordinator import group_coordinator
from kafka_sink.broker.coordinator.group_membership import NEW_MEMBER_TIMEOUT_MS
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TopicPartition
from tests.fakes.group_world import GROUP, REBALANCE_MS, SESSION_MS, TOPIC, GroupWorld
from tests.support.group_script import subscription


@pytest.fixture
def world(tmp_path: Path) -> GroupWorld:
    return GroupWorld(tmp_path)


def refusal(step: object, *arguments: object) -> ErrorCode:
    assert callable(step)
    with pytest.raises(ApiError) as caught:
        step(*arguments)
    return caught.value.code


def test_a_member_is_given_an_id_and_joins_with_it(world: GroupWorld) -> None:
    member = world.member()
    first = member.join()
    assert first is not None and first.error is ErrorCode.MEMBER_ID_REQUIRED
    assert member.member_id.startswith("client-") and world.state() == "Empty"

    joined = member.join()

    assert joined is not None and joined.error is ErrorCode.NONE
    assert (joined.generation, joined.leader, joined.protocol_name) == (1, member.member_id, "range")
    assert [each.member_id for each in joined.members] == [member.member_id]
    assert world.state() == "CompletingRebalance"


def test_before_version_4_a_member_joins_at_once(world: GroupWorld) -> None:
    joined = world.member(modern=False).join()
    assert joined is not None and joined.error is ErrorCode.NONE


def test_unused_member_id_expires_after_session_timeout(world: GroupWorld) -> None:
    (leader,) = world.stable()
    late = world.member()
    late.join()
    # A rebalance also waits for a member whose id was assigned but which has not joined yet.
    leader.join()
    assert world.state() == "PreparingRebalance" and leader.joined is None

    world.wait(SESSION_MS)

    assert leader.joined is not None and leader.generation == 2
    joined = late.join()
    assert joined is not None and joined.error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.behaviour(
    "Group coordinator", "A rebalance ends when the last member has joined and the leader has sent its assignment"
)
def test_rebalance_ends_after_last_join_and_leader_assignment(world: GroupWorld) -> None:
    one, two = world.member(), world.member()
    one.enter()
    one.sync(one)
    two.enter()
    assert two.joined is None and world.state() == "PreparingRebalance"
    assert refusal(one.heartbeat) is ErrorCode.REBALANCE_IN_PROGRESS

    one.join()
    assert (one.generation, two.generation) == (2, 2)
    assert one.joined is not None and {each.member_id for each in one.joined.members} == {one.member_id, two.member_id}
    assert two.joined is not None and two.joined.members == () and two.joined.leader == one.member_id
    assert two.sync() is None and world.state() == "CompletingRebalance"
    one.heartbeat()

    one.sync(one, two)
    assert one.synced is not None and one.synced.assignment == b"0"
    assert two.synced is not None and two.synced.assignment == b"1"
    assert world.state() == "Stable"
    assert {each.member_id: each.assignment for each in world.describe().members} == {
        one.member_id: b"0",
        two.member_id: b"1",
    }


def test_the_protocol_is_the_one_that_most_members_like_best(world: GroupWorld) -> None:
    meta = subscription("t")
    one = world.member(protocols={"a": meta, "b": meta, "c": meta})
    two = world.member(protocols={"c": meta, "b": meta})
    three = world.member(protocols={"d": meta, "c": meta, "b": meta})
    four = world.member(protocols={"a": meta})
    one.enter()
    two.enter()
    three.enter()
    one.join()

    assert one.joined is not None and one.joined.protocol_name == "c"
    refused = four.join()
    assert refused is not None and refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_first_rebalance_waits_for_more_members(tmp_path: Path) -> None:
    world = GroupWorld(tmp_path, group_initial_rebalance_delay_ms=3000)
    one, two = world.member(), world.member()
    one.enter()
    world.wait(2999)
    assert one.joined is None
    two.enter()
    world.wait(1)
    # A member joined during the initial rebalance delay, so the delay was extended.
    assert one.joined is None
    world.wait(3000)

    assert (one.generation, two.generation) == (1, 1)


def test_the_first_rebalance_waits_no_longer_than_members_can(tmp_path: Path) -> None:
    world = GroupWorld(tmp_path, group_initial_rebalance_delay_ms=3000)
    members = [world.member(rebalance_ms=7000) for _ in range(5)]
    for member in members:
        member.enter()
        world.wait(1500)
    assert [member.generation for member in members] == [1] * 5


def test_member_that_does_not_join_in_time_is_left_out(world: GroupWorld) -> None:
    one, two = world.stable(2, session_ms=5 * REBALANCE_MS)
    two.join(protocols={"range": subscription("t", "u")})
    world.wait(REBALANCE_MS - 1)
    assert two.joined is None

    world.wait(1)

    assert two.joined is not None and two.joined.leader == two.member_id and len(two.joined.members) == 1
    assert refusal(one.heartbeat) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.behaviour("Group coordinator", "A member that does not sync in time is left out")
def test_member_that_does_not_sync_in_time_is_left_out(world: GroupWorld) -> None:
    one, two = world.member(session_ms=5 * REBALANCE_MS), world.member(session_ms=5 * REBALANCE_MS)
    one.enter()
    two.enter()
    one.join()
    two.sync()

    world.wait(REBALANCE_MS)

    # The leader was removed; the other member is told to rejoin, and becomes the leader.
    assert two.synced is not None and two.synced.error is ErrorCode.REBALANCE_IN_PROGRESS
    joined = two.join()
    assert joined is not None and joined.leader == two.member_id
    assert refusal(one.heartbeat) is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_without_heartbeat_expires_after_its_session(world: GroupWorld) -> None:
    one, two = world.stable(2)
    world.wait(SESSION_MS - 1)
    one.heartbeat()
    world.wait(1)

    assert world.state() == "PreparingRebalance"
    assert refusal(one.heartbeat) is ErrorCode.REBALANCE_IN_PROGRESS
    assert refusal(two.heartbeat) is ErrorCode.UNKNOWN_MEMBER_ID
    joined = one.join()
    assert joined is not None and len(joined.members) == 1


def test_heartbeats_and_commits_keep_a_member_alive(world: GroupWorld) -> None:
    (member,) = world.stable()
    for _ in range(10):
        world.wait(SESSION_MS - 1)
        member.heartbeat()
        world.wait(SESSION_MS - 1)
        assert member.commit(0) == [ErrorCode.NONE]
    assert world.state() == "Stable"
    world.wait(SESSION_MS)
    assert world.state() == "Empty"


def test_member_waiting_for_a_rebalance_does_not_expire(world: GroupWorld) -> None:
    one, two = world.stable(2, session_ms=2 * SESSION_MS)
    one.session_ms = SESSION_MS
    one.join()
    for _ in range(5):
        world.wait(SESSION_MS)
        assert refusal(two.heartbeat) is ErrorCode.REBALANCE_IN_PROGRESS
    two.join()
    assert (one.generation, two.generation) == (3, 3)


@pytest.mark.behaviour(
    "Group coordinator", "A member that is sent to rejoin begins a new session, when sessions expire together"
)
def test_sessions_expiring_together_answer_a_member_once(world: GroupWorld) -> None:
    one, two = world.member(), world.member()
    one.enter()
    two.enter()
    one.join()
    two.sync()

    # The leader sends no heartbeats: its session expires, and the member that waits for it must not expire with it.
    world.wait(SESSION_MS)

    assert two.synced is not None and two.synced.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert [each.member_id for each in world.describe().members] == [two.member_id]


def test_a_new_member_that_waits_is_forgotten_after_five_minutes(world: GroupWorld) -> None:
    (one,) = world.stable(rebalance_ms=2 * NEW_MEMBER_TIMEOUT_MS, session_ms=2 * NEW_MEMBER_TIMEOUT_MS // 2)
    new = world.member(modern=False)
    assert new.join() is None
    for _ in range(9):
        world.wait(NEW_MEMBER_TIMEOUT_MS // 10)
        refusal(one.heartbeat)
    world.wait(NEW_MEMBER_TIMEOUT_MS // 10)

    assert new.joined is not None and new.joined.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_leave_and_the_others_share(world: GroupWorld) -> None:
    one, two = world.stable(2)
    assert one.leave() == [ErrorCode.NONE]
    assert refusal(two.heartbeat) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = two.join()
    assert joined is not None and joined.leader == two.member_id
    assert two.leave() == [ErrorCode.NONE] and world.state() == "Empty"
    assert two.leave() == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_member_that_leaves_while_it_waits_is_answered(world: GroupWorld) -> None:
    (one,) = world.stable()
    new = world.member()
    new.enter()
    new.leave()
    assert new.joined is not None and new.joined.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert one.join() is not None


@pytest.mark.parametrize(
    ("session_ms", "code"),
    [(99, ErrorCode.INVALID_SESSION_TIMEOUT), (100, ErrorCode.NONE), (201, ErrorCode.INVALID_SESSION_TIMEOUT)],
)
def test_session_timeouts_have_bounds(tmp_path: Path, session_ms: int, code: ErrorCode) -> None:
    world = GroupWorld(tmp_path, group_min_session_timeout_ms=100, group_max_session_timeout_ms=200)
    joined = world.member(session_ms=session_ms, modern=False).join()
    assert joined is not None and joined.error is code


@pytest.mark.behaviour("Group coordinator", "What members say of a group has message.max.bytes at most, as in Kafka")
def test_members_say_no_more_than_can_be_stored(tmp_path: Path) -> None:
    world = GroupWorld(tmp_path, message_max_bytes=1000)
    (leader,) = world.stable(protocols={"range": bytes(400)})
    for protocols, code in (
        ({"range": bytes(1001)}, ErrorCode.UNKNOWN_SERVER_ERROR),
        ({"range": bytes(600), "other": bytes(401)}, ErrorCode.UNKNOWN_SERVER_ERROR),
        ({f"p{number}": b"" for number in range(101)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ):
        refused = world.member().join(protocols=protocols)
        assert refused is not None and refused.error is code
    assert world.state() == "Stable"

    leader.join(protocols={"range": bytes(401)})
    refused_sync = leader.sync(assignments={leader.member_id: bytes(600)})
    assert refused_sync is not None and refused_sync.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert refusal(leader.heartbeat) is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.behaviour("Group coordinator", "Subscriptions are parsed once, when a member joins, and without a lock")
def test_a_subscription_is_parsed_once_and_without_a_lock(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []

    def parse(metadata: bytes) -> frozenset[str]:
        # This call would block forever if this thread held the lock.
        assert world.groups.all() is not None
        parsed.append(metadata)
        return frozenset({TOPIC})

    monkeypatch.setattr(group_coordinator, "subscribed_topics", parse)
    world.stable(3)
    joins = len(parsed)
    assert joins == 2 * 3 + 2
    world.wait(SESSION_MS + 1)
    world.groups.delete_offsets(GROUP, [TopicPartition(TOPIC, 0)])
    assert world.state() == "Empty" and len(parsed) == joins


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": "other", "member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "nobody", "instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_joins_that_are_refused(world: GroupWorld, changes: dict[str, object], code: ErrorCode) -> None:
    world.stable()
    refused = world.member().join(**changes)
    assert refused is not None and refused.error is code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 7}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "other"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_syncs_that_are_refused(world: GroupWorld, changes: dict[str, object], code: ErrorCode) -> None:
    (member,) = world.stable()
    refused = member.sync(**changes)
    assert refused is not None and refused.error is code


@pytest.mark.behaviour("Group coordinator", "A static member that comes back gets its assignment back")
def test_a_static_member_comes_back_to_what_it_had(world: GroupWorld) -> None:
    (member,) = world.stable(instance_id="i")
    again = world.member(instance_id="i")

    joined = again.join()

    assert joined is not None and (joined.error, joined.generation) == (ErrorCode.NONE, 1)
    assert joined.skip_assignment and joined.leader == again.member_id != member.member_id
    synced = again.sync()
    assert synced is not None and synced.assignment == b"0"
    assert refusal(member.heartbeat) is ErrorCode.FENCED_INSTANCE_ID
    assert refusal(member.commit, 0) is ErrorCode.FENCED_INSTANCE_ID
    assert member.leave() == [ErrorCode.FENCED_INSTANCE_ID]


def test_replaced_waiting_static_member_is_fenced(world: GroupWorld) -> None:
    world.stable()
    waiting = world.member(instance_id="i")
    assert waiting.join() is None
    world.member(instance_id="i").join()
    assert waiting.joined is not None and waiting.joined.error is ErrorCode.FENCED_INSTANCE_ID


def test_static_member_replaced_before_sync_causes_rebalance(world: GroupWorld) -> None:
    one, two = world.member(), world.member(instance_id="i")
    one.enter()
    two.enter()
    one.join()
    two.sync()
    assert world.state() == "CompletingRebalance"

    again = world.member(instance_id="i")
    assert again.join() is None

    assert two.synced is not None and two.synced.error is ErrorCode.FENCED_INSTANCE_ID
    assert world.state() == "PreparingRebalance"
    one.join()
    assert again.generation == one.generation == 3


def test_static_member_back_before_its_sync_harms_no_group(world: GroupWorld) -> None:
    leader, lost = world.member(), world.member(instance_id="i")
    leader.enter()
    lost.join()
    leader.join()
    # The process of the static member ends before its SyncGroup, and starts again while the others continue.
    leader.sync(leader, lost)
    assert world.state() == "Stable"
    again = world.member(instance_id="i")
    again.join()
    assert again.sync() is not None
    for _ in range(REBALANCE_MS // SESSION_MS * 3):
        world.wait(SESSION_MS // 2)
        leader.heartbeat()
        again.heartbeat()
    assert (world.state(), again.generation) == ("Stable", leader.generation)
    other = world.member()
    other.join(group_id="others")
    other.join(group_id="others")
    world.wait(2 * SESSION_MS)
    # The member of the other group sent no heartbeat.
    assert world.groups.describe("others").members == ()


def test_static_member_keeps_its_place_after_missed_rebalance(world: GroupWorld) -> None:
    (member,) = world.stable(instance_id="i", session_ms=3 * REBALANCE_MS)
    other = world.member()
    other.enter()
    world.wait(REBALANCE_MS)

    # The static member did not rejoin, but it keeps its place.
    assert other.joined is not None and len(other.joined.members) == 2
    assert other.joined.leader == other.member_id
    assert member.member_id in {each.member_id for each in world.describe().members}


def test_administrator_removes_a_static_member_by_instance_id(world: GroupWorld) -> None:
    world.stable(instance_id="i")
    stranger = world.member(instance_id="i")
    assert stranger.leave() == [ErrorCode.NONE]
    assert world.state() == "Empty"


def test_a_group_and_its_members_outlive_the_process(tmp_path: Path) -> None:
    before = GroupWorld(tmp_path)
    one, _ = before.stable(2)
    described = before.describe()

    world = GroupWorld(tmp_path)

    assert world.describe() == described
    assert world.groups.heartbeat(GROUP, one.member_id, None, one.generation) is None
    world.wait(SESSION_MS)
    # No member rejoined in time.
    assert world.state() == "Empty"
    assert GroupWorld(tmp_path).describe().members == ()


@pytest.mark.behaviour("Group coordinator", "A member is told only what was stored")
def test_assignment_is_sent_only_after_it_was_stored(tmp_path: Path) -> None:
    world = GroupWorld(tmp_path)
    one, two = world.member(), world.member()
    one.enter()
    two.enter()
    one.join()
    two.sync()
    with world.store.transaction() as connection:
        connection.execute("ALTER TABLE groups RENAME TO away")

    one.sync(one, two)

    assert {each.synced.error for each in (one, two) if each.synced} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    with world.store.transaction() as connection:
        connection.execute("ALTER TABLE away RENAME TO groups")
    one.join()
    two.join()
    two.sync()
    one.sync(one, two)
    assert two.synced is not None and two.synced.assignment == b"1"


@pytest.mark.behaviour(
    "Group coordinator", "A group moves with its coordinator, and waiting members are sent to the new one"
)
def test_group_moves_with_its_coordinator_and_redirects_members(tmp_path: Path) -> None:
    world = GroupWorld(tmp_path, nodes=3)
    one, two = world.stable(2)
    two.join(protocols={"range": subscription("t", "u")})
    node = world.cluster.coordinator_for(GROUP)

    world.cluster.node_down(node)

    assert two.joined is not None and two.joined.error is ErrorCode.NOT_COORDINATOR
    # The new coordinator knows the generation that was stored: the previous one.
    assert world.state() == "Stable"
    one.heartbeat()
    other = next(each for each in range(1, 4) if each != node and world.cluster.coordinator_for(GROUP) != each)
    world.cluster.node_down(other)
    assert world.state() == "Stable"
    world.cluster.nodes_up({node: world.listeners(node)})
    one.heartbeat()
