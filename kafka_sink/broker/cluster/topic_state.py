"""One topic in the cluster image: its partitions, its effective settings, and the validation rules for topics.

A setting that a topic does not have is the brokers' default. The cluster state creates these objects under its lock;
every thread reads them without a lock, as all are immutable. This module must not depend on the running nodes or on the
content of the disk.

Source: apache/kafka ``Topic`` (names), ``PartitionRegistration``, ``ReplicationControlManager`` (assignments).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, make_dataclass, replace
from itertools import starmap
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from kafka_sink.broker.config import COMPACT, DELETE, LOG_APPEND_TIME, BrokerConfig
from kafka_sink.broker.log.compaction import CompactionRules
from kafka_sink.broker.log.partition_log import LogConfig
from kafka_sink.common.config import BOOLEAN, INT, LIST, STRING, Options, at_least, keys, one_of, only, parse
from kafka_sink.common.errors import ApiError, ConfigError, ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.records.validation import BatchRules

_NEVER: Final = 2**63 - 1
_OF_REPLICATION: Final = "of replication: data is stored once"
_OF_TIERS: Final = "of remote storage, which does not exist here"


@dataclass(frozen=True)
class InertTopicConfig(Options):
    """Kafka's other topic settings, which have no effect here, with Kafka's defaults. Values that would require an
    effect are refused: batches are not recompressed, the age of segments is exact, and there is no remote
    storage."""

    compression_type: str = STRING("producer", "batches are stored as they came", one_of("producer"))
    file_delete_delay_ms: int = INT(60_000, "files are removed at once", at_least(0))
    follower_throttled: tuple[str, ...] = LIST((), _OF_REPLICATION, name="follower.replication.throttled.replicas")
    leader_throttled: tuple[str, ...] = LIST((), _OF_REPLICATION, name="leader.replication.throttled.replicas")
    local_retention_bytes: int = INT(-2, _OF_TIERS, at_least(-2))
    local_retention_ms: int = INT(-2, _OF_TIERS, at_least(-2))
    preallocate: bool = BOOLEAN(False, "files grow as they are written")
    remote_log_copy_disable: bool = BOOLEAN(False, _OF_TIERS)
    remote_log_delete_on_disable: bool = BOOLEAN(False, _OF_TIERS)
    remote_storage_enable: bool = BOOLEAN(False, _OF_TIERS, only(False))
    segment_index_bytes: int = INT(10_485_760, "an index has room for its segment", at_least(4))
    segment_jitter_ms: int = INT(0, "the age of segments is exact", only(0))
    unclean_leader_election_enable: bool = BOOLEAN(False, "data is stored once: every leader has all of it")


#: Topic setting → the broker option that is its default. These options can be changed on running brokers, because only
#: the functions below read them.
BROKER_SYNONYMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "max.message.bytes": "message.max.bytes",
        "max.decompressed.message.bytes": "max.decompressed.message.bytes",
        "min.insync.replicas": "min.insync.replicas",
        "segment.bytes": "log.segment.bytes",
        "segment.ms": "log.roll.ms",
        "index.interval.bytes": "log.index.interval.bytes",
        "flush.messages": "log.flush.interval.messages",
        "flush.ms": "log.flush.interval.ms",
        "cleanup.policy": "log.cleanup.policy",
        "delete.retention.ms": "log.cleaner.delete.retention.ms",
        "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
        "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
        "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
        "retention.ms": "log.retention.ms",
        "retention.bytes": "log.retention.bytes",
        "message.timestamp.type": "log.message.timestamp.type",
        "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    }
)


def _setting(name: str, option: str) -> tuple[str, type, Any]:
    key = keys(BrokerConfig)[option][0]
    return name.replace(".", "_"), object, key.type(None, key.doc, key.validator)


#: The settings that can be set at topic level, a table like that of the broker; None selects the broker's value.
TopicConfig: Final[type[Any]] = make_dataclass(
    "TopicConfig", starmap(_setting, BROKER_SYNONYMS.items()), bases=(Options,), frozen=True
)


#: The same for settings without effect; the broker does not have these options.
INERT_SYNONYMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "file.delete.delay.ms": "log.segment.delete.delay.ms",
        "local.retention.bytes": "log.local.retention.bytes",
        "local.retention.ms": "log.local.retention.ms",
        "preallocate": "log.preallocate",
        "segment.index.bytes": "log.index.size.max.bytes",
    }
)


#: Options of compaction without a topic setting, which can be changed on running brokers, too.
CLEANER_OPTIONS: Final = frozenset({"log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size"})


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The effective settings of a topic."""

    batches: BatchRules
    min_insync_replicas: int
    log: LogConfig


