"""One run: the whole producer against simulated brokers, from one seed.

The producer is the real facade with all layers below it; only its network, its clock and its thread are simulated. The
run executes the sender's steps one by one: the application acts either between them (and may block in the producer,
while the steps continue), or during the sender's poll (and then must not block).
"""

from __future__ import annotations

import logging
import random
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import KafkaError, KafkaTimeoutError
from kafka_sink.common.threads import Loop
from kafka_sink.producer.batching.buffer_pool import BufferPool
from kafka_sink.producer.futures import Delivery
from kafka_sink.producer.kafka_producer import KafkaProducer, ProducerRecord
from kafka_sink.producer.pipeline import Pipeline
from tests.fakes.sender_world import network_of
from tests.sim.cluster import SimCluster
from tests.sim.fault_calendar import FaultCalendar
from tests.sim.ledger import Ledger, Sending, Staged
from tests.sim.network import SimNetwork
from tests.sim.plan import Plan, make_plan
from tests.sim.workload import Workload
from tests.sim.world import ViolationError, World

#: Simulated time that all outcomes may take after the end of the faults, beyond the time-outs, ms.
_GRACE_MS = 20_000
#: Records of which one must be stored after the end of the faults.
_PROBES = 25
_POISON = b"\xdd"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run without violations; equal for equal seeds."""

    seed: int
    records: int
    succeeded: int
    failed: int
    stored_batches: int
    steps: int
    simulated_ms: int
    logs: int


class SimThread:
    """Replaces the sender's thread: it runs while another thread waits for it."""

    def __init__(self, loop: Loop) -> None:
        assert isinstance(loop, Pipeline)
        #: The loop to run: the parts of the producer.
        self.pipeline = loop
        self._ended = False
        self.before_run: Callable[[float | None], None] = lambda timeout: None

    def is_alive(self) -> bool:
        return not self._ended

    def join(self, timeout: float | None = None) -> None:
        if not self._ended:
            self.before_run(timeout)
            self.pipeline.run()
            self._ended = True


class PoisonedPool:
    """Checks the buffers that a pool allocates and takes back; deallocated buffers are overwritten at once."""

    def __init__(self, pool: BufferPool) -> None:
        self._allocate = pool.allocate
        self._deallocate = pool.deallocate
        self._exchange = pool.exchange
        self._try_allocate = pool.try_allocate
        self._out: dict[int, bytearray] = {}
        #: The bytes by which exchanged buffers exceed the originals: the most that may be allocated beyond the limit.
        self._debt = 0
        self._total = pool.total_memory
        pool.allocate = self.allocate  # type: ignore[method-assign]
        pool.try_allocate = self.try_allocate  # type: ignore[method-assign]
        pool.deallocate = self.deallocate  # type: ignore[method-assign]
        pool.exchange = self.exchange  # type: ignore[method-assign]

    def allocate(self, size: int, max_block_ms: int) -> bytearray:
        return self._given(self._allocate(size, max_block_ms))

    def try_allocate(self, size: int) -> bytearray | None:
        buffer = self._try_allocate(size)
        return None if buffer is None else self._given(buffer)

    def _given(self, buffer: bytearray) -> bytearray:
        if id(buffer) in self._out:
            raise ViolationError(f"a buffer of {len(buffer)} bytes has two owners")
        self._out[id(buffer)] = buffer
        in_use = sum(map(len, self._out.values()))
        if in_use > self._total + self._debt:
            raise ViolationError(f"{in_use} bytes of buffers are out, buffer.memory is {self._total}")
        return buffer

    def deallocate(self, buffer: bytearray) -> None:
        self._take_back(buffer)
        self._deallocate(buffer)

    def exchange(self, buffer: bytearray, pieces: Iterable[bytearray]) -> None:
        pieces = list(pieces)
        self._debt += max(sum(map(len, pieces)) - len(buffer), 0)
        self._take_back(buffer)
        self._out.update((id(piece), piece) for piece in pieces)
        self._exchange(buffer, pieces)

    def _take_back(self, buffer: bytearray) -> None:
        if len(buffer):
            del self._out[id(buffer)]
            memoryview(buffer)[:] = _POISON * len(buffer)


