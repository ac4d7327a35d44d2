"""The steps about the cluster: API versions, each topic with its settings and permissions, and what exactly once needs.

Run on the driver, after the connection steps, on the calling thread. Nothing is written, and no lookup creates
anything:

* Topics: Metadata, with automatic creation switched off, says which operations the principal may use (KIP-430).
  Settings are read with DescribeConfigs.
* Transactional ids: DescribeTransactions needs DESCRIBE. EndTxn needs WRITE; it is sent for an id that no producer ever
  uses, so after the check of the permission the brokers find no transaction to end.
* The group: Heartbeat needs READ; it is sent for a member that no group has.
* Brokers check permissions before they look whether they are the coordinator, so no request has to find one.
  FindCoordinator is not used, because it makes the brokers create their internal topics. Instead, every broker is asked
  to describe the group and an id: all but the coordinator answer NOT_COORDINATOR.

Source: apache/kafka ``KafkaApis`` for the order of these checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar, cast

from kafka_sink.client.blocking.blocking import RequestSpec
from kafka_sink.client.blocking.cluster_requests import VERSIONS_REQUEST, versions_and_setting
from kafka_sink.client.blocking.transaction_verification import SETTING, Answer, Verification, verification_of
from kafka_sink.client.connection.api_versions import NodeApiVersions
from kafka_sink.client.requests.admin_requests import describe_broker_config
from kafka_sink.client.requests.outcomes import only_one
from kafka_sink.client.requests.transactional_requests import TWO_PHASE_NEEDS, TWO_PHASE_SETTING, TWO_PHASE_VERSION
from kafka_sink.common.bounded import known_number
from kafka_sink.common.errors import ApiError, ErrorCode, UnsupportedVersionError
from kafka_sink.common.model import Node
from kafka_sink.exactly_once.transactions import PROCESS_BYTES, driver_id, sink_id, writer_id
from kafka_sink.preflight.connection_steps import BROKERS, CLUSTER, ConnectionSteps
from kafka_sink.preflight.findings import Finding, Status, Step
from kafka_sink.preflight.target import ExactlyOnceTarget
from kafka_sink.preflight.topic_steps import read_settings
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.configs import DescribeConfigsResponse
from kafka_sink.protocol.messages.connection import ApiVersionsResponse
from kafka_sink.protocol.messages.group_admin import DescribeGroupsRequest, DescribeGroupsResponse
from kafka_sink.protocol.messages.group_members import HeartbeatRequest
from kafka_sink.protocol.messages.transaction_admin import DescribeTransactionsRequest, DescribeTransactionsResponse
from kafka_sink.protocol.messages.transactions import EndTxnRequest
from kafka_sink.protocol.schema import RequestBody, Struct

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
        nodes = connection.nodes
        requests = [(node, VERSIONS_REQUEST) for node in nodes]
        answers = connection.client.request_all(requests, timeout_ms=connection.timeout_ms)
        return [_versions_of(node, answer, needed) for node, answer in zip(nodes, answers, strict=True)]

    return Step(VERSIONS, BROKERS, run, (CLUSTER,))


def _versions_of(node: Node, answer: Struct | ApiError, needed: Sequence[ApiKey]) -> Finding:
    subject = _name(node)
    if isinstance(answer, ApiError):
        return Finding(VERSIONS, subject, Status.FAILED, str(answer), "look into the broker's log")
    assert isinstance(answer, ApiVersionsResponse)
    theirs = NodeApiVersions.of(answer)
    chosen: list[str] = []
    missing: list[tuple[ApiKey, str]] = []
    for api_key in needed:
        try:
            chosen.append(f"{api_key.name} {theirs.latest_usable_version(api_key)}")
        except UnsupportedVersionError as error:
            missing.append((api_key, str(error)))
    if missing:
        first, text = missing[0]
        problem, _, advice = text.rpartition("; ")
        if first in _EXACTLY_ONCE:
            advice = _UPGRADE
        more = f" ({len(missing) - 1} more APIs are missing)" if len(missing) > 1 else ""
        return Finding(VERSIONS, subject, Status.FAILED, problem + more, advice)
    return Finding(VERSIONS, subject, Status.OK, ", ".join(chosen))


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

    # --- transactions ------------------------------------------------------------------------------------------------

    def _verify_transactions(self) -> Sequence[Finding]:
        connection = self._connection
        answers = versions_and_setting(connection.client, connection.nodes, connection.timeout_ms, SETTING)
        return [_verification(node, verification_of(*pair)) for node, pair in answers.items()]

    def _check_timeout(self) -> Sequence[Finding]:
        given_ms = self._target.transaction_timeout_ms
        if given_ms is None:
            return []
        name = "transaction.max.timeout.ms"
        request = describe_broker_config(self._connection.nodes[0], name)
        most = known_number(read_settings(self._connection, request).get(name))
        option = self._connection.config.option("transaction.timeout.ms")
        if most is not None and given_ms > most:
            text = f"{option}={given_ms} is more than the brokers' {name}={most}"
            return [Finding("time-out", option, Status.FAILED, text, "lower the former, or raise the latter")]
        allowed = "a time that is not visible" if most is None else most
        return [Finding("time-out", option, Status.OK, f"{given_ms} ms; the brokers allow {allowed}")]

    def _check_two_phase(self) -> Sequence[Finding]:
        """Whether all brokers offer two-phase commit, which only matters if the job asks for it. The permission is not
        tried: only InitProducerId would tell, and it changes the id."""
        connection = self._connection
        answers = versions_and_setting(connection.client, connection.nodes, connection.timeout_ms, TWO_PHASE_SETTING)
        without = [node.id for node, pair in answers.items() if not _offers_two_phase(*pair)]
        if not without:
            return [Finding(_TWO_PHASE, "all brokers", Status.OK, "offered (KIP-939)")]
        text = f"not offered by {', '.join(f'broker {node_id}' for node_id in sorted(without))}"
        if not self._target.two_phase:
            return [Finding(_TWO_PHASE, "all brokers", Status.OK, f"{text}, and not asked for")]
        return [Finding(_TWO_PHASE, "all brokers", Status.FAILED, text, TWO_PHASE_NEEDS)]

    # --- transactional ids -------------------------------------------------------------------------------------------

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

    # --- the group ---------------------------------------------------------------------------------------------------

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

    # --- how ---------------------------------------------------------------------------------------------------------

    def _ask(self, node: Node, api_key: ApiKey, body: RequestBody[A]) -> A:
        spec = RequestSpec(api_key, lambda _: body)
        return cast(A, self._connection.client.ask(node, spec, timeout_ms=self._connection.timeout_ms))

    def _codes(self, spec: RequestSpec, kind: type[A], code: Callable[[A], int]) -> dict[Node, ErrorCode]:
        """The error code in the answer of each broker to *spec*; an unanswered request has the code of its error."""
        nodes = self._connection.nodes
        requests = [(node, spec) for node in nodes]
        answers = self._connection.client.request_all(requests, timeout_ms=self._connection.timeout_ms)
        codes: dict[Node, ErrorCode] = {}
        for node, answer in zip(nodes, answers, strict=True):
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
        return self._no_coordinator(step, what)

    def _no_coordinator(self, step: str, what: str) -> Finding:
        topic = INTERNAL_TOPICS[what]
        metadata = self._connection.metadata
        if len(self._connection.nodes) < len(metadata.brokers):
            text = "it is not one of the brokers that can be reached"
            return Finding(step, self._target.name, Status.FAILED, text, "make all brokers reachable")
        if any(each.name == topic and each.error_code == ErrorCode.NONE for each in metadata.topics):
            text = f"no broker is the coordinator, because a partition of {topic} has no leader"
            return Finding(step, self._target.name, Status.FAILED, text, "start the brokers that have its replicas")
        advice = (
            f"nothing, if no client of this cluster has used it yet: the first one makes the brokers create {topic}, "
            "which needs as many brokers as its replication factor; otherwise check that all its partitions have a "
            "leader"
        )
        return Finding(step, self._target.name, Status.WARNING, "no broker is the coordinator yet", advice)


def _verification(node: Node, finding: Answer) -> Finding:
    subject = _name(node)
    match finding:
        case Verification.VERIFIES:
            return Finding(TRANSACTIONS, subject, Status.OK, "verifies transactions (KIP-890)")
        case Verification.MAY_VERIFY:
            advice = "grant DESCRIBE_CONFIGS on the cluster to have it checked"
            return Finding(TRANSACTIONS, subject, Status.WARNING, f"{SETTING} is not visible", advice)
        case Verification.SWITCHED_OFF:
            advice = (
                f"set it to true: kafka-configs --alter --entity-type brokers --entity-default --add-config "
                f"{SETTING}=true"
            )
            return Finding(TRANSACTIONS, subject, Status.FAILED, f"{SETTING} is false", advice)
        case Verification.TOO_OLD:
            return Finding(TRANSACTIONS, subject, Status.FAILED, "does not verify transactions (KIP-890)", _UPGRADE)
        case str(cause):
            return Finding(TRANSACTIONS, subject, Status.FAILED, cause, "look into the broker's log")


def _offers_two_phase(versions: Struct | ApiError, setting: Struct | ApiError) -> bool:
    """Whether a broker offers two-phase commit, as far as it can be seen: the setting may be hidden."""
    if not isinstance(versions, ApiVersionsResponse):
        return False
    highest = {each.api_key: each.max_version for each in versions.api_keys}
    if highest.get(ApiKey.INIT_PRODUCER_ID, -1) < TWO_PHASE_VERSION:
        return False
    if not isinstance(setting, DescribeConfigsResponse):
        return True
    return all(config.value != "false" for result in setting.results for config in result.configs)


def _name(node: Node) -> str:
    return f"broker {node.id}"
