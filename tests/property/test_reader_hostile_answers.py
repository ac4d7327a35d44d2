"""Malformed or false responses against the log reader: it ends in time, in Kafka's errors or with records.

Every episode has a seed, which a failure names. KAFKALITE_FUZZ_EPISODES sets their number.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kafka_sink.common import config as common_config
from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import DisconnectError, KafkaError
from kafka_sink.common.model import Node
from kafka_sink.consumer.config import ConsumerConfig
from kafka_sink.consumer.topic_reading import EARLIEST, TopicReading
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.fetch import AbortedTransaction, FetchResponse, PartitionData
from kafka_sink.protocol.messages.log_offsets import ListOffsetsResponse
from kafka_sink.protocol.messages.metadata import MetadataResponse
from kafka_sink.protocol.schema import Struct
from tests.conftest import Figure
from tests.fakes.log_cluster import FakeLogCluster
from tests.support import amounts
from tests.unit.consumer.test_fetched_partition import ABORT, COMMIT, marker

EPISODES = amounts.FUZZ_EPISODES
MOST_REQUESTS = 2_000
TIMEOUT_MS = 5_000
#: The time on the fake clock that one response takes.
ANSWER_MS = 10
CODES = [-1, 1, 2, 3, 5, 6, 9, 13, 29, 56, 74, 75, 76, 100, 103, 9999]


def _metadata(rng: random.Random, body: MetadataResponse) -> None:
    partitions = body.topics[0].partitions if body.topics else []
    kind = rng.randrange(6)
    if kind == 0:
        body.brokers = []
    elif kind == 1:
        for broker in body.brokers:
            broker.node_id, broker.host, broker.port = rng.choice([(7, "elsewhere", 1), (1, "", 0), (-3, "x", -5)])
    elif kind == 2:
        for partition in partitions:
            partition.leader_id = rng.choice([-1, 77, -9])
    elif kind == 3:
        for partition in partitions:
            partition.partition_index = rng.choice([-1, 5, 2**31 - 1])
    elif kind == 4:
        body.topics = rng.choice([[], body.topics * 2])
    else:
        body.topics[0].error_code = rng.choice(CODES)


def _offsets(rng: random.Random, body: ListOffsetsResponse) -> None:
    for answer in body.topics[0].partitions:
        kind = rng.randrange(3)
        if kind == 0:
            answer.error_code = rng.choice(CODES)
        elif kind == 1:
            answer.offset = rng.choice([-1, -(2**63), 2**63 - 1, 10_000])
        else:
            answer.partition_index = rng.choice([-1, 5])


def _fetch(rng: random.Random, body: FetchResponse) -> None:
    if rng.random() < 0.1:
        body.error_code = rng.choice(CODES)
    for data in body.responses[0].partitions:
        rng.choice(FETCH_LIES)(rng, data)


def _code(rng: random.Random, data: PartitionData) -> None:
    data.error_code = rng.choice(CODES)


def _nothing(rng: random.Random, data: PartitionData) -> None:
    data.records = rng.choice([None, memoryview(b"")])


def _bytes_of(data: PartitionData) -> bytes:
    records = data.records or b""
    assert isinstance(records, Buffer)
    return bytes(records)


def _damaged(rng: random.Random, data: PartitionData) -> None:
    damaged = bytearray(_bytes_of(data) or b"\x00" * 70)
    for _ in range(rng.choice([1, 3, 20])):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    data.records = memoryview(bytes(damaged[: rng.randrange(len(damaged))] if rng.random() < 0.5 else damaged))


def _markers(rng: random.Random, data: PartitionData) -> None:
    """Abort markers of unknown producers, duplicated ones, and ones before the records that they abort."""
    markers = [marker(rng.randrange(8), rng.choice([0, 1, 7]), rng.choice([ABORT, ABORT, COMMIT])) for _ in range(4)]
    data.records = memoryview(b"".join([*markers, _bytes_of(data)]))


def _aborted(rng: random.Random, data: PartitionData) -> None:
    entries = [
        AbortedTransaction(producer_id=rng.choice([-1, 0, 7, 2**63 - 1]), first_offset=rng.choice([-5, 0, 3, 2**62]))
        for _ in range(rng.randrange(20))
    ]
    data.aborted_transactions = rng.choice([None, entries])


def _other_partition(rng: random.Random, data: PartitionData) -> None:
    data.partition_index = rng.choice([-1, 5])


FETCH_LIES: list[Callable[[random.Random, PartitionData], None]] = [
    _code,
    _nothing,
    _damaged,
    _markers,
    _aborted,
    _other_partition,
]


class HostileCluster(FakeLogCluster):
    """Returns false responses in a share of the requests, and counts them."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(3, nodes=2)
        for part in self.partitions.values():
            for number in range(rng.randrange(4)):
                part.append(b"%d" % number, b"again")
        self._rng = rng
        self._share = rng.choice([0.05, 0.3, 0.9])
        self.lies = 0

    def request(self, node: Node | None, api_key: ApiKey, build: Callable[[int], Struct]) -> Struct:
        assert len(self.requests) < MOST_REQUESTS, "it asks for ever"
        self.clock.advance(ANSWER_MS)
        body = super().request(node, api_key, build)
        if self._rng.random() > self._share:
            return body
        self.lies += 1
        if self._rng.random() < 0.1:
            raise DisconnectError("hung up")
        if isinstance(body, MetadataResponse):
            _metadata(self._rng, body)
        elif isinstance(body, ListOffsetsResponse):
            _offsets(self._rng, body)
        elif isinstance(body, FetchResponse):
            _fetch(self._rng, body)
        return body


@pytest.mark.behaviour("Faults: hostile servers", "False answers of a fetch end in Kafka's errors or are read past")
def test_no_answer_hangs_or_breaks_the_reader(figure: Figure) -> None:
    lies = whole = failed = most_requests = longest_ms = 0
    for seed in range(EPISODES):
        rng = random.Random(seed)
        cluster = HostileCluster(rng)
        given = {"bootstrap.servers": "fake:9092", "default.api.timeout.ms": TIMEOUT_MS}
        given["isolation.level"] = rng.choice(["read_committed", "read_uncommitted"])
        started_ms = cluster.clock.monotonic_ms()
        reading = TopicReading(cluster, "t", common_config.parse(ConsumerConfig, given), cluster.clock)
        try:
            for _ in reading.begin(None, EARLIEST, stop_at_end=True):
                pass
            whole += 1
        except KafkaError:
            failed += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        lies += cluster.lies
        most_requests = max(most_requests, len(cluster.requests))
        longest_ms = max(longest_ms, cluster.clock.monotonic_ms() - started_ms)
    figure("episodes", EPISODES)
    figure("bad answers", lies)
    figure("read to the end/ended in an error", f"{whole}/{failed}")
    figure("most requests, longest", f"{most_requests}, {longest_ms / 1000:.1f} s of {TIMEOUT_MS / 1000:.0f} s")
    assert whole > 0
    assert failed > 0
