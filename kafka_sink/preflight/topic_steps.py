"""The steps about topics: existence, partitions, settings that matter to a writer, and permissions.

Run on the driver after the connection steps. What Metadata has answered about the topics is judged here; only the
settings need a further request. Nothing is created: the metadata was asked for without automatic creation.

Source: Metadata (KIP-430: authorized operations), DescribeConfigs; apache/kafka ``TopicConfig``, ``AclOperation``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kafka_sink.client.blocking.admin import BROKER_DEFAULT
from kafka_sink.client.requests.admin_requests import (
    describe_broker_config,
    describe_topics_configs,
    visible_settings,
)
from kafka_sink.common.bounded import known_number
from kafka_sink.common.errors import ErrorCode, UnsupportedVersionError, error_for
from kafka_sink.preflight.connection_steps import CLUSTER, ConnectionSteps
from kafka_sink.preflight.findings import Finding, Status, Step
from kafka_sink.preflight.target import NewTopicTarget
from kafka_sink.producer.topic_limits import CLEANUP_POLICY, MAX_MESSAGE_BYTES, TIMESTAMP_TYPE, TopicLimits
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.configs import DescribeConfigsRequest
from kafka_sink.protocol.messages.metadata import NO_AUTHORIZED_OPERATIONS, MetadataResponseTopic
from kafka_sink.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

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


class TopicSteps:
    """The steps of one *topic*, for a principal that needs all *operations* on it. *may_be_created* is False if the job
    needs the topic to exist even where brokers create topics on first use; *new_topic* is set if the job creates it."""

    def __init__(
        self,
        topic: str,
        connection: ConnectionSteps,
        operations: Sequence[int],
        *,
        may_be_created: bool,
        new_topic: NewTopicTarget | None = None,
    ) -> None:
        self._topic = topic
        self._connection = connection
        self._operations = operations
        self._may_be_created = may_be_created
        self._new_topic = new_topic
        self._settings: Mapping[str, str] = {}

    def steps(self) -> list[Step]:
        name = f"topic {self._topic}"
        steps = [
            Step(name, self._topic, self._look_up, (CLUSTER,)),
            Step(f"permissions on {name}", self._topic, self._check_permissions, (name,)),
        ]
        if WRITE in self._operations:
            steps += [
                Step(f"settings of {name}", self._topic, self._check_settings, (name,)),
                Step(f"replicas of {name}", self._topic, self._check_replicas, (name,)),
            ]
        return steps

    @property
    def _described(self) -> MetadataResponseTopic:
        return next(each for each in self._connection.metadata.topics if each.name == self._topic)

    def _look_up(self) -> Sequence[Finding]:
        code = ErrorCode.of(self._described.error_code)
        if code is ErrorCode.NONE or code is ErrorCode.LEADER_NOT_AVAILABLE:
            return [self._counted()]
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return [self._missing()]
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            needed = " and ".join(_NAMES[each] for each in self._operations)
            return [self._finding("topic", Status.FAILED, "this principal may not see the topic", self._grant(needed))]
        advice = "check the name of the topic" if code is ErrorCode.INVALID_TOPIC_EXCEPTION else "try again later"
        return [self._finding("topic", Status.FAILED, code.name, advice)]

    def _counted(self) -> Finding:
        partitions = self._described.partitions
        leaderless = [each.partition_index for each in partitions if each.leader_id < 0]
        count = f"{len(partitions)} partition{'s' if len(partitions) != 1 else ''}"
        if leaderless:
            text = f"{count}, of which {len(leaderless)} have no leader, such as {leaderless[0]}"
            return self._finding("topic", Status.FAILED, text, "start the brokers that have their replicas")
        return self._finding("topic", Status.OK, count)

    def _missing(self) -> Finding:
        if self._new_topic is not None:
            return self._to_be_created(self._new_topic)
        create = f"create it: kafkalite topics create {self._topic} --partitions …"
        if not self._may_be_created:
            return self._finding("topic", Status.FAILED, "does not exist; exactly once does not create it", create)
        request = describe_broker_config(self._connection.nodes[0], _AUTO_CREATE)
        settings = read_settings(self._connection, request)
        creates = settings.get(_AUTO_CREATE)
        if creates == "true":
            text = f"does not exist; the brokers create it on first use ({_AUTO_CREATE}) with their default settings"
            return self._finding("topic", Status.WARNING, text, f"to choose the number of partitions, {create}")
        hint = "" if creates == "false" else f"; {_AUTO_CREATE} is not visible"
        return self._finding("topic", Status.FAILED, f"does not exist{hint}", create)

    def _to_be_created(self, new: NewTopicTarget) -> Finding:
        """The controller's answer to the creation of the topic, which it only validates."""
        topic = CreatableTopic(
            name=new.name, num_partitions=new.partitions, replication_factor=new.replication_factor or BROKER_DEFAULT
        )
        timeout_ms = self._connection.timeout_ms
        request = CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=True)
        answer = self._connection.client.request(
            self._connection.controller, ApiKey.CREATE_TOPICS, lambda _: request, timeout_ms=timeout_ms
        )
        (result,) = answer.topics
        if result.error_code == ErrorCode.NONE:
            text = f"does not exist; the job creates it with {new.partitions} partitions"
            return self._finding("topic", Status.OK, text)
        text = f"does not exist and cannot be created: {error_for(result.error_code, result.error_message)}"
        advice = "grant CREATE on the topic, correct topicPartitions or topicReplicationFactor, or create it beforehand"
        return self._finding("topic", Status.FAILED, text, advice)

    # --- permissions -------------------------------------------------------------------------------------------------

    def _check_permissions(self) -> Sequence[Finding]:
        operations = self._described.topic_authorized_operations
        if self._described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return []
        if operations == NO_AUTHORIZED_OPERATIONS:
            text = "the brokers do not report permissions (KIP-430)"
            return [self._finding("permissions", Status.WARNING, text, "nothing; a write may still be refused")]
        lacking = [_NAMES[each] for each in self._operations if not operations & each]
        if lacking:
            text = f"this principal lacks {' and '.join(lacking)}"
            return [self._finding("permissions", Status.FAILED, text, self._grant(" and ".join(lacking)))]
        granted = " and ".join(_NAMES[each] for each in self._operations)
        return [self._finding("permissions", Status.OK, f"{granted} permitted")]

    def _grant(self, operations: str) -> str:
        flags = " ".join(f"--operation {name.title()}" for name in operations.split(" and "))
        return f"grant {operations}: kafka-acls --add --allow-principal … {flags} --topic {self._topic}"

    # --- settings ----------------------------------------------------------------------------------------------------

    def _check_settings(self) -> Sequence[Finding]:
        if self._described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return []
        request = describe_topics_configs([self._topic])
        self._settings = read_settings(self._connection, request)
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
        config = self._connection.config
        ours, theirs, option = config.max_request_size_bytes, known_number(value), config.option("max.request.size")
        if theirs is None:
            text = f"{MAX_MESSAGE_BYTES}={value!r:.40} is not a number"
            return self._finding("record size", Status.WARNING, text, "ask the cluster's administrator to correct it")
        text = f"columns key, value and headers: {MAX_MESSAGE_BYTES}={theirs}, {option}={ours}"
        if ours <= theirs:
            return self._finding("record size", Status.OK, text)
        status = Status.FAILED if self._connection.is_given("max.request.size") else Status.WARNING
        advice = (
            f"the brokers refuse records over {theirs} bytes: raise the topic's max.message.bytes (kafkalite topics "
            f"alter {self._topic} --config max.message.bytes={ours}), or lower {option} to {theirs}"
        )
        return self._finding("record size", status, text, advice)

    def _check_codec(self, value: str) -> Finding:
        config = self._connection.config
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

    # --- replicas ----------------------------------------------------------------------------------------------------

    def _check_replicas(self) -> Sequence[Finding]:
        least = known_number(self._settings.get("min.insync.replicas"))
        if least is None or self._connection.config.acks_code != -1:
            return []
        short = [each for each in self._described.partitions if len(each.isr_nodes) < least]
        if short:
            text = (
                f"{len(short)} partitions have fewer in-sync replicas than min.insync.replicas={least}, such as "
                f"{short[0].partition_index} with {len(short[0].isr_nodes)}"
            )
            return [self._finding("replicas", Status.FAILED, text, "start the brokers that have their replicas")]
        return [self._finding("replicas", Status.OK, f"min.insync.replicas={least} in sync")]

    def _finding(self, step: str, status: Status, found: str, what_to_do: str = "") -> Finding:
        return Finding(step, self._topic, status, found, what_to_do)