class ErrorLog(logging.Handler):
    """Collects logged errors: a client must handle every behaviour of the brokers without logging an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.first = ""

    def emit(self, record: logging.LogRecord) -> None:
        if not self.first:
            text = record.getMessage()
            if record.exc_info:
                text += "\n" + logging.Formatter().formatException(record.exc_info)
            self.first = text


class Run(ABC):
    """The base of runs with and without transactions: a world, its ledger, the brokers and their faults."""

    #: Steps after which a run is stuck, whatever its clock says.
    most_steps: int
    ledger: Ledger

    def __init__(self, world: World, plan: Plan, ledger: Ledger) -> None:
        self.world, self._base, self.ledger = world, plan, ledger
        self.cluster = SimCluster(world, plan, ledger)
        self.calendar = FaultCalendar(world, plan.faults, self.cluster)
        self.calendar.on_end = self._faults_ended
        self._errors = ErrorLog()
        self._steps = 0
        self._stepping = False

    def run(self) -> Outcome:
        """:raises ViolationError: if a guarantee is broken."""
        with settled_surroundings(self.world, self._errors):
            try:
                self._live()
            except Exception as error:
                raise ViolationError(f"an exception came out of the producer: {error!r}") from error
        return self._outcome()

    @abstractmethod
    def _live(self) -> None: ...

    @abstractmethod
    def _outcome(self) -> Outcome: ...

    def _outcome_with(self, stored: object) -> Outcome:
        """:param stored: the contents of the brokers at the end"""
        ledger = self.ledger
        told = (len(ledger.records), ledger.succeeded, ledger.failed, ledger.stored_batches)
        return Outcome(
            self.world.seed, *told, self._steps, self.world.now_ms - 1_000_000, zlib.crc32(repr(stored).encode())
        )

    def _faults_ended(self) -> None:
        self.ledger.calm_since_ms = self.world.now_ms

    def _new_network(self) -> SimNetwork:
        plan = self._base
        network = SimNetwork(
            self.world, plan.faults, self.cluster.handle, max_in_flight=plan.max_in_flight, acks=plan.acks != "0"
        )
        self.calendar.add_network(network)
        return network

    def _new_producer(self, properties: dict[str, Any], network: SimNetwork) -> tuple[KafkaProducer, SimThread]:
        threads: list[SimThread] = []

        def start_thread(name: str, loop: Loop) -> SimThread:
            threads.append(SimThread(loop))
            return threads[0]

        producer = KafkaProducer(properties, network=network_of(properties, network, self.world, start_thread))
        PoisonedPool(threads[0].pipeline.pool)
        seed_all_dice(producer, self.world.rng)
        return producer, threads[0]

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > self.most_steps:
            raise ViolationError(f"not at an end after {self.most_steps} steps")

    @contextmanager
    def _step_of_the_sender(self, network: SimNetwork, horizon_ms: int) -> Iterator[None]:
        """Its poll returns at *horizon_ms* at the latest."""
        self._stepping = True
        network.horizon_ms = horizon_ms
        try:
            yield
        finally:
            self._stepping = False
            network.horizon_ms = FOREVER_MS
        self._check_errors()

    def _check_errors(self) -> None:
        if self._errors.first:
            raise ViolationError(f"logged as an error: {self._errors.first}")

    def _maybe_pause(self) -> None:
        """Suspend the process for some time, if the plan and chance say so."""
        faults = self._base.faults
        if not self.calendar.is_over and self.world.chance(faults.pause_share):
            pause_ms = self.world.rng.randint(1, faults.pause_ms)
            self.world.note("the process sleeps for {} ms", pause_ms)
            self.world.now_ms += pause_ms
            self.ledger.paused_ms += pause_ms

    @staticmethod
    def _check_closed(network: SimNetwork, pipeline: Pipeline) -> None:
        if not network.is_closed:
            raise ViolationError("the network client was not closed")
        if pipeline.accumulator.has_incomplete:
            raise ViolationError("batches are incomplete after the close")


def check_pool(pool: BufferPool) -> None:
    if pool.available_memory != pool.total_memory:
        raise ViolationError(f"{pool.total_memory - pool.available_memory} bytes never came back to the pool")


class Simulation(Run):
    """See the module."""

    most_steps = 30_000

    def __init__(self, seed: int, *, plan: Plan | None = None, tracing: bool = False) -> None:
        self.plan: Plan = plan or make_plan(seed)
        world = World(seed, tracing=tracing)
        super().__init__(world, self.plan, Ledger(world, self.plan))
        self.network = self._new_network()
        self._actions_left = self.plan.actions
        self._unsent: list[Staged] = []
        self._tries_left = 30
        self._pending: Callable[[], None] | None = None
        self._thread: SimThread
        self._producer: KafkaProducer
        self._workload: Workload

    # --- the run -----------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        self._producer, self._thread = self._new_producer(self.plan.properties, self.network)
        self._workload = Workload(self.world, self.plan, self.ledger, self._producer, self._told)
        self.calendar.start()
        self.world.on_wait = self._wait
        if self.plan.blocking:
            self._act_between_steps()
        else:
            self._meet_topics()
            self._act_within_polls()
        self._end()
        self._check_errors()

    def _outcome(self) -> Outcome:
        self.ledger.check_end()
        self.cluster.check_logs()
        return self._outcome_with(sorted(self.ledger.logs.items()))

    # --- the sender --------------------------------------------------------------------------------------------------

    def _step(self, horizon_ms: int = FOREVER_MS) -> None:
        """One step of the sender's thread; its poll returns at *horizon_ms* at the latest."""
        if self._stepping:
            raise ViolationError("the sender's own thread waits for the sender")
        self._count_step()
        self._maybe_pause()
        with self._step_of_the_sender(self.network, horizon_ms):
            self._thread.pipeline.sender.run_once()

    def _wait(self, deadline_ms: int) -> None:
        if deadline_ms > self.world.now_ms:
            self._step(deadline_ms)

    def _let_pass(self, duration_ms: int) -> None:
        until_ms = self.world.now_ms + duration_ms
        while self.world.now_ms < until_ms:
            self._step(until_ms)

    # --- the application ---------------------------------------------------------------------------------------------

    def _meet_topics(self) -> None:
        """Fetch the metadata first in most runs: without it, every send that may not block fails."""
        metadata = self._thread.pipeline.network.metadata
        if self.world.chance(0.1):
            return
        for topic in self.plan.topics:
            metadata.add(topic.name, self.world.now_ms)
        for _ in range(30):
            cluster = metadata.fetch()
            if all(cluster.partition_count(topic.name) is not None for topic in self.plan.topics):
                break
            self._let_pass(20)

    def _act_between_steps(self) -> None:
        due_ms = self.world.now_ms
        while self._actions_left > 0:
            if self.world.now_ms >= due_ms:
                self._act()
                due_ms = self.world.now_ms + self._think_ms()
            else:
                self._step(due_ms)

    def _act_within_polls(self) -> None:
        def act() -> None:
            self._act()
            if self._actions_left > 0:
                self.world.after(self._think_ms(), act)

        self.world.after(0, act)
        while self._actions_left > 0 or self._pending is not None:
            pending, self._pending = self._pending, None
            if pending is not None:
                pending()
            else:
                self._step()

    def _think_ms(self) -> int:
        return self.world.rng.randint(0, self.plan.think_ms)

    def _act(self) -> None:
        self._actions_left -= 1
        if self.world.chance(self.plan.flush_share):
            if self._stepping:
                # A flush blocks, so it cannot run during a poll; it wakes the sender anyway.
                self._pending = self._flush
                self.network.wakeup()
            else:
                self._flush()
            return
        topic = self.world.rng.choice(self.plan.topics)
        count = self.world.rng.randint(1, self.plan.burst)
        if self.world.chance(self.plan.columns_share):
            self._workload.send_columns(topic.name, count * 3)
        else:
            for _ in range(count):
                self._workload.send(topic.name)

    def _flush(self) -> None:
        self.world.note("flush")
        before = [sending for sending in self.ledger.sendings if sending.accepted]
        limit_ms = self.plan.properties["delivery.timeout.ms"] + _GRACE_MS + self.ledger.paused_ms
        began_ms = self.world.now_ms
        self._producer.flush()
        if self.world.now_ms - began_ms > limit_ms + self.ledger.paused_ms:
            raise ViolationError(f"a flush took {self.world.now_ms - began_ms} ms")
        for sending in before:
            if sending.told != sending.count:
                raise ViolationError(f"a flush has ended, but not the records from {sending.first} on")

    def _told(self, sending: Sending, delivery: Delivery) -> None:
        self.world.moment += 1
        if delivery.error is not None:
            self.world.note("told: {} from {} on failed: {}", delivery.count, sending.first, delivery.error)
        self.ledger.told(sending, delivery)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        ending = self.plan.ending
        self.world.note("ending: {}", ending)
        self.calendar.end()
        if ending == "quiet":
            self._settle()
            self._probe()
        self.ledger.force_closed = ending in ("hasty", "forced")
        self._thread.before_run = self._before_run
        timeout_ms = {"hasty": self.world.rng.randrange(1, 200), "forced": 0}.get(ending, FOREVER_MS)
        # The ledger knows which records may fail.
        with suppress(KafkaTimeoutError):
            self._producer.close(timeout=timeout_ms / 1000)
        try:
            self._producer.send(ProducerRecord(self.plan.topics[0].name, b"late"))
        except KafkaError:
            pass
        else:
            raise ViolationError("a closed producer took a record")
        self._check_closed(self.network, self._thread.pipeline)

    def _settle(self) -> None:
        """Check that all work ends within bounded time, and that nothing is left in the producer."""
        accumulator, client = self._thread.pipeline.accumulator, self._thread.pipeline.network.client
        limit_ms = self.world.now_ms + self.plan.properties["delivery.timeout.ms"] + _GRACE_MS
        while accumulator.has_incomplete or client.in_flight_request_count():
            if self.world.now_ms > limit_ms:
                raise ViolationError(f"not settled {_GRACE_MS} ms after everything should have expired")
            self._step(limit_ms + 1)
        check_pool(self._thread.pipeline.pool)

    def _probe(self) -> None:
        """Check that every partition accepts records again, whatever happened before."""
        for topic in self.plan.topics:
            for partition in range(len(topic.assignment)):
                for _ in range(_PROBES):
                    before = self.ledger.succeeded
                    self._workload.send(topic.name, partition)
                    self._settle()
                    if self.ledger.succeeded > before:
                        break
                    # The first one may only have found the leader, or may have had too little time to connect.
                    self._let_pass(50)
                else:
                    raise ViolationError(f"{topic.name}-{partition} takes no record any more")

    def _before_run(self, timeout: float | None) -> None:
        """Run the sender's thread to its end while the closing thread waits."""
        if timeout is not None and timeout < 10**6:
            self.world.after(int(timeout * 1000), self._thread.pipeline.sender.force_close)
        sender = self._thread.pipeline.sender
        limit_ms = self.world.now_ms + self.plan.properties["delivery.timeout.ms"] + _GRACE_MS
        step = sender.run_once

        def checked_step() -> None:
            self._count_step()
            if self.world.now_ms > limit_ms:
                raise ViolationError("close does not come to an end")
            step()

        sender.run_once = checked_step  # type: ignore[method-assign]


@contextmanager
def settled_surroundings(world: World, errors: logging.Handler) -> Iterator[None]:
    """Within, all random numbers of the process are seeded, and logs go to *errors* only."""
    logger = logging.getLogger("kafka_sink")
    before = (logger.level, logger.propagate, random.getstate())
    logger.addHandler(errors)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    random.seed(world.seed)
    try:
        yield
    finally:
        logger.removeHandler(errors)
        logger.setLevel(before[0])
        logger.propagate = before[1]
        random.setstate(before[2])


def seed_all_dice(root: object, rng: random.Random) -> None:
    """Give every random generator below *root* a seed of this run."""
    seen: set[int] = set()
    todo: list[object] = [root]
    while todo:
        item = todo.pop()
        if id(item) in seen or isinstance(item, (ModuleType, type)):
            continue
        seen.add(id(item))
        if isinstance(item, random.Random):
            item.seed(rng.getrandbits(64))
        elif type(item).__module__.startswith("kafka_sink."):
            names = [*getattr(item, "__dict__", ()), *(getattr(type(item), "__slots__", ()) or ())]
            todo += [getattr(item, name) for name in names if hasattr(item, name)]
