"""A producer against brokers that lose connections, move leaders, refuse, forget and stay silent, from a seed.

Whatever they do, every record gets an outcome, what is acknowledged is stored, and all memory comes back; with
idempotence it is stored once and in order.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_sink.common.errors import ErrorCode, KafkaError
from kafka_sink.network.channel.selectable import ChannelState, Disconnect
from kafka_sink.producer.futures import FutureRecordMetadata
from kafka_sink.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kafka_sink.records.reader import RecordBatchView
from tests.fakes.brokers import batches_of
from tests.fakes.producing import TOPIC
from tests.fakes.selectable import FakeConnection
from tests.fakes.sender_world import PlayedWorld
from tests.sim.simulation import seed_all_dice
from tests.support.amounts import examples

PARTITIONS = 3
#: How many batches a broker remembers of each producer (Kafka's number).
REMEMBERED = 5

NOT_STORED = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.CORRUPT_MESSAGE)
STORED = (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT)
REFUSED = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD)


@dataclass
class ProducerEntry:
    """What a partition remembers of one producer."""

    epoch: int
    #: (base sequence, last sequence, base offset) of the newest batches.
    batches: list[tuple[int, int, int]]


@dataclass
class Log:
    """One partition with the rules of an idempotent broker (KIP-98).

    *accepts_any_first*: of a producer that it does not know it takes any sequence, as brokers since 2.5 do; older ones
    insist on 0.
    """

    accepts_any_first: bool
    values: list[int] = field(default_factory=list)
    producers: dict[int, ProducerEntry] = field(default_factory=dict)

    def append(self, view: RecordBatchView) -> tuple[ErrorCode, int]:
        header = view.header
        if header.producer_id >= 0:
            found = self._check(header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence)
            if found is not None:
                return found
        base_offset = len(self.values)
        self.values += [int(record.value) for record in view.records() if record.value is not None]
        if header.producer_id >= 0:
            entry = self.producers.setdefault(header.producer_id, ProducerEntry(header.producer_epoch, []))
            if entry.epoch != header.producer_epoch:
                entry.epoch, entry.batches = header.producer_epoch, []
            entry.batches = [*entry.batches, (header.base_sequence, header.last_sequence, base_offset)][-REMEMBERED:]
        return ErrorCode.NONE, base_offset

    def _check(self, producer_id: int, epoch: int, first: int, last: int) -> tuple[ErrorCode, int] | None:
        entry = self.producers.get(producer_id)
        if entry is None:
            return None if first == 0 or self.accepts_any_first else (ErrorCode.UNKNOWN_PRODUCER_ID, -1)
        if epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if epoch > entry.epoch:
            return None if first == 0 else (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        for base, end, offset in entry.batches:
            if (base, end) == (first, last):
                return ErrorCode.NONE, offset
        if first != entry.batches[-1][1] + 1:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        return None


class Brokers:
    """Plays both brokers of a :class:`PlayedWorld`; *trouble* is the share of requests that something happens to."""

    def __init__(self, world: PlayedWorld, rng: random.Random, trouble: float, *, may_refuse: bool, may_forget: bool):
        self.world = world
        self.rng = rng
        self.trouble = trouble
        self.kinds = ["error", "stored error", "lose", "lose stored", "silent", "silent stored", "delay"]
        self.kinds += ["refuse"] * may_refuse + ["forget"] * may_forget
        self.logs = [Log(accepts_any_first=rng.random() < 0.5) for _ in range(PARTITIONS)]
        # Connections themselves, because a new one of the same name does not share the old one's fate.
        self.silent: list[FakeConnection] = []
        self.delayed: list[tuple[FakeConnection, str, list[ProduceResponse]]] = []
        world.brokers.on_produce = self.produce

    def produce(self, node: str, request: ProduceRequest) -> ProduceResponse | None:
        connection = self.world.network.connections[node]
        kind = self.rng.choice(self.kinds) if self.rng.random() < self.trouble else "fine"
        answers = [self._partition(int(node), index, view, kind) for index, view in batches_of(request).items()]
        body = ProduceResponse(responses=[TopicProduceResponse(name=TOPIC, partition_responses=answers)])
        if kind.startswith("lose"):
            connection.lost = Disconnect(ChannelState.READY, "connection reset")
        if kind.startswith("silent"):
            self.silent.append(connection)
        if any(connection is other for other in self.silent) or connection.lost is not None:
            return None
        held = next((bodies for other, _, bodies in self.delayed if other is connection), None)
        if held is not None:
            held.append(body)
            return None
        if kind == "delay":
            self.delayed.append((connection, node, [body]))
            return None
        return body

    def _partition(self, node: int, index: int, view: RecordBatchView, kind: str) -> PartitionProduceResponse:
        if self.world.brokers.leaders[index][0] != node:
            return PartitionProduceResponse(index=index, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1)
        if kind in ("lose", "silent"):
            return PartitionProduceResponse(index=index)
        if kind in ("error", "refuse"):
            code = self.rng.choice(NOT_STORED if kind == "error" else REFUSED)
            return PartitionProduceResponse(index=index, error_code=code, base_offset=-1)
        if kind == "forget":
            self.logs[index].producers.clear()
        code, offset = self.logs[index].append(view)
        if code is ErrorCode.NONE and kind == "stored error":
            code, offset = self.rng.choice(STORED), -1
        return PartitionProduceResponse(index=index, error_code=code, base_offset=offset, log_start_offset=0)

    def answer_delayed(self) -> None:
        """Send some of the answers that are being held back."""
        kept = []
        for connection, node, bodies in self.delayed:
            if self.world.network.connections.get(node) is not connection or connection.lost is not None:
                continue
            for _ in range(self.rng.randint(0, len(bodies))):
                self.world.network.reply(node, bodies.pop(0))
            if bodies:
                kept.append((connection, node, bodies))
        self.delayed = kept

    def move_a_leader(self) -> None:
        self.world.brokers.leaders[self.rng.randrange(PARTITIONS)] = self.rng.choice([1, 2]), 0


def _make_repeatable(world: PlayedWorld, seed: int) -> None:
    """Draw the client's own choices and jitters from *seed*, too."""
    random.seed(seed)
    for part in (world.client, world.metadata):
        seed_all_dice(part, random.Random(seed))


