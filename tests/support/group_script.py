"""A list of raw requests about groups, by whose responses two brokers are compared.

Each section uses groups of its own. The responses are collected in order; member ids, which differ between any two
runs, are replaced by their order of appearance.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final
from uuid import UUID

from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.registry import api
from kafka_sink.protocol.schema import Struct
from tests.support.wire import Wire

#: The coordinator is unknown or loading: retry.
_NOT_YET: Final = frozenset({14, 15, 16})
_LEFT_OUT: Final = frozenset({"throttle_time_ms", "topic_id"})
_UNKNOWN_TOPIC_ID: Final = UUID(int=77)


def subscription(*topics: str, version: int = 0) -> bytes:
    """Return a consumer's metadata in JoinGroup: ConsumerProtocolSubscription."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", version, len(topics)) + names + struct.pack(">i", -1)


class Script:
    """Sends requests and records the responses."""

    def __init__(self, bootstrap_servers: str, topic: str, run: str) -> None:
        """*topic* has 3 partitions; *run* makes the names of groups unique."""
        self._bootstrap_servers = bootstrap_servers
        self.topic = topic
        self._run = run
        self._member_ids: dict[str, str] = {}
        self._wires: list[Wire] = []
        self.answers: dict[str, Any] = {}
        self._section = ""

    def run(self, sections: Mapping[str, Callable[[Script], None]]) -> dict[str, Any]:
        try:
            for name, section in sections.items():
                self._section = name
                section(self)
        finally:
            for wire in self._wires:
                wire.close()
        return self.answers

    def group(self, name: str) -> str:
        """Return a group of this run, whose coordinator is ready."""
        group_id = f"{self._run}-{name}"
        wire = self.wire()
        for _ in range(300):
            found = wire.ask(ApiKey.FIND_COORDINATOR, 3, group_id).error_code == 0
            if found and wire.ask(ApiKey.OFFSET_FETCH, 5, group_id, []).error_code not in _NOT_YET:
                return group_id
            time.sleep(0.1)
        raise AssertionError(f"group {group_id} found no coordinator")

    def wire(self) -> Wire:
        self._wires.append(Wire(self._bootstrap_servers))
        return self._wires[-1]

    def topic_id(self) -> UUID:
        found: UUID = self.wire().ask(ApiKey.METADATA, 12, [{"name": self.topic}]).topics[0].topic_id
        return found

    def note(self, label: str, answer: Any) -> Any:
        """Record a response, and return it."""
        key = f"{self._section}: {label}"
        assert key not in self.answers, key
        self.answers[key] = self._plain(answer)
        return answer

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Struct):
            return {
                field.name: self._plain(getattr(value, field.name))
                for field in fields(value)
                if field.name not in _LEFT_OUT
            }
        if isinstance(value, list):
            return sorted((self._plain(item) for item in value), key=repr)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value).hex()
        if isinstance(value, str):
            if len(value) > 36 and value[-37] == "-" and value[-9 - 4] == "-":
                return self._member_ids.setdefault(value, f"member {len(self._member_ids) + 1}")
            return value.replace(f"{self._run}-", "")
        return value


