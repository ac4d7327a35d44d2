"""The workload of applications: random records and columns, each with its number in the ledger."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kafka_sink.common.errors import ApiError
from kafka_sink.common.model import Header
from kafka_sink.producer.futures import Delivery
from kafka_sink.producer.kafka_producer import ANY_PARTITION, KafkaProducer, PartlyStagedError, ProducerRecord
from tests.fakes.chunks import Row, make_chunk
from tests.sim.ledger import Ledger, Sending, Staged
from tests.sim.plan import Plan
from tests.sim.world import ViolationError, World


class Workload:
    """Sends with one producer; *told* is called with every outcome."""

    def __init__(
        self,
        world: World,
        plan: Plan,
        ledger: Ledger,
        producer: KafkaProducer,
        told: Callable[[Sending, Delivery], None],
    ) -> None:
        self._world = world
        self._plan = plan
        self._ledger = ledger
        self._producer = producer
        self._told = told
        self._partitions = {topic.name: len(topic.assignment) for topic in plan.topics}

    def _staged(self, topic: str, *, has_headers: bool, has_timestamp: bool) -> Staged:
        rng, number = self._world.rng, len(self._ledger.records)
        key = b"key%d" % rng.randrange(8) if rng.random() < 0.5 else None
        partition = rng.randrange(self._partitions[topic]) if rng.random() < 0.3 else None
        value = b"%d." % number + b"xyz"[number % 3 :][:1] * rng.randrange(self._plan.record_bytes)
        headers: tuple[Header, ...] = (("h", b"%d" % number), ("n", None)) if has_headers else ()
        timestamp = 5_000_000 + rng.randrange(1000) if has_timestamp else self._world.now_ms
        staged = Staged(number, topic, partition, key, value, headers, timestamp)
        self._ledger.records[number] = staged
        return staged

    def send(
        self, topic: str, partition: int | None = None, on_staged: Callable[[Sending], None] = lambda sending: None
    ) -> None:
        """Send one record; *on_staged* is called with it before the producer is."""
        rng = self._world.rng
        sending = self._ledger.stage(1)
        staged = self._staged(topic, has_headers=rng.random() < 0.2, has_timestamp=rng.random() < 0.7)
        if partition is not None:
            staged.partition = partition
        on_staged(sending)
        record = ProducerRecord(topic, staged.value, staged.key, staged.partition, staged.timestamp, staged.headers)
        future = self._producer.send(record, on_delivery=lambda delivery: self._told(sending, delivery))
        sending.accepted = True
        self._world.note("sent {} to {}", staged.number, topic)
        if future.done() != (sending.told == 1):
            raise ViolationError(f"the future of record {staged.number} is done: {future.done()}")

    def send_columns(
        self, topic: str, count: int, on_staged: Callable[[Sending], None] = lambda sending: None
    ) -> Sending:
        """Send *count* rows; the returned sending tells whether the call accepted all of them."""
        rng = self._world.rng
        sending = self._ledger.stage(count)
        has_headers = rng.random() < 0.2
        staged = [self._staged(topic, has_headers=has_headers, has_timestamp=True) for _ in range(count)]
        on_staged(sending)
        chunk = make_chunk(
            [Row(record.value, record.key, record.headers, record.timestamp) for record in staged], has_timestamps=True
        )
        places = np.array(
            [ANY_PARTITION if record.partition is None else record.partition for record in staged], dtype=np.int32
        )
        self._world.note("sending the chunk {} to {} to {}", sending.first, sending.first + count - 1, topic)
        try:
            self._producer.send_columns(
                topic, chunk, places, on_delivery=lambda delivery: self._told(sending, delivery)
            )
        except (ApiError, PartlyStagedError) as error:
            sending.accepted = False
            self._world.note("the chunk was not taken whole: {}", error)
        else:
            sending.accepted = True
        return sending
