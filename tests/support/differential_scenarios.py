"""The requests to both brokers: topics to create first, and requests by API, in an order that makes them repeatable.

Data only; tests/support/differential.py sends it. Names with ``{v}`` are different for every API and version.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from kafka.record.memory_records import MemoryRecordsBuilder

from tests.support.differential import Ask, Json, topic_id

_GOLDEN: Final = Path(__file__).parents[1] / "golden"
#: Topics that exist at the beginning, and their values of CreateTopics.
#: Kafka checks for expired segments 30 s after its start and then every 5 minutes: the records have times of 2023.
_FOR_EVER: Final = {"configs": [{"name": "retention.ms", "value": "-1"}]}
TOPICS: Final[dict[str, Json]] = {
    "diff-a": {"num_partitions": 3, **_FOR_EVER},
    "diff-b": {"num_partitions": 1, **_FOR_EVER},
    "diff-cut": {"num_partitions": 2, **_FOR_EVER},
    "diff-compacted": {"num_partitions": 1, "configs": [{"name": "cleanup.policy", "value": "compact"}]},
    "diff-settings": {"num_partitions": 1, "configs": [{"name": "retention.ms", "value": "1000000"}]},
}
#: A topic for each cleanup policy.
POLICIES: Final = {
    "diff-deleted": "delete",
    "diff-kept": "",
    "diff-compact": "compact",
    "diff-both": "compact,delete",
}
TOPICS.update(
    (name, {"num_partitions": 1, "configs": [{"name": "cleanup.policy", "value": policy}, *_FOR_EVER["configs"]]})
    for name, policy in POLICIES.items()
)
A: Final = {"name": "diff-a", "topic": "diff-a", "topic_id": topic_id("diff-a"), "topic_name": "diff-a"}
B: Final = {"name": "diff-b", "topic": "diff-b", "topic_id": topic_id("diff-b"), "topic_name": "diff-b"}
COMPACTED: Final = {"name": "diff-compacted", "topic_id": topic_id("diff-compacted")}
CUT: Final = {"name": "diff-cut"}
UNKNOWN: Final = {"name": "diff-none", "topic": "diff-none", "topic_id": topic_id("nobody"), "topic_name": "diff-none"}
_TOPIC: Final = 2
_BROKER: Final = 4
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


@cache
def batch(codec: str = "none") -> bytes:
    """Return a batch of kafka-python without producer id: sequences would not fit requests in many versions."""
    made = json.loads((_GOLDEN / "records" / "kafka_python.json").read_text())["batches"]
    return base64.b64decode(made[codec])


@cache
def keyed_batch() -> bytes:
    """Return a batch of kafka-python with a keyed record."""
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 10)
    builder.append(1_700_000_000_000, b"k", b"v", [])
    builder.close()
    return bytes(builder.buffer())


def _produce(label: str, topics: list[Json], *, versions: range = range(100), **changes: Any) -> Ask:
    return Ask("Produce", label, {"acks": -1, "timeout_ms": 3000, "topic_data": topics, **changes}, versions)


def _part(topic: Json, index: int, records: bytes | None) -> Json:
    return {**topic, "partition_data": [{"index": index, "records": records}]}


PRODUCE: Final = (
    _produce("a batch", [_part(A, 0, batch())]),
    *(_produce(f"a batch of {codec}", [_part(A, 0, batch(codec))]) for codec in ("gzip", "snappy", "lz4", "zstd")),
    _produce("no topics", []),
    _produce("a topic without partitions", [{**A, "partition_data": []}]),
    _produce("an unknown topic", [_part(UNKNOWN, 0, batch())]),
    _produce(
        "one partition is there and one is not",
        [{**A, "partition_data": [{"index": 1, "records": batch()}, {"index": 99, "records": batch()}]}],
    ),
    _produce("a negative partition", [_part(A, -1, batch())]),
    _produce("no records at all", [_part(A, 0, b"")]),
    _produce("a batch with a wrong checksum", [_part(A, 0, batch()[:-1] + b"\xff")]),
    _produce("half a batch", [_part(A, 0, batch()[:100])]),
    _produce("two batches", [_part(A, 0, batch() * 2)]),
    _produce("an unknown magic", [_part(A, 0, batch()[:16] + b"\x07" + batch()[17:])]),
    _produce("acks of 2", [_part(A, 0, batch())], acks=2),
    _produce("one acknowledgement", [_part(B, 0, batch())], acks=1),
    _produce("records without keys to a compacted topic", [_part(COMPACTED, 0, batch())]),
    _produce("packed records without keys to a compacted topic", [_part(COMPACTED, 0, batch("gzip"))]),
    _produce("an id of transactions and no transaction", [_part(B, 0, batch())], transactional_id="diff-nobody"),
)

_FETCH: Final[Json] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 50_000_000, "session_epoch": -1}


def _fetch(label: str, topic: Json, partition: int = 0, **changes: Any) -> Ask:
    of_request = {name: changes.pop(name) for name in [*changes] if name in (*_FETCH, "isolation_level", "session_id")}
    wanted = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 50_000_000, **changes}
    return Ask("Fetch", label, {**_FETCH, "topics": [{**topic, "partitions": [wanted]}], **of_request})


FETCH: Final = (
    _fetch("from the beginning", B),
    _fetch("everything, committed", A, isolation_level=1),
    _fetch("an empty partition", A, 2),
    _fetch("in a batch", B, fetch_offset=2),
    _fetch("beyond the end", A, 2, fetch_offset=1),
    _fetch("a negative offset", A, 2, fetch_offset=-1),
    _fetch("an unknown topic", UNKNOWN),
    _fetch("an unknown partition", A, 99),
    _fetch("a negative partition", A, -1),
    _fetch("a later leader epoch", B, current_leader_epoch=5),
    _fetch("this leader epoch", B, current_leader_epoch=0),
    _fetch("an earlier leader epoch", B, current_leader_epoch=-1),
    _fetch("the epoch of the last record", B, last_fetched_epoch=0, fetch_offset=3),
    _fetch("an epoch of no record", B, last_fetched_epoch=5, fetch_offset=3),
    _fetch("one byte of a partition", B, partition_max_bytes=1),
    _fetch("one byte of all", B, max_bytes=1),
    _fetch("no bytes", B, max_bytes=0),
    _fetch("an isolation of 2", B, isolation_level=2),
    _fetch("a session", B, session_epoch=0),
    _fetch("an unknown session", B, session_id=77, session_epoch=3),
    _fetch("an unknown session to be closed", B, session_id=77, session_epoch=-1),
    _fetch("a negative epoch of a session", B, session_id=0, session_epoch=-7),
    Ask("Fetch", "no topics", {**_FETCH, "topics": []}),
    Ask("Fetch", "a topic without partitions", {**_FETCH, "topics": [{**A, "partitions": []}]}),
    Ask(
        "Fetch",
        "a partition twice",
        {**_FETCH, "topics": [{**B, "partitions": [{"partition": 0, "partition_max_bytes": 50_000_000}] * 2}]},
    ),
    Ask("Fetch", "forgotten topics", {**_FETCH, "topics": [], "forgotten_topics_data": [{**B, "partitions": [0]}]}),
)


def _offsets(label: str, timestamp: int, topic: Json = A, partition: int = 0, **changes: Any) -> Ask:
    of_partition = {name: changes.pop(name) for name in [*changes] if name == "current_leader_epoch"}
    wanted = {"partition_index": partition, "timestamp": timestamp, **of_partition}
    return Ask("ListOffsets", label, {"replica_id": -1, "topics": [{**topic, "partitions": [wanted]}], **changes})


LIST_OFFSETS: Final = (
    *(
        _offsets(label, timestamp)
        for label, timestamp in {
            "the latest": -1,
            "the earliest": -2,
            "the largest time stamp": -3,
            "the earliest local": -4,
            "the latest in tiers": -5,
            "the earliest to be sent to tiers": -6,
            "a special one that nobody knows": -7,
            "the time of a record": 1_700_000_000_001,
            "a time before all": 0,
            "a time after all": 2**62,
        }.items()
    ),
    _offsets("the largest time stamp of nothing", -3, partition=2),
    _offsets("a time in nothing", 5, partition=2),
    _offsets("committed", -1, isolation_level=1),
    _offsets("an isolation of 2", -1, isolation_level=2),
    _offsets("an unknown topic", -1, UNKNOWN),
    _offsets("an unknown partition", -1, partition=99),
    _offsets("a later leader epoch", -1, current_leader_epoch=5),
    _offsets("this leader epoch", -1, current_leader_epoch=0),
    _offsets("to a debugger", -1, replica_id=-2),
    _offsets("to a follower", -1, replica_id=5),
    Ask("ListOffsets", "no topics", {"replica_id": -1, "topics": []}),
    Ask(
        "ListOffsets",
        "a partition twice",
        {"replica_id": -1, "topics": [{**A, "partitions": [{"partition_index": 0, "timestamp": -1}] * 2}]},
    ),
)


def _metadata(label: str, topics: list[Json], versions: range = range(100), **changes: Any) -> Ask:
    return Ask("Metadata", label, {"topics": topics, "allow_auto_topic_creation": False, **changes}, versions)


_NAMES: Final = ({"name": "diff-a"}, {"name": "diff-b"})
METADATA: Final = (
    _metadata("two topics", [*_NAMES]),
    Ask("Metadata", "all topics", {"topics": None}, everything=True),
    _metadata("no topics", [], versions=range(1, 100)),
    Ask(
        "Metadata",
        "an unknown topic",
        {"topics": [{"name": "diff-none"}], "allow_auto_topic_creation": False},
        range(4, 100),
    ),
    *(_metadata(f"the name {name[:9]!r}", [{"name": name}]) for name in ("", ".", "..", "a/b", "a b", "\u00e9")),
    _metadata("a name of 250", [{"name": "x" * 250}]),
    _metadata("operations", [*_NAMES], include_topic_authorized_operations=True),
    _metadata("operations on the cluster", [*_NAMES], include_cluster_authorized_operations=True),
    Ask("Metadata", "by id", {"topics": [{"name": None, "topic_id": topic_id("diff-a")}]}, range(12, 100)),
    Ask("Metadata", "by an unknown id", {"topics": [{"name": None, "topic_id": topic_id("nobody")}]}, range(12, 100)),
    Ask("Metadata", "by no id", {"topics": [{"name": None}]}, range(12, 100)),
    Ask(
        "Metadata",
        "by id and by name",
        {"topics": [{"name": None, "topic_id": topic_id("diff-a")}, {"name": "diff-b"}]},
        range(12, 100),
    ),
    Ask(
        "Metadata",
        "an id where only names are taken",
        {"topics": [{"name": "diff-a", "topic_id": topic_id("diff-a")}]},
        range(10, 12),
    ),
)

_FIND: Final = (("a group", "g", 0), ("a transaction", "t", 1), ("a share group", "s", 2), ("a type of 9", "g", 9))
FIND_COORDINATOR: Final = (
    *(
        Ask("FindCoordinator", label, {"key": key, "key_type": kind, "coordinator_keys": [key]})
        for label, key, kind in _FIND[:2]
    ),
    *(
        Ask("FindCoordinator", label, {"key": key, "key_type": kind, "coordinator_keys": [key]}, final=True)
        for label, key, kind in _FIND[2:]
    ),
    Ask("FindCoordinator", "an empty group", {"key": "", "coordinator_keys": [""]}, final=True),
    Ask("FindCoordinator", "no keys", {"coordinator_keys": []}, range(4, 100)),
    Ask("FindCoordinator", "two groups", {"coordinator_keys": ["g", "h"]}, range(4, 100)),
    Ask("FindCoordinator", "a group twice", {"coordinator_keys": ["g", "g"]}, range(4, 100)),
)


def _create(label: str, *topics: Json, **changes: Any) -> Ask:
    asked = [{"num_partitions": 1, "replication_factor": 1, **topic} for topic in topics]
    return Ask("CreateTopics", label, {"topics": asked, "timeout_ms": 9000, **changes})


def _placed(*brokers: list[int]) -> Json:
    placed = [{"partition_index": index, "broker_ids": ids} for index, ids in enumerate(brokers)]
    return {"assignments": placed, "num_partitions": -1, "replication_factor": -1}


def _with(**configs: str | None) -> Json:
    return {"configs": [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()]}


_INERT: Final = {"file_delete_delay_ms": "5", "preallocate": "true", "unclean_leader_election_enable": "true"}
CREATE_TOPICS: Final = (
    _create("one", {"name": "diff-{v}", "num_partitions": 2}),
    _create("it again", {"name": "diff-{v}"}),
    _create("with settings", {"name": "diff-{v}-settings", **_with(retention_ms="5000", max_message_bytes="9000")}),
    _create("by the defaults", {"name": "diff-{v}-default", "num_partitions": -1, "replication_factor": -1}),
    _create("placed", {"name": "diff-{v}-placed", **_placed([1], [1])}),
    _create("to be looked at", {"name": "diff-{v}-look", "num_partitions": 3}, validate_only=True),
    _create("one good and one bad", {"name": "diff-{v}-good"}, {"name": "a b"}),
    _create("no topics"),
    _create("twice", {"name": "diff-{v}-twice"}, {"name": "diff-{v}-twice"}),
    *(_create(f"{count} partitions", {"name": "diff-{v}-parts", "num_partitions": count}) for count in (0, -2)),
    *(_create(f"{count} replicas", {"name": "diff-{v}-copies", "replication_factor": count}) for count in (0, -2, 5)),
    *(_create(f"the name {name[:9]!r}", {"name": name}) for name in ("", ".", "..", "a/b", "x" * 250, "\u00e9")),
    _create("a name that becomes one with another's", {"name": "diff_a"}),
    _create(
        "more partitions than a request may",
        *({"name": f"diff-{{v}}-many-{count}", "num_partitions": count} for count in (5000, 4999, 2)),
    ),
    _create("an unknown setting", {"name": "diff-{v}-odd", **_with(no_such_setting="1")}),
    _create("a setting that is no number", {"name": "diff-{v}-odd", **_with(retention_ms="soon")}),
    _create("a setting out of its range", {"name": "diff-{v}-odd", **_with(segment_bytes="1")}),
    _create("settings that change nothing", {"name": "diff-{v}-inert", **_with(**_INERT)}),
    _create("a compacted one", {"name": "diff-{v}-compact", **_with(cleanup_policy="compact,delete")}),
    _create("without a policy", {"name": "diff-{v}-kept", **_with(cleanup_policy="")}),
    _create("a list of nothing", {"name": "diff-{v}-odd", **_with(cleanup_policy=None)}),
    _create("a setting of nothing", {"name": "diff-{v}-odd", **_with(retention_ms=None)}),
    _create("placed on a broker that is not there", {"name": "diff-{v}-odd", **_placed([9])}),
    _create("placed twice on one broker", {"name": "diff-{v}-odd", **_placed([1, 1])}),
    _create("placed nowhere", {"name": "diff-{v}-odd", **_placed([])}),
    _create("placed and counted", {"name": "diff-{v}-odd", **_placed([1]), "num_partitions": 1}),
    _create(
        "placed with a gap",
        {"name": "diff-{v}-odd", **_placed([1]), "assignments": [{"partition_index": 1, "broker_ids": [1]}]},
    ),
)


def _add(label: str, name: str, count: int, assignments: list[list[int]] | None = None, **changes: Any) -> Ask:
    placed = None if assignments is None else [{"broker_ids": ids} for ids in assignments]
    topic = {"name": name, "count": count, "assignments": placed}
    return Ask("CreatePartitions", label, {"topics": [topic], "timeout_ms": 9000, "validate_only": False, **changes})


CREATE_PARTITIONS: Final = (
    Ask("CreatePartitions", "no topics", {"topics": [], "timeout_ms": 9000}),
    _add("to be looked at", "diff-cut", 9, validate_only=True),
    _add("as many as there are", "diff-cut", 2),
    _add("fewer", "diff-cut", 1),
    *(_add(f"{count} partitions", "diff-cut", count) for count in (0, -1)),
    _add("of an unknown topic", "diff-none", 3),
    _add("placed on a broker that is not there", "diff-cut", 3, [[9]]),
    _add("placed one too few", "diff-cut", 4, [[1]]),
    _add("placed nowhere", "diff-cut", 3, [[]]),
    _add("placed, to be looked at", "diff-cut", 3, [[1]], validate_only=True),
    Ask(
        "CreatePartitions",
        "twice",
        {"topics": [{"name": "diff-cut", "count": 5, "assignments": None}] * 2, "timeout_ms": 9000},
    ),
)


def _cut(label: str, offset: int, partition: int = 0, topic: Json = CUT) -> Ask:
    wanted = [{"partition_index": partition, "offset": offset}]
    return Ask("DeleteRecords", label, {"topics": [{**topic, "partitions": wanted}], "timeout_ms": 9000})


DELETE_RECORDS: Final = (
    _produce("something to cut", [_part({"name": "diff-cut"}, 0, batch())], versions=range(3, 4)),
    Ask("DeleteRecords", "no topics", {"topics": [], "timeout_ms": 9000}),
    _cut("nothing", 0),
    _cut("one", 1),
    _cut("what is gone", 0),
    _cut("below nothing", -2),
    _cut("beyond the end", 1000),
    _cut("all", -1),
    _cut("of an empty partition", -1, 1),
    _cut("of an unknown partition", 0, 9),
    _cut("of an unknown topic", 0, 0, UNKNOWN),
)


def _describe(label: str, kind: int, name: str, keys: list[str] | None = None, **changes: Any) -> Ask:
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    return Ask("DescribeConfigs", label, {"resources": [asked], **changes})


_KEYS: Final = ["retention.ms", "segment.bytes", "max.message.bytes", "min.insync.replicas"]
_BROKER_KEYS: Final = ["log.segment.bytes", "num.partitions"]
DESCRIBE_CONFIGS: Final = (
    _describe("settings of a topic", _TOPIC, "diff-settings", _KEYS),
    _describe("where they come from", _TOPIC, "diff-settings", _KEYS, include_synonyms=True),
    _describe("no settings", _TOPIC, "diff-a", []),
    _describe("all settings of a topic", _TOPIC, "diff-a", include_synonyms=True),
    _describe("unknown settings", _TOPIC, "diff-a", ["no.such.setting"]),
    _describe("an unknown topic", _TOPIC, "diff-none"),
    _describe("a topic without a name", _TOPIC, ""),
    _describe("a bad name", _TOPIC, "a/b"),
    _describe("settings of a broker", _BROKER, "1", _BROKER_KEYS),
    _describe("where a broker has them from", _BROKER, "1", _BROKER_KEYS, include_synonyms=True),
    _describe("settings of all brokers", _BROKER, ""),
    _describe("another broker", _BROKER, "9"),
    _describe("a broker without a number", _BROKER, "x"),
    _describe("a kind that is none", 99, "x"),
    _describe("no kind", 0, "x"),
    Ask("DescribeConfigs", "nothing", {"resources": []}),
    Ask(
        "DescribeConfigs",
        "a topic twice",
        {"resources": [{"resource_type": 2, "resource_name": "diff-a", "configuration_keys": ["retention.ms"]}] * 2},
    ),
)


def _set(label: str, kind: int, name: str, *changes: tuple[str, str | None], **more: Any) -> Ask:
    configs = [{"name": key, "value": value} for key, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return Ask("AlterConfigs", label, {"resources": [resource], **more})


def _change(label: str, kind: int, name: str, *changes: tuple[str, int, str | None], **more: Any) -> Ask:
    configs = [{"name": key, "config_operation": what, "value": value} for key, what, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return Ask("IncrementalAlterConfigs", label, {"resources": [resource], **more})


ALTER_CONFIGS: Final = (
    _set("a topic", _TOPIC, "diff-settings", ("retention.ms", "2000000")),
    _set("to be looked at", _TOPIC, "diff-settings", ("retention.ms", "3"), validate_only=True),
    _set("nothing of a topic", _TOPIC, "diff-settings"),
    _set("a setting of nothing", _TOPIC, "diff-settings", ("retention.ms", None)),
    _set("an unknown setting", _TOPIC, "diff-settings", ("no.such.setting", "1")),
    _set("no number", _TOPIC, "diff-settings", ("retention.ms", "soon")),
    _set("an unknown topic", _TOPIC, "diff-none", ("retention.ms", "1")),
    _set("a broker that is not there", _BROKER, "9", ("log.retention.ms", "1")),
    _set("a kind that is none", 99, "x", ("retention.ms", "1")),
    Ask("AlterConfigs", "nothing", {"resources": []}),
    _change("a topic", _TOPIC, "diff-settings", ("retention.ms", _SET, "2000000")),
    _change("back again", _TOPIC, "diff-settings", ("retention.ms", _DELETE, None)),
    _change("to be looked at", _TOPIC, "diff-settings", ("retention.ms", _SET, "3"), validate_only=True),
    _change("nothing of a topic", _TOPIC, "diff-settings"),
    _change("more of a list", _TOPIC, "diff-settings", ("cleanup.policy", _APPEND, "compact")),
    _change("less of a list", _TOPIC, "diff-settings", ("cleanup.policy", _SUBTRACT, "compact")),
    _change("nothing of a list", _TOPIC, "diff-settings", ("cleanup.policy", _SET, "")),
    _change("another policy", _TOPIC, "diff-settings", ("cleanup.policy", _SET, "shrink")),
    _change("a policy twice", _TOPIC, "diff-settings", ("cleanup.policy", _SET, "compact,compact")),
    _change("no list any more", _TOPIC, "diff-settings", ("cleanup.policy", _DELETE, None)),
    _change(
        "lags that exclude each other",
        _TOPIC,
        "diff-settings",
        ("min.compaction.lag.ms", _SET, "6"),
        ("max.compaction.lag.ms", _SET, "5"),
    ),
    _change("a ratio beyond 1", _TOPIC, "diff-settings", ("min.cleanable.dirty.ratio", _SET, "1.5")),
    _change("more of no list", _TOPIC, "diff-settings", ("retention.ms", _APPEND, "1")),
    _change("less of no list", _TOPIC, "diff-settings", ("retention.ms", _SUBTRACT, "1")),
    _change("a setting of nothing", _TOPIC, "diff-settings", ("retention.ms", _SET, None)),
    _change("twice", _TOPIC, "diff-settings", ("retention.ms", _SET, "1"), ("retention.ms", _SET, "2")),
    _change("an unknown operation", _TOPIC, "diff-settings", ("retention.ms", 9, "1")),
    _change("an unknown setting", _TOPIC, "diff-settings", ("no.such.setting", _SET, "1")),
    _change("what is not there", _TOPIC, "diff-settings", ("no.such.setting", _DELETE, None)),
    _change("no number", _TOPIC, "diff-settings", ("retention.ms", _SET, "soon")),
    _change("out of its range", _TOPIC, "diff-settings", ("segment.bytes", _SET, "1")),
    _change("an unknown topic", _TOPIC, "diff-none", ("retention.ms", _SET, "1")),
    _change("a topic without a name", _TOPIC, "", ("retention.ms", _SET, "1")),
    _change("a broker that is not there", _BROKER, "9", ("log.retention.ms", _SET, "1")),
    _change("a broker without a number", _BROKER, "x", ("log.retention.ms", _SET, "1")),
    _change("what only a start sets", _BROKER, "1", ("node.id", _SET, "7")),
    _change("a kind that is none", 99, "x", ("retention.ms", _SET, "1")),
    Ask("IncrementalAlterConfigs", "nothing", {"resources": []}),
    Ask(
        "IncrementalAlterConfigs",
        "a topic twice",
        {"resources": [{"resource_type": 2, "resource_name": "diff-settings", "configs": []}] * 2},
    ),
)


def _elect(label: str, topic: str, partition: int = 0, kind: int = 0) -> Ask:
    asked = [{"topic": topic, "partitions": [partition]}]
    return Ask("ElectLeaders", label, {"election_type": kind, "topic_partitions": asked, "timeout_ms": 9000})


def _placed_anew(label: str, topic: str, partition: int, replicas: list[int] | None) -> Ask:
    topics = [{"name": topic, "partitions": [{"partition_index": partition, "replicas": replicas}]}]
    return Ask("AlterPartitionReassignments", label, {"topics": topics, "timeout_ms": 9000})


def _epoch(label: str, topic: Json, partition: int, epoch: int, current: int) -> Ask:
    wanted = {"partition": partition, "leader_epoch": epoch, "current_leader_epoch": current}
    return Ask("OffsetForLeaderEpoch", label, {"replica_id": -1, "topics": [{**topic, "partitions": [wanted]}]})


CLUSTER: Final = (
    Ask("DescribeCluster", "the cluster", {}),
    Ask("DescribeCluster", "operations", {"include_cluster_authorized_operations": True}),
    Ask("DescribeCluster", "its controllers", {"endpoint_type": 2}),
    Ask("DescribeCluster", "an endpoint of 9", {"endpoint_type": 9}),
    Ask("DescribeCluster", "fenced brokers too", {"include_fenced_brokers": True}),
    _elect("the preferred", "diff-a"),
    _elect("any", "diff-a", kind=1),
    _elect("an unknown topic", "diff-none"),
    _elect("an unknown partition", "diff-a", 99),
    _elect("a kind of 9", "diff-a", kind=9),
    Ask("ElectLeaders", "nothing", {"topic_partitions": [], "timeout_ms": 9000}),
    Ask("AlterPartitionReassignments", "nothing", {"topics": [], "timeout_ms": 9000}),
    _placed_anew("where it is", "diff-b", 0, [1]),
    _placed_anew("to an unknown broker", "diff-b", 0, [9]),
    _placed_anew("to none", "diff-b", 0, []),
    _placed_anew("twice to one", "diff-b", 0, [1, 1]),
    _placed_anew("an end to none", "diff-b", 0, None),
    _placed_anew("an unknown topic", "diff-none", 0, [1]),
    _placed_anew("an unknown partition", "diff-b", 9, [1]),
    _epoch("this epoch", B, 0, 0, 0),
    _epoch("no current epoch", B, 0, 0, -1),
    _epoch("a later epoch", B, 0, 5, 0),
    _epoch("no epoch", B, 0, -1, 0),
    _epoch("another current epoch", B, 0, 0, 5),
    _epoch("an empty partition", A, 2, 0, 0),
    _epoch("an unknown topic", UNKNOWN, 0, 0, 0),
    _epoch("an unknown partition", B, 9, 0, 0),
    Ask("OffsetForLeaderEpoch", "no topics", {"replica_id": -1, "topics": []}),
)

_MEMBER: Final[Json] = {"group_id": "diff-{v}", "member_id": "nobody", "generation_id": 3}
_JOIN: Final[Json] = {
    "group_id": "diff-{v}",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b""}],
}


def _commit(label: str, group: str, topic: Json, partition: int) -> Ask:
    says = {"committed_offset": 5, "committed_leader_epoch": 0, "committed_metadata": "é"}
    topics = [{**topic, "partitions": [{"partition_index": partition, **says}]}]
    return Ask("OffsetCommit", label, {"group_id": group, "generation_id_or_member_epoch": -1, "topics": topics})


def _committed(label: str, group: str, topic: Json) -> Ask:
    asked = {"group_id": group, "topics": [{**topic, "partition_indexes": [0, 1, 9]}]}
    return Ask("OffsetFetch", label, {**asked, "groups": [asked]})


GROUPS: Final = (
    Ask("JoinGroup", "with an id of no member", {**_JOIN, "member_id": "nobody"}),
    Ask("JoinGroup", "without a group", {**_JOIN, "group_id": ""}),
    Ask("JoinGroup", "with too short a session", {**_JOIN, "session_timeout_ms": 1}),
    Ask("JoinGroup", "without protocols", {**_JOIN, "protocols": []}),
    Ask("SyncGroup", "of no member", {**_MEMBER, "protocol_type": "consumer", "protocol_name": "range"}),
    Ask("SyncGroup", "without a group", {**_MEMBER, "group_id": "", "protocol_type": "consumer"}),
    Ask("Heartbeat", "of no member", _MEMBER),
    Ask("Heartbeat", "without a group", {**_MEMBER, "group_id": ""}),
    Ask("LeaveGroup", "of no member", {**_MEMBER, "members": [{"member_id": "nobody"}]}),
    Ask("LeaveGroup", "without a group", {**_MEMBER, "group_id": "", "members": [{"member_id": "nobody"}]}),
    Ask("LeaveGroup", "of nobody", {"group_id": "diff-{v}", "members": []}, range(3, 100)),
    _commit("without members", "diff-{v}", A, 1),
    _commit("without a group", "", A, 1),
    _commit("an unknown topic", "diff-{v}", UNKNOWN, 1),
    _commit("an unknown partition", "diff-{v}", A, 9),
    Ask("OffsetCommit", "nothing", {"group_id": "diff-{v}", "generation_id_or_member_epoch": -1, "topics": []}),
    _committed("what was committed", "diff-offsetcommit-5", A),
    _committed("of no group", "diff-{v}", A),
    _committed("without a name", "", A),
    _committed("of an unknown topic", "diff-offsetcommit-5", UNKNOWN),
    Ask(
        "OffsetFetch",
        "everything",
        {
            "group_id": "diff-offsetcommit-5",
            "topics": None,
            "groups": [{"group_id": "diff-offsetcommit-5", "topics": None}],
        },
        range(2, 100),
    ),
    Ask("OffsetFetch", "of no groups", {"groups": []}, range(8, 100)),
    Ask("DescribeGroups", "groups", {"groups": ["diff-offsetcommit-5", "diff-none"]}),
    Ask("DescribeGroups", "none", {"groups": []}),
    Ask("DescribeGroups", "one without a name", {"groups": [""]}),
    Ask("DescribeGroups", "operations", {"groups": ["diff-offsetcommit-5"], "include_authorized_operations": True}),
    Ask("ListGroups", "all", {}, everything=True),
    Ask("ListGroups", "by state", {"states_filter": ["Empty"]}, everything=True),
    Ask("ListGroups", "by type", {"types_filter": ["classic"]}, everything=True),
    Ask("OffsetDelete", "an unknown group", {"group_id": "diff-none", "topics": []}),
    Ask("OffsetDelete", "nothing", {"group_id": "diff-offsetcommit-5", "topics": []}),
    Ask(
        "OffsetDelete",
        "an unknown topic",
        {"group_id": "diff-offsetcommit-5", "topics": [{"name": "diff-none", "partitions": [{"partition_index": 0}]}]},
    ),
    Ask("DeleteGroups", "one", {"groups_names": ["diff-offsetcommit-2", "diff-none", ""]}),
    Ask("DeleteGroups", "none", {"groups_names": []}),
)


def _id(label: str, **changes: Any) -> Ask:
    values = {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    return Ask("InitProducerId", label, {**values, **changes})


_TXN: Final[Json] = {"transactional_id": "diff-none", "producer_id": 123_456, "producer_epoch": 0}
_MARKER: Final[Json] = {
    **{"producer_id": 123_456, "producer_epoch": 0, "transaction_result": True},
    "topics": [{"name": "diff-none", "partition_indexes": [0]}],
}
TRANSACTIONS: Final = (
    _id("without transactions"),
    _id("with transactions", transactional_id="diff-{v}"),
    _id("again", transactional_id="diff-{v}"),
    _id("without a name", transactional_id=""),
    *(
        _id(f"a time-out of {time}", transactional_id="diff-{v}", transaction_timeout_ms=time)
        for time in (0, -1, 2**30)
    ),
    _id("an id without an epoch", producer_id=5, transactional_id="diff-{v}"),
    _id("an epoch without an id", producer_epoch=5, transactional_id="diff-{v}"),
    _id("another id", producer_id=123_456, producer_epoch=0, transactional_id="diff-{v}"),
    Ask(
        "AddPartitionsToTxn",
        "of no transaction",
        {
            "v3_and_below_transactional_id": "diff-none",
            "v3_and_below_producer_id": 123_456,
            "v3_and_below_topics": [{"name": "diff-a", "partitions": [0]}],
            "transactions": [{**_TXN, "topics": [{"name": "diff-a", "partitions": [0]}]}],
        },
    ),
    Ask("AddOffsetsToTxn", "of no transaction", {**_TXN, "group_id": "g"}),
    Ask("AddOffsetsToTxn", "without a name", {**_TXN, "transactional_id": "", "group_id": "g"}),
    Ask("EndTxn", "of no transaction", {**_TXN, "committed": True}),
    Ask("EndTxn", "without a name", {**_TXN, "transactional_id": "", "committed": False}),
    Ask(
        "TxnOffsetCommit",
        "of no transaction",
        {
            **_TXN,
            "group_id": "diff-{v}",
            "topics": [{"name": "diff-a", "partitions": [{"partition_index": 0, "committed_offset": 1}]}],
        },
    ),
    Ask("TxnOffsetCommit", "nothing", {**_TXN, "group_id": "diff-{v}", "topics": []}),
    Ask("TxnOffsetCommit", "without a group", {**_TXN, "group_id": "", "topics": []}),
    Ask("DescribeTransactions", "unknown ones", {"transactional_ids": ["diff-none", ""]}),
    Ask("DescribeTransactions", "none", {"transactional_ids": []}),
    Ask("ListTransactions", "all", {"duration_filter": -1}, everything=True),
    Ask("ListTransactions", "by state", {"state_filters": ["Empty", "odd"], "duration_filter": -1}, everything=True),
    Ask("ListTransactions", "by producer", {"producer_id_filters": [987_654], "duration_filter": -1}),
    Ask(
        "ListTransactions",
        "by a pattern that is none",
        {"transactional_id_pattern": "(", "duration_filter": -1},
        range(2, 100),
    ),
    Ask("DescribeProducers", "of a partition", {"topics": [{"name": "diff-b", "partition_indexes": [0, 9]}]}),
    Ask("DescribeProducers", "of an unknown topic", {"topics": [{"name": "diff-none", "partition_indexes": [0]}]}),
    Ask("DescribeProducers", "of nothing", {"topics": []}),
    Ask("WriteTxnMarkers", "none", {"markers": []}),
    Ask("WriteTxnMarkers", "for an unknown topic", {"markers": [_MARKER]}),
)

_CLIENT: Final[Json] = {"client_software_name": "diff", "client_software_version": "1.0"}
HANDSHAKES: Final = (
    Ask("ApiVersions", "the table", _CLIENT),
    *(
        Ask("ApiVersions", f"the client {name[:9]!r}", {**_CLIENT, "client_software_name": name})
        for name in ("", "a b", "-a", "a" * 300)
    ),
    Ask("SaslHandshake", "where there is none", {"mechanism": "PLAIN"}),
    Ask("SaslAuthenticate", "where there is none", {"auth_bytes": b"\0me\0secret"}),
)

DELETE_TOPICS: Final = (
    *(
        Ask(
            "DeleteTopics",
            label,
            {"topic_names": names, "topics": [{"name": name} for name in names], "timeout_ms": 9000},
        )
        for label, names in (
            ("one and an unknown one", ["diff-createtopics-2", "diff-none"]),
            ("none", []),
            ("bad names", ["", "a/b", ".."]),
            ("twice", ["diff-createtopics-7-placed"] * 2),
        )
    ),
    *(
        Ask("DeleteTopics", label, {"topics": [topic], "timeout_ms": 9000}, range(6, 100))
        for label, topic in (
            ("an unknown id", {"name": None, "topic_id": topic_id("nobody")}),
            ("neither id nor name", {"name": None}),
            ("id and name", {"name": "diff-cut", "topic_id": topic_id("diff-cut")}),
            ("by id", {"name": None, "topic_id": topic_id("diff-cut")}),
        )
    ),
)


#: Older versions of Metadata create the requested topics, which takes Kafka some time.
_FIRST_THAT_MAKES_NO_TOPICS: Final = 4


#: APIs whose responses list all items, if the request names none.
_LISTS: Final = frozenset(
    {"Metadata", "ListGroups", "ListTransactions", "DescribeLogDirs", "ListConfigResources", "DescribeTopicPartitions"}
)


@cache
def golden(variant: str) -> tuple[Ask, ...]:
    """Return requests with every field of every API set (*full*), or null, empty and minimal (*sparse*)."""
    messages: Json = json.loads((_GOLDEN / "protocol" / "values.json").read_text())["messages"]
    return tuple(
        Ask(
            name.removesuffix("Request"),
            variant,
            values[variant],
            range(_FIRST_THAT_MAKES_NO_TOPICS if name == "MetadataRequest" else 0, 100),
            final=True,
            everything=name.removesuffix("Request") in _LISTS,
        )
        for name, values in messages.items()
        # kafka-python, which encodes these requests, supports only the classic group protocol.
        if name.endswith("Request") and not name.startswith("ConsumerGroup")
    )


#: The order matters: requests read after they write, and delete at the end.
_ACL: Final[Json] = {"principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}
_ANY_ACL: Final[Json] = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
#: Requests about ACLs to brokers without an authorizer.
ACLS: Final = (
    Ask("CreateAcls", "one", {"creations": [{**_ACL, "resource_type": 2, "resource_name": "diff-a"}]}),
    Ask("CreateAcls", "none", {"creations": []}),
    Ask("DescribeAcls", "all", _ANY_ACL),
    Ask("DeleteAcls", "all", {"filters": [_ANY_ACL]}),
)


def _quota(label: str, *components: tuple[str, int, str | None], **changes: Any) -> Ask:
    values = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    return Ask("DescribeClientQuotas", label, {"components": values, **changes})


def _alter(label: str, entity: list[tuple[str, str | None]], *ops: tuple[str, float | None], **changes: Any) -> Ask:
    parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
    values = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops]
    return Ask("AlterClientQuotas", label, {"entries": [{"entity": parts, "ops": values}], **changes})


def _upsert(name: str, mechanism: int = 1, iterations: int = 4096) -> Json:
    password = {"salt": b"salt" * 4, "salted_password": b"p" * 32}
    return {"name": name, "mechanism": mechanism, "iterations": iterations, **password}


def _users(label: str, *upsertions: Json, without: Sequence[tuple[str, int]] = ()) -> Ask:
    deletions = [{"name": name, "mechanism": mechanism} for name, mechanism in without]
    return Ask("AlterUserScramCredentials", label, {"deletions": deletions, "upsertions": [*upsertions]})


def _described(label: str, *names: str) -> Ask:
    return Ask("DescribeUserScramCredentials", label, {"users": [{"name": name} for name in names]})


SCRAM_USERS: Final = (
    _users("two new ones", _upsert("diff-one"), _upsert("diff-two", 2, 16_384)),
    _users("another mechanism and other iterations", _upsert("diff-one", 2), _upsert("diff-two", 2, 4096)),
    _described("both, and nobody", "diff-one", "diff-two", "diff-nobody"),
    _described("twice", "diff-one", "diff-one"),
    _users("without a name", _upsert("")),
    _users("mechanisms that are not there", _upsert("diff-a", 0), _upsert("diff-b", 3), _upsert("diff-c", -1)),
    _users("few and many iterations", _upsert("diff-a", 1, 4095), _upsert("diff-b", 1, 16_385)),
    _users("one twice", _upsert("diff-a"), _upsert("diff-a", 2)),
    _users("one made and deleted", _upsert("diff-two"), without=[("diff-two", 2)]),
    _users("deletions", without=[("diff-one", 1), ("diff-two", 1), ("diff-none", 1), ("", 1), ("diff-c", 9)]),
    _users("a deletion twice", without=[("diff-two", 2), ("diff-two", 2)]),
    _users("nothing"),
    _described("what is left", "diff-one", "diff-two"),
)


def _pages(label: str, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None) -> Ask:
    start = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    values = {"topics": [{"name": name} for name in names], "response_partition_limit": limit, "cursor": start}
    return Ask("DescribeTopicPartitions", label, values, everything=not names)


def _quorum(label: str, *topics: tuple[str, list[int]]) -> Ask:
    asked = [
        {"topic_name": name, "partitions": [{"partition_index": index} for index in indexes]}
        for name, indexes in topics
    ]
    return Ask("DescribeQuorum", label, {"topics": asked})


_DIRECTORIES: Final = {
    "two partitions": [{"topic": "diff-a", "partitions": [0, 2]}],
    "a partition that is not there": [{"topic": "diff-a", "partitions": [99]}],
    "an unknown topic": [{"topic": "diff-none", "partitions": [0]}],
    "no topics": [],
}
CONSOLES: Final = (
    *(Ask("DescribeLogDirs", label, {"topics": topics}) for label, topics in _DIRECTORIES.items()),
    _quorum("the metadata", ("__cluster_metadata", [0])),
    _quorum("another partition", ("__cluster_metadata", [1])),
    _quorum("another topic", ("diff-a", [0])),
    Ask("ListPartitionReassignments", "all", {"topics": None}),
    Ask("ListPartitionReassignments", "of a topic", {"topics": [{"name": "diff-a", "partition_indexes": [0]}]}),
    Ask("ListPartitionReassignments", "of nothing", {"topics": [{"name": "diff-none", "partition_indexes": [0]}]}),
    _pages("two topics", "diff-a", "diff-b"),
    *(_pages(f"the name {name!r}", "diff-a", name) for name in ("diff-none", "a/b", "")),
    _pages("before the first partition", "diff-a", cursor=("diff-a", -1)),
    _pages("a page", "diff-b", "diff-a", limit=2),
    _pages("the next page", "diff-a", "diff-b", limit=2, cursor=("diff-a", 2)),
    _pages("from a topic on", "diff-a", "diff-b", cursor=("diff-b", 0)),
    _pages("from a topic that is not there", "diff-a", "diff-b", cursor=("diff-aa", 1)),
    _pages("beyond a topic's end", "diff-a", "diff-b", cursor=("diff-a", 9)),
    *(_pages(f"a limit of {limit}", "diff-a", limit=limit) for limit in (1, 0, -1)),
    Ask("ListConfigResources", "brokers", {"resource_types": [_BROKER]}, range(1, 100)),
    Ask("ListConfigResources", "loggers", {"resource_types": [8]}, range(1, 100)),
    Ask("ListConfigResources", "groups and metrics", {"resource_types": [16, 32]}, range(1, 100), everything=True),
    Ask("ListConfigResources", "a kind that is none", {"resource_types": [99]}, range(1, 100)),
    Ask("ListConfigResources", "metrics", {}, range(1)),
    _alter("a user", [("user", "diff")], ("producer_byte_rate", 100_000.0)),
    _alter("every client of a user", [("user", "diff"), ("client-id", None)], ("consumer_byte_rate", 7.0)),
    _alter("to be looked at", [("user", "diff-other")], ("consumer_byte_rate", 7.0), validate_only=True),
    _alter("an address", [("ip", "127.0.0.9")], ("connection_creation_rate", 1000.0)),
    _alter("a share of requests", [("user", "diff")], ("request_percentage", 1000.0)),
    _alter("nobody", [], ("producer_byte_rate", 1.0)),
    _alter("two users", [("user", "diff-a"), ("user", "diff-b")], ("producer_byte_rate", 1.0)),
    _alter("an unknown kind", [("planet", "diff")], ("producer_byte_rate", 1.0)),
    _alter("a user without a name", [("user", "")], ("producer_byte_rate", 1.0)),
    _alter("an unknown quota", [("user", "diff")], ("no_such_rate", 1.0)),
    _alter("nothing", [("user", "diff")], ("producer_byte_rate", 0.0)),
    _alter("half a byte", [("user", "diff")], ("producer_byte_rate", 0.5)),
    _alter("more than a long", [("user", "diff")], ("producer_byte_rate", 1e30)),
    _quota("set before", ("user", 0, "diff"), ("client-id", 1, None), strict=True),
    _alter("an address no more", [("ip", "127.0.0.9")], ("connection_creation_rate", None)),
    _alter("a share of requests no more", [("user", "diff")], ("request_percentage", None)),
    _alter("two users no more", [("user", "diff-b")], ("producer_byte_rate", None)),
    _alter("a user no more", [("user", "diff")], ("producer_byte_rate", None)),
    _alter("every client of a user no more", [("user", "diff"), ("client-id", None)], ("consumer_byte_rate", None)),
    _quota("all"),
    _quota("of a user", ("user", 0, "a")),
    _quota("of every user and client", ("user", 2, None), ("client-id", 1, None), strict=True),
    _quota("of an address and a user", ("ip", 2, None), ("user", 2, None)),
    _quota("a kind twice", ("user", 2, None), ("user", 1, None)),
    _quota("an unknown kind", ("planet", 2, None)),
    _quota("no kind", ("", 2, None)),
    _quota("an unknown way", ("user", 7, None)),
    _quota("exactly nobody", ("user", 0, None)),
    _quota("any of one name", ("user", 2, "a")),
)


def _of_policy(name: str, policy: str) -> tuple[Ask, ...]:
    """Return requests of administrators for a topic with this policy, whose one partition has a record with a key."""
    topic, of = {"name": name, "topic": name, "topic_id": topic_id(name)}, f"of {policy or 'no policy'}"
    return (
        _produce(f"a record {of}", [_part(topic, 0, keyed_batch())], versions=range(3, 4)),
        _offsets(f"the largest time {of}", -3, topic),
        *(_cut(f"{word} {of}", offset, topic=topic) for word, offset in (("nothing", 0), ("beyond", 99), ("all", -1))),
        *(_offsets(f"the {word} {of}", time, topic) for word, time in (("first", -2), ("end", -1))),
        _epoch(f"the epoch {of}", topic, 0, 0, 0),
        _describe(f"the policy {of}", _TOPIC, name, ["cleanup.policy"]),
        _add(f"more partitions {of}", name, 5, validate_only=True),
        _elect(f"a leader {of}", name),
        _placed_anew(f"again {of}", name, 0, [1]),
        *(
            _change(f"{of} to {other or 'nothing'}", _TOPIC, name, ("cleanup.policy", _SET, other), validate_only=True)
            for other in POLICIES.values()
        ),
    )


CLEANUP_POLICIES: Final = tuple(ask for name, policy in POLICIES.items() for ask in _of_policy(name, policy))

SCENARIOS: Final[dict[str, tuple[Ask, ...]]] = {
    "consoles": CONSOLES,
    "produce": PRODUCE,
    "fetch": FETCH,
    "list offsets": LIST_OFFSETS,
    "metadata": METADATA,
    "coordinators": FIND_COORDINATOR,
    "create topics": CREATE_TOPICS,
    "create partitions": CREATE_PARTITIONS,
    "delete records": DELETE_RECORDS,
    "cleanup policies": CLEANUP_POLICIES,
    "describe configs": DESCRIBE_CONFIGS,
    "alter configs": ALTER_CONFIGS,
    "cluster": CLUSTER,
    "groups": GROUPS,
    "transactions": TRANSACTIONS,
    "ACLs": ACLS,
    "users": SCRAM_USERS,
    "handshakes": HANDSHAKES,
    "all fields": golden("full"),
    "no fields": golden("sparse"),
    "delete topics": DELETE_TOPICS,
}
