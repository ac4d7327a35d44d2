"""Finds the brokers that do not verify transactions. Without verification, a transaction may contain more records, or
end later, than was decided.

A broker without verification appends late records of an abandoned task even if the transaction of their epoch has
ended. These records then belong to a transaction that is never ended, and readers wait behind it forever; or the next
transaction of that producer id commits them too. No client request can prevent either, because the late request is
already in flight.

Used on the driver, by one thread at a time. It caches the findings for some minutes. It sends
no request to a coordinator and changes nothing.

Source: KIP-890, part 1 (Apache Kafka 3.6; ``transaction.partition.verification.enable``); ApiVersions, DescribeConfigs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, TypeAlias

from kafka_sink.client.blocking.blocking import BlockingClient
from kafka_sink.client.blocking.cluster_requests import versions_and_setting
from kafka_sink.common.clock import Clock, end_of
from kafka_sink.common.errors import (
    ApiError,
    BrokersUnreachableError,
    DisconnectError,
    ErrorCode,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from kafka_sink.common.model import Node
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.configs import DescribeConfigsResponse
from kafka_sink.protocol.messages.connection import ApiVersionsResponse
from kafka_sink.protocol.schema import Struct

_log = logging.getLogger(__name__)

#: True by default; can be changed while brokers run.
SETTING: Final = "transaction.partition.verification.enable"

#: Brokers send AddPartitionsToTxn to the coordinator from this version on. Kafka 3.5 also has it if unstable versions
#: are enabled, but does not verify and does not have the setting.
_FIRST_VERSION: Final = 4
#: From Kafka 3.8 on. A broker with this version that does not have the setting always verifies.
_FIRST_STABLE_VERSION: Final = 5

#: How long an answer is valid: the setting may be changed, and a broker may be replaced by an older one.
_VALID_MS: Final = 300_000

_PAUSE_MS: Final = 200


class Verification(Enum):
    """Whether a broker verifies transactions."""

    VERIFIES = auto()
    #: It supports verification, but the setting is not visible, so verification may be disabled.
    MAY_VERIFY = auto()
    SWITCHED_OFF = auto()
    TOO_OLD = auto()


#: The finding about a broker: whether it verifies, or the reason why it gave no usable answer.
Answer: TypeAlias = Verification | str


@dataclass(eq=False)
class TransactionVerification:
    """*timeout_ms* is the maximum duration of :meth:`missing`; *nodes* fetches the current brokers of the cluster."""

    _client: BlockingClient
    _nodes: Callable[[], Sequence[Node]]
    _timeout_ms: int
    _clock: Clock
    #: The time at which a broker was found to verify.
    _found_ms: dict[Node, int] = field(default_factory=dict)
    _warned_of: set[Node] = field(default_factory=set)

    def missing(self, nodes: Sequence[Node]) -> str | None:
        """A text that names the *nodes*, brokers of the cluster, that do not verify transactions, and the remedy; None
        if there are none. Any broker may lead a partition or coordinate a transaction. A broker that answered within
        the last five minutes gets no new request; for one that does not show its setting, a warning is logged.

        :raises BrokersUnreachableError: if a broker did not answer; the text has its address and the cause.
        """
        deadline_ms = end_of(self._timeout_ms, self._clock)
        while unknown := [node for node in nodes if not self._is_known(node)]:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            answers = versions_and_setting(self._client, unknown, max(left_ms, 1), SETTING)
            findings = {node: verification_of(*pair) for node, pair in answers.items()}
            if (remedy := _remedy(findings)) is not None:
                return remedy
            self._warn_of([node for node, finding in findings.items() if finding is Verification.MAY_VERIFY])
            now_ms = self._clock.monotonic_ms()
            self._found_ms |= {node: now_ms for node, finding in findings.items() if isinstance(finding, Verification)}
            lost = [finding for finding in findings.values() if isinstance(finding, str)]
            if not lost:
                return None
            if deadline_ms - now_ms <= _PAUSE_MS:
                raise BrokersUnreachableError(
                    f"not every broker answered within {self._timeout_ms} ms whether it verifies transactions, and "
                    f"exactly-once writes depend on each broker: {'; '.join(lost)}"
                )
            self._client.idle(_PAUSE_MS)
            # A broker that has died leaves the cluster once its session has expired.
            nodes = self._nodes()
        return None

    def _is_known(self, node: Node) -> bool:
        found_ms = self._found_ms.get(node)
        return found_ms is not None and self._clock.monotonic_ms() - found_ms < _VALID_MS

    def _warn_of(self, hidden: Sequence[Node]) -> None:
        unwarned = [node for node in hidden if node not in self._warned_of]
        self._warned_of.update(unwarned)
        if unwarned:
            _log.warning(
                "cannot read %s of %s: exactly-once writes need the value true, which is the default. Grant "
                "DESCRIBE_CONFIGS on the cluster to this principal to have it checked",
                SETTING,
                _names(unwarned),
            )


def verification_of(versions: Struct | ApiError, setting: Struct | ApiError) -> Answer:
    """The finding from a broker's answers in :func:`~kafka_sink.client.blocking.cluster_requests.versions_and_setting`.

    :raises ApiError: if an answer is another error than a lost connection or a missing version.
    """
    for answer in (versions, setting):
        if isinstance(answer, DisconnectError | KafkaTimeoutError):
            return str(answer)
        if isinstance(answer, ApiError) and not isinstance(answer, UnsupportedVersionError):
            raise answer
    version = _add_partitions_version(versions)
    if version < _FIRST_VERSION:
        return Verification.TOO_OLD
    if isinstance(setting, ApiError):
        return Verification.MAY_VERIFY
    assert isinstance(setting, DescribeConfigsResponse)
    for broker, code in ((result.resource_name, ErrorCode.of(result.error_code)) for result in setting.results):
        if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return Verification.MAY_VERIFY
        if code.is_retriable:
            return f"broker {broker}: DescribeConfigs failed with {code.name}"
        if code is not ErrorCode.NONE:
            # A managed service may refuse DescribeConfigs altogether.
            return Verification.MAY_VERIFY
    values = [config.value for result in setting.results for config in result.configs if config.name == SETTING]
    if not values:
        return Verification.VERIFIES if version >= _FIRST_STABLE_VERSION else Verification.TOO_OLD
    return Verification.VERIFIES if values == ["true"] else Verification.SWITCHED_OFF


def _add_partitions_version(versions: Struct | ApiError) -> int:
    """The newest version of AddPartitionsToTxn that the broker supports; −1 if none."""
    if isinstance(versions, ApiError):
        return -1
    assert isinstance(versions, ApiVersionsResponse)
    return next((api.max_version for api in versions.api_keys if api.api_key == ApiKey.ADD_PARTITIONS_TO_TXN), -1)


def _remedy(findings: Mapping[Node, Answer]) -> str | None:
    """The brokers that do not verify transactions, and the remedy; None if there are none."""
    old = [node for node, finding in findings.items() if finding is Verification.TOO_OLD]
    off = [node for node, finding in findings.items() if finding is Verification.SWITCHED_OFF]
    if old:
        return f"{_names(old)} cannot; upgrade to Apache Kafka 3.6 or newer, or to a service of that version"
    if off:
        return (
            f"{SETTING} is false on {_names(off)}; set it to true (kafka-configs can change it while brokers run: "
            f"--alter --entity-type brokers --entity-default --add-config {SETTING}=true)"
        )
    return None


def _names(nodes: Iterable[Node]) -> str:
    return ", ".join(map(str, nodes))
