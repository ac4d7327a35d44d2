"""The steps about the cluster: API versions, each topic with its settings and permissions, and exactly once.

Run on the driver, after the connection steps, on the calling thread. Nothing is written, and no lookup creates
anything:

* Topics: Metadata, with automatic creation disabled, reports whether they exist and which operations the principal may
  use (KIP-430). Settings are read with DescribeConfigs.
* Transactional ids: DescribeTransactions needs DESCRIBE. EndTxn needs WRITE; it is sent for an id that no producer ever
  uses, so after the check of the permission the brokers find no transaction to end.
* The group: Heartbeat needs READ; it is sent for a member that no group has.
* Brokers check permissions before they check whether they are the coordinator, so these requests may go to any broker.
  FindCoordinator is not used, because it makes the brokers create their internal topics. Instead, every broker gets the
  requests that describe the group and an id: all but the coordinator return NOT_COORDINATOR.

Source: apache/kafka ``KafkaApis`` for the order of these checks, ``TopicConfig``, ``AclOperation``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar, cast

from kafka_sink.client.blocking.admin import BROKER_DEFAULT
from kafka_sink.client.blocking.blocking import RequestSpec
from kafka_sink.client.blocking.cluster_requests import VERSIONS_REQUEST, versions_and_setting
from kafka_sink.client.blocking.transaction_verification import SETTING, Verification, verification_of
from kafka_sink.client.connection.api_versions import NodeApiVersions
from kafka_sink.client.requests.admin_requests import describe_broker_config, describe_topics_configs, visible_settings
from kafka_sink.client.requests.outcomes import only_one
from kafka_sink.client.requests.transactional_requests import TWO_PHASE_NEEDS, TWO_PHASE_SETTING, TWO_PHASE_VERSION
from kafka_sink.common.bounded import known_number
from kafka_sink.common.errors import ApiError, ErrorCode, UnsupportedVersionError, error_for
from kafka_sink.common.model import Node
from kafka_sink.exactly_once.transactions import PROCESS_BYTES, driver_id, sink_id, writer_id
from kafka_sink.preflight.connection_steps import BROKERS, CLUSTER, ConnectionSteps
from kafka_sink.preflight.findings import ExactlyOnceTarget, Finding, NewTopicTarget, Status, Step
from kafka_sink.producer.topic_limits import CLEANUP_POLICY, MAX_MESSAGE_BYTES, TIMESTAMP_TYPE, TopicLimits
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse
from kafka_sink.protocol.messages.connection import ApiVersionsResponse
from kafka_sink.protocol.messages.group_admin import DescribeGroupsRequest, DescribeGroupsResponse
from kafka_sink.protocol.messages.group_members import HeartbeatRequest
from kafka_sink.protocol.messages.metadata import NO_AUTHORIZED_OPERATIONS, MetadataResponseTopic
from kafka_sink.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from kafka_sink.protocol.messages.transaction_admin import DescribeTransactionsRequest, DescribeTransactionsResponse
from kafka_sink.protocol.messages.transactions import EndTxnRequest
from kafka_sink.protocol.schema import RequestBody, Struct

#: The bits of authorized operations: 1 << the code of the operation.
READ: Final = 1 << 3
WRITE: Final = 1 << 4
_NAMES: Final = {READ: "READ", WRITE: "WRITE"}

_AUTO_CREATE: Final = "auto.create.topics.enable"
_NOT_VISIBLE: Final = "grant DESCRIBE_CONFIGS on the topic to have its settings checked"


def read_settings(connection: ConnectionSteps, request: DescribeConfigsRequest) -> dict[str, str]:
    """Setting → value; empty if the principal may not see the settings, or the brokers do not show any."""
    try:
        answer = connection.client.request(
            connection.nodes[0], ApiKey.DESCRIBE_CONFIGS, lambda _: request, timeout_ms=connection.timeout_ms
        )
    except UnsupportedVersionError:
        return {}
    return visible_settings(answer)


@dataclass
class TopicSteps:
    """The steps of one *topic*, for a principal that needs all *operations* on it. *may_be_created* is False if the job
    needs the topic to exist even where brokers create topics on first use; *new_topic* is set if the job creates it."""

    topic: str
    connection: ConnectionSteps
    operations: Sequence[int]
    may_be_created: bool
    new_topic: NewTopicTarget | None = None
    _settings: Mapping[str, str] = field(default_factory=dict, init=False)

    def steps(self) -> list[Step]:
        name = f"topic {self.topic}"
        steps = [
            Step(name, self.topic, self._look_up, (CLUSTER,)),
            Step(f"permissions on {name}", self.topic, self._check_permissions, (name,)),
        ]
        if WRITE in self.operations:
            steps += [
                Step(f"settings of {name}", self.topic, self._check_settings, (name,)),
                Step(f"replicas of {name}", self.topic, self._check_replicas, (name,)),
            ]
        return steps

    @property
    def _described(self) -> MetadataResponseTopic:
        return next(described for described in self.connection.metadata.topics if described.name == self.topic)

    def _look_up(self) -> Sequence[Finding]:
        code = ErrorCode.of(self._described.error_code)
        if code is ErrorCode.NONE or code is ErrorCode.LEADER_NOT_AVAILABLE:
            return [self._counted()]
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return [self._missing()]
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            needed = " and ".join(_NAMES[operation] for operation in self.operations)
            return [self._finding("topic", Status.FAILED, "this principal may not see the topic", self._grant(needed))]
        advice = "check the name of the topic" if code is ErrorCode.INVALID_TOPIC_EXCEPTION else "try again later"
        return [self._finding("topic", Status.FAILED, code.name, advice)]

    def _counted(self) -> Finding:
        partitions = self._described.partitions
        leaderless = [partition.partition_index for partition in partitions if partition.leader_id < 0]
        count = f"{len(partitions)} partition{'s' if len(partitions) != 1 else ''}"
        if leaderless:
            text = f"{count}, of which {len(leaderless)} have no leader, such as {leaderless[0]}"
            return self._finding("topic", Status.FAILED, text, "start the brokers that have their replicas")
        return self._finding("topic", Status.OK, count)

    def _missing(self) -> Finding:
        if self.new_topic is not None:
            return self._to_be_created(self.new_topic)
        create = f"create it: kafkalite topics create {self.topic} --partitions …"
        if not self.may_be_created:
            return self._finding("topic", Status.FAILED, "does not exist; exactly once does not create it", create)
        request = describe_broker_config(self.connection.nodes[0], _AUTO_CREATE)
        settings = read_settings(self.connection, request)
        creates = settings.get(_AUTO_CREATE)
        if creates == "true":
            text = f"does not exist; the brokers create it on first use ({_AUTO_CREATE}) with their default settings"
            return self._finding("topic", Status.WARNING, text, f"to choose the number of partitions, {create}")
        hint = "" if creates == "false" else f"; {_AUTO_CREATE} is not visible"
        return self._finding("topic", Status.FAILED, f"does not exist{hint}", create)

    def _to_be_created(self, new: NewTopicTarget) -> Finding:
        """The controller's response to the creation of the topic, which it only validates."""
        topic = CreatableTopic(
            name=new.name, num_partitions=new.partitions, replication_factor=new.replication_factor or BROKER_DEFAULT
        )
        timeout_ms = self.connection.timeout_ms
        request = CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=True)
        answer = self.connection.client.request(
            self.connection.controller, ApiKey.CREATE_TOPICS, lambda _: request, timeout_ms=timeout_ms
        )
        (result,) = answer.topics
        if result.error_code == ErrorCode.NONE:
            text = f"does not exist; the job creates it with {new.partitions} partitions"
            return self._finding("topic", Status.OK, text)
        text = f"does not exist and cannot be created: {error_for(result.error_code, result.error_message)}"
        advice = "grant CREATE on the topic, correct topicPartitions or topicReplicationFactor, or create it beforehand"
        return self._finding("topic", Status.FAILED, text, advice)

    def _check_permissions(self) -> Sequence[Finding]:
        operations = self._described.topic_authorized_operations
        if self._described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return []
        if operations == NO_AUTHORIZED_OPERATIONS:
            text = "the brokers do not report permissions (KIP-430)"
            return [self._finding("permissions", Status.WARNING, text, "nothing; a write may still be refused")]
        lacking = [_NAMES[operation] for operation in self.operations if not operations & operation]
        if lacking:
            text = f"this principal lacks {' and '.join(lacking)}"
            return [self._finding("permissions", Status.FAILED, text, self._grant(" and ".join(lacking)))]
        granted = " and ".join(_NAMES[operation] for operation in self.operations)
        return [self._finding("permissions", Status.OK, f"{granted} permitted")]

    def _grant(self, operations: str) -> str:
        flags = " ".join(f"--operation {name.title()}" for name in operations.split(" and "))
        return f"grant {operations}: kafka-acls --add --allow-principal … {flags} --topic {self.topic}"

    def _check_settings(self) -> Sequence[Finding]:
        if self._described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return []
        request = describe_topics_configs([self.topic])
        self._settings = read_settings(self.connection, request)
        if not self._settings:
            return [self._finding("settings", Status.WARNING, "not visible", _NOT_VISIBLE)]
        checks: Mapping[str, Callable[[str], Finding]] = {
            MAX_MESSAGE_BYTES: self._check_size,
            "compression.type": self._check_codec,
            TIMESTAMP_TYPE: self._check_timestamps,
            CLEANUP_POLICY: self._check_cleanup,
        }
        return [check(self._settings[name]) for name, check in checks.items() if name in self._settings]

    def _check_size(self, value: str) -> Finding:
        config = self.connection.config
        ours, theirs, option = config.max_request_size_bytes, known_number(value), config.option("max.request.size")
        if theirs is None:
            text = f"{MAX_MESSAGE_BYTES}={value!r:.40} is not a number"
            return self._finding("record size", Status.WARNING, text, "ask the cluster's administrator to correct it")
        text = f"columns key, value and headers: {MAX_MESSAGE_BYTES}={theirs}, {option}={ours}"
        if ours <= theirs:
            return self._finding("record size", Status.OK, text)
        status = Status.FAILED if self.connection.is_given("max.request.size") else Status.WARNING
        advice = (
            f"the brokers refuse records over {theirs} bytes: raise the topic's max.message.bytes (kafkalite topics "
            f"alter {self.topic} --config max.message.bytes={ours}), or lower {option} to {theirs}"
        )
        return self._finding("record size", status, text, advice)

    def _check_codec(self, value: str) -> Finding:
        config = self.connection.config
        ours, option = config.compression_type, config.option("compression.type")
        text = f"compression.type={value}, {option}={ours}"
        if value in ("producer", ours) or (value, ours) == ("uncompressed", "none"):
            return self._finding("codec", Status.OK, text)
        codec = "none" if value == "uncompressed" else value
        advice = f"the brokers compress every batch again; set {option}={codec} to spare them the work"
        return self._finding("codec", Status.WARNING, text, advice)

    def _check_timestamps(self, value: str) -> Finding:
        text = f"column timestamp: {TIMESTAMP_TYPE}={value}"
        if value == "LogAppendTime":
            text += ": the brokers replace the timestamps of records by the time of the write"
        limits = TopicLimits.of(self._settings)
        for side, limit in (("before", limits.before), ("after", limits.after)):
            if limit is not None:
                text += f", at most {limit.most_ms} ms {side} the time of the write ({limit.setting})"
        return self._finding("timestamps", Status.OK, text)

    def _check_cleanup(self, value: str) -> Finding:
        if "compact" in value:
            advice = "make sure that every row has a key; the brokers refuse records without one"
            return self._finding("cleanup", Status.WARNING, f"column key: {CLEANUP_POLICY}={value}", advice)
        return self._finding("cleanup", Status.OK, f"{CLEANUP_POLICY}={value}")

    def _check_replicas(self) -> Sequence[Finding]:
        least = known_number(self._settings.get("min.insync.replicas"))
        if least is None or self.connection.config.acks_code != -1:
            return []
        short = [partition for partition in self._described.partitions if len(partition.isr_nodes) < least]
        if short:
            text = (
                f"{len(short)} partitions have fewer in-sync replicas than min.insync.replicas={least}, such as "
                f"{short[0].partition_index} with {len(short[0].isr_nodes)}"
            )
            return [self._finding("replicas", Status.FAILED, text, "start the brokers that have their replicas")]
        return [self._finding("replicas", Status.OK, f"min.insync.replicas={least} in sync")]

    def _finding(self, step: str, status: Status, found: str, what_to_do: str = "") -> Finding:
        return Finding(step, self.topic, status, found, what_to_do)


