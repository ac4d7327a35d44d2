"""An immutable snapshot of the cluster, and its format on disk.

The cluster state creates images; every thread reads them. The content of a file is untrusted input: this module, and no
other, validates it. The only decision made here is the election of a leader for a partition without one.

Source: apache/kafka ``MetadataImage`` for the idea.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from kafka_sink.broker.authorizer import AclCache
from kafka_sink.broker.cluster.topic_state import NO_LEADER, PartitionState, TopicState, topic_settings
from kafka_sink.broker.config import BrokerConfig, EndPoint
from kafka_sink.common.bounded import INT32_MAX, json_number, parsed_json
from kafka_sink.common.config import keys
from kafka_sink.common.errors import ApiError, ConfigError, ErrorCode
from kafka_sink.common.model import QuotaEntity
from kafka_sink.common.sasl_mechanisms import ScramUsers, credential_text, parse_credential

_FORMAT: Final = 1

#: Listener name → advertised address.
Endpoints = Mapping[str, EndPoint]


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """*members* are all nodes that may have replicas, *nodes* those that run."""

    cluster_id: str
    members: tuple[int, ...]
    nodes: Mapping[int, Endpoints] = field(default_factory=dict)
    topics: Mapping[str, TopicState] = field(default_factory=dict)
    #: Cluster-wide dynamic broker options.
    broker_configs: Mapping[str, str] = field(default_factory=dict)
    #: The first producer id that was never allocated to any process.
    next_producer_id: int = 0
    acls: AclCache = field(default_factory=AclCache)
    #: The quotas of each entity, by Kafka's names.
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    #: Users that clients have created, without those of the configuration.
    scram_users: ScramUsers = field(default_factory=dict)
    names: Mapping[UUID, str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", {topic.topic_id: topic.name for topic in self.topics.values()})


class Draft:
    """The next image, while one thread changes it: any number of changes costs a copy of the topics' names."""

    def __init__(self, image: ClusterImage) -> None:
        self._base = image
        self.members: Final = image.members
        self.nodes = image.nodes
        self.topics = dict(image.topics)
        self.broker_configs = image.broker_configs
        self.next_producer_id = image.next_producer_id
        self.acls = image.acls
        self.quotas = dict(image.quotas)
        self.scram_users = dict(image.scram_users)
        # Names in which '.' and '_' are the same → topics; created on first use.
        self._merged: dict[str, str] | None = None

    def image(self) -> ClusterImage:
        return replace(
            self._base,
            nodes=self.nodes,
            topics=dict(self.topics),
            broker_configs=self.broker_configs,
            next_producer_id=self.next_producer_id,
            acls=self.acls,
            quotas=dict(self.quotas),
            scram_users=dict(self.scram_users),
        )

    def defaults(self, config: BrokerConfig) -> BrokerConfig:
        """*config* with the dynamic options applied."""
        return defaults_of(config, self.broker_configs)

    def set_nodes(self, nodes: Mapping[int, Endpoints]) -> None:
        """Set the running nodes; the first running replica leads each partition whose leader does not run."""
        self.nodes = nodes
        self.topics = {name: topic.elected(nodes) for name, topic in self.topics.items()}

    def set_topic(self, topic: TopicState) -> None:
        self.topics[topic.name] = topic
        if self._merged is not None:
            self._merged[_merged(topic.name)] = topic.name

    def remove_topic(self, name: str) -> None:
        self.topics.pop(name, None)
        self._merged = None

    def refuse_taken_name(self, name: str) -> None:
        """:raises ApiError: TOPIC_ALREADY_EXISTS; INVALID_TOPIC_EXCEPTION if a name differs only in '.' and '_', which
        Kafka rejects because its names of metrics do not distinguish them."""
        if name in self.topics:
            raise ApiError(f"topic {name!r} already exists", ErrorCode.TOPIC_ALREADY_EXISTS)
        if self._merged is None:
            self._merged = {_merged(taken): taken for taken in self.topics}
        other = self._merged.get(_merged(name))
        if other is not None:
            raise ApiError(f"topic {name!r} collides with {other!r}", ErrorCode.INVALID_TOPIC_EXCEPTION)


