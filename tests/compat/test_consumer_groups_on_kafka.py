"""A real Kafka and the embedded broker answer the same heartbeats of the consumer protocol (KIP-848) alike.

``scripts/kafka.sh`` makes Kafka assign partitions with the heartbeat that requires it; by default it does so in the
background, a second later, and the answers depend on time.
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_sink import EmbeddedCluster
from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from tests.compat.kafka_version import requires_kafka
from tests.support.real_kafka import RealKafka
from tests.support.wire import Wire

PARTITIONS = 4
PATIENCE_S = 60.0
_NOT_YET = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


class Script:
    """Sends all requests to one broker; *told* has the answers by the label of the request."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.run = uuid.uuid4().hex[:8]
        self.topic, self.group = f"t-{self.run}", f"g-{self.run}"
        self.told: dict[str, Any] = {}
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result()
        self._wire = Wire(bootstrap_servers)
        self._topic_id = self._id_of_topic()
        # A new Kafka creates the coordinator's topic on this request.
        deadline = time.monotonic() + PATIENCE_S
        asked = {"coordinator_keys": [self.group]}
        while self._wire.ask(ApiKey.FIND_COORDINATOR, 4, **asked).coordinators[0].error_code:
            assert time.monotonic() < deadline, "there is no coordinator"
            time.sleep(0.05)
        # The group's coordinator may learn of the topic later than other nodes, and until then it assigns nothing.
        while not self._is_assigned():
            assert time.monotonic() < deadline, "the coordinator does not know the topic"
            time.sleep(0.05)
        self.told.clear()

    def _is_assigned(self) -> bool:
        """Return whether a member of the group is assigned the partitions; deletes the group afterwards."""
        joined = self.beat("joins early", "early", 0)
        self.beat("leaves early", "early", -1)
        self.ask("deleted early", ApiKey.DELETE_GROUPS, 2, [self.group])
        return joined.assignment is not None and bool(joined.assignment.topic_partitions)

    def _id_of_topic(self) -> uuid.UUID:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            (topic,) = self._wire.ask(ApiKey.METADATA, 12, [{"name": self.topic}]).topics
            if not topic.error_code:
                found: uuid.UUID = topic.topic_id
                return found
            assert time.monotonic() < deadline, topic
            time.sleep(0.05)

    # --- sending -----------------------------------------------------------------------------------------------------

    def ask(self, label: str, key: ApiKey, version: int, *values: Any, **named: Any) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while getattr(answer := self._wire.ask(key, version, *values, **named), "error_code", 0) in _NOT_YET:
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)
        self.told[label] = self._plain(dataclasses.asdict(answer))
        return answer

    def _plain(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: self._plain(item)
                for name, item in value.items()
                if name not in ("error_message", "throttle_time_ms")
            }
        if isinstance(value, list):
            return sorted(map(self._plain, value), key=str)
        if value == self._topic_id:
            return "TOPIC ID"
        return value.replace(self.run, "RUN") if isinstance(value, str) else value

    def beat(self, label: str, member_id: str, epoch: int, **says: Any) -> Any:
        if epoch == 0:
            says = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [self.topic], "owned": [], **says}
        owned = says.pop("owned", None)
        if owned is not None:
            says["topic_partitions"] = [(self._topic_id, owned)] if owned else []
        who = (says.pop("group", self.group), member_id, epoch)
        return self.ask(label, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, *who, **says)

    def commit(self, label: str, member_id: str, epoch: int, *partitions: int, version: int = 9) -> None:
        topics = [{"name": self.topic, "partitions": [(each, 7, -1, "") for each in partitions]}]
        self.ask(label, ApiKey.OFFSET_COMMIT, version, self.group, epoch, member_id, topics=topics)

    def fetch(self, label: str, member_id: str | None, epoch: int) -> None:
        topics = [{"name": self.topic, "partition_indexes": [0, 1]}]
        self.ask(label, ApiKey.OFFSET_FETCH, 9, groups=[(self.group, member_id, epoch, topics)])

    def describe(self, label: str) -> None:
        self.ask(f"{label}, described", ApiKey.CONSUMER_GROUP_DESCRIBE, 1, [self.group, "none-such"], False)
        self.ask(f"{label}, described as classic", ApiKey.DESCRIBE_GROUPS, 6, [self.group])

    # --- the requests ------------------------------------------------------------------------------------------------

    def play(self) -> dict[str, Any]:
        self.refused()
        self.shared()
        self.offsets()
        self.static()
        self.ended()
        self._wire.close()
        return self.told

    def refused(self) -> None:
        faults: tuple[tuple[str, dict[str, Any]], ...] = (
            ("no id", {"member_id": ""}),
            ("no group", {"group": ""}),
            ("an empty instance", {"instance_id": ""}),
            ("an empty rack", {"rack_id": ""}),
            ("no time-out", {"rebalance_timeout_ms": -1}),
            ("partitions", {"owned": [0]}),
            ("no topics", {"subscribed_topic_names": None}),
            ("an assignor that is not there", {"server_assignor": "sticky"}),
            ("a pattern that is none", {"subscribed_topic_regex": "("}),
            ("a pattern that looks ahead", {"subscribed_topic_regex": "(?=a)b"}),
        )
        for label, says in faults:
            self.beat(f"joining with {label}", **{"member_id": "nobody", "epoch": 0, **says})
        self.beat("a member of no group", "nobody", 3)
        self.beat("nobody leaves", "nobody", -1)
        self.beat("leaving for a while without an instance", "nobody", -2)
        self.beat("an epoch of -3", "nobody", -3)

    def shared(self) -> None:
        self.beat("one joins", "one", 0, rack_id="r")
        self.describe("one")
        self.beat("one again", "one", 2)
        self.beat(
            "one says all again", "one", 2, rebalance_timeout_ms=60_000, subscribed_topic_names=[self.topic], owned=[0]
        )
        self.beat("one joins again", "one", 0)
        self.beat("two joins", "two", 0)
        self.beat("two waits", "two", 3)
        self.describe("two")
        self.beat("one is told", "one", 2)
        self.beat("one goes on", "one", 2)
        self.beat("one goes on to have all", "one", 2, owned=[0, 1, 2, 3])
        self.describe("to be given up")
        self.beat("two still waits", "two", 3)
        self.beat("one gives up", "one", 2, owned=[0, 1])
        self.beat("one did not hear that", "one", 2, owned=[0, 1])
        self.beat("one did not hear that, and has more", "one", 2, owned=[0, 1, 2])
        self.beat("two is given", "two", 3)
        self.describe("shared")
        self.beat("too late an epoch", "one", 4)
        self.beat("too early an epoch", "one", 1)
        self.beat("a third", "three", 3)
        self.beat("two subscribes to nothing", "two", 3, subscribed_topic_names=[])
        self.beat("two has given up", "two", 3, owned=[])
        self.beat("one gets all", "one", 3)
        self.beat("two subscribes again", "two", 4, subscribed_topic_names=[self.topic])
        self.beat("one is told again", "one", 4)
        self.beat("one gives up again", "one", 4, owned=[0, 1])
        self.beat("two is given again", "two", 5)
        self.describe("shared again")

    def offsets(self) -> None:
        for label, member_id, epoch, partition in (
            ("in its epoch", "one", 5, 0),
            ("in an earlier epoch what it has had", "one", 4, 0),
            ("in an earlier epoch what it has had since then", "two", 5, 2),
            ("in an earlier epoch what it had not", "two", 4, 2),
            ("what it has not", "one", 5, 2),
            ("what it has not in an earlier epoch", "one", 4, 2),
            ("in a later epoch", "one", 6, 0),
            ("of no member", "three", 5, 0),
            ("without membership", "", -1, 0),
        ):
            self.commit(f"a commit {label}", member_id, epoch, partition)
        self.commit("a commit in version 8", "one", 5, 0, version=8)
        for label, member, epoch in (
            ("in its epoch", "one", 5),
            ("in an earlier epoch", "one", 4),
            ("in a later epoch", "one", 6),
            ("of no member", "three", 5),
            ("without membership", None, -1),
            ("of an empty member", "", -1),
        ):
            self.fetch(f"a fetch {label}", member, epoch)
        self.ask("a heartbeat of the classic protocol", ApiKey.HEARTBEAT, 4, self.group, 5, "one")
        self.ask("offsets deleted", ApiKey.OFFSET_DELETE, 0, self.group, [(self.topic, [0])])
        self.ask("a group with members deleted", ApiKey.DELETE_GROUPS, 2, [self.group])

    def static(self) -> None:
        self.beat("two leaves", "two", -1)
        self.beat("one is alone", "one", 5)
        self.beat("an instance joins", "first", 0, instance_id="i")
        self.beat("one is told of the instance", "one", 6)
        self.beat("one gives up for the instance", "one", 6, owned=[0, 1])
        self.beat("the instance is given", "first", 7, instance_id="i")
        self.beat("a second one joins too early", "second", 0, instance_id="i")
        self.beat("the instance joins again", "first", 0, instance_id="i")
        self.beat("an unknown instance", "first", 7, instance_id="j")
        self.beat("another member of the instance", "second", 7, instance_id="i")
        self.beat("the instance leaves for a while", "first", -2, instance_id="i")
        self.describe("without the instance")
        self.beat("one goes on meanwhile", "one", 7)
        self.beat("the second one joins", "second", 0, instance_id="i")
        self.beat("the first one is fenced", "first", 7, instance_id="i")
        self.beat("the first one is unknown", "first", 7)
        self.describe("with the second one")
        leaving = [("", "i"), ("", "j"), "nobody"]
        self.ask("an administrator removes", ApiKey.LEAVE_GROUP, 5, self.group, members=leaving)
        self.beat("the second one was removed", "second", 7, instance_id="i")
        self.beat("one has all", "one", 7)

    def ended(self) -> None:
        listed = self._wire.ask(ApiKey.LIST_GROUPS, 5, [], ["CONSUMER"]).groups
        mine = [dataclasses.asdict(each) for each in listed if each.group_id == self.group]
        self.told["listed"] = self._plain(mine)
        self.beat("one leaves", "one", -1)
        self.beat("one is gone", "one", 8)
        self.describe("empty")
        self.commit("a commit to the empty group", "", -1, 1)
        self.fetch("what was committed", None, -1)
        self.ask("deleted", ApiKey.DELETE_GROUPS, 2, [self.group])
        self.describe("gone")


@pytest.mark.behaviour("Same answers as Apache Kafka", "Heartbeats of the consumer protocol are answered as Kafka does")
@requires_kafka("4.3", "the APIs and answers that the embedded broker is modelled on")
def test_consumer_groups_are_answered_as_kafka_does(real_kafka: RealKafka, figure: Any) -> None:
    theirs = Script(real_kafka.bootstrap_servers).play()
    with EmbeddedCluster() as cluster:
        ours = Script(cluster.bootstrap_servers).play()

    assert list(ours) == list(theirs)
    assert {label: (ours[label], theirs[label]) for label in theirs if ours[label] != theirs[label]} == {}
    figure("answers that are equal", len(theirs))
