"""The checks of a run: records that the application sent, their reported outcomes, and the contents of the brokers.

The value of every record has its number; numbers follow the order in which the application appends. Each method raises
:class:`tests.sim.world.ViolationError` as soon as a guarantee is broken, so that the trace of a run ends there.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

from kafka_sink.common.errors import KafkaTimeoutError
from kafka_sink.common.model import NO_OFFSET, Header, TopicPartition
from kafka_sink.producer.futures import Delivery
from kafka_sink.records.reader import Record, RecordBatchView, read_batches
from tests.sim.plan import Plan
from tests.sim.world import ViolationError, World


@dataclass(slots=True)
class Staged:
    """A record as the application created it."""

    number: int
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes
    headers: tuple[Header, ...]
    timestamp: int


@dataclass(slots=True)
class Sending:
    """One call of the producer: records ``first … first + count - 1``, and their reported outcomes."""

    first: int
    count: int
    began_ms: int
    #: Whether the call returned normally; if not, any part of it may have been staged.
    accepted: bool | None = None
    told: int = 0


@dataclass(slots=True)
class Copy:
    """A batch in a log: its first offset, its number of records, and its producer id and epoch."""

    base_offset: int
    count: int
    identity: tuple[int, int]


@dataclass(slots=True)
class Ledger:
    world: World
    plan: Plan
    records: dict[int, Staged] = field(default_factory=dict)
    sendings: list[Sending] = field(default_factory=list)
    #: Record numbers by offset, as the handlers stored them.
    logs: defaultdict[TopicPartition, list[int]] = field(default_factory=lambda: defaultdict(list))
    copies: defaultdict[TopicPartition, list[Copy]] = field(default_factory=lambda: defaultdict(list))
    #: Records whose outcome was reported (or whose acknowledgement was read): the moment after which none may be sent.
    settled: dict[int, tuple[int, str]] = field(default_factory=dict)
    #: Records that were reported as stored.
    reported: set[int] = field(default_factory=set)
    #: Time during which the sender could not run, ms.
    paused_ms: int = 0
    succeeded: int = 0
    failed: int = 0
    stored_batches: int = 0
    force_closed: bool = False
    #: The time of the end of all faults; None while faults may occur.
    calm_since_ms: int | None = None

    # --- the application's side --------------------------------------------------------------------------------------

    def stage(self, count: int) -> Sending:
        sending = Sending(len(self.records), count, self.world.now_ms)
        self.sendings.append(sending)
        return sending

    def told(self, sending: Sending, delivery: Delivery) -> None:
        """A delivery callback ran."""
        sending.told += delivery.count
        if sending.told > sending.count:
            raise ViolationError(f"{sending.told} outcomes for {sending.count} records from {sending.first} on")
        self._check_in_time(sending, delivery)
        if delivery.error is not None:
            self._check_excuse(sending, delivery.error)
            self.failed += delivery.count
            if sending.count == 1:
                self.settled[sending.first] = (self.world.moment, f"failed: {delivery.error}")
            return
        self.succeeded += delivery.count
        if self.plan.acks == "0":
            if delivery.base_offset != NO_OFFSET:
                raise ViolationError(f"acks=0, but the offset {delivery.base_offset} is told")
            return
        end = delivery.base_offset + delivery.count
        numbers = self.logs[delivery.topic_partition][max(delivery.base_offset, 0) : end]
        first = numbers[0] if numbers else -1
        is_run = len(numbers) == delivery.count and self._is_run_of(sending, numbers, delivery.topic_partition)
        if not is_run:
            raise ViolationError(
                f"records from {sending.first} on are told to be at {delivery.topic_partition} offset "
                f"{delivery.base_offset}+{delivery.count}, where {numbers} are"
            )
        self.world.note("told: {} from {} on stored in {} at {}", delivery.count, first, delivery.topic_partition, end)
        self.reported.update(numbers)
        for number in numbers:
            self.settled[number] = (self.world.moment, "reported as stored")

    def _is_run_of(self, sending: Sending, numbers: list[int], partition: TopicPartition) -> bool:
        inside = all(sending.first <= number < sending.first + sending.count for number in numbers)
        topic = self.records[sending.first].topic
        return inside and topic == partition.topic and numbers == sorted(set(numbers))

    def _check_in_time(self, sending: Sending, delivery: Delivery) -> None:
        if self.force_closed:
            return
        waited_ms = self.world.now_ms - sending.began_ms
        limit_ms = self.plan.properties["delivery.timeout.ms"] + self.plan.properties["max.block.ms"]
        if sending.count > 1:
            # Each piece of a chunk may wait for memory up to max.block.ms.
            limit_ms += sending.count * self.plan.properties["max.block.ms"]
        if waited_ms > limit_ms + self.paused_ms:
            raise ViolationError(
                f"records from {sending.first} on ended after {waited_ms} ms, delivery.timeout.ms and max.block.ms "
                f"allow {limit_ms} ms ({delivery.error or 'stored'})"
            )

    def _check_excuse(self, sending: Sending, error: Exception) -> None:
        """Check that *error* is no time-out long after the last fault, which would be due to a lost wake-up."""
        if self.calm_since_ms is None or self.force_closed or self.plan.broker or self.plan.produce_quota:
            return
        calm_ms = self.world.now_ms - max(self.calm_since_ms, sending.began_ms)
        if isinstance(error, KafkaTimeoutError) and calm_ms > self.plan.recovery_ms:
            raise ViolationError(f"records from {sending.first} on failed {calm_ms} ms after the last fault: {error}")

    # --- the brokers' side -------------------------------------------------------------------------------------------

    def received(self, partition: TopicPartition, records: memoryview, sent: int) -> list[int]:
        """Record that a broker got *records* in a frame sent at moment *sent*; return their numbers."""
        batches = list(read_batches(records))
        if len(batches) != 1 or not batches[0].verify_crc():
            raise ViolationError(f"what arrived for {partition} is no sound batch: {bytes(records[:80])!r}")
        found = list(batches[0].records())
        numbers = [self._recognise(partition, record) for record in found]
        if numbers != sorted(set(numbers)):
            raise ViolationError(f"a batch of {partition} holds the records {numbers}")
        for number in numbers:
            moment, fate = self.settled.get(number, (sent, ""))
            if moment < sent:
                raise ViolationError(f"record {number} was sent to {partition} again after it was {fate}")
        return numbers

    def _recognise(self, partition: TopicPartition, record: Record) -> int:
        assert record.value is not None
        text = record.value.partition(b".")[0]
        staged = self.records.get(int(text)) if text.isdigit() else None
        if staged is None:
            raise ViolationError(f"nobody sent the record {record} that arrived for {partition}")
        got = (partition.topic, record.key, record.value, record.headers, record.timestamp)
        want = (staged.topic, staged.key, staged.value, staged.headers, staged.timestamp)
        if got != want or staged.partition not in (None, partition.partition):
            raise ViolationError(f"record {staged} arrived for {partition} as {record}")
        return staged.number

    def stored(
        self, partition: TopicPartition, numbers: list[int], base_offset: int, identity: tuple[int, int]
    ) -> None:
        """Note that a batch was appended to a log."""
        log = self.logs[partition]
        if base_offset != len(log):
            raise ViolationError(f"{partition} has the end {len(log)}, but a batch went to {base_offset}")
        log.extend(numbers)
        self.stored_batches += 1
        self.copies[partition].append(Copy(base_offset, len(numbers), identity))
        self.world.note("stored: {} at {} {} as {}", numbers, partition, base_offset, identity)

    def acknowledged(self, numbers: list[int]) -> None:
        """Note that the client has read a response that acknowledges these records."""
        for number in numbers:
            self.settled.setdefault(number, (self.world.moment, "acknowledged"))

    # --- the end -----------------------------------------------------------------------------------------------------

    def check_end(self) -> None:
        """Check that every outcome was reported, and that every log has allowed contents."""
        for sending in self.sendings:
            if sending.accepted and sending.told != sending.count:
                raise ViolationError(
                    f"{sending.told} outcomes were told for the {sending.count} records from {sending.first} on"
                )
        for partition, numbers in self.logs.items():
            self._check_log(partition, numbers)

    def _check_log(self, partition: TopicPartition, numbers: list[int]) -> None:
        seen: dict[int, int] = {}
        for offset, number in enumerate(numbers):
            if number in seen and not self._may_repeat(partition, seen[number], offset):
                raise ViolationError(f"record {number} is twice in {partition}: at {seen[number]} and at {offset}")
            seen.setdefault(number, offset)
        if self._keeps_order():
            ranks = list(dict.fromkeys(numbers)) if self.plan.idempotent else numbers
            if self.plan.faults.zombies:
                # Records reported as failed may still be in the network, and arrive at any time.
                ranks = [number for number in ranks if number in self.reported]
            for before, after in pairwise(ranks):
                if after < before and not (after in seen and self._same_batch_again(partition, numbers)):
                    raise ViolationError(f"in {partition} record {after} stands behind {before}: {numbers}")

    def _keeps_order(self) -> bool:
        return self.plan.idempotent or (self.plan.max_in_flight == 1 and not self.plan.faults.zombies)

    def _same_batch_again(self, partition: TopicPartition, numbers: list[int]) -> bool:
        """Whether every step back in the order is a duplicate of the preceding batch."""
        firsts = [numbers[copy.base_offset] for copy in self.copies[partition]]
        return firsts == sorted(firsts)

    def _may_repeat(self, partition: TopicPartition, first: int, second: int) -> bool:
        if self.plan.idempotent:
            return False
        return self.plan.acks != "0"

    def compare_with_log(self, partition: TopicPartition, batches: list[RecordBatchView]) -> None:
        """Check that the records on the disk are those that the handlers stored."""
        numbers: list[int] = []
        for batch in batches:
            if batch.base_offset != len(numbers):
                raise ViolationError(f"{partition} has a batch at {batch.base_offset} behind {len(numbers)} records")
            numbers += [self._recognise(partition, record) for record in batch.records()]
        if numbers != self.logs[partition]:
            raise ViolationError(f"{partition} holds {numbers}, but {self.logs[partition]} were acknowledged")