class Client:
    """The connection of one member, with short methods for its requests."""

    def __init__(self, script: Script, group_id: str, *, instance_id: str | None = None, join: int = 9) -> None:
        self._script = script
        self._wire = script.wire()
        self.group_id = group_id
        self.instance_id = instance_id
        self.join_version = join
        self.member_id = ""
        self.generation = -1
        self.metadata = subscription(script.topic)
        self.protocols = ["range"]
        self.protocol_type = "consumer"

    def ask(self, label: str, key: ApiKey, version: int, *values: Any, **named: Any) -> Any:
        return self._script.note(label, self._wire.ask(key, version, *values, **named))

    # --- join and sync, in two halves --------------------------------------------------------------------------------

    def begin_join(self, **changes: Any) -> None:
        values: dict[str, Any] = {
            "group_id": self.group_id,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": self.protocol_type,
            "protocols": [(name, self.metadata) for name in self.protocols],
        }
        self._wire.send(ApiKey.JOIN_GROUP, self.join_version, **values | changes)

    def end_join(self, label: str) -> Any:
        answer = self._script.note(label, self._wire.receive(ApiKey.JOIN_GROUP, self.join_version))
        if answer.error_code in (0, 79):
            self.member_id = answer.member_id
        if answer.error_code == 0:
            self.generation = answer.generation_id
        return answer

    def join(self, label: str, **changes: Any) -> Any:
        self.begin_join(**changes)
        return self.end_join(label)

    def enter(self, label: str) -> Any:
        """Join with the handshake of the version."""
        answer = self.join(label)
        return self.join(f"{label}, with its id") if answer.error_code == 79 else answer

    def begin_sync(self, *members: Client, version: int = 5, **changes: Any) -> None:
        values: dict[str, Any] = {
            "group_id": self.group_id,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": self.protocol_type if version >= 5 else None,
            "protocol_name": self.protocols[0] if version >= 5 else None,
            "assignments": [(member.member_id, b"part-%d" % number) for number, member in enumerate(members)],
        }
        self._wire.send(ApiKey.SYNC_GROUP, version, **values | changes)

    def end_sync(self, label: str, version: int = 5) -> Any:
        return self._script.note(label, self._wire.receive(ApiKey.SYNC_GROUP, version))

    def sync(self, label: str, *members: Client, version: int = 5, **changes: Any) -> Any:
        self.begin_sync(*members, version=version, **changes)
        return self.end_sync(label, version)

    # --- the rest ----------------------------------------------------------------------------------------------------

    def heartbeat(self, label: str, version: int = 4, **changes: Any) -> Any:
        values: dict[str, Any] = {
            "group_id": self.group_id,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }
        return self.ask(label, ApiKey.HEARTBEAT, version, **values | changes)

    def heartbeat_code(self) -> int:
        """As :meth:`heartbeat`, but not recorded: the number of necessary heartbeats varies."""
        values = (self.group_id, self.generation, self.member_id, self.instance_id)
        return int(self._wire.ask(ApiKey.HEARTBEAT, 4, *values).error_code)

    def leave(self, label: str, *members: Any, version: int = 5, group_id: str | None = None) -> Any:
        who: dict[str, Any] = (
            {"members": list(members) or [self.member_id]} if version >= 3 else {"member_id": self.member_id}
        )
        group_id = self.group_id if group_id is None else group_id
        return self.ask(label, ApiKey.LEAVE_GROUP, version, group_id, **who)

    def commit(
        self,
        label: str,
        offset: int = 5,
        *,
        version: int = 9,
        partitions: tuple[int, ...] = (0,),
        metadata: str | None = "",
        topic: str | None = None,
        topic_id: UUID | None = None,
        **changes: Any,
    ) -> Any:
        asked: dict[str, Any] = (
            {"topic_id": topic_id or self._script.topic_id()}
            if version >= 10
            else {"name": topic or self._script.topic}
        )
        asked["partitions"] = [(each, offset, 3 if version >= 6 else -1, metadata) for each in partitions]
        values: dict[str, Any] = {
            "group_id": self.group_id,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id if version >= 7 else None,
            "topics": [asked],
        }
        return self.ask(label, ApiKey.OFFSET_COMMIT, version, **values | changes)

    def fetch(self, label: str, *partitions: int, version: int = 9, group_id: str | None = None) -> Any:
        """Without *partitions*, fetch the offsets of all."""
        group_id = self.group_id if group_id is None else group_id
        if version < 8:
            topics = [{"name": self._script.topic, "partition_indexes": [*partitions]}] if partitions else None
            return self.ask(label, ApiKey.OFFSET_FETCH, version, group_id, topics)
        topic: dict[str, Any] = {"topic_id": self._script.topic_id()} if version >= 10 else {"name": self._script.topic}
        group = {
            "group_id": group_id,
            "topics": [{**topic, "partition_indexes": [*partitions]}] if partitions else None,
        }
        return self.ask(label, ApiKey.OFFSET_FETCH, version, groups=[group])

    def describe(self, label: str, *groups: str, version: int = 6, operations: bool = False) -> Any:
        return self.ask(label, ApiKey.DESCRIBE_GROUPS, version, list(groups) or [self.group_id], operations)

    def delete(self, label: str, *groups: str, version: int = 2) -> Any:
        return self.ask(label, ApiKey.DELETE_GROUPS, version, list(groups) or [self.group_id])

    def forget(self, label: str, *partitions: int, topic: str | None = None, group_id: str | None = None) -> Any:
        asked = (topic or self._script.topic, list(partitions))
        group_id = self.group_id if group_id is None else group_id
        return self.ask(label, ApiKey.OFFSET_DELETE, 0, group_id, [asked])


