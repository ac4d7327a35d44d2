"""A server that responds to each request slowly, but in time, cannot delay a client longer than SECURITY.md says: the
time-outs do not add up."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from kafka_sink.cli.main import cli
from kafka_sink.cli.values.typed_values import shown_by_schema
from kafka_sink.common.clock import begin_again, end_of, within
from kafka_sink.common.errors import KafkaTimeoutError, RegistryUnavailableError
from kafka_sink.consumer.log_reader import PeekLimits, newest_records
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.config import registry_configs
from kafka_sink.ui.shown import ByteView
from tests.fakes.clock import FakeClock
from tests.hostile.servers import EvilHttp, LyingProxy, lying_broker
from tests.support.cases import with_each
from tests.support.command_line import run_command

pytestmark = pytest.mark.behaviour("kafkalite check", "Slow answers add up to no more than the time that was given")

PAGE: Final = " ".join((Path(__file__).parents[2] / "SECURITY.md").read_text().split())
#: The delay of each response: one exchange is within the time-out, several successive ones are not.
DELAY_S, TIMEOUT_S = 0.15, 0.5
#: The responses of two connections in that time, and one more of each that the client no longer reads.
MOST_ANSWERS: Final = 2 * (int(TIMEOUT_S / DELAY_S) + 1)
#: Commands that run as long as they have work; their --timeout applies to each wait.
LASTING: Final = frozenset({"check", "consume", "produce", "ui", "verify"})
#: The arguments of each other command with --timeout, with which it sends more requests than fit into the time-out.
ASKING: Final = {
    "groups delete": "g --yes",
    "groups describe": "g",
    "groups list": "",
    "groups reset-offsets": "g --topic t --to-earliest --yes",
    "topics alter": "t --config retention.ms=5",
    "topics create": "new",
    "topics delete": "t --yes",
    "topics describe": "",
    "topics list": "",
    "topics move-leader": "t 0 1",
    "txn abort": "--prefix x",
    "txn accept": "sink t --version 1 --yes",
    "txn commit": "--prefix x",
    "txn describe": "x",
    "txn hanging": "t 0",
    "txn list": "",
}


def commands(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for each in command.list_commands(click.Context(command)):
            inner = command.get_command(click.Context(command), each)
            assert inner is not None
            yield from commands(inner, f"{name} {each}".strip())
    elif any(each.name == "timeout_ms" for each in command.params):
        yield name, command


def test_every_command_with_a_time_out_is_listed() -> None:
    assert {name for name, _ in commands(cli)} == LASTING | set(ASKING)


class SlowProxy(LyingProxy):
    """Delays each response, and forwards those of a connection one after the other."""

    answers = 0

    async def changed(self, frame: bytes) -> bytes:
        await asyncio.sleep(DELAY_S)
        self.answers += 1
        return frame


@pytest.fixture(scope="module")
def slow_broker() -> Iterator[SlowProxy]:
    with lying_broker(SlowProxy) as proxy:
        yield proxy


@with_each("name", ASKING)
def test_a_command_ends_in_its_time_however_many_answers(name: str, slow_broker: SlowProxy) -> None:
    slow_broker.answers = 0
    servers = ["--bootstrap-server", slow_broker.address, "--timeout", str(TIMEOUT_S)]
    ended = run_command([*name.split(), *ASKING[name].split(), *servers])
    assert ended.returncode in (0, 1), ended.stderr
    assert slow_broker.answers <= MOST_ANSWERS, (slow_broker.answers, ended.stderr)


def test_the_newest_records_are_looked_for_in_the_given_time(slow_broker: SlowProxy) -> None:
    slow_broker.answers = 0
    limits = PeekLimits(timeout_ms=int(TIMEOUT_S * 1000))
    with pytest.raises(KafkaTimeoutError):
        newest_records({"bootstrap.servers": slow_broker.address}, "t", 1, limits)
    assert slow_broker.answers <= MOST_ANSWERS


class SlowRegistry(EvilHttp):
    """A registry whose schema refers to *many* others; each response takes 800 ms of the clock."""

    def __init__(self, many: int) -> None:
        super().__init__(self._say)
        self.clock, self.asked, self._many = FakeClock(), 0, many

    def client(self, limit_ms: int = 1_000, rounds: int = 3) -> RegistryClient:
        options = {"schema.registry.url": f"http://127.0.0.1:{self.port}"}
        return RegistryClient(*registry_configs(options), clock=self.clock, limit_ms=limit_ms, rounds=rounds)

    def _say(self, connection: socket.socket, head: bytes) -> None:
        self.asked += 1
        self.clock.now_ms += 800
        path = head.split()[1].decode()
        places = [{"name": f"R{at}", "subject": f"R{at}", "version": 1} for at in range(self._many)]
        name = "A" if "/ids/" in path else path.split("/")[2]
        schema = json.dumps({"type": "record", "name": name, "fields": []})
        answer = {"schema": schema, "id": 5, "version": 1, "references": places if name == "A" else []}
        body = json.dumps(answer).encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


@with_each(("limit_ms", "most"), [(1_000, 2), (5_000, 7), (120_000, 151)])
def test_a_question_to_a_registry_ends_with_all_references(limit_ms: int, most: int) -> None:
    with SlowRegistry(400) as registry:
        with pytest.raises(RegistryUnavailableError, match="no answer within"):
            registry.client(limit_ms=limit_ms).schema(5)
        assert most - 1 <= registry.asked <= most
    with SlowRegistry(2) as registry:
        assert len(registry.client(limit_ms=5_000).schema(5).references) == 2


def test_a_page_gives_a_registry_a_second() -> None:
    assert "decodes values for one second, and waits one second for a registry" in PAGE
    with SlowRegistry(40) as registry:
        view = ByteView(shown_by_schema(registry.client(rounds=1)), registry.clock)
        shown, began_ms = view.of_page(), registry.clock.now_ms
        problems = [shown(b"\0\0\0\0" + bytes([number]) + b"\xff").problem for number in range(1, 6)]
        assert all(problems)
        assert registry.clock.now_ms - began_ms <= 1_000 + 1_000 + 800


def test_an_address_that_does_not_answer_leaves_time_for_others() -> None:
    with SlowRegistry(0) as registry, socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]},http://127.0.0.1:{registry.port}"
        client = RegistryClient(*registry_configs({"schema.registry.url": url}), limit_ms=2_000)
        assert client.schema(5).text


def test_deadlines_of_deadlines_and_of_other_clocks() -> None:
    clock, other = FakeClock(0), FakeClock(50_000)
    assert end_of(100, clock) == 100
    with within(1_000, clock):
        with within(5_000, clock), within(10, other):
            assert (end_of(9_000, clock), end_of(300, clock), end_of(60, other)) == (1_000, 300, 50_010)
        clock.now_ms = 900
        assert end_of(300, clock) == 1_000
        begin_again()
        assert end_of(3_000, clock) == 1_900
        clock.now_ms = 2_000
        assert end_of(300, clock) == 2_000
    assert end_of(300, clock) == 2_300
    begin_again()
