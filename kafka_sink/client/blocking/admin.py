"""Administration of topics, offsets and ACLs, as the command line, tests and helpers need it.

The calling thread does all the work. Threads may share one client; their calls are serialized. Every call ends within
default.api.timeout.ms, with a result or with an error and its cause. Only :meth:`AdminClient.create_topics` creates
topics.

Source: Metadata, CreateTopics, DeleteTopics, ListOffsets, and the sources of ``admin_requests`` and ``protocol.acls``;
apache/kafka ``KafkaAdminClient`` for the errors that are retried.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeVar

from kafka_sink.client.blocking.blocking import BlockingClient, RequestSpec, Tries
from kafka_sink.client.metadata.cluster import Cluster, PartitionInfo, not_visible
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.client.requests import admin_requests
from kafka_sink.client.requests.admin_requests import ConfigValue
from kafka_sink.common import config as c
from kafka_sink.common.acl import AclBinding, AclBindingFilter
from kafka_sink.common.clock import SYSTEM_CLOCK, Clock, ExponentialBackoff
from kafka_sink.common.errors import ApiError, ErrorCode, KafkaTimeoutError, error_for
from kafka_sink.common.model import Node, TopicPartition
from kafka_sink.network.channel.selectable import Selectable
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import acls as acl_messages
from kafka_sink.protocol.messages import topics as m
from kafka_sink.protocol.messages.log_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ListOffsetsResponse
from kafka_sink.protocol.schema import RequestBody, Struct

#: Select a partition's first offset, or that of its next record.
EARLIEST: Final = EARLIEST_TIMESTAMP
LATEST: Final = LATEST_TIMESTAMP

#: Let the broker choose a count.
BROKER_DEFAULT: Final = -1

A = TypeVar("A", bound=Struct)
T = TypeVar("T")
S = TypeVar("S", bound="Administration")


@dataclass(frozen=True)
class AdminConfig(ClientConfig):
    """The properties of an :class:`AdminClient`."""

    default_api_timeout_ms: int = c.INT(60_000, "how long one call may take in total, ms", c.between(1, 2**31 - 1))


@dataclass(frozen=True)
class NewTopic:
    """A topic to be created; *configs* are topic settings such as ``{"retention.ms": "60000"}``."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the cluster sees it; *topic_id* is None on brokers before 2.8."""

    name: str
    topic_id: uuid.UUID | None
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