#: One byte more than a group may have by default (message.max.bytes).
_TOO_MANY_BYTES: Final = 1_048_589


# --- sections ---------------------------------------------------------------------------------------------------------


def every_version(script: Script) -> None:
    """A member's life, in every version of each request."""
    for version in range(10):
        one = Client(script, script.group(f"v{version}"), join=version)
        one.protocols = ["range", "roundrobin"]
        one.enter(f"join {version}")
        one.sync(f"sync {version}", one, version=min(version, 5))
        one.sync(f"sync {version} again", version=min(version, 5))
        one.heartbeat(f"heartbeat {version}", version=min(version, 4))
        one.commit(f"commit {version}", version=max(version, 2), metadata=None)
        one.fetch(f"fetch {version}", 0, 1, version=max(version, 1))
        one.describe(f"describe {version}", version=min(version, 6), operations=version >= 3)
        one.leave(f"leave {version}", version=min(version, 5))
        one.describe(f"describe {version}, empty", version=min(version, 6))
        one.delete(f"delete {version}", version=min(version, 2))
        one.describe(f"describe {version}, gone", version=min(version, 6))


def refusals(script: Script) -> None:
    """Requests of a member that the coordinator rejects."""
    group = script.group("refusals")
    one = Client(script, group)
    one.join("no protocols", protocols=[])
    one.join("no protocol type", protocol_type="")
    one.join("short session", session_timeout_ms=5)
    one.join("long session", session_timeout_ms=2_000_000)
    one.join("no group", group_id="")
    one.join("unknown id", member_id="nobody")
    one.heartbeat("heartbeat to no member")
    one.sync("sync to no member")
    one.leave("leave no member", "nobody")
    one.enter("join")
    one.sync("sync")
    other = Client(script, group)
    other.join("another protocol", protocols=[("other", b"")])
    other.join("another type", protocol_type="connect")
    other.join("another id", member_id="nobody")
    other.join("an instance with an id", member_id="nobody", group_instance_id="i")
    one.heartbeat("old generation", generation_id=one.generation - 1)
    one.heartbeat("another member", member_id="nobody")
    one.heartbeat("an instance nobody has", group_instance_id="i")
    one.heartbeat("heartbeat: no group", group_id="")
    one.heartbeat("unknown group", group_id=script.group("unknown"))
    one.sync("sync: old generation", generation_id=7)
    one.sync("sync: another member", member_id="nobody")
    one.sync("sync: another protocol", protocol_name="other")
    one.sync("sync: another type", protocol_type="connect")
    one.sync("sync: no protocol", protocol_name=None)
    one.sync("sync: no group", group_id="")
    one.leave("leave: no group", group_id="")
    one.leave("leave: unknown group", group_id=script.group("unknown-2"))
    one.leave("leave: several", "nobody", ("", "i"), "")
    one.delete("delete: has members")
    one.heartbeat("still there")
    one.sync("sync: again, too large", assignments=[(one.member_id, bytes(_TOO_MANY_BYTES))])
    large = Client(script, script.group("large"))
    large.enter("join: room for less")
    large.sync("sync: too large", assignments=[(large.member_id, bytes(_TOO_MANY_BYTES))])
    large.heartbeat("after a sync that is too large")


