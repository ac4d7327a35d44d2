"""A sink that writes to a cluster with both protocols, one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from kafka_sink import ProducerRecord
from kafka_sink.common.model import TopicPartition, TransactionVersion
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import BatchNumbering, Memories, Plan, PlannedOffsets, Progress, RowRange
from kafka_sink.exactly_once.protocols import AtomicSink, ParallelSink, TaskRows
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.transactions import OpenTransaction, Transaction, TransactionDescription
from kafka_sink.exactly_once.writing import WriterTransactions
from kafka_sink.producer import config as producer_config
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.task_producer import TaskProducer
from tests.support.readback import read_topic

PARTITIONS = 3
QUERY = "query 1"


def open_producer(
    config: ProducerConfig, transaction: Transaction, transaction_version: TransactionVersion
) -> TaskProducer:
    """Return a task's producer that writes in *transaction*; closing it does not end the transaction."""
    name = transaction.transactional_id
    producer = TaskProducer(replace(config, transactional_id=name))
    producer.join_transaction(transaction.producer, transaction_version, name)
    return producer


class World:
    """A cluster, a topic, and a sink with both protocols."""

    def __init__(
        self, bootstrap: str, topic: str, *, timeout_ms: int = 20_000, properties: Mapping[str, str] | None = None
    ) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.properties = {"bootstrap.servers": bootstrap, "request.timeout.ms": min(timeout_ms // 4, 30_000)}
        self.properties |= properties or {}
        self.client = CoordinatorClient(self.properties, timeout_ms=timeout_ms)
        self.ids = WriterTransactions()
        #: The rows that were sent last.
        self.rows: TaskRows = {}
        self.use(SinkDriver(self.client, topic, topic))

    def use(self, steps: SinkDriver) -> None:
        """Let both protocols of the sink use *steps* as their driver."""
        self.steps, self.parallel, self.atomic = steps, ParallelSink(steps), AtomicSink(steps)

    def restart(self) -> None:
        """Continue as another process of the driver, without any remembered state."""
        self.client.remembered = Memories()
        self.use(SinkDriver(self.client, self.topic, self.topic))

    def write_task(self, plan: Plan, version: int, *values: bytes) -> OpenTransaction:
        transaction = self.ids.begin(self.client, plan, version)
        self.send(transaction, plan.transaction_version, *values)
        place = TopicPartition(self.topic, 0)
        self.ids.wrote(plan.sink, transaction, self.client.run(self.client.leaders.end_offsets([place], stable=False)))
        return OpenTransaction(transaction, frozenset({TopicPartition(self.topic, 0)}))

    def send(self, transaction: Transaction, transaction_version: TransactionVersion, *values: bytes) -> None:
        with open_producer(producer_config.read(self.properties), transaction, transaction_version) as producer:
            futures = [producer.send(ProducerRecord(self.topic, value, partition=0)) for value in values]
            producer.flush()
            offsets = [future.result(0).offset for future in futures]
        self.rows = {TopicPartition(self.topic, 0): RowRange(offsets[0], offsets[-1] + 1)}

    def decide_and_die(self, version: int, *values: bytes, timeout_ms: int | None = None) -> None:
        """Write a parallel batch with a transaction for each of *values*, decide it, and commit only the first; the
        others time out after *timeout_ms* if it is given, except with two-phase commit."""
        plan = self.parallel.plan()
        late = plan if timeout_ms is None else replace(plan, timeout_ms=timeout_ms)
        first, *others = (
            self.write_task(late if number else plan, version, value).transaction for number, value in enumerate(values)
        )
        transactions = tuple(sorted([first, *others]))
        self.steps.decide(plan, Progress(version + 1, QUERY, plan.transaction_version, 0, transactions))
        self.client.run(self.client.end([first], plan.transaction_version, commit=True))

    def begin_elsewhere(self, timeout_ms: int) -> Callable[[], bool]:
        """Begin a transaction of another sink; return a function that tells whether the brokers have aborted it, which
        they do after *timeout_ms*."""
        steps = SinkDriver(self.client, f"{self.topic}-other", self.topic)
        plan = replace(ParallelSink(steps).plan(), timeout_ms=timeout_ms)
        transaction = WriterTransactions().begin(self.client, plan, 0)
        self.send(transaction, plan.transaction_version, b"void")
        name = transaction.transactional_id
        return lambda: self.client.run(self.client.describe([name]))[name].state == "CompleteAbort"

    def ids_known(self) -> dict[str, TransactionDescription]:
        """Return the sink's transactional ids that the brokers know, with their descriptions."""
        names = self.client.run(self.client.list_ids())
        return self.client.run(self.client.describe(name for name in names if name.startswith(f"{self.topic}/")))

    def committed(self) -> list[bytes | None]:
        return [message.value for message in read_topic(self.bootstrap, self.topic)]

    def write_batch(
        self,
        protocol: str,
        version: int,
        *values: bytes,
        digest: str = "",
        writer: str = QUERY,
        numbers: BatchNumbering = BatchNumbering.OF_A_QUERY,
    ) -> None:
        """Plan a batch, write it (with "parallel" in two tasks that each have a transaction) and commit it; *digest* is
        that of the planned offsets."""
        offsets = PlannedOffsets(version, digest)
        if protocol == "atomic":

            def write_rows(plan: Plan) -> list[TaskRows]:
                self.send(plan.driver, plan.transaction_version, *values)
                return [self.rows]

            self.atomic.write(version, writer, numbers, write_rows, attempts=1, offsets=offsets)
            return
        plan = replace(self.parallel.plan(), offsets=offsets)
        if plan.must_write(version, writer, numbers):
            written = [self.write_task(plan, version, *rows) for rows in (values[::2], values[1::2]) if rows]
            self.parallel.commit(plan, version, writer, written, numbers=numbers)

    def write_while(self, protocol: str, version: int, moment: str, act: Callable[[], object]) -> list[bytes]:
        """Write a batch of two rows, and call *act* at a *moment* of it: "half written", "written" or "decided"; return
        the rows."""
        rows = [b"%d-a" % version, b"%d-b" % version]
        moments = {"half written": lambda: None, "written": lambda: None, moment: act}
        steps, end_decision = self.steps, self.steps.end_decision

        def decide(plan: Plan, progress: Progress) -> None:
            end_decision(plan, progress)
            if moment == "decided":
                act()

        steps.end_decision = decide  # type: ignore[method-assign]
        try:
            if protocol == "parallel":
                plan = self.parallel.plan()
                if not plan.must_write(version, QUERY, BatchNumbering.OF_A_QUERY):
                    return rows
                written = [self.write_task(plan, version, rows[0])]
                moments["half written"]()
                written.append(self.write_task(plan, version, rows[1]))
                moments["written"]()
                self.parallel.commit(plan, version, QUERY, written)
                self.parallel.look_ahead()
                return rows

            def write_rows(plan: Plan) -> list[TaskRows]:
                moments["half written"]()
                self.send(plan.driver, plan.transaction_version, *rows)
                moments["written"]()
                return [self.rows]

            self.atomic.write(version, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=1)
            return rows
        finally:
            steps.end_decision = end_decision  # type: ignore[method-assign]
