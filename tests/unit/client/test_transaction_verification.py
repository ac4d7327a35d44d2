"""Brokers that support exactly once, and the number of requests that find it out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from kafka_sink.client.blocking.blocking import RequestSpec
from kafka_sink.client.blocking.transaction_verification import SETTING, TransactionVerification
from kafka_sink.common.errors import (
    ApiError,
    AuthenticationError,
    BrokersUnreachableError,
    DisconnectError,
    ErrorCode,
    UnsupportedVersionError,
)
from kafka_sink.common.model import Node
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kafka_sink.protocol.messages.connection import ApiVersion, ApiVersionsResponse
from kafka_sink.protocol.schema import Struct
from tests.fakes.clock import FakeClock
from tests.support.cases import with_each

TIMEOUT_MS = 10_000
ONE, TWO, THREE = (Node(number, "127.0.0.1", 9000 + number) for number in (1, 2, 3))

#: The newest version of AddPartitionsToTxn in each release, and the default of the setting.
KAFKA_3_5, KAFKA_3_6, KAFKA_4_3 = (3, None), (4, "true"), (5, "true")


@dataclass
class Brokers:
    """Each node's newest AddPartitionsToTxn, and its setting: None if the broker has no such setting, or its error."""

    clock: FakeClock
    known: dict[Node, tuple[int, str | ErrorCode | ApiError | None]]
    asked: list[list[Node]] = field(default_factory=list)

    def request_all(self, questions: Sequence[tuple[Node, RequestSpec]], *, timeout_ms: int) -> list[Struct | ApiError]:
        assert 0 < timeout_ms <= TIMEOUT_MS
        self.asked.append(sorted({node for node, _ in questions}, key=lambda node: node.id))
        return [self._answer(node, question) for node, question in questions]

    def _answer(self, node: Node, question: RequestSpec) -> Struct | ApiError:
        version, setting = self.known[node]
        if isinstance(setting, DisconnectError | AuthenticationError):
            return setting
        if question.api_key is ApiKey.API_VERSIONS:
            return ApiVersionsResponse(api_keys=[ApiVersion(ApiKey.ADD_PARTITIONS_TO_TXN, 0, version)])
        request = question.build(4)
        assert isinstance(request, DescribeConfigsRequest)
        (resource,) = request.resources
        # A broker returns only its own settings.
        assert (resource.resource_name, resource.configuration_keys) == (str(node.id), [SETTING])
        if isinstance(setting, ApiError):
            return setting
        result = DescribeConfigsResult(resource_type=4, resource_name=resource.resource_name)
        if isinstance(setting, ErrorCode):
            result.error_code = setting
        elif setting is not None:
            result.configs = [DescribeConfigsResourceResult(name=SETTING, value=setting)]
        return DescribeConfigsResponse(results=[result])

    def idle(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)

    def nodes(self) -> list[Node]:
        return list(self.known)


def verification(brokers: Brokers) -> TransactionVerification:
    return TransactionVerification(brokers, brokers.nodes, TIMEOUT_MS, brokers.clock)  # type: ignore[arg-type]


def missing(**setting_of: tuple[int, str | ErrorCode | ApiError | None]) -> tuple[str | None, Brokers]:
    """The brokers among *one*, *two* and *three* that do not verify, and the advice."""
    nodes = {"one": ONE, "two": TWO, "three": THREE}
    brokers = Brokers(FakeClock(), {nodes[name]: known for name, known in setting_of.items()})
    return verification(brokers).missing(brokers.nodes()), brokers


@with_each("broker", [KAFKA_3_6, KAFKA_4_3, (5, None), (7, None)])
def test_brokers_that_verify_are_asked_once_and_all_at_a_time(broker: tuple[int, str | None]) -> None:
    text, brokers = missing(one=broker, two=broker)
    assert text is None and brokers.asked == [[ONE, TWO]]


@pytest.mark.behaviour(
    "Exactly once: brokers that do not verify transactions",
    "One old broker among several is refused by name, with the version that works",
)
@with_each("old", [KAFKA_3_5, (-1, None), (4, None), (3, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)])
def test_one_old_broker_is_refused_with_the_required_version(old: tuple[int, ErrorCode | None]) -> None:
    text, _ = missing(one=KAFKA_4_3, two=old, three=KAFKA_3_6)
    assert text is not None
    assert text.startswith("broker 2 at 127.0.0.1:9002 cannot; upgrade to Apache Kafka 3.6 or newer, ")