def rebalances(script: Script) -> None:
    """Two members, through every state."""
    group = script.group("rebalances")
    one, two = Client(script, group), Client(script, group)
    one.enter("one joins")
    one.describe("one has joined")
    one.commit("commit before the leader has spoken")
    one.sync("one syncs", one)
    two.join("two comes")
    two.begin_join()
    while one.heartbeat_code() == 0:
        pass
    one.heartbeat("one is told")
    one.describe("preparing")
    one.commit("commit while preparing")
    one.sync("sync while preparing", one)
    one.begin_join()
    one.end_join("one joins again")
    two.end_join("two has joined")
    two.begin_sync()
    one.describe("completing")
    one.heartbeat("heartbeat while completing")
    one.commit("commit while completing")
    one.join("the leader's answer was lost")
    one.sync("the leader speaks", one, two)
    two.end_sync("two has its part")
    two.join("a follower joins again, the same")
    one.describe("stable")
    one.commit("commit")
    two.commit("commit of another generation", generation_id_or_member_epoch=1)
    two.commit("commit of nobody", generation_id_or_member_epoch=-1, member_id="")
    two.commit("commit of an unknown member", member_id="nobody")
    one.fetch("fetch", 0, 1)
    two.metadata = subscription(script.topic, "other")
    two.begin_join()
    while one.heartbeat_code() == 0:
        pass
    one.enter("one joins for two's change")
    two.end_join("two's change")
    two.begin_sync()
    one.metadata = subscription(script.topic, "third")
    one.begin_join()
    two.end_sync("two's sync is cut off")
    two.enter("two joins once more")
    one.end_join("the leader has rebalanced")
    one.sync("the leader speaks again", one)
    two.sync("two has no part")
    one.leave("one leaves")
    two.heartbeat("two is told")
    two.enter("two is left")
    two.sync("two alone", two)
    two.forget("forget what is read", 0)
    two.forget("forget another topic", 0, topic="nothing")
    two.leave("two leaves")
    two.forget("forget in an empty group", 0, 9)
    two.fetch("nothing is left", 0)


def static_members(script: Script) -> None:
    """Members that keep their member state by their instance id."""
    for version in (5, 8, 9):
        group = script.group(f"static-{version}")
        first = Client(script, group, instance_id="i1", join=version)
        second = Client(script, group, instance_id="i2", join=version)
        first.enter(f"{version}: joins")
        first.sync(f"{version}: syncs", first, version=min(version, 5))
        again = Client(script, group, instance_id="i1", join=version)
        again.enter(f"{version}: comes back")
        first.heartbeat(f"{version}: the old one is fenced")
        first.commit(f"{version}: its commit")
        first.sync(f"{version}: its sync", version=min(version, 5))
        first.join(f"{version}: its join")
        again.sync(f"{version}: the new one has the part", version=min(version, 5))
        again.describe(f"{version}: described")
        second.begin_join()
        while again.heartbeat_code() == 0:
            pass
        again.begin_join()
        again.end_join(f"{version}: for the second")
        second.end_join(f"{version}: the second")
        again.sync(f"{version}: parts for two", again, second, version=min(version, 5))
        second.sync(f"{version}: the second's part", version=min(version, 5))
        again.leave(f"{version}: leave by instance", ("", "i1"), ("wrong", "i2"), ("", "i3"))
        second.heartbeat(f"{version}: the second is told")


