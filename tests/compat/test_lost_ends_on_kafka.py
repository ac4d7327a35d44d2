"""A real Kafka loses the ends of transactions (KAFKA-20734), and the sink writes the decided ends again.

Three nodes. The first has the only replicas of the topics' partitions and of the committed offsets, and the second
those of the transactions. The first is killed after the response to EndTxn, or while a transaction is open for longer
than its time-out; a proxy in front of its listener for brokers withholds the markers until then. Once its partitions
have no leader, the coordinator takes them for deleted and completes the transaction without them. KAFKALITE_LOST_ENDS
sets the number of rounds.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient as ForeignAdmin
from confluent_kafka.admin import NewTopic

from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.model import ExactlyOnceError, LostEndError, Plan, Progress
from kafka_sink.exactly_once.planning import plan_batch
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.transactions import Transaction
from kafka_sink.protocol.api_key import ApiKey
from tests.compat.kafka_version import requires_kafka
from tests.conftest import Figure
from tests.exactly_once.world import PARTITIONS, QUERY, World
from tests.support import amounts
from tests.support.fault_proxy import Fault, FaultProxy, every
from tests.support.ports import free_ports
from tests.support.real_kafka import TOOL_TIMEOUT_S, RealKafka, run_script, running_kafka
from tests.support.waiting import WAIT_S, until

ROUNDS = amounts.LOST_ENDS
TRANSACTIONS, OFFSETS = "__transaction_state", "__consumer_offsets"
#: transaction.timeout.ms of tests in which the brokers abort a dead driver's open transactions.
SHORT_TIMEOUT_MS = 4000
#: Of the others: an aborted transaction tears a decided batch, and a busy machine takes long to restart a node.
TIMEOUT_MS = 60_000

pytestmark = [amounts.only_long, requires_kafka("4.3", "the loss of ends (KAFKA-20734)")]


class _Death(BaseException):
    """The driver dies."""


@dataclass(frozen=True)
class _Kafka:
    """The *running* nodes, and the proxy *between* the first one and the others."""

    running: RealKafka
    between: FaultProxy

    def create_topic(self, name: str, partitions: int, node: int, **configs: str) -> None:
        """Create a topic whose partitions have a single replica, on *node*."""
        topic = NewTopic(name, partitions, replica_assignment=[[node]] * partitions, config=configs)
        foreign = ForeignAdmin({"bootstrap.servers": self.running.bootstrap_servers})
        foreign.create_topics([topic])[name].result(30)

    @contextmanager
    def killed_before_markers(self, world: World) -> Iterator[None]:
        """Let the block decide transactions, withhold their markers, and then kill the first node."""
        passing = self.between.plan
        self.between.plan = every(1, Fault.WITHHOLD, ApiKey.WRITE_TXN_MARKERS)
        try:
            yield
            ending = [name for name, each in world.ids_known().items() if each.state.startswith("Prepare")]
            assert ending
            self.running.kill()
        finally:
            self.between.plan = passing
        self.await_loss(world, ending)

    def await_loss(self, world: World, names: list[str]) -> None:
        """Wait until the coordinator completes the transactions of the ids *names* without the dead first node."""
        until(
            "completion without the dead node",
            lambda: all(each.is_over for each in world.client.run(world.client.describe(names)).values()),
        )


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Kafka]:
    directory, behind = tmp_path_factory.mktemp("kafka"), free_ports(3)
    properties = (
        "inter.broker.listener.name=INTERNAL",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
        "transaction.state.log.min.isr=1",
        "min.insync.replicas=1",
        # The partitions of a killed node soon have no leader.
        "broker.session.timeout.ms=1500",
        "broker.heartbeat.interval.ms=300",
    )
    nodes = ("--nodes", "3", "--listener", f"INTERNAL:{behind}")
    with (
        FaultProxy(f"127.0.0.1:{behind}") as between,
        running_kafka(directory, *nodes, *properties) as running,
    ):
        found = _Kafka(running, between)
        found.create_topic(TRANSACTIONS, 50, 2, **{"cleanup.policy": "compact"})
        found.create_topic(OFFSETS, 50, 1, **{"cleanup.policy": "compact"})
        settings, front = directory / "node-1" / "server.properties", between.bootstrap_servers
        text = re.sub(r"(?m)^(advertised\.listeners=.*INTERNAL://)[^,\n]*", rf"\g<1>{front}", settings.read_text())
        settings.write_text(text)
        with AdminClient(running.bootstrap_servers) as admin:

            def leaders() -> int:
                return sum(each.leader is not None for each in admin.describe_topics([OFFSETS])[OFFSETS].partitions)

            # The other nodes use its former address until they have detected that it is down.
            run_script("stop-node", "1", "--dir", str(directory), timeout_s=TOOL_TIMEOUT_S)
            until("partitions without a leader", lambda: leaders() == 0)
            running.start_again()
            until("leaders on the first node", lambda: leaders() == 50)
        yield found


class _Sink:
    """A sink whose driver dies with the broker or survives it, and whose rows are counted."""

    def __init__(self, kafka: _Kafka, protocol: str, *, driver_dies: bool, timeout_ms: int) -> None:
        self.kafka, self.protocol, self.driver_dies, self.timeout_ms = kafka, protocol, driver_dies, timeout_ms
        self.topic = f"lost-{os.urandom(4).hex()}"
        kafka.create_topic(self.topic, PARTITIONS, 1)
        self.world = self._new_world()
        self.version = 0
        self.lost = 0

    def _new_world(self) -> World:
        world = World(self.kafka.running.bootstrap_servers, self.topic, timeout_ms=90_000)
        world.use(SinkDriver(world.client, self.topic, self.topic, timeout_ms=self.timeout_ms))
        return world

    def write(self) -> None:
        version = self.version
        self.world.write_batch(self.protocol, version, b"%04d-a" % version, b"%04d-b" % version)
        self.version += 1

    def lose(self, ended: str) -> None:
        """Kill the broker at the end of a batch, and count the end if it is lost."""
        {"decided": self._decide, "aborted": self._abort, "power cut": self._cut}[ended]()
        self.kafka.running.start_again()
        if self.driver_dies or ended == "power cut":
            self.world.client.close()
            self.world = self._new_world()
        self.lost += self._is_lost()

    def _decide(self) -> None:
        steps = self.world.steps
        end_decision = steps.end_decision

        def end_and_kill(plan: Plan, progress: Progress) -> None:
            with self.kafka.killed_before_markers(self.world):
                end_decision(plan, progress)
            raise _Death

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(steps, "end_decision", end_and_kill)
            with pytest.raises(_Death):
                self.write()

    def _write_void(self) -> Plan:
        """Write rows of a batch and leave it open; a driver that only fails would abort it."""
        if self.protocol == "parallel":
            plan = self.world.parallel.plan()
            self.world.write_task(plan, self.version, b"void")
        else:
            plan = plan_batch(self.world.steps, QUERY, self.version, with_rows=True)
            self.world.send(plan.driver, plan.transaction_version, b"void")
        return plan

    def _abort(self) -> None:
        plan = self._write_void()
        client = self.world.client
        opened = [each.transaction for each in self.world.ids_known().values() if each.is_ongoing]
        with self.kafka.killed_before_markers(self.world):
            client.run(client.end(opened, plan.transaction_version, commit=False))

    def _cut(self) -> None:
        self._write_void()
        opened = [name for name, each in self.world.ids_known().items() if each.is_ongoing]
        assert opened
        self.kafka.running.kill()
        self.kafka.await_loss(self.world, opened)

    def _is_lost(self) -> bool:
        """Return whether a partition still has a transaction that is complete for its coordinator."""
        client, deadline = self.world.client, time.monotonic() + 20
        while any(not each.is_over for each in self.world.ids_known().values()) and time.monotonic() < deadline:
            if all(each.is_over or each.is_ongoing for each in self.world.ids_known().values()):
                break
            time.sleep(0.1)
        places = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        opened = client.run(client.leaders.open_transactions(places))
        over = {each.transaction.producer_id for each in self.world.ids_known().values() if each.is_over}
        _, is_stable = client.run(self.world.steps.peek())
        return not is_stable or any(each.producer_id in over for found in opened.values() for each in found)

    def die_writing_again(self) -> None:
        """Let the driver die while it writes a lost commit again, and so leave the new transaction open."""
        client = self.world.client
        add = client.add_to_transaction

        async def add_and_die(*arguments: Any) -> None:
            await add(*arguments)
            raise _Death

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "add_to_transaction", add_and_die)
            with pytest.raises(_Death):
                self.write()

    def check(self) -> None:
        """Check that every row is committed once, and that no transaction is open."""
        expected = [b"%04d-%s" % (version, half) for version in range(self.version) for half in (b"a", b"b")]
        assert sorted(map(bytes, self.world.committed())) == expected  # type: ignore[arg-type]
        client = self.world.client
        places = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        assert client.run(client.leaders.open_transactions(places)) == {}


@pytest.mark.behaviour("Exactly once: lost ends", "A real Kafka loses ends, and no row is missing, twice or hidden")
@pytest.mark.timeout(300 + 120 * ROUNDS)
@pytest.mark.parametrize(
    ("protocol", "ended", "driver_dies"),
    [
        *(
            (protocol, ended, dies)
            for protocol in ("atomic", "parallel")
            for ended in ("aborted", "decided")
            for dies in (True, False)
        ),
        *((protocol, "power cut", True) for protocol in ("atomic", "parallel")),
    ],
)
def test_lost_ends_lose_and_repeat_nothing_on_kafka(
    kafka: _Kafka, protocol: str, ended: str, driver_dies: bool, figure: Figure
) -> None:
    timeout_ms = SHORT_TIMEOUT_MS if ended == "power cut" else TIMEOUT_MS
    sink = _Sink(kafka, protocol, driver_dies=driver_dies, timeout_ms=timeout_ms)
    sink.write()
    for _ in range(ROUNDS):
        sink.lose(ended)
        for _ in range(2):
            sink.write()
        sink.check()
    sink.world.client.close()
    figure(f"{protocol}, {ended}, driver {'dies' if driver_dies else 'lives on'}", f"{sink.lost} of {ROUNDS} ends lost")
    assert sink.lost == ROUNDS


class _Frozen:
    """A driver of *sink* that has read its state, and is frozen before its InitProducerId."""

    def __init__(self, sink: _Sink) -> None:
        self._world, self._protocol = (
            World(sink.kafka.running.bootstrap_servers, sink.topic, timeout_ms=90_000),
            sink.protocol,
        )
        steps = SinkDriver(self._world.client, sink.topic, sink.topic, timeout_ms=sink.timeout_ms)
        self._fence, self._has_looked, self._goes_on = steps.fence, threading.Event(), threading.Event()
        steps.fence = self._late_fence  # type: ignore[method-assign]
        self._world.use(steps)
        self._thread = threading.Thread(target=self._plan)
        self.error: ExactlyOnceError | None = None
        self._thread.start()
        assert self._has_looked.wait(WAIT_S)

    async def _late_fence(self) -> tuple[Transaction, int]:
        if not self._goes_on.is_set():
            self._has_looked.set()
            self._goes_on.wait()
        return await self._fence()

    def _plan(self) -> None:
        try:
            plan_batch(self._world.steps, QUERY, with_rows=self._protocol == "atomic")
        except ExactlyOnceError as error:
            self.error = error

    def wake(self) -> None:
        self._goes_on.set()
        self._thread.join()
        self._world.client.close()


@pytest.mark.behaviour("Exactly once: lost ends", "Late fences of frozen drivers hide no lost end of a real Kafka")
@pytest.mark.timeout(300 + 120 * ROUNDS)
@pytest.mark.parametrize("protocol", ["atomic", "parallel"])
@pytest.mark.parametrize("count", [1, 2])
def test_late_fences_hide_no_lost_end_on_kafka(kafka: _Kafka, protocol: str, count: int, figure: Figure) -> None:
    refused = 0
    for _ in range(ROUNDS):
        sink = _Sink(kafka, protocol, driver_dies=True, timeout_ms=TIMEOUT_MS)
        sink.write()
        frozen = [_Frozen(sink) for _ in range(count)]
        sink.lose("decided")
        assert sink.lost == 1
        sink.die_writing_again()
        for each in frozen:
            each.wake()
        sink.world.restart()
        try:
            sink.write()
        except LostEndError:
            refused += 1
            values = [bytes(value) for value in sink.world.committed() if value is not None]
            assert len(set(values)) == len(values)
        else:
            sink.check()
        sink.world.client.close()
    figure(f"{protocol}, {count} late fences", f"{ROUNDS} rounds, {refused} refused, 0 batches twice or missing")
    assert refused == ROUNDS