VERSIONS: Final = "API versions"
TRANSACTIONS: Final = "transactions"
TRANSACTIONAL_IDS: Final = "transactional ids"
GROUP: Final = "group of the progress"
_TWO_PHASE: Final = "two-phase commit"

_AT_LEAST_ONCE: Final = (ApiKey.METADATA, ApiKey.PRODUCE)
_IDEMPOTENT: Final = (ApiKey.INIT_PRODUCER_ID,)
_EXACTLY_ONCE: Final = (
    ApiKey.FIND_COORDINATOR,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.OFFSET_FETCH,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
)
_UPGRADE: Final = (
    "write at least once; or upgrade to Apache Kafka 3.6 or newer, or to a service that offers its transactions"
)

_LOG: Final = "look into the broker's log"
_SWITCH_ON: Final = (
    f"set it to true: kafka-configs --alter --entity-type brokers --entity-default --add-config {SETTING}=true"
)
#: The finding about a broker's verification of transactions, with the remedy.
_VERIFIED: Final[Mapping[Verification, tuple[Status, str, str]]] = {
    Verification.VERIFIES: (Status.OK, "verifies transactions (KIP-890)", ""),
    Verification.MAY_VERIFY: (
        Status.WARNING,
        f"{SETTING} is not visible",
        "grant DESCRIBE_CONFIGS on the cluster to have it checked",
    ),
    Verification.SWITCHED_OFF: (Status.FAILED, f"{SETTING} is false", _SWITCH_ON),
    Verification.TOO_OLD: (Status.FAILED, "does not verify transactions (KIP-890)", _UPGRADE),
}

