"""One run with transactions: successive producers of each transactional id, from one seed.

As in :mod:`tests.sim.simulation`, only clock, network and threads are simulated; the brokers' coordinators are real.
Several producers run concurrently: each has its own network, and runs a step at each time of the clock. Applications
are generators that yield the time until their next call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial

from kafka_sink.broker.coordinator.transaction_state import TransactionMetadata
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import ApiError, KafkaError, KafkaTimeoutError, TransactionAbortableError
from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.futures import Delivery
from kafka_sink.producer.kafka_producer import KafkaProducer
from tests.sim.ledger import Sending
from tests.sim.network import SimNetwork
from tests.sim.simulation import Outcome, Run, SimThread, check_pool
from tests.sim.transaction_ledger import Told, Transaction, TransactionLedger
from tests.sim.transaction_plan import TransactionPlan, make_transaction_plan
from tests.sim.workload import Workload
from tests.sim.world import ViolationError, World

#: Simulated time that a call may take after the end of the faults, beyond the producer's time-outs, ms.
_GRACE_MS = 20_000
#: Attempts of the last producer of an id, of which one must commit.
_LAST_ATTEMPTS = 20

Script = Generator[int, None, None]


class Life:
    """A producer and its network, until it is closed or crashes."""

    def __init__(self, producer: KafkaProducer, network: SimNetwork, thread: SimThread, number: int) -> None:
        self.producer = producer
        self.network = network
        self.thread = thread
        self.number = number
        self.is_running = True
        self.sleeps_until_ms = 0


class TransactionSimulation(Run):
    """See the module."""

    most_steps = 60_000
    ledger: TransactionLedger

    def __init__(self, seed: int, *, plan: TransactionPlan | None = None, tracing: bool = False) -> None:
        self.plan = plan or make_transaction_plan(seed)
        base, world = self.plan.base, World(seed, tracing=tracing)
        super().__init__(world, base, TransactionLedger(world, base))
        self.ledger.may_be_late = self.plan.zombie_sleeps_ms > 0
        self._lives: list[Life] = []
        self._scripts: list[tuple[int, Script]] = []
        self._had_zombies = False
        self._partitions = [
            TopicPartition(topic.name, index) for topic in base.topics for index in range(len(topic.assignment))
        ]

    # --- the run -----------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        writers = [f"writer{number}" for number in range(self.plan.writers)]
        self.cluster.coordinate(self._known_ids(writers))
        self.world.on_wait = self._wait
        self.calendar.start()
        for writer in writers:
            self._begin(self._write(writer, self._new_life(writer, 0)))
        self._play()
        self.calendar.end()
        for life in self._lives:
            if life.is_running:
                self._close(life, timeout_ms=0)
        for writer in writers:
            self._begin(self._write_at_last(writer))
        self._play()
        self._judge(writers)

    def _known_ids(self, writers: list[str]) -> list[TransactionMetadata]:
        if self.plan.first_epoch < 0:
            return []
        return [
            TransactionMetadata(writer, 1_000_000 + number, 60_000, self.world.now_ms, self.plan.first_epoch)
            for number, writer in enumerate(writers)
        ]

    def _judge(self, writers: list[str]) -> None:
        limit_ms = self.world.now_ms + _GRACE_MS
        while not all(map(self.cluster.is_stable, self._partitions)):
            if self.world.now_ms > limit_ms:
                open_ones = [str(each) for each in self._partitions if not self.cluster.is_stable(each)]
                raise ViolationError(f"every transaction has ended, and {open_ones} are held up by one")
            self.world.now_ms = min(self.world.next_event_ms, limit_ms + 1)
            self.world.run_due()
        logs = {each: self.ledger.read(each, self.cluster.read_committed(each)) for each in self._partitions}
        self.ledger.check_committed(logs, {writer: self._committed_offset(writer) for writer in writers})

    def _committed_offset(self, writer: str) -> int | None:
        return self.cluster.committed_offsets(writer).get(self._partitions[0])

    def _outcome(self) -> Outcome:
        ledger = self.ledger
        return self._outcome_with((sorted(ledger.logs.items()), [str(each) for each in ledger.transactions]))

    # --- producers ---------------------------------------------------------------------------------------------------

    def _new_life(self, writer: str, number: int) -> Life:
        network = self._new_network()
        producer, thread = self._new_producer({**self.plan.base.properties, "transactional.id": writer}, network)
        life = Life(producer, network, thread, number)
        self._lives.append(life)
        self.world.note("life {} of {} begins", number, writer)
        return life

    def _kill(self, life: Life) -> None:
        self.world.note("life {} of {} is killed", life.number, life.producer.client_id)
        life.is_running = False
        life.network.lose_all()

    def _close(self, life: Life, timeout_ms: int) -> None:
        """Close the producer; the other producers do not run until it is closed."""
        life.is_running = False
        sender, limit_ms = life.thread.pipeline.sender, self.world.now_ms + self._patience_ms
        step = sender.run_once

        def checked_step() -> None:
            self._count_step()
            if self.world.now_ms > limit_ms and not self._is_excused:
                raise ViolationError("close does not come to an end")
            step()

        sender.run_once = checked_step  # type: ignore[method-assign]
        with suppress(KafkaTimeoutError):
            life.producer.close(timeout=timeout_ms / 1000)
        self._check_closed(life.network, life.thread.pipeline)

    @property
    def _patience_ms(self) -> int:
        properties = self.plan.base.properties
        return int(properties["delivery.timeout.ms"]) + int(properties["max.block.ms"]) + _GRACE_MS

    @property
    def _is_excused(self) -> bool:
        """Whether calls may still be without outcome, because of faults that may occur or have just ended."""
        return self.ledger.calm_since_ms is None or self.world.now_ms < self.ledger.calm_since_ms + self._patience_ms

    # --- time --------------------------------------------------------------------------------------------------------

    def _round(self, until_ms: int) -> None:
        """Run a step of every producer, and advance the clock to the next time at which one has work."""
        if self._stepping:
            raise ViolationError("the sender's own thread waits for the sender")
        self._count_step()
        self._maybe_pause()
        now_ms = self.world.now_ms
        wake_ms = until_ms
        for life in self._lives:
            if not life.is_running:
                continue
            if life.sleeps_until_ms <= now_ms:
                self._step(life)
                wake_ms = min(wake_ms, life.network.sleeps_until_ms)
            else:
                wake_ms = min(wake_ms, life.sleeps_until_ms)
        wake_ms = min(wake_ms, self.world.next_event_ms)
        if wake_ms >= FOREVER_MS:
            raise ViolationError("everybody sleeps and nothing will ever wake them")
        self.world.now_ms = max(wake_ms, self.world.now_ms)
        self.world.run_due()

    def _step(self, life: Life) -> None:
        with self._step_of_the_sender(life.network, self.world.now_ms):
            life.thread.pipeline.sender.run_once()

    def _check_errors(self) -> None:
        """Check the logged errors; a fenced producer may log that."""
        if "the producer cannot continue" in self._errors.first:
            self._errors.first = ""
        super()._check_errors()

    def _wait(self, deadline_ms: int) -> None:
        if deadline_ms > self.world.now_ms:
            self._round(deadline_ms)

    def _begin(self, script: Script) -> None:
        self._scripts.append((self.world.now_ms, script))

    def _play(self) -> None:
        """Run all scripts to their ends."""
        while self._scripts:
            due_ms, script = min(self._scripts, key=lambda entry: entry[0])
            if due_ms > self.world.now_ms:
                self._round(due_ms)
                if self.world.chance(0.02):
                    self._look()
                continue
            self._scripts.remove((due_ms, script))
            for pause_ms in script:
                self._scripts.append((self.world.now_ms + pause_ms, script))
                break

    def _look(self) -> None:
        """Read a partition during the run."""
        partition = self.world.rng.choice(self._partitions)
        self.ledger.read(partition, self.cluster.read_committed(partition))

    # --- applications ------------------------------------------------------------------------------------------------

    def _think_ms(self) -> int:
        return self.world.rng.randint(0, self.plan.base.think_ms)

    def _write(self, writer: str, life: Life) -> Script:
        """Run the transactions of one life, until it ends, crashes, or has a fatal error."""
        try:
            yield from self._ended(life.producer.init_transactions)
            for _ in range(self.plan.transactions):
                transaction = self.ledger.begin(writer, life.number)
                life.producer.begin_transaction()
                yield from self._transact(writer, life, transaction)
                if not life.is_running:
                    return
                yield self._think_ms()
        except TransactionAbortableError as error:
            raise ViolationError(f"{writer} can only abort, and is in no transaction: {error}") from error
        except KafkaError as error:
            self.world.note("life {} of {} cannot go on: {!r}", life.number, writer, error)
            self._check_fatal(writer, life, error)
        self._end_life(life)
        yield from self._successor(writer, life)

    def _end_life(self, life: Life) -> None:
        if life.is_running:
            self._close(life, self.world.rng.choice([0, FOREVER_MS]))

    def _successor(self, writer: str, life: Life) -> Script:
        if self._is_newest(writer, life) and life.number + 1 < self.plan.lives:
            yield from self._write(writer, self._new_life(writer, life.number + 1))

    def _is_newest(self, writer: str, life: Life) -> bool:
        return not any(
            other.number > life.number and other.producer.client_id == life.producer.client_id for other in self._lives
        )

    def _check_fatal(self, writer: str, life: Life, error: KafkaError) -> None:
        """Check that only a newer producer, or the coordinator after the transaction's time-out, fences a producer."""
        # The producer's own InitProducerId request may arrive late, and twice.
        may_meet_others = self._had_zombies or self.plan.base.faults.zombies
        if not self._is_newest(writer, life) or may_meet_others or self.plan.has_short_timeout:
            return
        raise ViolationError(f"{writer} cannot go on, and nobody took its place: {error!r}")

    def _transact(self, writer: str, life: Life, transaction: Transaction) -> Script:
        commits = not self.world.chance(self.plan.abort_share)
        try:
            for _ in range(self.world.rng.randint(1, self.plan.actions)):
                self._act(writer, life, transaction)
                yield self._think_ms()
                yield from self._maybe_crash(writer, life)
                if not life.is_running:
                    return
            if commits:
                transaction.told = Told.COMMITTING
                yield from self._ended(life.producer.commit_transaction, writer, life)
                if life.is_running:
                    transaction.told = Told.COMMITTED
                    self.world.note("{}", transaction)
                return
        except TransactionAbortableError as error:
            self.world.note("{} has to be aborted: {}", transaction, error)
        transaction.told = Told.ABORTED
        yield from self._ended(life.producer.abort_transaction, writer, life)
        self.world.note("{}", transaction)

    def _ended(self, call: Callable[..., None], writer: str = "", life: Life | None = None) -> Script:
        """Repeat *call* until its outcome is known; if *writer* and *life* are given, it may crash before that."""
        limit_ms = self.world.now_ms + self._patience_ms
        while True:
            try:
                call(timeout=self.world.rng.randint(1, 300) / 1000 if self.plan.waits else 0)
                return
            except KafkaTimeoutError:
                if self.world.now_ms > limit_ms and not self._is_excused:
                    raise ViolationError(f"a call has no outcome after {self._patience_ms} ms without faults") from None
            yield self._think_ms() + 1
            if life is not None and self.world.chance(0.1):
                yield from self._maybe_crash(writer, life)
                if not life.is_running:
                    return

    def _maybe_crash(self, writer: str, life: Life) -> Script:
        if life.number + 1 >= self.plan.lives or not self._is_newest(writer, life):
            return
        if not self.world.chance(self.plan.crash_share):
            return
        is_zombie = self.world.chance(self.plan.zombie_share)
        if not is_zombie:
            self._kill(life)
        self._begin(self._write(writer, self._new_life(writer, life.number + 1)))
        if is_zombie:
            self._had_zombies = True
            self.world.note("life {} of {} is a zombie", life.number, writer)
            sleep_ms = self.world.rng.randint(0, self.plan.zombie_sleeps_ms)
            life.sleeps_until_ms = self.world.now_ms + sleep_ms
            yield sleep_ms

    def _act(self, writer: str, life: Life, transaction: Transaction) -> None:
        rng = self.world.rng
        if self.world.chance(self.plan.offsets_share):
            transaction.offset = transaction.number
            try:
                life.producer.send_offsets_to_transaction(
                    {self._partitions[0]: transaction.number}, writer, timeout=rng.choice([1, 50, 3000]) / 1000
                )
            except KafkaTimeoutError as error:
                raise TransactionAbortableError("the offsets took too long") from error
            return
        self._send(life, transaction, rng.choice(self.plan.base.topics).name, rng.randint(1, self.plan.base.burst))

    def _send(self, life: Life, transaction: Transaction, topic: str, count: int) -> None:
        workload = Workload(self.world, self.plan.base, self.ledger, life.producer, self._told)
        if self.world.chance(self.plan.base.columns_share):
            sending = workload.send_columns(topic, count * 3, partial(self.ledger.belongs, transaction))
            transaction.is_broken |= not sending.accepted
        else:
            for _ in range(count):
                workload.send(topic, on_staged=partial(self.ledger.belongs, transaction))

    def _told(self, sending: Sending, delivery: Delivery) -> None:
        self.world.moment += 1
        if delivery.error is not None:
            self.world.note("told: {} from {} on failed: {}", delivery.count, sending.first, delivery.error)
            self.ledger.owners[sending.first].is_broken = True
        self.ledger.told(sending, delivery)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _write_at_last(self, writer: str) -> Script:
        """Check that a new producer of the id can commit to every partition, whatever happened before."""
        life = self._new_life(writer, self.plan.lives)
        yield from self._ended(life.producer.init_transactions)
        for _ in range(_LAST_ATTEMPTS):
            transaction = self.ledger.begin(writer, life.number)
            life.producer.begin_transaction()
            try:
                for topic in self.plan.base.topics:
                    for partition in range(len(topic.assignment)):
                        Workload(self.world, self.plan.base, self.ledger, life.producer, self._told).send(
                            topic.name, partition, on_staged=partial(self.ledger.belongs, transaction)
                        )
                transaction.told = Told.COMMITTING
                yield from self._ended(life.producer.commit_transaction)
                transaction.told = Told.COMMITTED
                break
            except (TransactionAbortableError, ApiError) as error:
                self.world.note("{} has to be aborted: {}", transaction, error)
                transaction.told = Told.ABORTED
                yield from self._ended(life.producer.abort_transaction)
            yield 50
        else:
            raise ViolationError(f"{writer} cannot commit any more")
        yield from self._settled(life)
        self._close(life, FOREVER_MS)

    def _settled(self, life: Life) -> Script:
        limit_ms = self.world.now_ms + self._patience_ms
        while life.thread.pipeline.network.client.in_flight_request_count():
            if self.world.now_ms > limit_ms:
                raise ViolationError("requests stay in flight")
            yield 10
        check_pool(life.thread.pipeline.pool)