def offsets(script: Script) -> None:
    """Offsets without members."""
    group = script.group("offsets")
    one = Client(script, group)
    one.fetch("nothing yet", 0, 1)
    one.fetch("nothing at all")
    one.fetch("one group, nothing at all", version=5)
    one.fetch("oldest", 0, version=1)
    one.commit("a member of nothing, old", version=8, generation_id_or_member_epoch=3, member_id="m")
    one.commit("a member of nothing", generation_id_or_member_epoch=3, member_id="m")
    for version in range(2, 11):
        one.commit(f"commit {version}", version * 10, version=version, partitions=(0, 2), metadata=f"at {version}")
        one.fetch(f"fetch {version}", 0, 1, 2, version=version)
    one.commit("generation of no member", generation_id_or_member_epoch=0, member_id="m")
    one.commit("an id without a generation", member_id="m")
    one.commit("beyond the partitions", partitions=(0, 3, -1, 2**31 - 1))
    one.commit("unknown topic", topic="no-such-topic")
    one.commit("unknown topic id", version=10, topic_id=_UNKNOWN_TOPIC_ID)
    one.commit("longest metadata", metadata="é" * 4096)
    one.commit("too long metadata", 99, metadata="x" * 4097)
    one.commit("two units each", 98, metadata="\U0001f600" * 2049)
    one.commit("backwards", -7, partitions=(1,))
    one.fetch("fetch all")
    one.fetch("fetch all by id", version=10)
    one.commit("no group id", group_id="")
    one.fetch("fetch: no group id", 0, group_id="")
    groups = [
        {"group_id": group_id, "topics": [{"name": script.topic, "partition_indexes": [0]}]}
        for group_id in (group, script.group("offsets-2"))
    ]
    one.ask("two groups", ApiKey.OFFSET_FETCH, 8, groups=groups, require_stable=True)
    one.describe("a simple group")
    one.forget("forget", 0, 1, 7)
    one.forget("forget in no group", 0, group_id="")
    one.forget("forget in an unknown group", 0, group_id=script.group("offsets-3"))
    one.fetch("what is left")
    one.delete("delete", group, script.group("offsets-4"))
    one.fetch("what is left of the group")


def other_types(script: Script) -> None:
    """A group whose protocol type is not "consumer"."""
    one = Client(script, script.group("connect"))
    one.protocol_type = "connect"
    one.metadata = b"\x00\x01no subscription"
    one.enter("join")
    one.sync("sync", one)
    one.commit("commit")
    one.forget("forget while it has members", 0)
    one.describe("describe")
    odd = Client(script, script.group("odd"))
    odd.metadata = b"\x00"
    odd.enter("join without a subscription")
    odd.sync("sync without a subscription", odd)
    odd.forget("nobody can tell what it reads", 0)


def lists(script: Script) -> None:
    """Groups by state and by type."""
    group = script.group("list")
    one = Client(script, group)
    one.enter("join")
    one.sync("sync", one)
    simple = Client(script, script.group("list-simple"))
    simple.commit("simple")
    asked = {
        "all": ([], []),
        "stable": (["STABLE"], []),
        "empty or dead": ([" empty", "Dead"], []),
        "unknown state": (["sleeping"], []),
        "classic": ([], ["Classic"]),
        "consumer": ([], ["consumer"]),
        "unknown type": ([], ["odd"]),
    }
    wire = script.wire()
    for version in range(api(ApiKey.LIST_GROUPS).versions.max + 1):
        for label, (states, types) in asked.items():
            if (states and version < 4) or (types and version < 5):
                continue
            answer = wire.ask(ApiKey.LIST_GROUPS, version, states, types)
            answer.groups = [each for each in answer.groups if each.group_id in (group, simple.group_id)]
            script.note(f"{label} {version}", answer)


SECTIONS: Final[dict[str, Callable[[Script], None]]] = {
    section.__name__: section
    for section in (every_version, refusals, rebalances, static_members, offsets, other_types, lists)
}
