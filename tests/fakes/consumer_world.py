"""Members with group.protocol=consumer on the group coordinator of a GroupWorld, which act as KIP-848 requires."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kafka_sink.broker.coordinator.consumer_group import JOINING, LEAVING, ConsumerGroup, TopicIdPartition
from kafka_sink.broker.coordinator.consumer_groups import ConsumerHeartbeat, HeartbeatResult
from kafka_sink.common.errors import ApiError, ErrorCode
from tests.fakes.group_world import GROUP, REBALANCE_MS, GroupWorld

#: The default of group.consumer.session.timeout.ms.
SESSION_MS = 45_000


@dataclass
class Consumer:
    """A client. *owned* are its partitions: unless it is *slow*, it revokes at once those no longer assigned to it."""

    world: GroupWorld
    name: str
    topics: frozenset[str] | None = frozenset({"t"})
    regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    slow: bool = False
    epoch: int = JOINING
    owned: set[TopicIdPartition] = field(default_factory=set)
    #: The partitions that a slow client has yet to revoke.
    unwanted: set[TopicIdPartition] = field(default_factory=set)

    def heartbeat(self, **changes: Any) -> HeartbeatResult:
        """Send a full heartbeat, which joins or repeats every field; *changes* replace fields of the heartbeat."""
        heartbeat = {
            "group_id": GROUP,
            "member_id": self.name,
            "epoch": self.epoch,
            "instance_id": self.instance_id,
            "rack_id": None,
            "rebalance_timeout_ms": REBALANCE_MS,
            "topic_names": self.topics,
            "topic_regex": self.regex,
            "assignor": self.assignor,
            "owned": frozenset(self.owned),
            "client_id": "client",
            "client_host": "/127.0.0.1",
            "may_describe": lambda topic: True,
            "names_itself": True,
        }
        result = self.world.groups.consumer_heartbeat(ConsumerHeartbeat(**{**heartbeat, **changes}))
        self.epoch = result.epoch
        if result.assignment is not None:
            self.unwanted = self.owned - result.assignment
            self.owned |= result.assignment
            if not self.slow:
                self.give_up()
        return result

    def live(self) -> None:
        """Send a heartbeat as clients do: a fenced or unknown member revokes all partitions and joins again."""
        try:
            self.heartbeat()
        except ApiError as error:
            assert error.code in (
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
            )
            self.owned, self.unwanted, self.epoch = set(), set(), JOINING
            self.heartbeat()

    def give_up(self) -> None:
        self.owned -= self.unwanted
        self.unwanted = set()

    def leave(self, epoch: int = LEAVING) -> HeartbeatResult:
        result = self.heartbeat(epoch=epoch)
        self.owned, self.epoch = set(), JOINING
        return result

    def refusal(self, **changes: Any) -> ErrorCode:
        """Return the error of a heartbeat."""
        try:
            self.heartbeat(**changes)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    @property
    def partitions(self) -> set[tuple[str, int]]:
        """The owned partitions, with names of topics in place of ids."""
        names = self.world.cluster.image.names
        return {(names[each.topic_id], each.partition) for each in self.owned}


def group_of(world: GroupWorld) -> ConsumerGroup:
    return world.groups.describe_consumers(GROUP)


def settle(*consumers: Consumer) -> None:
    """Send heartbeats of all members until the group is stable and each member has its assignment."""
    for _ in range(12):
        for each in consumers:
            each.live()
    assert group_of(consumers[0].world).state == "Stable"
