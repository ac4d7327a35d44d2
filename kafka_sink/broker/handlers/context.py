"""A handler's request: the broker's state, the permissions of the client, and the methods that answer it.

Used by handler threads, and by the threads that complete delayed answers. Every request is answered exactly once.
Handlers check the permission before they access a resource, so that an answer does not disclose whether it exists.
Each item of a request has its own outcome: a failure does not affect the others.

Source: apache/kafka ``AuthHelper``; ``KafkaApis`` and ``ControllerApis`` for the operation that each API needs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from kafka_sink.broker.authorizer import Authorizer, Users
from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.cluster.topic_state import NO_LEADER, PartitionState, TopicState
from kafka_sink.broker.config import BrokerConfig, EndPoint
from kafka_sink.broker.coordinator.group_coordinator import GroupCoordinator
from kafka_sink.broker.coordinator.transaction_coordinator import TransactionCoordinator
from kafka_sink.broker.coordinator.transaction_markers import TransactionMarkers
from kafka_sink.broker.delays import DelayedOperationPurgatory, Timer
from kafka_sink.broker.faults.error_response import error_response
from kafka_sink.broker.faults.faults import Faults
from kafka_sink.broker.log.log_manager import LogManager
from kafka_sink.broker.log.partition_log import PartitionLog
from kafka_sink.broker.network.quotas import ClientQuota, ResponseBudget
from kafka_sink.broker.network.request_channel import (
    CloseConnectionResponse,
    EndThrottlingResponse,
    Request,
    ResponseSink,
    SendResponse,
    StartThrottlingResponse,
)
from kafka_sink.common.acl import CLUSTER_NAME, AclOperation, ResourceType
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import encode_response
from kafka_sink.protocol.messages.metadata import NodeEndpoint
from kafka_sink.protocol.schema import Struct, VersionRange

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S", bound=Struct)


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """The state of one node for handlers.

    The fields are not grouped, because every handler uses only a few of them, and each in another combination.
    """

    node_id: int
    config: BrokerConfig
    cluster: ClusterState
    logs: LogManager
    purgatory: DelayedOperationPurgatory
    timer: Timer
    clock: Clock
    producer_quota: ClientQuota
    consumer_quota: ClientQuota
    response_budget: ResponseBudget
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    markers: TransactionMarkers
    faults: Faults
    authorizer: Authorizer
    users: Users
    #: The versions that this node advertises.
    versions: Mapping[ApiKey, VersionRange]

    def check_coordinates(self, key: str) -> None:
        """Return if this node coordinates *key*, a group or a transactional id. :raises ApiError: NOT_COORDINATOR."""
        node_id = self.cluster.coordinator_for(key)
        if node_id != self.node_id:
            text = f"broker {self.node_id} is not the coordinator of {key!r}, broker {node_id} is"
            raise ApiError(text, ErrorCode.NOT_COORDINATOR)

    def transactions_for(self, transactional_id: str) -> TransactionCoordinator:
        """The transaction coordinator, if this node coordinates *transactional_id*.

        :raises ApiError: INVALID_REQUEST (it is empty), NOT_COORDINATOR.
        """
        if not transactional_id:
            raise ApiError("a transactional id must not be empty", ErrorCode.INVALID_REQUEST)
        self.check_coordinates(transactional_id)
        return self.transactions

    def groups_for(self, group_id: str) -> GroupCoordinator:
        """The group coordinator, if this node coordinates *group_id*. :raises ApiError: NOT_COORDINATOR."""
        self.check_coordinates(group_id)
        return self.groups

    def has_partition(self, partition: TopicPartition) -> bool:
        """Whether the partition exists, whichever node leads it."""
        topic = self.cluster.topic(partition.topic)
        return topic is not None and 0 <= partition.partition < len(topic.partitions)

    def topic(self, name: str) -> TopicState:
        """:raises ApiError: UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self.cluster.topic(name)
        if topic is None:
            raise ApiError(f"topic {name!r} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    def led_partition(self, topic: TopicState, index: int, leader_epoch: int = -1) -> PartitionState:
        """The partition, if this node leads it and the client's *leader_epoch* (−1 = not given) is the current one.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        partition = topic.partition(index)
        if partition.leader != self.node_id:
            leads = f"broker {partition.leader} is" if partition.leader != NO_LEADER else "it has no leader"
            raise ApiError(
                f"broker {self.node_id} is not the leader of {topic.name}-{index}: {leads}",
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )
        if leader_epoch != -1 and leader_epoch != partition.leader_epoch:
            older = leader_epoch < partition.leader_epoch
            raise ApiError(
                f"leader epoch {leader_epoch} of {topic.name}-{index} is not {partition.leader_epoch}",
                ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH,
            )
        return partition

    def log_of(self, topic: TopicState, index: int) -> PartitionLog:
        """The partition's log, created if nothing was written yet.

        :raises ApiError: KAFKA_STORAGE_ERROR; UNKNOWN_TOPIC_OR_PARTITION if the topic was deleted in the meantime.
        """

        def still_wanted() -> bool:
            return self.cluster.topic_by_id(topic.topic_id) is not None

        with storage_errors("cannot open a log"):
            log = self.logs.get_or_create(TopicPartition(topic.name, index), topic.settings.log, still_wanted)
        # An existing log may belong to the next topic with this name.
        if log is None or not still_wanted():
            raise ApiError(f"topic {topic.name} was deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return log


@dataclass(slots=True, eq=False)
class ApiRequest(Generic[S]):
    """A decoded request to a *broker* and the methods that answer it. Any thread may answer."""

    broker: BrokerContext
    request: Request
    #: Receives the responses.
    sink: ResponseSink
    body: S

    @property
    def version(self) -> int:
        return self.request.context.header.api_version

    @property
    def size_in_bytes(self) -> int:
        """The size of the whole frame, header included, which counts towards quotas."""
        return self.request.payload.nbytes

    @property
    def client_id(self) -> str:
        return self.request.context.header.client_id or ""

    @property
    def api_key(self) -> ApiKey:
        return self.request.context.header.api_key

    @property
    def client_address(self) -> str:
        return self.request.context.client_address

    @property
    def client_host(self) -> str:
        """The client's address, in the format of Java."""
        return f"/{self.client_address}"

    @property
    def principal(self) -> str:
        """The authenticated principal of the connection: ``User:name``."""
        return self.request.context.principal

    @property
    def user(self) -> str:
        """The name in the principal, by which quotas are set."""
        return self.principal.partition(":")[2]

    @property
    def listener_name(self) -> str:
        """The listener of the connection; clients receive the advertised addresses of this listener."""
        return self.request.context.listener_name

    def endpoint_of(self, node_id: int) -> EndPoint | None:
        """The advertised address of a node on this listener; None if it does not run or has no such listener."""
        return self.broker.cluster.nodes.get(node_id, {}).get(self.listener_name)

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the client may do *operation* on a resource."""
        return self.broker.authorizer.allows(self.principal, self.client_address, operation, resource_type, name)

    def require(self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Return if the client may do *operation* on a resource.

        :raises ApiError: TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED,
            TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
        """
        if not self.allows(operation, resource_type, name):
            raise self.refusal(operation, resource_type, name)

    def refusal(self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> ApiError:
        """The error for a client that may not do *operation* on a resource; the log says what is missing."""
        client = self.principal, self.client_address
        return self.broker.authorizer.refusal(*client, operation, resource_type, name, self.api_key.name)

    def permitted_groups(self, operation: AclOperation, group_id: str) -> GroupCoordinator:
        """The coordinator of a group on which the client may do *operation*.

        :raises ApiError: GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR.
        """
        self.require(operation, ResourceType.GROUP, group_id)
        return self.broker.groups_for(group_id)

    def operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The operations that the client may do on a resource: bit n stands for the operation with code n (KIP-430).
        For the cluster, 0 if the client may not describe it."""
        if resource_type is ResourceType.CLUSTER and not self.allows(AclOperation.DESCRIBE, resource_type):
            return 0
        return self.broker.authorizer.operations(self.principal, self.client_address, resource_type, name)

    def respond(self, body: Struct, on_complete: Callable[[], None] | None = None) -> None:
        """Send *body* as the answer; *on_complete* runs when it has been sent or the connection is closed.

        :raises ValueError: if *body* cannot be encoded in the request's version.
        """
        self.respond_in_version(body, self.version, on_complete)

    def respond_in_version(self, body: Struct, version: int, on_complete: Callable[[], None] | None = None) -> None:
        """As :meth:`respond`, in another version than the request's (for ApiVersions, KIP-511)."""
        header = self.request.context.header
        segments = encode_response(header.api_key, version, header.correlation_id, body)
        self.sink.send_response(SendResponse(self.request, segments, on_complete))

    def refuse(self, error: ApiError) -> None:
        """Answer the whole request with *error*; nothing of it was done."""
        self.respond(error_response(self.api_key, self.version, self.body, error.code, str(error)))

    def close_connection(self) -> None:
        """Close the connection instead of answering."""
        self.sink.send_response(CloseConnectionResponse(self.request))

    def throttle(self, throttle_ms: int, now_ms: int) -> None:
        """Mute the client's connection for *throttle_ms*; call it before answering. 0 does nothing."""
        if throttle_ms > 0:
            self.request.throttle_ms = throttle_ms
            self.sink.send_response(StartThrottlingResponse(self.request))
            end = EndThrottlingResponse(self.request)
            self.broker.timer.schedule(now_ms + throttle_ms, lambda: self.sink.send_response(end))


Handle: TypeAlias = Callable[[ApiRequest[Any]], None]


@dataclass(frozen=True, slots=True)
class ApiHandler:
    """One API: the versions it serves and its handler function."""

    key: ApiKey
    versions: VersionRange
    handle: Handle


def api_handler(key: ApiKey, versions: str) -> Callable[[Handle], ApiHandler]:
    """Decorator: makes a function the handler of an API, in *versions* as Kafka writes them: ``0-4``.

    If it raises an ApiError, nothing of the request was done, and all of it is answered with the error.
    """

    def handler_of(handle: Handle) -> ApiHandler:
        def answer(request: ApiRequest[Any]) -> None:
            try:
                handle(request)
            except ApiError as error:
                request.refuse(error)

        return ApiHandler(key, VersionRange.parse(versions), answer)

    return handler_of


@contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """Translate errors of the disk during *what*. :raises ApiError: KAFKA_STORAGE_ERROR."""
    try:
        yield
    except OSError as error:
        raise ApiError(f"{what}: {error}", ErrorCode.KAFKA_STORAGE_ERROR) from error


def stored_together(
    context: BrokerContext, items: Iterable[T], change: Callable[[T], R], refused: Callable[[T, ApiError], R]
) -> list[R]:
    """The result of *change* for each of *items*, or of *refused* for its error; a failure does not affect the others.

    All changes of the cluster are stored in one write. If that fails, all items have its error.
    """

    def outcome(item: T) -> R:
        try:
            return change(item)
        except ApiError as error:
            return refused(item, error)

    items = list(items)
    try:
        with storage_errors("could not store the change"), context.cluster.changing():
            return [outcome(item) for item in items]
    except ApiError as error:
        return [refused(item, error) for item in items]


def once(items: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """The first of *items* with each *key*, so that a request which repeats an item many times does not get a response
    that is many times as large."""
    first: dict[Hashable, T] = {}
    for item in items:
        first.setdefault(key(item), item)
    return list(first.values())


def leaders_named(request: ApiRequest[Any], leaders: Iterable[int]) -> list[NodeEndpoint]:
    """The addresses of those of *leaders* that run, for answers that include a new leader (KIP-951)."""
    nodes = ((leader, request.endpoint_of(leader)) for leader in sorted(set(leaders) - {NO_LEADER}))
    return [NodeEndpoint(leader, endpoint.host, endpoint.port) for leader, endpoint in nodes if endpoint is not None]
