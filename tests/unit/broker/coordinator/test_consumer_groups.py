"""Groups with group.protocol=consumer (KIP-848): how members join, receive and revoke partitions, leave and are fenced,
on a clock that only the test advances."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kafka_sink.broker.coordinator.consumer_group import LEAVING, LEAVING_FOR_A_WHILE
from kafka_sink.broker.coordinator.group_metadata import Committer, Leaving
from kafka_sink.broker.coordinator.group_offsets import CommittedOffset
from kafka_sink.broker.coordinator.store import FILE_NAME
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TopicPartition
from tests.fakes.consumer_world import SESSION_MS, Consumer, group_of, settle
from tests.fakes.group_world import GROUP, REBALANCE_MS, GroupWorld
from tests.support.amounts import examples

OFFSET = CommittedOffset(7, -1, "")


@pytest.fixture
def world(tmp_path: Path) -> GroupWorld:
    made = GroupWorld(tmp_path)
    made.cluster.create_topic("t", 4)
    return made


def all_of(topic: str, count: int) -> set[tuple[str, int]]:
    return {(topic, index) for index in range(count)}


@pytest.mark.behaviour("Consumer groups", "A partition is given to a member when nobody else has it any more")
def test_a_member_gets_what_another_one_has_given_up(world: GroupWorld) -> None:
    one, two = Consumer(world, "one", slow=True), Consumer(world, "two")
    joined = one.heartbeat()
    assert (joined.epoch, group_of(world).state, one.partitions) == (2, "Stable", all_of("t", 4))
    # Nothing has changed, so the response has no assignment.
    assert one.heartbeat(topic_names=None, rebalance_timeout_ms=-1, owned=None).assignment is None

    assert (two.heartbeat().epoch, two.owned) == (3, set())
    assert group_of(world).state == "Reconciling"
    told = one.heartbeat(topic_names=None, rebalance_timeout_ms=-1, owned=None)
    # It keeps its epoch until it has revoked two of its partitions.
    assert told.epoch == 2 and told.assignment is not None and len(told.assignment) == 2
    assert one.heartbeat(owned=None).epoch == 2 and two.heartbeat().assignment == frozenset()
    one.give_up()
    assert one.heartbeat().epoch == 3
    assert two.heartbeat().epoch == 3
    assert one.partitions | two.partitions == all_of("t", 4) and len(one.owned) == len(two.owned) == 2
    assert group_of(world).state == "Stable"


def test_members_choose_the_assignor(world: GroupWorld) -> None:
    world.cluster.create_topic("u", 4)
    consumers = [Consumer(world, name, frozenset({"t", "u"}), assignor="range") for name in ("a", "b")]
    for each in consumers:
        each.heartbeat()
    settle(*consumers)
    assert consumers[0].partitions == {("t", 0), ("t", 1), ("u", 0), ("u", 1)}
    assert group_of(world).assignor == "range"
    assert consumers[0].refusal(assignor="sticky") is ErrorCode.UNSUPPORTED_ASSIGNOR


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"member_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"owned": None}, ErrorCode.INVALID_REQUEST),
        ({"topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"epoch": LEAVING_FOR_A_WHILE}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"epoch": LEAVING}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"topic_names": None, "topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"topic_names": None, "topic_regex": "(?=t)t"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_an_impossible_heartbeat_is_refused_and_makes_no_group(
    world: GroupWorld, changes: dict[str, Any], code: ErrorCode
) -> None:
    assert Consumer(world, "one").refusal(**changes) is code
    assert world.groups.all() == []


def test_before_version_1_the_coordinator_gives_ids(world: GroupWorld) -> None:
    one = Consumer(world, "")
    assert one.heartbeat(names_itself=False).member_id
    assert one.refusal(names_itself=False, epoch=2) is ErrorCode.INVALID_REQUEST


def test_wrong_epochs_are_fenced_and_a_lost_answer_is_repeated(world: GroupWorld) -> None:
    one, two = Consumer(world, "one"), Consumer(world, "two")
    one.heartbeat()
    two.heartbeat()
    settle(one, two)
    owned = frozenset(one.owned)
    assert (one.epoch, one.refusal(epoch=9), one.refusal(epoch=1)) == (3, *[ErrorCode.FENCED_MEMBER_EPOCH] * 2)
    # As if the response with epoch 3 had been lost: the client owns only partitions that were assigned to it.
    again = one.heartbeat(epoch=2, owned=owned)
    assert (again.epoch, again.assignment) == (3, owned)
    assert one.refusal(epoch=2, owned=owned | two.owned) is ErrorCode.FENCED_MEMBER_EPOCH
    assert one.refusal(epoch=2, owned=None) is ErrorCode.FENCED_MEMBER_EPOCH
    assert one.refusal(member_id="three") is ErrorCode.UNKNOWN_MEMBER_ID
    # A client that rejoins with its member id receives its assignment again.
    assert one.heartbeat(epoch=0, owned=frozenset()).assignment == owned


@pytest.mark.behaviour(
    "Consumer groups", "A member that is lost, or does not give up its partitions in time, is removed"
)
def test_who_says_nothing_in_time_is_removed(world: GroupWorld) -> None:
    one, two = Consumer(world, "one", slow=True), Consumer(world, "two")
    one.heartbeat()
    world.wait(SESSION_MS - 1)
    one.heartbeat()
    two.heartbeat()
    one.heartbeat()
    waited = 0
    while waited < REBALANCE_MS - 30_000:
        world.wait(30_000)
        waited += 30_000
        # The member is alive, and continues to read the partitions that it has to revoke.
        one.heartbeat(owned=None)
        two.heartbeat()
    world.wait(30_000)
    assert one.refusal(owned=None) is ErrorCode.UNKNOWN_MEMBER_ID
    two.heartbeat()
    assert two.partitions == all_of("t", 4)
    world.wait(SESSION_MS)
    assert two.refusal() is ErrorCode.UNKNOWN_MEMBER_ID
    assert group_of(world).state == "Empty"


@pytest.mark.behaviour("Consumer groups", "A static member that comes back within its session gets what it had")
def test_a_static_member_comes_back(world: GroupWorld) -> None:
    one, two = Consumer(world, "one", instance_id="i"), Consumer(world, "two")
    one.heartbeat()
    two.heartbeat()
    settle(one, two)
    had, epoch = one.partitions, one.epoch
    again = Consumer(world, "again", instance_id="i")
    assert again.refusal() is ErrorCode.UNRELEASED_INSTANCE_ID
    assert again.refusal(epoch=epoch) is ErrorCode.FENCED_INSTANCE_ID
    assert again.refusal(epoch=epoch, instance_id="j") is ErrorCode.UNKNOWN_MEMBER_ID
    assert one.leave(LEAVING_FOR_A_WHILE).epoch == LEAVING_FOR_A_WHILE
    assert two.heartbeat().epoch == epoch

    assert again.heartbeat().epoch == epoch and again.partitions == had
    assert one.refusal(epoch=epoch) is ErrorCode.FENCED_INSTANCE_ID
    assert list(group_of(world).members) == ["two", "again"]

    again.leave(LEAVING_FOR_A_WHILE)
    world.wait(SESSION_MS // 2)
    two.heartbeat()
    world.wait(SESSION_MS // 2)
    settle(two)
    assert two.partitions == all_of("t", 4)


def test_a_static_member_that_leaves_is_removed(world: GroupWorld) -> None:
    one, two = Consumer(world, "one", instance_id="i"), Consumer(world, "two")
    one.heartbeat()
    two.heartbeat()
    one.leave()
    settle(two)
    assert two.partitions == all_of("t", 4)


@pytest.mark.behaviour("Consumer groups", "A pattern follows topics that come and go, and is one of RE2")
def test_a_pattern_follows_the_topics(world: GroupWorld) -> None:
    world.cluster.create_topic("u-1", 1)
    one, two = Consumer(world, "one", None, r"u-\d"), Consumer(world, "two", None, r"\Qu-\E[[:digit:]]")
    one.heartbeat()
    two.heartbeat()
    settle(one, two)
    assert one.partitions | two.partitions == {("u-1", 0)}
    world.cluster.create_topic("u-2", 2)
    settle(one, two)
    assert one.partitions | two.partitions == {("u-1", 0), ("u-2", 0), ("u-2", 1)}
    world.cluster.delete_topics(["u-1"], remove_logs=lambda topics: None)
    settle(one, two)
    assert one.partitions | two.partitions == {("u-2", 0), ("u-2", 1)}
    # A topic that its client may not describe is not assigned to it.
    one.heartbeat(topic_regex="[tu].*", may_describe=lambda topic: topic != "t")
    settle(two)
    assert group_of(world).regexes["[tu].*"] == {"u-2"}
    # Permissions are checked again periodically, even if the topics have not changed.
    for _ in range(20):
        world.wait(SESSION_MS - 1)
        one.heartbeat(topic_regex=None)
        two.heartbeat()
    assert group_of(world).regexes["[tu].*"] == {"t", "u-2"}
    one.heartbeat(topic_regex="", topic_names=frozenset({"t"}))
    assert list(group_of(world).regexes) == [r"\Qu-\E[[:digit:]]"]


def test_topics_grow_and_come_later(world: GroupWorld) -> None:
    one = Consumer(world, "one", frozenset({"t", "later"}))
    one.heartbeat()
    world.cluster.add_partitions("t", 6)
    world.cluster.create_topic("later", 1)
    one.heartbeat(topic_names=None)
    assert one.partitions == all_of("t", 6) | {("later", 0)}
    one.heartbeat(topic_names=frozenset({"later"}))
    assert one.partitions == {("later", 0)}


def test_a_member_that_waits_may_want_still_less(world: GroupWorld) -> None:
    world.cluster.create_topic("u", 4)
    one, two = Consumer(world, "one", frozenset({"t", "u"}), slow=True), Consumer(world, "two")
    one.heartbeat()
    two.heartbeat()
    one.heartbeat()
    assert {topic for topic, _ in one.partitions} == {"t", "u"}
    left = one.heartbeat(topic_names=frozenset({"u"})).assignment
    assert left is not None and {each.topic_id for each in left} == {world.cluster.topics["u"].topic_id}
    one.give_up()
    settle(one, two)
    assert (one.partitions, two.partitions) == (all_of("u", 4), all_of("t", 4))


@pytest.mark.behaviour("Consumer groups", "What the members of a group subscribe to has message.max.bytes at most")
def test_members_subscribe_to_no_more_than_can_be_stored(tmp_path: Path) -> None:
    world = GroupWorld(tmp_path, message_max_bytes=1000)
    Consumer(world, "one", frozenset({"t" * 600})).heartbeat()
    two = Consumer(world, "two", frozenset({"u" * 401}))
    assert two.refusal() is ErrorCode.UNKNOWN_SERVER_ERROR
    assert group_of(world).members.keys() == {"one"}
    two.topics, two.regex = frozenset(), "r" * 401
    assert two.refusal() is ErrorCode.UNKNOWN_SERVER_ERROR
    two.regex = "r" * 400
    assert two.heartbeat().epoch > 0


# --- offsets ----------------------------------------------------------------------------------------------------------


def commit(world: GroupWorld, member_id: str, epoch: int, partition: int, **says: Any) -> ErrorCode:
    asked = {TopicPartition("t", partition): OFFSET}
    try:
        (code,) = world.groups.commit(GROUP, Committer(epoch, member_id, None), asked, **says).values()
    except ApiError as error:
        return error.code
    return code


@pytest.mark.behaviour("Consumer groups", "A member commits what it has had since the epoch it names, and nothing else")
def test_who_may_commit_and_read_offsets(world: GroupWorld) -> None:
    one, two = Consumer(world, "one"), Consumer(world, "two")
    one.heartbeat()
    two.heartbeat()
    settle(one, two)
    (mine, _), (other, _) = (sorted(each.partition for each in client.owned) for client in (one, two))
    assert commit(world, "one", 3, mine) is ErrorCode.NONE
    # It has owned this partition since epoch 2; the other one was never assigned to it, or only in epoch 3.
    assert commit(world, "one", 2, mine) is ErrorCode.NONE
    assert commit(world, "one", 2, other) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(world, "two", 2, other) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(world, "one", 4, mine) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(world, "three", 3, mine) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, "", -1, mine) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, "one", 3, mine, knows_epochs=False) is ErrorCode.UNSUPPORTED_VERSION

    committed = world.groups.fetch(GROUP)
    assert world.groups.fetch(GROUP, "one", 3) == committed == {TopicPartition("t", mine): OFFSET}
    for member_id, epoch, code in (
        ("one", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("three", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 3, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(ApiError) as caught:
            world.groups.fetch(GROUP, member_id, epoch)
        assert caught.value.code is code

    one.leave()
    two.leave()
    assert commit(world, "", -1, 0, knows_epochs=False) is ErrorCode.NONE


def test_a_transaction_commits_in_the_members_epoch(world: GroupWorld) -> None:
    one = Consumer(world, "one")
    one.heartbeat()
    asked = {TopicPartition("t", 0): OFFSET}
    for committer, code in (
        (Committer(3, "one", None), ErrorCode.ILLEGAL_GENERATION),
        (Committer(2, "two", None), ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(ApiError) as caught:
            world.groups.commit_in_transaction(GROUP, committer, 1, asked)
        assert caught.value.code is code
    for committer in (Committer(2, "one", None), Committer(-1, "", None)):
        assert list(world.groups.commit_in_transaction(GROUP, committer, 1, asked).values()) == [ErrorCode.NONE]


def test_offsets_expire_and_an_empty_group_with_them(tmp_path: Path) -> None:
    world = GroupWorld(tmp_path, offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000)
    world.cluster.create_topic("t", 1)
    one = Consumer(world, "one")
    one.heartbeat()
    assert commit(world, "one", 2, 0) is ErrorCode.NONE
    for _ in range(4):
        world.wait(SESSION_MS - 1)
        one.heartbeat()
    assert world.groups.fetch(GROUP) and world.groups.delete_offsets(GROUP, [TopicPartition("t", 0)]) == {
        TopicPartition("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    }
    one.leave()
    world.wait(2000)
    assert world.groups.fetch(GROUP) == {} and world.groups.all() == []


# --- both group protocols ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour(
    "Consumer groups", "An empty group changes its protocol with its next member and keeps its offsets"
)
def test_an_empty_group_changes_its_protocol(world: GroupWorld) -> None:
    (old,) = world.stable()
    one = Consumer(world, "one")
    assert one.refusal() is ErrorCode.GROUP_ID_NOT_FOUND
    old.leave()
    world.commit(0)

    one.heartbeat()
    assert [(each.kind, each.protocol_type, each.state) for each in world.groups.all()] == [
        ("consumer", "consumer", "Stable")
    ]
    assert world.fetched() == {0: 7}
    with pytest.raises(ApiError, match="not a classic group") as caught:
        world.describe()
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    joined = world.member().join()
    assert joined is not None and joined.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    with pytest.raises(ApiError) as caught:
        world.groups.delete(GROUP)
    assert caught.value.code is ErrorCode.NON_EMPTY_GROUP

    one.leave()
    world.stable()
    with pytest.raises(ApiError, match="not a consumer group"):
        group_of(world)
    assert world.fetched() == {0: 7} and [each.kind for each in world.groups.all()] == ["classic"]


def test_an_administrator_removes_members_and_groups(world: GroupWorld) -> None:
    one, two = Consumer(world, "one", instance_id="i"), Consumer(world, "two")
    one.heartbeat()
    two.heartbeat()
    leaving = [Leaving("", "i", "test"), Leaving("", "j", "test"), Leaving("one", None, "test"), Leaving("x", "i", "")]
    assert world.groups.leave(GROUP, leaving) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.FENCED_INSTANCE_ID,
    ]
    settle(two)
    two.leave()
    world.groups.delete(GROUP)
    assert world.groups.all() == []
    assert [group.group_id for group in GroupWorld(world.directory).groups.all()] == []


# --- restarts ---------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("Consumer groups", "Groups outlive a restart, and their members need not join again")
def test_members_go_on_after_a_restart(world: GroupWorld, tmp_path: Path) -> None:
    clients = [Consumer(world, "one", slow=True), Consumer(world, "two", None, "t.*"), Consumer(world, "three")]
    for each in clients:
        each.heartbeat()
    clients[0].heartbeat()
    before = group_of(world)
    after = GroupWorld(tmp_path)
    assert group_of(after) == before

    # The same clients, with the topics of the first world.
    for each in clients:
        each.world = after
    after.cluster = world.cluster
    lost = Consumer(after, "lost")
    assert lost.refusal(epoch=3) is ErrorCode.UNKNOWN_MEMBER_ID
    # Session timeouts start again after the restart, also for a member that has to revoke partitions.
    after.wait(SESSION_MS)
    assert group_of(after).state == "Empty"


def test_a_change_that_cannot_be_stored_has_not_happened(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Consumer(world, "one")
    one.heartbeat()
    before = group_of(world)
    with monkeypatch.context() as patch:
        patch.setattr(world.store, "transaction", _no_disk)
        assert Consumer(world, "two").refusal() is ErrorCode.COORDINATOR_NOT_AVAILABLE
        # A heartbeat that changes nothing is not written to disk.
        assert one.refusal() is ErrorCode.NONE
        world.wait(SESSION_MS)
        assert group_of(world) is before or group_of(world) == before
    world.wait(1000)
    assert group_of(world).state == "Empty"


def _no_disk() -> Any:
    raise ApiError("no disk", ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_another_node_goes_on(tmp_path: Path) -> None:
    world = GroupWorld(tmp_path, nodes=2)
    world.cluster.create_topic("t", 4)
    one = Consumer(world, "one")
    one.heartbeat()
    world.cluster.node_down(world.cluster.coordinator_for(GROUP))
    assert one.heartbeat().epoch == 2 and one.partitions == all_of("t", 4)


def test_a_file_of_an_earlier_release_gets_the_table(tmp_path: Path) -> None:
    world = GroupWorld(tmp_path)
    world.commit(0)
    world.store.close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute("DROP TABLE consumer_groups")
    again = GroupWorld(tmp_path)
    Consumer(again, "one").heartbeat()
    assert again.fetched() == {0: 7}
    ((content,),) = again.store.rows("SELECT content FROM consumer_groups")
    assert json.loads(content)["epoch"] == 2


# --- any order of events ----------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c", "d")
SUBSCRIPTIONS = (frozenset({"t"}), frozenset({"u"}), frozenset({"t", "u"}), frozenset[str]())


class AnyOrder(RuleBasedStateMachine):
    """Members join, leave, are lost, are slow and resubscribe; two of them never own the same partition."""

    @initialize()
    def start(self) -> None:
        self.directory = TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self.world = GroupWorld(Path(self.directory.name))
        self.world.cluster.create_topic("t", 3)
        self.world.cluster.create_topic("u", 2)
        self.clients: dict[str, Consumer] = {}

    @rule(name=st.sampled_from(NAMES), slow=st.booleans(), topics=st.sampled_from(SUBSCRIPTIONS))
    def comes_or_subscribes_otherwise(self, name: str, slow: bool, topics: frozenset[str]) -> None:
        client = self.clients.setdefault(name, Consumer(self.world, name))
        client.slow, client.topics = slow, topics
        client.live()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def lives(self, data: st.DataObject) -> None:
        self._one(data).live()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def gives_up(self, data: st.DataObject) -> None:
        self._one(data).give_up()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        client = self.clients.pop(self._one(data).name)
        client.refusal(epoch=LEAVING)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def is_lost(self, data: st.DataObject) -> None:
        self.clients.pop(self._one(data).name)
        self._time_goes_by()

    @rule()
    def topic_grows(self) -> None:
        self.world.cluster.add_partitions("t", len(self.world.cluster.topics["t"].partitions) + 1)

    @rule()
    def nothing_is_heard(self) -> None:
        self._time_goes_by()

    def _time_goes_by(self) -> None:
        """Wait long enough for a lost member to expire, while the others send heartbeats and fenced members stop."""
        for _ in range(3):
            self.world.wait(SESSION_MS // 2)
            for client in self.clients.values():
                client.live()

    def _one(self, data: st.DataObject) -> Consumer:
        return self.clients[data.draw(st.sampled_from(sorted(self.clients)))]

    @invariant()
    def nobody_shares(self) -> None:
        owned = [each for client in self.clients.values() for each in client.owned]
        assert len(owned) == len(set(owned))

    def teardown(self) -> None:
        for _ in range(8):
            for client in self.clients.values():
                client.slow = False
                client.give_up()
                client.live()
        self.nobody_shares()
        names = set().union(*(client.topics or () for client in self.clients.values()))
        wanted = {(name, index) for name in names for index in range(len(self.world.cluster.topics[name].partitions))}
        assert set().union(*(client.partitions for client in self.clients.values())) == wanted
        for client in self.clients.values():
            assert {name for name, _ in client.partitions} <= (client.topics or set())
        self.world.store.close()
        self.directory.cleanup()


@pytest.mark.behaviour(
    "Consumer groups", "Whatever members do, a partition has one owner at a time, and in the end exactly one"
)
def test_members_in_any_order() -> None:
    run_state_machine_as_test(
        AnyOrder, settings=settings(max_examples=examples(160), stateful_step_count=25, deadline=None)
    )