#: From the next version on, describing a group that does not exist is an error.
_DESCRIBE_GROUPS_MAX_VERSION: Final = 5
#: No producer has this id.
_NO_PRODUCER: Final = -1
_UNAVAILABLE: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
INTERNAL_TOPICS: Final = {GROUP: "__consumer_offsets", TRANSACTIONAL_IDS: "__transaction_state"}

A = TypeVar("A", bound=Struct)


def versions_step(connection: ConnectionSteps, *, exactly_once: bool) -> Step:
    """The step that compares the API versions of each broker with those of this client."""

    def run() -> Sequence[Finding]:
        needed = [*_AT_LEAST_ONCE]
        if connection.config.enable_idempotence:
            needed += _IDEMPOTENT
        if exactly_once:
            needed += _EXACTLY_ONCE
        return [_versions_of(node, answer, needed) for node, answer in _answers(connection, VERSIONS_REQUEST).items()]

    return Step(VERSIONS, BROKERS, run, (CLUSTER,))


def _answers(connection: ConnectionSteps, request: RequestSpec) -> dict[Node, Struct | ApiError]:
    """The response of each broker that can be reached, or the error instead."""
    nodes = connection.nodes
    answers = connection.client.request_all([(node, request) for node in nodes], timeout_ms=connection.timeout_ms)
    return dict(zip(nodes, answers, strict=True))


