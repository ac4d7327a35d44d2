"""A group coordinator without sockets and threads: members that join, sync and wait, on a clock of the test's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.config import BrokerConfig, EndPoint
from kafka_sink.broker.coordinator.group_coordinator import GroupCoordinator
from kafka_sink.broker.coordinator.group_metadata import (
    Committer,
    GroupSnapshot,
    JoinRequest,
    JoinResult,
    Leaving,
    SyncRequest,
    SyncResult,
)
from kafka_sink.broker.coordinator.group_offsets import CommittedOffset
from kafka_sink.broker.coordinator.store import CoordinatorStore
from kafka_sink.broker.delays import Timer
from kafka_sink.common.config import parse
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import TopicPartition
from tests.fakes.clock import FakeClock
from tests.fakes.memory_filesystem import MemoryFileSystem
from tests.support.group_script import subscription

GROUP = "readers"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
TOPIC = "t"
OFFSET = CommittedOffset(7, -1, "")


class GroupWorld:
    """A group coordinator; its file is in *directory*, so another world can load it."""

    def __init__(self, directory: Path, *, nodes: int = 1, **properties: object) -> None:
        self.directory = directory
        self.clock = FakeClock()
        self.timer = Timer(self.clock)
        config = parse(BrokerConfig, {name.replace("_", "."): value for name, value in properties.items()})
        self.cluster = ClusterState(Path("/data"), MemoryFileSystem(), config, range(1, nodes + 1))
        self.store = CoordinatorStore(directory, flush_writes=False)
        self.groups = GroupCoordinator(config, self.store, self.clock, self.timer, self.cluster)
        self.cluster.subscribe(self.groups.follow)
        self.cluster.nodes_up({node: self.listeners(node) for node in range(1, nodes + 1)})
        self.groups.start()

    @staticmethod
    def listeners(node: int) -> dict[str, EndPoint]:
        return {"PLAINTEXT": EndPoint("PLAINTEXT", "127.0.0.1", 9000 + node)}

    def wait(self, ms: int) -> None:
        """Advance the clock; the timer runs each task when it is due."""
        end_ms = self.clock.now_ms + ms
        while (next_ms := self.timer.run_due(self.clock.now_ms)) <= end_ms:
            self.clock.now_ms = max(next_ms, self.clock.now_ms)
        self.clock.now_ms = end_ms
        self.timer.run_due(end_ms)

    def member(self, **says: Any) -> WorldMember:
        return WorldMember(self, **says)

    def stable(self, count: int = 1, **says: Any) -> list[WorldMember]:
        """Return *count* members of a stable group, whose leader is the first one."""
        members = [self.member(**says) for _ in range(count)]
        for member in members:
            member.enter()
        for known in members[:-1]:
            known.join()
        for member in members[1:]:
            member.sync()
        members[0].sync(*members)
        assert self.state() == "Stable"
        return members

    def describe(self) -> GroupSnapshot:
        return self.groups.describe(GROUP)

    def state(self) -> str:
        return self.describe().state.value

    def commit(self, *partitions: int, offset: CommittedOffset = OFFSET, **says: Any) -> list[ErrorCode]:
        """Commit without being a member."""
        asked = dict.fromkeys([TopicPartition(TOPIC, each) for each in partitions], offset)
        return list(self.groups.commit(GROUP, Committer(-1, "", None), asked, **says).values())

    def commit_in_transaction(self, producer_id: int, *partitions: int, offset: CommittedOffset = OFFSET) -> None:
        asked = dict.fromkeys([TopicPartition(TOPIC, each) for each in partitions], offset)
        self.groups.commit_in_transaction(GROUP, Committer(-1, "", None), producer_id, asked)

    def fetched(self) -> dict[int, int]:
        """Return the committed offset of each partition."""
        return {each.partition: committed.offset for each, committed in self.groups.fetch(GROUP).items()}


class WorldMember:
    """A member; *joined* and *synced* are the responses it got, None while it waits for one."""

    def __init__(
        self,
        world: GroupWorld,
        *,
        instance_id: str | None = None,
        protocols: dict[str, bytes] | None = None,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        protocol_type: str = "consumer",
        modern: bool = True,
    ) -> None:
        self._world = world
        self.instance_id = instance_id
        self.protocols = protocols or {"range": subscription(TOPIC)}
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.protocol_type = protocol_type
        self.modern = modern
        self.member_id = ""
        self.generation = -1
        self.joined: JoinResult | None = None
        self.synced: SyncResult | None = None

    def join(self, **changes: Any) -> JoinResult | None:
        self.joined = None
        request = {
            "group_id": GROUP,
            "member_id": self.member_id,
            "instance_id": self.instance_id,
            "client_id": "client",
            "client_host": "/127.0.0.1",
            "rebalance_timeout_ms": self.rebalance_ms,
            "session_timeout_ms": self.session_ms,
            "protocol_type": self.protocol_type,
            "protocols": self.protocols,
            "needs_known_id": self.modern,
            "may_skip_assignment": self.modern,
            "reason": "test",
        }
        self._world.groups.join(JoinRequest(**{**request, **changes}), self._on_joined)
        return self.joined

    def _on_joined(self, result: JoinResult) -> None:
        assert self.joined is None, "answered twice"
        self.joined = result
        if result.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = result.member_id
        if result.error is ErrorCode.NONE:
            self.generation = result.generation

    def enter(self) -> JoinResult | None:
        """Join with the handshake of versions 4 and up."""
        result = self.join()
        return self.join() if result is not None and result.error is ErrorCode.MEMBER_ID_REQUIRED else result

    def sync(self, *members: WorldMember, **changes: Any) -> SyncResult | None:
        """Send SyncGroup; as leader, assign each of *members* its own number."""
        self.synced = None
        request = {
            "group_id": GROUP,
            "member_id": self.member_id,
            "instance_id": self.instance_id,
            "generation": self.generation,
            "protocol_type": None,
            "protocol_name": None,
            "assignments": {member.member_id: b"%d" % number for number, member in enumerate(members)},
        }
        self._world.groups.sync(SyncRequest(**{**request, **changes}), self._on_synced)
        return self.synced

    def _on_synced(self, result: SyncResult) -> None:
        assert self.synced is None, "answered twice"
        self.synced = result

    def heartbeat(self) -> None:
        self._world.groups.heartbeat(GROUP, self.member_id, self.instance_id, self.generation)

    def leave(self) -> list[ErrorCode]:
        return self._world.groups.leave(GROUP, [Leaving(self.member_id, self.instance_id, "test")])

    def commit(self, *partitions: int) -> list[ErrorCode]:
        asked = dict.fromkeys([TopicPartition(TOPIC, each) for each in partitions], OFFSET)
        committer = Committer(self.generation, self.member_id, self.instance_id)
        return list(self._world.groups.commit(GROUP, committer, asked).values())
