"""Committed offsets of groups: permissions to commit, commits that wait for a transaction, and their expiration."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_sink.broker.coordinator.group_metadata import Committer
from kafka_sink.broker.coordinator.group_offsets import CommittedOffset
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TopicPartition
from tests.fakes.group_world import GROUP, TOPIC, GroupWorld

ZERO = TopicPartition(TOPIC, 0)
MINUTE_MS = 60_000
CHECK_MS = 600_000
DAY_MS = 24 * 60 * MINUTE_MS
PRODUCER = 4000


@pytest.fixture
def world(tmp_path: Path) -> GroupWorld:
    return GroupWorld(tmp_path)


def refused(world: GroupWorld, committer: Committer) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        world.groups.commit(GROUP, committer, {ZERO: CommittedOffset(1, -1, "")})
    return caught.value.code


def at(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, 3, f"at {offset}")


def test_what_was_committed_outlives_the_process(tmp_path: Path) -> None:
    world = GroupWorld(tmp_path)
    world.commit(0, offset=at(5))
    world.commit(0, 1, offset=at(3))

    assert GroupWorld(tmp_path).groups.fetch(GROUP) == {ZERO: at(3), TopicPartition(TOPIC, 1): at(3)}
    assert GroupWorld(tmp_path).groups.fetch("other") == {}


@pytest.mark.behaviour("Group offsets", "A member commits offsets in its own generation only")
def test_members_commit_in_their_generation(world: GroupWorld) -> None:
    (member,) = world.stable()
    assert member.commit(0) == [ErrorCode.NONE]
    assert refused(world, Committer(member.generation + 1, member.member_id, None)) is ErrorCode.ILLEGAL_GENERATION
    assert refused(world, Committer(member.generation, "nobody", None)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(world, Committer(-1, "", None)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(world, Committer(member.generation, member.member_id, "i")) is ErrorCode.UNKNOWN_MEMBER_ID
    member.join()
    assert refused(world, Committer(member.generation, member.member_id, None)) is ErrorCode.REBALANCE_IN_PROGRESS
    member.sync(member)
    member.leave()
    # An empty group accepts commits without a membership.
    assert world.commit(1) == [ErrorCode.NONE]
    assert refused(world, Committer(0, "", None)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_of_a_group_that_is_not_there_is_refused(world: GroupWorld) -> None:
    assert refused(world, Committer(1, "m", None)) is ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(ApiError) as caught:
        world.groups.commit(GROUP, Committer(1, "m", None), {ZERO: at(1)}, knows_epochs=False)
    assert caught.value.code is ErrorCode.ILLEGAL_GENERATION
    assert world.groups.all() == []


@pytest.mark.behaviour("Group offsets", "The length of an offset's metadata is measured as Kafka measures it")
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x" * 4096, ErrorCode.NONE),
        ("€" * 4096, ErrorCode.NONE),
        ("x" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("\U0001f600" * 2048, ErrorCode.NONE),
        ("\U0001f600" * 2048 + "x", ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_metadata_is_measured_in_units_of_utf_16(world: GroupWorld, text: str, code: ErrorCode) -> None:
    assert world.commit(0, offset=CommittedOffset(1, -1, text)) == [code]
    assert (0 in world.fetched()) == (code is ErrorCode.NONE)


# --- transactions -----------------------------------------------------------------------------------------------------


def test_offsets_of_a_transaction_count_when_it_is_committed(world: GroupWorld) -> None:
    world.commit(0, offset=at(1))
    world.commit_in_transaction(PRODUCER, 0, 1, offset=at(2))
    assert world.fetched() == {0: 1}
    assert world.groups.pending(GROUP) == {ZERO, TopicPartition(TOPIC, 1)}

    world.groups.complete_transaction(PRODUCER, [GROUP], True)

    assert world.groups.fetch(GROUP)[ZERO] == at(2) and world.fetched() == {0: 2, 1: 2}
    assert world.groups.pending(GROUP) == frozenset()
    # A coordinator may write the markers again after a crash.
    world.groups.complete_transaction(PRODUCER, [GROUP], False)
    assert world.fetched() == {0: 2, 1: 2}


def test_offsets_of_an_aborted_transaction_are_dropped(world: GroupWorld) -> None:
    world.commit(0, offset=at(1))
    world.commit_in_transaction(PRODUCER, 0, offset=at(2))
    world.commit_in_transaction(PRODUCER + 1, 0, offset=at(3))
    world.groups.complete_transaction(PRODUCER, [GROUP], False)
    assert world.fetched() == {0: 1} and world.groups.pending(GROUP) == {ZERO}
    world.groups.complete_transaction(PRODUCER + 1, [GROUP], True)
    assert world.fetched() == {0: 3}


def test_only_the_groups_of_the_transaction_are_ended(world: GroupWorld) -> None:
    world.commit_in_transaction(PRODUCER, 0, offset=at(2))
    world.groups.complete_transaction(PRODUCER, ["other"], True)
    assert world.fetched() == {} and world.groups.pending(GROUP) == {ZERO}


@pytest.mark.behaviour(
    "Group offsets", "A later commit without a transaction wins over a pending one of an open transaction"
)
def test_later_plain_commit_wins_over_a_pending_offset(world: GroupWorld) -> None:
    world.commit_in_transaction(PRODUCER, 0, offset=at(2))
    world.commit(0, offset=at(1))
    world.groups.complete_transaction(PRODUCER, [GROUP], True)
    assert world.fetched() == {0: 1} and world.groups.pending(GROUP) == frozenset()


@pytest.mark.behaviour("Group offsets", "Of several transactions the one that wrote last wins, whichever ends last")
def test_transaction_that_wrote_last_wins_whichever_ends_last(world: GroupWorld) -> None:
    world.commit_in_transaction(PRODUCER, 0, offset=at(2))
    world.commit_in_transaction(PRODUCER + 1, 0, offset=at(3))
    world.groups.complete_transaction(PRODUCER + 1, [GROUP], True)
    world.groups.complete_transaction(PRODUCER, [GROUP], True)
    assert world.fetched() == {0: 3}


def test_pending_offsets_outlive_the_process(tmp_path: Path) -> None:
    GroupWorld(tmp_path).commit_in_transaction(PRODUCER, 0, offset=at(2))
    world = GroupWorld(tmp_path)
    assert world.groups.pending(GROUP) == {ZERO} and world.fetched() == {}
    world.groups.complete_transaction(PRODUCER, [GROUP], True)
    assert world.fetched() == {0: 2}


def test_members_commit_in_a_transaction_while_they_rebalance(world: GroupWorld) -> None:
    (member,) = world.stable()
    member.join()

    def commit(committer: Committer) -> None:
        world.groups.commit_in_transaction(GROUP, committer, PRODUCER, {ZERO: at(1)})

    commit(Committer(member.generation, member.member_id, None))
    commit(Committer(-1, "", None))
    for committer, code in (
        (Committer(member.generation + 1, member.member_id, None), ErrorCode.ILLEGAL_GENERATION),
        (Committer(member.generation, "nobody", None), ErrorCode.UNKNOWN_MEMBER_ID),
        (Committer(-1, "nobody", None), ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(ApiError) as caught:
            commit(committer)
        assert caught.value.code is code


# --- expiration -------------------------------------------------------------------------------------------------------


def test_offsets_without_members_expire_after_their_commit(tmp_path: Path) -> None:
    world = GroupWorld(tmp_path, offsets_retention_minutes=60)
    world.commit(0)
    world.wait(50 * MINUTE_MS)
    world.commit(1)
    world.wait(15 * MINUTE_MS)
    assert set(world.fetched()) == {1}
    world.wait(60 * MINUTE_MS)
    # The group consisted only of its offsets.
    assert world.groups.all() == []


def test_retention_of_an_offset_commit_overrides_the_brokers(tmp_path: Path) -> None:
    world = GroupWorld(tmp_path, offsets_retention_minutes=60)
    world.commit(0, retention_ms=DAY_MS)
    world.commit(1, retention_ms=MINUTE_MS)
    world.wait(CHECK_MS)
    assert set(world.fetched()) == {0}
    world.wait(DAY_MS)
    assert world.fetched() == {}


@pytest.mark.behaviour("Group offsets", "Offsets expire when the group has been empty for offsets.retention.minutes")
def test_offsets_of_a_group_expire_when_it_was_empty_for_long(tmp_path: Path) -> None:
    world = GroupWorld(tmp_path, offsets_retention_minutes=60)
    (member,) = world.stable(session_ms=30 * MINUTE_MS)
    member.commit(0)
    for _ in range(10):
        world.wait(20 * MINUTE_MS)
        member.heartbeat()
    assert set(world.fetched()) == {0}

    member.leave()
    world.wait(55 * MINUTE_MS)
    assert set(world.fetched()) == {0}
    world.wait(20 * MINUTE_MS)
    assert world.groups.all() == []


def test_offsets_of_topics_no_member_reads_expire(tmp_path: Path) -> None:
    world = GroupWorld(tmp_path, offsets_retention_minutes=60)
    world.groups.commit(GROUP, Committer(-1, "", None), {TopicPartition("old", 0): at(1), ZERO: at(2)})
    (member,) = world.stable(session_ms=30 * MINUTE_MS)
    for _ in range(4):
        world.wait(20 * MINUTE_MS)
        member.heartbeat()
    assert set(world.groups.fetch(GROUP)) == {ZERO}


def test_offsets_pending_in_a_transaction_do_not_expire(tmp_path: Path) -> None:
    world = GroupWorld(tmp_path, offsets_retention_minutes=60)
    world.commit(0)
    world.commit_in_transaction(PRODUCER, 0)
    world.wait(DAY_MS)
    assert set(world.fetched()) == {0} and len(world.groups.all()) == 1
    world.groups.complete_transaction(PRODUCER, [GROUP], False)
    world.wait(CHECK_MS)
    assert world.groups.all() == []


@pytest.mark.behaviour("Group offsets", "Deleting a topic deletes its offsets")
def test_deleting_a_topic_deletes_its_offsets(world: GroupWorld) -> None:
    other = TopicPartition("other", 0)
    world.commit(0)
    world.commit_in_transaction(PRODUCER, 1)
    world.groups.commit(GROUP, Committer(-1, "", None), {other: at(1)})
    world.groups.forget_topics([TOPIC])
    world.groups.complete_transaction(PRODUCER, [GROUP], True)
    assert set(world.groups.fetch(GROUP)) == {other}


def test_a_group_is_deleted_with_its_offsets_once_it_is_empty(world: GroupWorld) -> None:
    (member,) = world.stable()
    member.commit(0)
    for group_id, code in ((GROUP, ErrorCode.NON_EMPTY_GROUP), ("other", ErrorCode.GROUP_ID_NOT_FOUND)):
        with pytest.raises(ApiError) as caught:
            world.groups.delete(group_id)
        assert caught.value.code is code
    member.leave()
    world.commit_in_transaction(PRODUCER, 1)
    world.groups.delete(GROUP)
    world.groups.complete_transaction(PRODUCER, [GROUP], True)
    assert world.fetched() == {} and world.groups.all() == []


def test_offsets_that_members_read_are_not_deleted(world: GroupWorld) -> None:
    other = TopicPartition("other", 0)
    world.groups.commit(GROUP, Committer(-1, "", None), {ZERO: at(1), other: at(1)})
    (member,) = world.stable()
    assert world.groups.delete_offsets(GROUP, [ZERO, other]) == {
        ZERO: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        other: ErrorCode.NONE,
    }
    assert set(world.groups.fetch(GROUP)) == {ZERO}
    member.leave()
    assert world.groups.delete_offsets(GROUP, [ZERO]) == {ZERO: ErrorCode.NONE}
    assert world.fetched() == {}


@pytest.mark.parametrize("metadata", [b"", b"\0\0\0\0\0\2\0\1t", b"\0\0\0\0\0\1\0\xff\xff", b"\0\0\0\0\0\1\0\1\xff"])
def test_unreadable_subscription_prevents_deleting_offsets(world: GroupWorld, metadata: bytes) -> None:
    world.stable(protocols={"range": metadata})
    assert world.groups.delete_offsets(GROUP, [ZERO]) == {ZERO: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_non_consumer_group_keeps_offsets_while_it_has_members(world: GroupWorld) -> None:
    world.stable(protocol_type="connect")
    with pytest.raises(ApiError) as caught:
        world.groups.delete_offsets(GROUP, [ZERO])
    assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
