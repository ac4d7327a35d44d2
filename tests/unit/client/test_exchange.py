"""Several exchanges at the same time: the requests that they send together, and their ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafka_sink.client.blocking.blocking import Exchange, Pause, RequestSpec, Round, run_together
from kafka_sink.common.errors import DisconnectError, KafkaTimeoutError
from kafka_sink.common.model import Node
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.metadata import MetadataRequest
from tests.fakes.clock import FakeClock

ONE, TWO = Node(1, "127.0.0.1", 9092), Node(2, "127.0.0.1", 9093)
METADATA = RequestSpec(ApiKey.METADATA, lambda version: MetadataRequest())


class Client:
    """Notes the requests that are sent together; node 1 answers with its name, and node 2 is lost."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.did: list[object] = []

    def request_all(self, questions: Sequence[tuple[Node, RequestSpec]], *, timeout_ms: int) -> list[object]:
        self.did.append(([node.id for node, _ in questions], timeout_ms))
        return ["one" if node is ONE else DisconnectError("lost") for node, _ in questions]

    def ask(self, node: None, spec: RequestSpec, *, timeout_ms: int) -> None:
        self.did.append(("any", timeout_ms))
        self.clock.advance(timeout_ms)
        raise KafkaTimeoutError("nobody is there")

    def idle(self, duration_ms: int) -> None:
        self.did.append(duration_ms)
        self.clock.advance(duration_ms)

    def run(self, *exchanges: Exchange[Any]) -> list[Any]:
        return run_together(self, self.clock, exchanges)  # type: ignore[arg-type]


async def asking(*rounds: Sequence[Node | None], timeout_ms: int = 100) -> list[str]:
    answers: list[str] = []
    for nodes in rounds:
        answers += map(str, (await Round([(node, METADATA) for node in nodes], timeout_ms)))
    return answers


async def pausing(*durations_ms: int) -> str:
    for duration_ms in durations_ms:
        await Pause(duration_ms)
    return "rested"


def test_exchanges_run_together_and_each_gets_its_own_answers() -> None:
    client = Client()
    assert client.run(asking([ONE], [TWO, ONE]), asking([TWO, ONE], timeout_ms=300)) == [
        ["one", "lost", "one"],
        ["lost", "one"],
    ]
    assert client.did == [([1, 2, 1], 300), ([2, 1], 100)]


def test_pause_of_one_exchange_does_not_delay_the_others() -> None:
    client = Client()
    assert client.run(pausing(50, 30), asking([ONE], [ONE]), pausing(60)) == ["rested", ["one", "one"], "rested"]
    assert client.did == [([1], 100), ([1], 100), 50, 10, 20]


def test_missing_answer_of_any_broker_is_an_error_in_its_place() -> None:
    client = Client()
    assert client.run(asking([None, ONE])) == [["nobody is there", "one"]]


def test_questions_to_any_broker_share_the_time_of_their_round() -> None:
    client = Client()
    assert client.run(*(asking([None]) for _ in range(4))) == [["nobody is there"]] * 4
    assert client.did == [("any", 100), *[("any", 1)] * 3]


def test_error_of_one_exchange_ends_all_exchanges() -> None:
    client, ended = Client(), []

    async def refused() -> None:
        (answer,) = await Round([(TWO, METADATA)], 100)
        assert isinstance(answer, DisconnectError)
        raise answer

    async def other() -> None:
        try:
            await Round([(ONE, METADATA)], 100)
            await Pause(1_000)
        finally:
            ended.append("other")

    with pytest.raises(DisconnectError, match="lost"):
        client.run(other(), refused())
    assert ended == ["other"]
    assert client.did == [([1, 2], 100)]


def test_exchange_without_requests_sends_none() -> None:
    client = Client()
    assert client.run(asking(), pausing()) == [[], "rested"]
    assert client.did == []