def topic_settings(configs: Mapping[str, str], broker: BrokerConfig) -> TopicSettings:
    """Apply *configs* to the defaults of *broker*.

    :raises ConfigError: if a name is unknown or a value is not allowed.
    """
    inert = keys(InertTopicConfig)
    parse(InertTopicConfig, {name: value for name, value in configs.items() if name in inert})
    own = parse(TopicConfig, {name: value for name, value in configs.items() if name not in inert})
    options = keys(BrokerConfig)
    values: dict[str, Any] = {}
    for name, (_, item) in keys(TopicConfig).items():
        value = getattr(own, item.name)
        values[name] = getattr(broker, options[BROKER_SYNONYMS[name]][1].name) if value is None else value
    if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
        lags = f"{values['min.compaction.lag.ms']} ms is larger than max.compaction.lag.ms"
        raise ConfigError(
            f"min.compaction.lag.ms of {lags}, {values['max.compaction.lag.ms']} ms: exchange them",
            option="min.compaction.lag.ms",
        )
    log_append_time = values["message.timestamp.type"] == LOG_APPEND_TIME
    batches = BatchRules(
        max_message_bytes=values["max.message.bytes"],
        max_decompressed_bytes=values["max.decompressed.message.bytes"],
        timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
        timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
        log_append_time=log_append_time,
        needs_key=COMPACT in values["cleanup.policy"],
    )
    compaction = _compaction(values, broker) if batches.needs_key else None
    log = LogConfig(
        segment_bytes=values["segment.bytes"],
        # A record in the active segment is not compacted, however old it is.
        segment_ms=min(values["segment.ms"], compaction.max_lag_ms if compaction is not None else _NEVER),
        index_interval_bytes=values["index.interval.bytes"],
        flush_interval_messages=values["flush.messages"],
        flush_interval_ms=values["flush.ms"],
        retention_bytes=values["retention.bytes"],
        retention_ms=values["retention.ms"],
        log_append_time=log_append_time,
        producer_expiration_ms=broker.producer_id_expiration_ms,
        deletes=DELETE in values["cleanup.policy"],
        compaction=compaction,
    )
    return TopicSettings(batches=batches, min_insync_replicas=values["min.insync.replicas"], log=log)


def _compaction(values: Mapping[str, Any], broker: BrokerConfig) -> CompactionRules:
    return CompactionRules(
        delete_retention_ms=values["delete.retention.ms"],
        min_lag_ms=values["min.compaction.lag.ms"],
        max_lag_ms=values["max.compaction.lag.ms"],
        min_dirty_ratio=values["min.cleanable.dirty.ratio"],
        map_bytes=broker.log_cleaner_dedupe_buffer_size,
    )


