"""Malformed or false responses: the producer below its threads survives them all, and ends in Kafka's errors.

Every episode has a seed, which a failure names. KAFKALITE_FUZZ_EPISODES sets their number.
"""

from __future__ import annotations

import logging
import random
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest

from kafka_sink.common.errors import KafkaError
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import RequestHeader, encode_response
from kafka_sink.protocol.messages.metadata import MetadataResponse
from kafka_sink.protocol.messages.produce import ProduceResponse
from kafka_sink.protocol.registry import api
from kafka_sink.protocol.schema import Struct
from tests.conftest import Figure
from tests.fakes.brokers import FakeBrokers
from tests.fakes.sender_world import SenderWorld
from tests.support import amounts

EPISODES = amounts.FUZZ_EPISODES
#: Passes of the loop that an episode may take, including delivery timeouts and reconnects.
MOST_STEPS = 3_000


@pytest.fixture(autouse=True)
def nobody_else_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host names that hostile brokers make up are never resolved."""
    look_up = socket.getaddrinfo

    def find(host: str, *arguments: Any, **options: Any) -> Any:
        if host != "127.0.0.1":
            raise socket.gaierror(socket.EAI_NONAME, "nobody knows it")
        return look_up(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", find)


Mangler = Callable[[random.Random, bytes], bytes]


def _truncate(rng: random.Random, frame: bytes) -> bytes:
    return frame[: rng.randrange(len(frame))]


def _flip(rng: random.Random, frame: bytes) -> bytes:
    damaged = bytearray(frame)
    for _ in range(rng.choice([1, 1, 3, 20])):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def _huge_length(rng: random.Random, frame: bytes) -> bytes:
    at = rng.randrange(4, max(len(frame) - 4, 5))
    length = rng.choice([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\xff\xff\xff\xff\x0f", b"\x80\x00\x00\x00"])
    return frame[:at] + length + frame[at + 4 :]


def _other_correlation(rng: random.Random, frame: bytes) -> bytes:
    return struct.pack(">i", rng.choice([-1, 0, 2**31 - 1, rng.randrange(100)])) + frame[4:]


def _garbage(rng: random.Random, frame: bytes) -> bytes:
    return frame[:4] + rng.randbytes(rng.randrange(300))


def _trailing(rng: random.Random, frame: bytes) -> bytes:
    return frame + rng.randbytes(rng.randrange(1, 50))


MANGLERS: list[Mangler] = [_truncate, _flip, _huge_length, _other_correlation, _garbage, _trailing]


def _lie(rng: random.Random, body: Struct, version: int) -> Struct:
    """A response that is well-formed but false."""
    if isinstance(body, MetadataResponse):
        rng.choice(METADATA_LIES)(rng, body)
    elif isinstance(body, ProduceResponse):
        rng.choice(PRODUCE_LIES if version >= 10 else PRODUCE_LIES[:-1])(rng, body)
    elif hasattr(body, "error_code"):
        body.error_code = rng.choice([-1, 14, 15, 31, 35, 51, 9999])
    return body


def _no_brokers(rng: random.Random, body: MetadataResponse) -> None:
    body.brokers = []


def _other_addresses(rng: random.Random, body: MetadataResponse) -> None:
    for broker in body.brokers:
        broker.host, broker.port = rng.choice([("elsewhere", 1), ("", 0), ("127.0.0.1", -5), ("x" * 300, 70_000)])


def _no_topics(rng: random.Random, body: MetadataResponse) -> None:
    body.topics = []


def _refused(rng: random.Random, body: MetadataResponse) -> None:
    body.error_code = rng.choice([-1, 29, 31, 129, 9999])


def _no_leaders(rng: random.Random, body: MetadataResponse) -> None:
    for partition in body.topics[0].partitions if body.topics else ():
        partition.leader_id = rng.choice([-1, 77, -9])


def _other_partitions(rng: random.Random, body: MetadataResponse) -> None:
    for partition in body.topics[0].partitions if body.topics else ():
        partition.partition_index = rng.choice([-1, 5, 2**31 - 1])


def _partition_errors(rng: random.Random, body: MetadataResponse) -> None:
    for partition in body.topics[0].partitions if body.topics else ():
        partition.error_code = rng.choice([3, 5, 6, 9, 9999])


def _codes(rng: random.Random, body: ProduceResponse) -> None:
    for answer in body.responses[0].partition_responses:
        answer.error_code = rng.choice([-1, 2, 3, 5, 6, 7, 10, 19, 22, 29, 45, 46, 47, 56, 59, 87, 9999])


def _other_places(rng: random.Random, body: ProduceResponse) -> None:
    for answer in body.responses[0].partition_responses:
        answer.index = rng.choice([-1, 1, 5])


def _false_leaders(rng: random.Random, body: ProduceResponse) -> None:
    for answer in body.responses[0].partition_responses:
        answer.current_leader.leader_id, answer.current_leader.leader_epoch = rng.choice([1, 99]), 2**31 - 1
        answer.error_code = 6


def _other_topic(rng: random.Random, body: ProduceResponse) -> None:
    body.responses[0].name = "another"


def _too_few_or_many(rng: random.Random, body: ProduceResponse) -> None:
    body.responses[0].partition_responses = rng.choice([[], body.responses[0].partition_responses * 2])


METADATA_LIES = [_no_brokers, _other_addresses, _no_topics, _refused, _no_leaders, _other_partitions, _partition_errors]
#: The last one requires version 10.
PRODUCE_LIES = [_codes, _other_places, _other_topic, _too_few_or_many, _false_leaders]


class HostileWorld(SenderWorld):
    """While :attr:`hostile`, a share of the responses is mangled, false, missing or replaced by a disconnect."""

    def __init__(self, rng: random.Random) -> None:
        brokers = FakeBrokers(leaders=[1, 2, 1], nodes=2)
        super().__init__(
            brokers,
            delivery_timeout_ms=rng.choice([3_000, 20_000]),
            request_timeout_ms=2_000,
            max_block_ms=1_000,
            enable_idempotence=rng.random() < 0.8,
        )
        self.rng = rng
        self.hostile = True
        self.share = rng.choice([0.1, 0.4, 0.9])
        self.attacks = 0
        self.network.broker = self._answer

    def _answer(self, connection_id: str, header: RequestHeader, body: Struct) -> Struct | None:
        honest = self.brokers(connection_id, header, body)
        rng = self.rng
        if honest is None or not self.hostile or rng.random() > self.share:
            return honest
        self.attacks += 1
        kind = rng.randrange(10)
        connection = self.network.connections[connection_id]
        if kind == 0:
            connection.unanswered.popleft()
            return None
        if kind == 1:
            self.network.lose(connection_id)
            return None
        if kind in (2, 3, 4):
            return _lie(rng, honest, header.api_version)
        connection.unanswered.popleft()
        version = header.api_version
        if kind == 5:
            versions = api(ApiKey(header.api_key)).versions
            version = rng.randint(versions.min, versions.max)
        frame = b"".join(encode_response(header.api_key, version, header.correlation_id, honest))
        if kind > 5:
            frame = rng.choice(MANGLERS)(rng, frame)
        self.network.receive(connection_id, frame)
        if rng.random() < 0.1:
            self.network.receive(connection_id, frame)
        return None


def run_episode(seed: int) -> tuple[HostileWorld, int]:
    rng = random.Random(seed)
    world = HostileWorld(rng)
    futures: list[Any] = []
    steps = 0
    for _ in range(rng.randrange(1, 6)):
        for partition in range(3):
            futures += world.send(b"%d" % len(futures), partition=partition)
        for _ in range(rng.randrange(1, 40)):
            world.step()
            steps += 1
    while world.accumulator.has_incomplete:
        world.sender.run_once()
        steps += 1
        assert steps < MOST_STEPS, f"seed {seed}: {steps} steps, at {world.clock.now_ms} ms, and still not settled"
    for future in futures:
        assert future.done()
        try:
            future.result(0)
        except KafkaError:
            continue
    assert world.acknowledged + world.failed == len(futures)
    return world, steps


@pytest.mark.behaviour("Sender", "No answer of a broker makes the sender hang or end")
@pytest.mark.behaviour("Faults: hostile servers", "Hostile answers end every record with an error of Kafka's")
def test_no_answer_hangs_or_breaks_the_producer(figure: Figure, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    attacks = acknowledged = failed = most_steps = recovered = 0
    for seed in range(EPISODES):
        world, steps = run_episode(seed)
        uncaught = [record.getMessage() for record in caplog.records if record.exc_info]
        assert uncaught == [], f"seed {seed}: {caplog.text}"
        attacks += world.attacks
        acknowledged += world.acknowledged
        failed += world.failed
        most_steps = max(most_steps, steps)
        recovered += recovers(world, seed)
        # A batch that expired in flight keeps its memory until its connection is closed; by now all are closed.
        world.assert_memory_is_back()
    figure("episodes", EPISODES)
    figure("bad answers", attacks)
    figure("records acknowledged/failed", f"{acknowledged}/{failed}")
    figure("most steps", most_steps)
    figure("well again afterwards", recovered)
    assert recovered >= EPISODES * 0.8


def recovers(world: HostileWorld, seed: int) -> bool:
    """Once brokers are honest again, records are delivered, unless a false response has a lasting effect."""
    world.hostile = False
    # False versions remain valid for the lifetime of a connection.
    for connection_id in list(world.network.connections):
        world.network.lose(connection_id)
    for _ in range(20):
        world.clock.advance(500)
        world.step(5)
    before, told_for_good = world.acknowledged, _was_told_for_good(world)
    world.send(b"again")
    for _ in range(MOST_STEPS):
        if not world.accumulator.has_incomplete:
            break
        world.sender.run_once()
    else:
        raise AssertionError(f"seed {seed}: honest brokers, and still not settled")
    world.clock.advance(10_000)
    world.step(10)
    is_well = world.acknowledged == before + 1
    assert is_well or told_for_good, f"seed {seed}"
    return is_well


def _was_told_for_good(world: HostileWorld) -> bool:
    """A fatal error, a long throttle time, or a leader epoch above any that honest brokers will return."""
    is_over = world.transactions is not None and world.transactions.has_fatal_error
    # Private: from outside, a throttled node cannot be distinguished from one whose connection is still being set up.
    is_throttled = any(s.throttled_until_ms > world.clock.now_ms for s in world.client.states._nodes.values())
    return is_over or is_throttled or any(info.leader_epoch for info in world.metadata.fetch().partitions)