@pytest.mark.behaviour(
    "Exactly once: brokers that do not verify transactions",
    "Verification that is switched off is refused, with the setting",
)
@pytest.mark.parametrize("version", [4, 5])
def test_broker_with_verification_off_is_named_with_setting(version: int) -> None:
    text, _ = missing(one=(version, "false"), two=KAFKA_4_3, three=(version, "false"))
    names = "broker 1 at 127.0.0.1:9001, broker 3 at 127.0.0.1:9003"
    assert text is not None and text.startswith(f"{SETTING} is false on {names}; set it to true")


@pytest.mark.behaviour(
    "Exactly once: brokers that do not verify transactions", "A setting that may not be seen is warned of once"
)
@pytest.mark.parametrize(
    "hidden",
    [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.POLICY_VIOLATION, UnsupportedVersionError("no such API")],
)
def test_hidden_verification_setting_is_warned_of_once(
    hidden: ErrorCode | ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    brokers = Brokers(FakeClock(), {ONE: (4, hidden), TWO: KAFKA_3_6})
    asked = verification(brokers)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert asked.missing(brokers.nodes()) is None
            brokers.clock.advance(300_000)
    (text,) = (record.getMessage() for record in caplog.records)
    assert f"cannot read {SETTING} of broker 1 at 127.0.0.1:9001: " in text
    assert "Grant DESCRIBE_CONFIGS on the cluster" in text


@pytest.mark.behaviour(
    "Exactly once: brokers that do not verify transactions",
    "Brokers are asked again after five minutes, and new ones at once",
)
def test_known_brokers_are_asked_every_five_minutes_new_at_once() -> None:
    brokers = Brokers(FakeClock(), {ONE: KAFKA_4_3})
    asked = verification(brokers)
    for _ in range(1000):
        assert asked.missing([ONE]) is None
    brokers.known[TWO] = KAFKA_4_3
    brokers.clock.advance(299_999)
    assert asked.missing([ONE, TWO]) is None
    assert brokers.asked == [[ONE], [TWO]]
    brokers.known[ONE] = (5, "false")
    brokers.clock.advance(1)
    assert "is false on broker 1" in (asked.missing([ONE, TWO]) or "")
    brokers.known[ONE] = KAFKA_4_3
    assert asked.missing([ONE, TWO]) is None
    assert brokers.asked[2:] == [[ONE], [ONE]]


@pytest.mark.behaviour(
    "Exactly once: brokers that do not verify transactions",
    "A broker that dies is waited for until the cluster has let go of it",
)
def test_dead_broker_is_waited_for_until_it_leaves_the_cluster() -> None:
    brokers = Brokers(FakeClock(), {ONE: KAFKA_4_3, TWO: (5, DisconnectError("connection refused"))})
    asked = verification(brokers)

    def idle(duration_ms: int) -> None:
        brokers.clock.advance(duration_ms)
        if len(brokers.asked) == 3:
            del brokers.known[TWO]

    brokers.idle = idle  # type: ignore[method-assign]
    assert asked.missing(brokers.nodes()) is None
    assert brokers.asked == [[ONE, TWO], [TWO], [TWO]]


@pytest.mark.parametrize(
    ("silent", "told"),
    [
        (DisconnectError(f"{TWO}: connection refused"), "broker 2 at 127.0.0.1:9002: connection refused"),
        (ErrorCode.REQUEST_TIMED_OUT, "broker 2: DescribeConfigs failed with REQUEST_TIMED_OUT"),
    ],
)
def test_silent_broker_is_named_after_the_verification_timeout(silent: ErrorCode | ApiError, told: str) -> None:
    with pytest.raises(BrokersUnreachableError, match=rf"not every broker answered within 10000 ms .*: {told}$"):
        missing(one=KAFKA_4_3, two=(5, silent))


def test_a_broker_that_refuses_this_client_is_not_asked_again() -> None:
    with pytest.raises(AuthenticationError, match="wrong password"):
        missing(one=(5, AuthenticationError("wrong password")))