class Administration:
    """The connections of an admin client, and their end."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        properties: Mapping[str, Any] = MappingProxyType({}),
        *,
        clock: Clock = SYSTEM_CLOCK,
        selectable: Selectable | None = None,
    ) -> None:
        config = c.parse(AdminConfig, {**c.without_none(properties), "bootstrap.servers": bootstrap_servers})
        self._clock = clock
        self._timeout_ms = config.default_api_timeout_ms
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._client = BlockingClient(
            config,
            client_id=config.client_id or "kafkalite-admin",
            timeout_ms=self._timeout_ms,
            clock=clock,
            selectable=selectable,
        )

    def close(self) -> None:
        """Close all connections. Closing again does nothing."""
        self._client.close()

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class AdminClient(Administration):
    """A small, blocking admin client. Use it as a context manager.

    :param bootstrap_servers: ``"host:port,host:port"`` or a sequence of ``"host:port"``.
    :param properties: further client properties under Kafka's names, for example ``{"default.api.timeout.ms": 5000}``.
    :raises ConfigError: if an address or a property is invalid.
    """

    #: A public name of this class.
    close = Administration.close

    def create_topic(
        self,
        name: str,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        configs: Mapping[str, str | None] = MappingProxyType({}),
    ) -> None:
        """Create one topic; see :meth:`create_topics`."""
        self.create_topics([NewTopic(name, partitions, replication_factor, configs)])

    def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> None:
        """Create *topics*, or with *validate_only* only check whether they could be created.

        :raises ApiError: if a topic could not be created (the others may have been); the ``code`` and text say why, for
            example TOPIC_ALREADY_EXISTS.
        """

        def build(version: int) -> m.CreateTopicsRequest:
            return m.CreateTopicsRequest(
                topics=[
                    m.CreatableTopic(
                        name=topic.name,
                        num_partitions=topic.partitions,
                        replication_factor=topic.replication_factor,
                        configs=[m.CreatableTopicConfig(name=name, value=text) for name, text in topic.configs.items()],
                    )
                    for topic in topics
                ],
                timeout_ms=self._timeout_ms,
                validate_only=validate_only,
            )

        self._change(ApiKey.CREATE_TOPICS, build, lambda answer: [(topic.name, topic) for topic in answer.topics])

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics with all their data.

        :raises ApiError: if a topic could not be deleted (the others may have been).
        """
        topics = list(names)

        def build(version: int) -> m.DeleteTopicsRequest:
            if version >= 6:
                return m.DeleteTopicsRequest(
                    topics=[m.DeleteTopicState(name=name) for name in topics], timeout_ms=self._timeout_ms
                )
            return m.DeleteTopicsRequest(topic_names=topics, timeout_ms=self._timeout_ms)

        self._change(
            ApiKey.DELETE_TOPICS, build, lambda answer: [(response.name, response) for response in answer.responses]
        )

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Names of all topics, sorted; Kafka's internal topics (consumer offsets and the like) only with
        *include_internal*."""
        cluster = self._client.fetch_cluster(None)
        return [name for name in cluster.topics if include_internal or name not in cluster.internal_topics]

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """The description of each of *names*.

        :raises UnknownTopicOrPartitionError: if a topic does not exist.
        :raises ApiError: if this client may not describe a topic, or a name is invalid.
        """
        topics = list(names)
        cluster = self._client.fetch_cluster(topics)
        return {name: _description(cluster, name) for name in topics}

    def add_partitions(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """Increase the partitions of a topic to *count*, or with *validate_only* only check whether that is possible.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; INVALID_PARTITIONS if the topic already has as many partitions or
            more.
        """
        body = m.CreatePartitionsRequest(
            topics=[m.CreatePartitionsTopic(name, count, assignments=None)],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        self._change(
            ApiKey.CREATE_PARTITIONS,
            lambda _: body,
            lambda answer: [(result.name, result) for result in answer.results],
        )

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, ConfigValue]]:
        """The current settings of each of *names*.

        :raises ApiError: if a topic does not exist, or this client may not read its settings.
        """
        body = admin_requests.describe_topics_configs(list(names))

        def attempt(remaining_ms: int) -> dict[str, dict[str, ConfigValue]]:
            response = self._client.request(None, ApiKey.DESCRIBE_CONFIGS, lambda _: body, timeout_ms=remaining_ms)
            for result in response.results:
                _raise_for(result.error_code, result.resource_name, result.error_message)
            return {result.resource_name: admin_requests.described(result) for result in response.results}

        return self._retrying(attempt)

    def alter_topic_configs(
        self,
        name: str,
        configs: Mapping[str, str] = MappingProxyType({}),
        delete: Iterable[str] = (),
        *,
        validate_only: bool = False,
    ) -> None:
        """Set *configs* for a topic, and *delete* topic settings so that the brokers' values apply again; other
        settings are unchanged.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; INVALID_CONFIG if a setting is unknown or a value is not allowed.
        """
        body = admin_requests.alter_topic_configs(name, configs, delete, validate_only=validate_only)
        self._change(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            lambda _: body,
            lambda answer: [(response.resource_name, response) for response in answer.responses],
        )

    def move_leader(self, partition: TopicPartition, node_id: int) -> None:
        """Make *node_id*, one of the replicas, the leader of *partition*: it becomes the preferred leader and is
        elected.

        Kafka has no request that names a leader; Kafka's own tools take the same two steps (KIP-455, KIP-183).

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; INVALID_REPLICA_ASSIGNMENT if the node is not a replica;
            PREFERRED_LEADER_NOT_AVAILABLE if the node is not running.
        """
        known = self.describe_topics([partition.topic])[partition.topic].partitions
        if not 0 <= partition.partition < len(known):
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
        replicas = [node.id for node in known[partition.partition].replicas]
        if node_id not in replicas:
            text = f"broker {node_id} is not a replica of {partition}; its replicas are {replicas}"
            raise error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        order = [node_id, *(replica for replica in replicas if replica != node_id)]

        def attempt(remaining_ms: int) -> list[admin_requests.Outcome]:
            body = admin_requests.reassign(partition, order, self._timeout_ms)
            response = self._ask_controller(ApiKey.ALTER_PARTITION_REASSIGNMENTS, lambda _: body, remaining_ms)
            for outcome in admin_requests.reassignment_outcomes(response):
                _raise_for(outcome[1], outcome[0], outcome[2])
            election = admin_requests.elect_preferred(partition, self._timeout_ms)
            elected = self._ask_controller(ApiKey.ELECT_LEADERS, lambda _: election, remaining_ms)
            return list(admin_requests.election_outcomes(elected))

        # A broker that is not running may never return, so there is no retry for it.
        for name, code, message in self._retrying(attempt):
            if code != ErrorCode.ELECTION_NOT_NEEDED:
                _raise_for(code, name, message)

    def describe_acls(self, wanted: AclBindingFilter) -> list[AclBinding]:
        """The ACLs that *wanted* selects.

        :raises ApiError: SECURITY_DISABLED if the brokers have no authorizer; CLUSTER_AUTHORIZATION_FAILED without
            DESCRIBE on the cluster.
        """
        body = acl_messages.filter_message(acl_messages.DescribeAclsRequest, wanted)

        def attempt(remaining_ms: int) -> list[AclBinding]:
            response = self._client.request(None, ApiKey.DESCRIBE_ACLS, lambda _: body, timeout_ms=remaining_ms)
            _raise_for(response.error_code, "the ACLs", response.error_message)
            return [acl_messages.binding_of(resource, acl) for resource in response.resources for acl in resource.acls]

        return self._retrying(attempt)

    def create_acls(self, acls: Sequence[AclBinding]) -> None:
        """Add *acls*; existing ones are unchanged. The brokers enforce them soon after the call.

        :raises ApiError: if an ACL was refused (the others may have been added): INVALID_REQUEST if it is not
            a valid ACL, SECURITY_DISABLED, or CLUSTER_AUTHORIZATION_FAILED without ALTER on the cluster.
        """
        body = acl_messages.CreateAclsRequest(creations=[acl_messages.creation_of(acl) for acl in acls])
        names = list(map(str, acls))
        self._change(ApiKey.CREATE_ACLS, lambda _: body, lambda answer: zip(names, answer.results, strict=True))

    def delete_acls(self, acls: Sequence[AclBinding]) -> list[AclBinding]:
        """Delete exactly *acls*, and return those that existed.

        :raises ApiError: if an ACL could not be deleted (the others may have been); the codes are those of
            :meth:`create_acls`.
        """
        body = acl_messages.DeleteAclsRequest(
            filters=[
                acl_messages.filter_message(acl_messages.DeleteAclsFilter, AclBindingFilter.of(acl)) for acl in acls
            ]
        )
        deleted: list[AclBinding] = []

        def outcomes(answer: acl_messages.DeleteAclsResponse) -> Iterator[tuple[str, Any]]:
            for acl, result in zip(acls, answer.filter_results, strict=True):
                yield str(acl), result
                for match in result.matching_acls:
                    yield str(acl), match
                    deleted.append(acl_messages.binding_of(match, match))

        self._change(ApiKey.DELETE_ACLS, lambda _: body, outcomes)
        return deleted

    def cluster(self) -> Cluster:
        """Brokers, controller and cluster id, without topics."""
        return self._client.fetch_cluster([])

    def offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int = LATEST, *, known_only: bool = False
    ) -> dict[TopicPartition, int]:
        """The offset of each of *partitions*: :data:`EARLIEST`, :data:`LATEST` (the end), or the offset of the first
        record whose timestamp is at least *timestamp* (ms since 1970; the end if there is no such record).

        :param known_only: omit partitions that do not exist, and those whose leader is missing or refuses.
        :raises UnknownTopicOrPartitionError: if a topic or partition does not exist.
        :raises ApiError: if a leader refused, or was unavailable for too long; with *known_only* if no broker answers.
        """
        wanted = sorted(set(partitions))
        offsets: dict[TopicPartition, int] = {}

        def attempt(remaining_ms: int) -> None:
            missing = [partition for partition in wanted if partition not in offsets]
            by_leader = self._by_leader(missing, remaining_ms, known_only=known_only)
            requests = [(leader, _offsets_of(led, timestamp, remaining_ms)) for leader, led in by_leader.items()]
            for answer in self._client.request_all(requests, timeout_ms=remaining_ms):
                if isinstance(answer, ListOffsetsResponse):
                    for partition, code, offset in admin_requests.listed_offsets(answer):
                        if not known_only:
                            _raise_for(code, str(partition), None)
                        if not known_only or (code == ErrorCode.NONE and offset >= 0):
                            offsets[partition] = offset
                elif isinstance(answer, ApiError) and not known_only:
                    raise answer
            if unanswered := [str(partition) for partition in missing if partition not in offsets and not known_only]:
                raise ApiError(f"the brokers' answer has no offsets of {', '.join(unanswered)}")

        if known_only:
            attempt(self._timeout_ms)
            return {partition: offsets[partition] for partition in wanted if partition in offsets}
        self._retrying(attempt)
        unset = [partition for partition in wanted if offsets[partition] < 0]
        if unset and timestamp == LATEST:
            raise ApiError(f"the brokers' answer has a negative end of {', '.join(map(str, unset))}")
        if unset:
            offsets.update(self.offsets(unset, LATEST))
        return {partition: offsets[partition] for partition in wanted}

    def _by_leader(
        self, partitions: list[TopicPartition], timeout_ms: int, *, known_only: bool
    ) -> dict[Node, list[TopicPartition]]:
        topics = sorted({partition.topic for partition in partitions})
        cluster = self._client.fetch_cluster(topics, timeout_ms=timeout_ms)
        by_leader: dict[Node, list[TopicPartition]] = {}
        for partition in partitions:
            if (leader := cluster.leader_for(partition)) is not None:
                by_leader.setdefault(leader, []).append(partition)
            elif not known_only:
                if partition.partition >= len(_description(cluster, partition.topic).partitions):
                    raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
                raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} currently has no leader")
        return by_leader

    def _ask_controller(self, api_key: ApiKey, build: Callable[[int], RequestBody[A]], timeout_ms: int) -> A:
        # KRaft brokers forward the request and may name any broker as controller, so the named one is always correct.
        controller = self._client.fetch_cluster([], timeout_ms=timeout_ms).controller
        return self._client.request(controller, api_key, build, timeout_ms=timeout_ms)

    def _change(
        self,
        api_key: ApiKey,
        build: Callable[[int], RequestBody[A]],
        outcomes: Callable[[A], Iterable[tuple[str | None, Any]]],
    ) -> None:
        """Let the controller execute the whole request; *outcomes* returns the name of each part with its outcome in
        the answer."""

        def attempt(remaining_ms: int) -> None:
            for name, outcome in outcomes(self._ask_controller(api_key, build, remaining_ms)):
                _raise_for(outcome.error_code, name, outcome.error_message)

        self._retrying(attempt)

    def _retrying(self, attempt: Callable[[int], T]) -> T:
        """Call *attempt* with the remaining ms until it succeeds, fails with a final error, or the time is up."""
        tries = Tries(self._clock, self._backoff, self._timeout_ms)
        is_repeated = False
        while True:
            try:
                return attempt(tries.left_ms)
            except KafkaTimeoutError as error:
                if not is_repeated:
                    raise
                raise type(error)(f"no success within {self._timeout_ms} ms: {error}") from error
            except ApiError as error:
                is_worth_it = error.is_retriable and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                pause = tries.next_pause() if is_worth_it else None
                if pause is None:
                    raise
                self._client.idle(pause.duration_ms)
                is_repeated = True


def _offsets_of(partitions: Sequence[TopicPartition], timestamp: int, timeout_ms: int) -> RequestSpec:
    request = admin_requests.list_offsets(partitions, timestamp, timeout_ms)
    return RequestSpec(ApiKey.LIST_OFFSETS, lambda _: request)


def _raise_for(code: int, name: str | None, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise error_for(code, f"{name}: {message}" if message else name)


def _description(cluster: Cluster, name: str) -> TopicDescription:
    if name in cluster.invalid_topics:
        raise error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a legal topic name")
    if name in cluster.unauthorized_topics:
        raise not_visible(name)
    if cluster.partition_count(name) is None:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
    return TopicDescription(
        name, cluster.topic_id(name), name in cluster.internal_topics, cluster.partitions_for_topic(name)
    )