NO_LEADER: Final = -1
MAX_TOPIC_NAME_LENGTH: Final = 249
#: More than any test needs; a request for 2·10⁹ partitions must not exhaust the memory.
MAX_PARTITIONS_PER_TOPIC: Final = 10_000
#: New partitions of all topics of a request together (apache/kafka ``ReplicationControlManager``).
MAX_PARTITIONS_PER_REQUEST: Final = 10_000
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The replicas of a partition, its leader (:data:`NO_LEADER` if it has none), and its leader epoch."""

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int

    def led_by(self, leader: int) -> PartitionState:
        """The partition with another leader and a new leader epoch; NO_LEADER keeps the epoch."""
        if leader == self.leader:
            return self
        return replace(self, leader=leader, leader_epoch=self.leader_epoch + (leader != NO_LEADER))

    def elected(self, running: Collection[int]) -> PartitionState:
        """The partition with a running leader: the current leader if it runs, else the first replica that runs."""
        if self.leader in running:
            return self
        return self.led_by(next((replica for replica in self.replicas if replica in running), NO_LEADER))


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic. *configs* are its topic-level settings, *settings* its effective settings."""

    name: str
    topic_id: UUID
    configs: Mapping[str, str]
    settings: TopicSettings
    partitions: tuple[PartitionState, ...]

    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, index) for index in range(len(self.partitions))]

    def partition(self, index: int) -> PartitionState:
        """:raises ApiError: UNKNOWN_TOPIC_OR_PARTITION."""
        if not 0 <= index < len(self.partitions):
            raise ApiError(f"{self.name} has no partition {index}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.partitions[index]

    def with_partition(self, index: int, state: PartitionState) -> TopicState:
        return replace(self, partitions=(*self.partitions[:index], state, *self.partitions[index + 1 :]))

    def elected(self, running: Collection[int]) -> TopicState:
        """The topic with running leaders for its partitions; the same object if nothing changes."""
        partitions = tuple(partition.elected(running) for partition in self.partitions)
        return self if partitions == self.partitions else replace(self, partitions=partitions)


def validate_topic_name(name: str) -> None:
    """:raises ApiError: INVALID_TOPIC_EXCEPTION, with the reason."""
    if not name:
        reason = "it is empty"
    elif name in (".", ".."):
        reason = "a directory cannot have this name"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        reason = f"it is longer than {MAX_TOPIC_NAME_LENGTH} characters"
    elif not _LEGAL_NAME.fullmatch(name):
        reason = "only ASCII letters and digits, '.', '_' and '-' are legal"
    else:
        return
    raise ApiError(f"illegal topic name {name[:300]!r}: {reason}", ErrorCode.INVALID_TOPIC_EXCEPTION)


def validate_partition_count(partitions: int) -> None:
    """:raises ApiError: INVALID_PARTITIONS, POLICY_VIOLATION."""
    if partitions < 1:
        raise ApiError("a topic needs at least one partition", ErrorCode.INVALID_PARTITIONS)
    if partitions > MAX_PARTITIONS_PER_TOPIC:
        text = f"a topic may have {MAX_PARTITIONS_PER_TOPIC} partitions at most"
        raise ApiError(text, ErrorCode.POLICY_VIOLATION)


def too_many_partitions() -> ApiError:
    """The error of each topic in a request for more than :data:`MAX_PARTITIONS_PER_REQUEST`."""
    text = f"a request may create {MAX_PARTITIONS_PER_REQUEST} partitions at most; divide its topics among several"
    return ApiError(text, ErrorCode.POLICY_VIOLATION)


def validate_replication_factor(factor: int, nodes: Sequence[int]) -> None:
    """:raises ApiError: INVALID_REPLICATION_FACTOR."""
    if not 1 <= factor <= len(nodes):
        text = f"replication factor {factor} is not between 1 and {len(nodes)}, the number of nodes"
        raise ApiError(text, ErrorCode.INVALID_REPLICATION_FACTOR)


def validate_assignment(assignment: Sequence[Sequence[int]], nodes: Sequence[int], factor: int | None = None) -> None:
    """Check that each partition has replicas on distinct *nodes*, and all the same number (*factor*, if given).

    :raises ApiError: INVALID_REPLICA_ASSIGNMENT.
    """
    for replicas in assignment:
        if not replicas or len(set(replicas)) < len(replicas) or not set(replicas) <= set(nodes):
            text = f"replicas {list(replicas)} are not distinct nodes of {list(nodes)}"
            raise ApiError(text, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    factors = {len(replicas) for replicas in assignment} | ({factor} if factor is not None else set())
    if len(factors) > 1:
        raise ApiError("all partitions must have the same number of replicas", ErrorCode.INVALID_REPLICA_ASSIGNMENT)


def spread(nodes: Sequence[int], partitions: int, factor: int, start: int) -> list[tuple[int, ...]]:
    """Assign replicas to *partitions* partitions, leaders round-robin over all *nodes*, beginning at index *start*."""
    return [
        tuple(nodes[(start + partition + replica) % len(nodes)] for replica in range(factor))
        for partition in range(partitions)
    ]