class Run:
    """One producer, its records, and what became of them."""

    def __init__(self, seed: int, *, may_refuse: bool = True, may_forget: bool = False, **properties: Any) -> None:
        self.rng = random.Random(seed)
        self.world = PlayedWorld(
            [1, 2, 1],
            linger_ms=self.rng.choice([0, 5]),
            batch_size=self.rng.choice([80, 200, 16384]),
            delivery_timeout_ms=20_000,
            request_timeout_ms=4000,
            reconnect_backoff_ms=10,
            **properties,
        )
        _make_repeatable(self.world, seed)
        self.brokers = Brokers(
            self.world, self.rng, self.rng.choice([0.05, 0.2, 0.5]), may_refuse=may_refuse, may_forget=may_forget
        )
        self.sent: dict[int, list[tuple[int, FutureRecordMetadata]]] = defaultdict(list)
        self.count = 0

    def play(self, rounds: int = 60) -> None:
        for _ in range(rounds):
            for _ in range(self.rng.choice([0, 1, 1, 4])):
                partition = self.rng.randrange(PARTITIONS)
                future = self.world.append(partition, b"%d" % self.count)
                self.sent[partition].append((self.count, future))
                self.count += 1
            if self.rng.random() < 0.7:
                # A wake-up: time stands still.
                self.world.client.wakeup()
            if self.rng.random() < 0.05:
                self.brokers.move_a_leader()
            self.world.step()
            self.brokers.answer_delayed()
        self.brokers.trouble = 0
        for _ in range(400):
            if not self.world.accumulator.has_incomplete:
                break
            self.world.step()
            self.brokers.answer_delayed()
        # Requests that outlived their records still hold memory.
        self.world.clock.advance(5000)
        self.world.run_until(lambda: self.world.memory_in_use == 0)

    def check_outcomes(self) -> None:
        assert not self.world.accumulator.has_incomplete
        # Private: outside nothing tells a batch that is forgotten from one that is done and still remembered.
        assert not self.world.in_flight._batches
        for partition, sent in self.sent.items():
            stored = self.brokers.logs[partition].values
            for number, future in sent:
                assert future.done()
                try:
                    offset = future.get(0).offset
                except KafkaError:
                    continue
                assert number in stored if offset == -1 else stored[offset] == number

    def check_once_and_in_order(self) -> None:
        for log in self.brokers.logs:
            assert log.values == sorted(set(log.values))


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32))
def test_idempotent_records_are_stored_once_and_in_order(seed: int) -> None:
    run = Run(seed)
    run.play()
    run.check_outcomes()
    run.check_once_and_in_order()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_a_broker_that_forgets_the_producer_loses_no_record(seed: int) -> None:
    run = Run(seed, may_forget=True)
    run.play()
    run.check_outcomes()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_without_idempotence_no_record_is_lost(seed: int) -> None:
    run = Run(seed, enable_idempotence=False)
    run.play()
    run.check_outcomes()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_with_one_request_in_flight_records_stay_in_order(seed: int) -> None:
    run = Run(seed, enable_idempotence=False, max_in_flight_requests_per_connection=1)
    run.play()
    run.check_outcomes()
    for log in run.brokers.logs:
        first_copies = list(dict.fromkeys(log.values))
        assert first_copies == sorted(first_copies)


@pytest.mark.parametrize("seed", range(3))
def test_without_trouble_everything_is_acknowledged(seed: int) -> None:
    run = Run(seed)
    run.brokers.trouble = 0
    run.play()
    for partition, sent in run.sent.items():
        assert [future.get(0).offset for _, future in sent] == list(range(len(sent)))
        assert run.brokers.logs[partition].values == [number for number, _ in sent]