def _versions_of(node: Node, answer: Struct | ApiError, needed: Sequence[ApiKey]) -> Finding:
    subject = _name(node)
    if isinstance(answer, ApiError):
        return Finding(VERSIONS, subject, Status.FAILED, str(answer), _LOG)
    assert isinstance(answer, ApiVersionsResponse)
    theirs = NodeApiVersions.of(answer)
    chosen: list[str] = []
    missing: list[tuple[ApiKey, str]] = []
    for api_key in needed:
        try:
            chosen.append(f"{api_key.name} {theirs.latest_usable_version(api_key)}")
        except UnsupportedVersionError as error:
            missing.append((api_key, str(error)))
    if not missing:
        return Finding(VERSIONS, subject, Status.OK, ", ".join(chosen))
    first, text = missing[0]
    problem, _, advice = text.rpartition("; ")
    more = f" ({len(missing) - 1} more APIs are missing)" if len(missing) > 1 else ""
    return Finding(VERSIONS, subject, Status.FAILED, problem + more, _UPGRADE if first in _EXACTLY_ONCE else advice)


class ExactlyOnceSteps:
    """The steps of the exactly-once *target*: transactions, transactional ids, and the group of the progress."""

    def __init__(self, target: ExactlyOnceTarget, connection: ConnectionSteps) -> None:
        self._target = target
        self._connection = connection
        self._sink = sink_id(target.name, target.progress_topic)
        self._describe_driver = DescribeTransactionsRequest(transactional_ids=[driver_id(self._sink)])

    def steps(self) -> list[Step]:
        name = self._target.name
        return [
            Step(TRANSACTIONS, "all brokers", self._verify_transactions, (CLUSTER,)),
            Step("time-out", "transaction.timeout.ms", self._check_timeout, (CLUSTER,)),
            Step(_TWO_PHASE, "all brokers", self._check_two_phase, (CLUSTER,)),
            Step(TRANSACTIONAL_IDS, f"{name}…", self._try_ids, (CLUSTER, VERSIONS)),
            Step("transaction coordinator", f"{name}…", self._find_transaction_coordinator, (TRANSACTIONAL_IDS,)),
            Step(GROUP, name, self._try_group, (CLUSTER, VERSIONS)),
            Step("group coordinator", name, self._find_group_coordinator, (GROUP,)),
        ]

    def _verify_transactions(self) -> Sequence[Finding]:
        connection = self._connection
        answers = versions_and_setting(connection.client, connection.nodes, connection.timeout_ms, SETTING)
        findings = []
        for node, pair in answers.items():
            answer = verification_of(*pair)
            judged = (Status.FAILED, answer, _LOG) if isinstance(answer, str) else _VERIFIED[answer]
            findings.append(Finding(TRANSACTIONS, _name(node), *judged))
        return findings

    def _check_timeout(self) -> Sequence[Finding]:
        timeout_ms = self._target.transaction_timeout_ms
        if timeout_ms is None:
            return []
        name = "transaction.max.timeout.ms"
        request = describe_broker_config(self._connection.nodes[0], name)
        most = known_number(read_settings(self._connection, request).get(name))
        option = self._connection.config.option("transaction.timeout.ms")
        if most is not None and timeout_ms > most:
            text = f"{option}={timeout_ms} is more than the brokers' {name}={most}"
            return [Finding("time-out", option, Status.FAILED, text, "lower the former, or raise the latter")]
        allowed = "a time that is not visible" if most is None else most
        return [Finding("time-out", option, Status.OK, f"{timeout_ms} ms; the brokers allow {allowed}")]

    def _check_two_phase(self) -> Sequence[Finding]:
        """Whether all brokers offer two-phase commit, which only matters if the job enables it. The permission is not
        checked: this would take InitProducerId, which changes the id."""
        connection = self._connection
        answers = versions_and_setting(connection.client, connection.nodes, connection.timeout_ms, TWO_PHASE_SETTING)
        without = [node.id for node, pair in answers.items() if not _offers_two_phase(*pair)]
        if not without:
            return [Finding(_TWO_PHASE, "all brokers", Status.OK, "offered (KIP-939)")]
        text = f"not offered by {', '.join(f'broker {node_id}' for node_id in sorted(without))}"
        if not self._target.two_phase:
            return [Finding(_TWO_PHASE, "all brokers", Status.OK, f"{text}, and not asked for")]
        return [Finding(_TWO_PHASE, "all brokers", Status.FAILED, text, TWO_PHASE_NEEDS)]

    def _try_ids(self) -> Sequence[Finding]:
        node = self._connection.nodes[0]
        states = self._ask(node, ApiKey.DESCRIBE_TRANSACTIONS, self._describe_driver).transaction_states
        unused = writer_id(self._sink, bytes(PROCESS_BYTES), 0)
        request = EndTxnRequest(
            transactional_id=unused, producer_id=_NO_PRODUCER, producer_epoch=_NO_PRODUCER, committed=False
        )
        ended = self._ask(node, ApiKey.END_TXN, request).error_code
        denied = [
            operation
            for operation, code in (("DESCRIBE", states[0].error_code), ("WRITE", ended))
            if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        ]
        subject = f"{self._target.name}…"
        if denied:
            text = f"this principal lacks {' and '.join(denied)}"
            advice = (
                f"grant WRITE and DESCRIBE on the transactional ids that begin with {self._target.name!r}: kafka-acls "
                f"--add --allow-principal … --operation Write --operation Describe --transactional-id "
                f"{self._target.name} --resource-pattern-type prefixed"
            )
            return [Finding(TRANSACTIONAL_IDS, subject, Status.FAILED, text, advice)]
        return [Finding(TRANSACTIONAL_IDS, subject, Status.OK, "WRITE and DESCRIBE are permitted")]

    def _find_transaction_coordinator(self) -> Sequence[Finding]:
        spec = RequestSpec(ApiKey.DESCRIBE_TRANSACTIONS, lambda _: self._describe_driver)
        codes = self._codes(spec, DescribeTransactionsResponse, lambda answer: answer.transaction_states[0].error_code)
        return [self._coordinator("transaction coordinator", TRANSACTIONAL_IDS, codes)]

    def _try_group(self) -> Sequence[Finding]:
        node, name = self._connection.nodes[0], self._target.name
        request = HeartbeatRequest(group_id=name, generation_id=-1, member_id=f"{name}-check")
        if self._ask(node, ApiKey.HEARTBEAT, request).error_code != ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return [Finding(GROUP, name, Status.OK, "READ is permitted")]
        advice = (
            f"the progress is kept in the consumer group {name!r}; grant READ on it: kafka-acls --add "
            f"--allow-principal … --operation Read --group {name}"
        )
        return [Finding(GROUP, name, Status.FAILED, "this principal lacks READ", advice)]

    def _find_group_coordinator(self) -> Sequence[Finding]:
        body = DescribeGroupsRequest(groups=[self._target.name])
        spec = RequestSpec(ApiKey.DESCRIBE_GROUPS, lambda _: body, _DESCRIBE_GROUPS_MAX_VERSION)
        codes = self._codes(spec, DescribeGroupsResponse, lambda answer: only_one(answer.groups).error_code)
        return [self._coordinator("group coordinator", GROUP, codes)]

    def _ask(self, node: Node, api_key: ApiKey, body: RequestBody[A]) -> A:
        spec = RequestSpec(api_key, lambda _: body)
        return cast(A, self._connection.client.ask(node, spec, timeout_ms=self._connection.timeout_ms))

    def _codes(self, spec: RequestSpec, kind: type[A], code: Callable[[A], int]) -> dict[Node, ErrorCode]:
        """The error code in the response of each broker to *spec*; a failed request has the code of its error."""
        codes: dict[Node, ErrorCode] = {}
        for node, answer in _answers(self._connection, spec).items():
            if isinstance(answer, ApiError):
                codes[node] = answer.code
            else:
                assert isinstance(answer, kind)
                codes[node] = ErrorCode.of(code(answer))
        return codes

    def _coordinator(self, step: str, what: str, codes: Mapping[Node, ErrorCode]) -> Finding:
        """The finding about a coordinator from the *codes* of all brokers that can be reached."""
        name = self._target.name
        elsewhere = {ErrorCode.NOT_COORDINATOR, *_UNAVAILABLE}
        unavailable = {_name(node): code for node, code in codes.items() if code in _UNAVAILABLE}
        if unavailable:
            text = "; ".join(f"{node}: {code.name}" for node, code in unavailable.items())
            advice = (
                f"wait until the brokers have loaded {INTERNAL_TOPICS[what]}; if this lasts, check that all of its "
                "partitions have a leader, and the brokers' logs"
            )
            return Finding(step, name, Status.FAILED, text, advice)
        for node, code in codes.items():
            if code not in elsewhere and code is not ErrorCode.NETWORK_EXCEPTION:
                return Finding(step, name, Status.OK, _name(node))
        topic, metadata = INTERNAL_TOPICS[what], self._connection.metadata
        if len(self._connection.nodes) < len(metadata.brokers):
            text = "it is not one of the brokers that can be reached"
            return Finding(step, name, Status.FAILED, text, "make all brokers reachable")
        if any(described.name == topic and described.error_code == ErrorCode.NONE for described in metadata.topics):
            text = f"no broker is the coordinator, because a partition of {topic} has no leader"
            return Finding(step, name, Status.FAILED, text, "start the brokers that have its replicas")
        advice = (
            f"nothing, if no client of this cluster has used it yet: the first one makes the brokers create {topic}, "
            "which needs as many brokers as its replication factor; otherwise check that all its partitions have a "
            "leader"
        )
        return Finding(step, name, Status.WARNING, "no broker is the coordinator yet", advice)


def _offers_two_phase(versions: Struct | ApiError, setting: Struct | ApiError) -> bool:
    """Whether a broker offers two-phase commit, as far as is visible: the setting may be hidden."""
    if not isinstance(versions, ApiVersionsResponse):
        return False
    highest = {api.api_key: api.max_version for api in versions.api_keys}
    if highest.get(ApiKey.INIT_PRODUCER_ID, -1) < TWO_PHASE_VERSION:
        return False
    if not isinstance(setting, DescribeConfigsResponse):
        return True
    return all(config.value != "false" for result in setting.results for config in result.configs)


def _name(node: Node) -> str:
    return f"broker {node.id}"