def _merged(name: str) -> str:
    return name.replace(".", "_")


def defaults_of(config: BrokerConfig, changed: Mapping[str, str]) -> BrokerConfig:
    """*config* with the dynamic options in *changed* applied. :raises ConfigError: if a value is not allowed."""
    options = keys(BrokerConfig)
    values = {options[name][1].name: options[name][0].read(text, name) for name, text in changed.items()}
    return replace(config, **values) if values else config


def encode(image: ClusterImage) -> bytes:
    """The file's content, without the running nodes and the leaders, which end with the process."""
    content: dict[str, Any] = {
        "format": _FORMAT,
        "cluster_id": image.cluster_id,
        "next_producer_id": image.next_producer_id,
        "topics": [
            {
                "name": topic.name,
                "id": topic.topic_id.hex,
                "configs": dict(topic.configs),
                "partitions": [[*partition.replicas, partition.leader_epoch] for partition in topic.partitions],
            }
            for topic in image.topics.values()
        ],
    }
    if image.broker_configs:
        content["broker_configs"] = dict(image.broker_configs)
    if image.acls.acls:
        content["acls"] = image.acls.encoded()
    if image.quotas:
        content["quotas"] = [[dict(entity), dict(values)] for entity, values in image.quotas.items()]
    if image.scram_users:
        content["scram_users"] = [credential_text(*key, value) for key, value in image.scram_users.items()]
    return json.dumps(content, separators=(",", ":")).encode()


def decode(data: bytes, config: BrokerConfig, members: Sequence[int]) -> ClusterImage:
    """Decode the output of :func:`encode` for a cluster of *members*, which may be fewer than before: the partitions of
    the missing nodes need other replicas.

    :raises ConfigError: if the file is damaged or has another format.
    """
    try:
        content: dict[str, Any] = parsed_json(data)
        if content["format"] != _FORMAT:
            raise ConfigError(f"it has format {content['format']}, expected {_FORMAT}")
        changed = {str(name): str(value) for name, value in content.get("broker_configs", {}).items()}
        defaults = defaults_of(config, changed)
        topics = [_only_on(_decode_topic(entry, defaults), members) for entry in content["topics"]]
        return ClusterImage(
            str(content["cluster_id"]),
            tuple(members),
            {},
            {topic.name: topic for topic in topics},
            changed,
            json_number(content["next_producer_id"], 0),
            AclCache.decode(content.get("acls", ())),
            {
                frozenset(entity.items()): {str(key): float(value) for key, value in values.items()}
                for entity, values in content.get("quotas", ())
            },
            {
                (mechanism, name): credential
                for mechanism, name, credential in map(parse_credential, content.get("scram_users", ()))
            },
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"it is damaged: {error!r}") from error


def _decode_topic(entry: Mapping[str, Any], defaults: BrokerConfig) -> TopicState:
    configs = {str(key): str(value) for key, value in entry["configs"].items()}
    partitions = tuple(
        PartitionState(tuple(map(json_number, replicas)), NO_LEADER, json_number(epoch, 0, INT32_MAX))
        for (*replicas, epoch) in entry["partitions"]
    )
    settings = topic_settings(configs, defaults)
    return TopicState(str(entry["name"]), UUID(hex=entry["id"]), configs, settings, partitions)


def _only_on(topic: TopicState, members: Sequence[int]) -> TopicState:
    partitions = []
    for number, partition in enumerate(topic.partitions):
        present = tuple(replica for replica in partition.replicas if replica in members)
        fallback = (members[number % len(members)],)
        partitions.append(PartitionState(present or fallback, NO_LEADER, partition.leader_epoch))
    return replace(topic, partitions=tuple(partitions))
