"""Two environments that run batches of the sink and count their requests: embedded brokers, and brokers in memory.

On embedded brokers (:func:`run_on`) all code is the sink's own: workers write their tasks one after the other, and a
driver plans and commits. In memory (:class:`PlayedCluster`) only the driver and the transactional ids of the tasks run,
on a clock that does not advance, so there may be thousands of tasks; the rows of a transaction are only declared.
"""

from __future__ import annotations

import pickle
import time
import uuid
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any
from unittest import mock

import pyarrow as pa

from kafka_sink import EmbeddedCluster
from kafka_sink.broker.network.request_metrics import kafka_name
from kafka_sink.client.blocking import blocking
from kafka_sink.client.factory import create_client
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import BatchNumbering, Plan, RowRange
from kafka_sink.exactly_once.protocols import AtomicSink, ParallelSink, TaskRows
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.transactions import OpenTransaction, Transaction
from kafka_sink.exactly_once.writing import WriterTransactions
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import RequestHeader
from kafka_sink.protocol.messages.metadata import GROUP
from kafka_sink.protocol.registry import APIS
from kafka_sink.protocol.schema import Struct
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.task import task_writer, transactional_task
from kafka_sink.spark.task.task_outcome import TaskOutcome
from kafka_sink.spark.task.task_writer import write_task
from kafka_sink.spark.task.transactional_task import write_in_transaction
from tests.bench.scale_model import COORDINATOR_PARTITIONS
from tests.fakes.clock import FakeClock
from tests.fakes.left_producers import LeftProducers
from tests.fakes.selectable import FakeSelectable
from tests.support.messages import response_body

TOPIC = "rows"
SINK = "bench"
WRITER = "query bench"
_ROWS = pa.schema([("value", pa.string()), ("partition", pa.int32())])


_FOR_EVER_MS = 10**9

HOST = "127.0.0.1"
FIRST_PORT = 9000
_TOPIC_ID = uuid.UUID(int=1)
#: The end offset of each partition.
_END = 7
_SETTINGS = {"transaction.partition.verification.enable": "true", "offsets.retention.minutes": "10080"}

Requests = Counter[str]


# --- real brokers ----------------------------------------------------------------------------------------------------


class Worker:
    """The state of one of Spark's Python processes: its producers, its client of coordinators, its ids."""

    def __init__(self, config: ProducerConfig) -> None:
        self._producers = LeftProducers()
        self._coordinators = CoordinatorClient(config)
        self._ids = WriterTransactions()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Run the tasks of a block in this worker."""
        with (
            # No producer expires, however long the run takes, so no request is repeated.
            mock.patch.object(task_writer, "MOST_AGE_MS", _FOR_EVER_MS),
            mock.patch.object(task_writer, "MOST_IDLE_MS", _FOR_EVER_MS),
            mock.patch.object(task_writer, "kept_producers", self._producers),
            mock.patch.object(transactional_task, "shared_client", lambda properties: self._coordinators),
            mock.patch.object(transactional_task, "WRITER_TRANSACTIONS", self._ids),
        ):
            yield

    def close(self) -> None:
        self._coordinators.close()
        self._producers.close()


@dataclass
class Counted:
    """The counts of a batch: requests of workers and driver by Kafka's name, and the bytes of each task's message."""

    workers: Requests
    driver: Requests
    message_bytes: list[int]


@dataclass
class CountedInMemory(Counted):
    """The counts of a batch, the connections made since the first batch, and the length of the stored progress."""

    worker_connections: int
    driver_connections: int
    progress_characters: int


def requests_of(cluster: EmbeddedCluster) -> Requests:
    """Return the numbers of requests that *cluster* has answered since its start, by Kafka's name."""
    found: Requests = Counter()
    for metric in cluster.metrics():
        tags = dict(metric.tags)
        if metric.name == "RequestsPerSec" and tags["attribute"] == "Count":
            found[tags["request"]] += int(metric.value)
    return found


def run_on(
    cluster: EmbeddedCluster, *, workers: int, tasks: int, partitions: int, batches: int = 1, exactly_once: bool
) -> list[Counted]:
    """Run *batches* of *tasks*, spread over *workers*, each with a row for each of *partitions* of a new topic."""
    cluster.create_topic(TOPIC, partitions)
    # Only a task's flush ends this wait, so that the task's batches are sent together.
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": TOPIC, "kafka.linger.ms": "10000"}
    options = parse_options(given).spec
    numbers = range(partitions)
    rows = pa.RecordBatch.from_arrays([pa.array(map(str, numbers)), pa.array(numbers, pa.int32())], schema=_ROWS)
    found = []
    with ExitStack() as undo:
        client = undo.enter_context(CoordinatorClient(options.producer.here()))
        sink = ParallelSink(SinkDriver(client, SINK, TOPIC))
        of_workers = [Worker(options.producer.here()) for _ in range(workers)]
        for worker in of_workers:
            undo.callback(worker.close)
        for version in range(batches):
            begun = _settled(cluster)
            plan = sink.plan() if exactly_once else None
            planned = _settled(cluster)
            outcomes: list[TaskOutcome] = []
            for task in range(tasks):
                with of_workers[task % workers].at_work():
                    if plan is None:
                        outcomes.append(write_task(iter([rows]), options))
                    else:
                        plan.must_write(version, WRITER, BatchNumbering.OF_A_QUERY)
                        outcomes.append(write_in_transaction(iter([rows]), options, plan, version, WRITER))
            written = _settled(cluster)
            if plan is not None:
                sink.commit(plan, version, WRITER, _opened(outcomes))
            driver = _settled(cluster) - written + (planned - begun)
            if plan is not None:
                _until_over(client, plan, outcomes)
            sizes = [len(pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL)) for outcome in outcomes]
            found.append(Counted(written - planned, driver, sizes))
    return found


def _opened(outcomes: list[TaskOutcome]) -> list[OpenTransaction]:
    transactions = [each.transaction.open for each in outcomes if each.transaction is not None]
    return [each for each in transactions if each is not None]


def _until_over(client: CoordinatorClient, plan: Plan, outcomes: list[TaskOutcome]) -> None:
    """Wait until the markers of all transactions are written; otherwise the next batch would repeat requests."""
    names = [each.transaction.transactional_id for each in _opened(outcomes)]
    while not all(
        each.is_over for each in client.run(client.describe([plan.driver.transactional_id, *names])).values()
    ):
        time.sleep(0.02)


def _settled(cluster: EmbeddedCluster) -> Requests:
    """Return :func:`requests_of` once it is stable: a broker counts a request after it has sent the response."""
    found = requests_of(cluster)
    while True:
        time.sleep(0.02)
        before, found = found, requests_of(cluster)
        if found == before:
            return found


# --- brokers in memory -----------------------------------------------------------------------------------------------


@dataclass
class _Open:
    """A transactional id as its coordinator knows it."""

    transaction: Transaction
    state: str = "Empty"
    partitions: frozenset[TopicPartition] = frozenset()
    timeout_ms: int = 0


class PlayedCluster:
    """*brokers* in memory with one topic of *partitions*, for the requests of a sink's driver.

    It acts as coordinators do in transactions of version 2, one after the other; nothing fails, and no rows are stored.
    """

    def __init__(self, brokers: int, partitions: int) -> None:
        self.brokers = brokers
        self.partitions = partitions
        self.clock = FakeClock()
        #: Name of the client → its requests.
        self.requests: dict[str, Requests] = defaultdict(Counter)
        self._selectables: dict[str, list[FakeSelectable]] = defaultdict(list)
        self._ids: dict[str, _Open] = {}
        self._of_coordinator: dict[int, set[str]] = {}
        self._offsets: dict[int, tuple[int, str]] = {}
        self._pending: dict[int, tuple[int, str]] = {}

    def connections(self, name: str) -> int:
        """Return the number of connections that the clients of this name have made."""
        return sum(len(selectable.connects) for selectable in self._selectables[name])

    @property
    def progress_characters(self) -> int:
        """Return the length of the metadata of all committed offsets."""
        return sum(len(text) for _, text in self._offsets.values())

    def client(self, name: str) -> CoordinatorClient:
        """Return a client whose requests are counted under *name*."""
        selectable = FakeSelectable(self.clock, partial(self._answer, name))
        self._selectables[name].append(selectable)

        def connect(*args: Any, **options: Any) -> Any:
            return create_client(*args, **{**options, "selectable": selectable})

        with mock.patch.object(blocking, "create_client", connect):
            return CoordinatorClient({"bootstrap.servers": f"{HOST}:{FIRST_PORT}"}, clock=self.clock)

    def wrote(self, transaction: Transaction, partitions: frozenset[TopicPartition]) -> OpenTransaction:
        """Record that a task has written to *partitions* in *transaction*."""
        known = self._ids[transaction.transactional_id]
        known.state, known.partitions = "Ongoing", partitions
        self._of_coordinator.setdefault(self._coordinator(transaction.transactional_id), set()).add(
            transaction.transactional_id
        )
        return OpenTransaction(transaction, partitions)

    def _coordinator(self, transactional_id: str) -> int:
        return zlib.crc32(transactional_id.encode()) % min(self.brokers, COORDINATOR_PARTITIONS)

    def _answer(self, name: str, connection_id: str, header: RequestHeader, body: Struct) -> Struct:
        self.requests[name][kafka_name(header.api_key)] += 1
        answer = getattr(self, f"_{header.api_key.name.lower()}")
        made: Struct = answer(int(connection_id.partition("/")[0]), body)
        return made

    def _api_versions(self, node: int, body: Any) -> Any:
        return response_body(
            ApiKey.API_VERSIONS,
            api_keys=[(key, api.versions.min, api.versions.max) for key, api in APIS.items()],
            finalized_features_epoch=1,
            finalized_features=[("transaction.version", 2, 0)],
        )

    def _metadata(self, node: int, body: Any) -> Any:
        return metadata_answer(self.brokers, self.partitions if body.topics else 0)

    def _find_coordinator(self, node: int, body: Any) -> Any:
        found = []
        for key in body.coordinator_keys:
            number = 0 if body.key_type == GROUP else self._coordinator(key)
            found.append((key, number, HOST, FIRST_PORT + number))
        return response_body(ApiKey.FIND_COORDINATOR, coordinators=found)

    def _describe_configs(self, node: int, body: Any) -> Any:
        (resource,) = body.resources
        configs = [(name, _SETTINGS[name]) for name in resource.configuration_keys or ()]
        return response_body(
            ApiKey.DESCRIBE_CONFIGS,
            results=[{"resource_type": 4, "resource_name": resource.resource_name, "configs": configs}],
        )

    def _init_producer_id(self, node: int, body: Any) -> Any:
        name = body.transactional_id or ""
        known = self._ids.get(name)
        if known is None:
            known = self._ids[name] = _Open(Transaction(name, 1_000_000 + len(self._ids), 0))
        else:
            known.transaction = replace(known.transaction, epoch=known.transaction.epoch + 1)
        known.state, known.timeout_ms = "Empty", body.transaction_timeout_ms
        return response_body(
            ApiKey.INIT_PRODUCER_ID, producer_id=known.transaction.producer_id, producer_epoch=known.transaction.epoch
        )

    def _offset_fetch(self, node: int, body: Any) -> Any:
        (group,) = body.groups
        assert group.topics is not None
        (topic,) = group.topics
        parts = [_offset(number, self._offsets.get(number, (-1, ""))) for number in topic.partition_indexes]
        return response_body(
            ApiKey.OFFSET_FETCH, groups=[(group.group_id, [{"name": topic.name, "partitions": parts}])]
        )

    def _txn_offset_commit(self, node: int, body: Any) -> Any:
        (topic,) = body.topics
        self._pending = {
            part.partition_index: (part.committed_offset, part.committed_metadata or "") for part in topic.partitions
        }
        self._ids[body.transactional_id].state = "Ongoing"
        parts = list(self._pending)
        return response_body(ApiKey.TXN_OFFSET_COMMIT, topics=[(topic.name, parts)])

    def _end_txn(self, node: int, body: Any) -> Any:
        known = self._ids[body.transactional_id]
        if known.state == "Ongoing":
            known.state = "CompleteCommit" if body.committed else "CompleteAbort"
            known.transaction = replace(known.transaction, epoch=known.transaction.epoch + 1)
            self._of_coordinator.get(self._coordinator(body.transactional_id), set()).discard(body.transactional_id)
            if body.transactional_id.endswith(".driver"):
                if body.committed:
                    self._offsets |= self._pending
                self._pending = {}
        return response_body(
            ApiKey.END_TXN, producer_id=known.transaction.producer_id, producer_epoch=known.transaction.epoch
        )

    def _list_transactions(self, node: int, body: Any) -> Any:
        names = self._of_coordinator.get(node, set())
        return response_body(
            ApiKey.LIST_TRANSACTIONS,
            transaction_states=[
                (name, self._ids[name].transaction.producer_id, self._ids[name].state) for name in names
            ],
        )

    def _list_offsets(self, node: int, body: Any) -> Any:
        # No transaction is open.
        return response_body(
            ApiKey.LIST_OFFSETS,
            topics=[
                (topic.name, [{"partition_index": each.partition_index, "offset": _END} for each in topic.partitions])
                for topic in body.topics
            ],
        )

    def _describe_transactions(self, node: int, body: Any) -> Any:
        states: list[Any] = []
        for name in body.transactional_ids:
            assert self._coordinator(name) == node
            known = self._ids.get(name)
            if known is None:
                unknown: Any = (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, name, "", 0, 0, 0, 0, [])
                states.append(unknown)
                continue
            topics = [(TOPIC, sorted(part.partition for part in known.partitions))]
            states.append(
                {
                    "transactional_id": name,
                    "transaction_state": known.state,
                    "producer_id": known.transaction.producer_id,
                    "producer_epoch": known.transaction.epoch,
                    "transaction_timeout_ms": known.timeout_ms,
                    "topics": topics if known.state == "Ongoing" else [],
                }
            )
        return response_body(ApiKey.DESCRIBE_TRANSACTIONS, transaction_states=states)


def _offset(partition: int, known: tuple[int, str]) -> Any:
    return {"partition_index": partition, "committed_offset": known[0], "metadata": known[1]}


@cache
def metadata_answer(brokers: int, partitions: int) -> Any:
    """Return the Metadata response of *brokers* with one topic of *partitions*, each with three replicas."""
    found = []
    for number in range(partitions):
        replicas = [(number + copy) % brokers for copy in range(min(3, brokers))]
        found.append(
            {
                "partition_index": number,
                "leader_id": replicas[0],
                "leader_epoch": 0,
                "replica_nodes": replicas,
                "isr_nodes": replicas,
            }
        )
    return response_body(
        ApiKey.METADATA,
        brokers=[(number, HOST, FIRST_PORT + number) for number in range(brokers)],
        cluster_id="kafkalite-bench-scale1",
        controller_id=0,
        topics=[{"name": TOPIC, "topic_id": _TOPIC_ID, "partitions": found}] if partitions else [],
    )


def run_in_memory(*, brokers: int, partitions: int, tasks: int, workers: int, batches: int) -> list[CountedInMemory]:
    """Run *batches* of *tasks*, spread over *workers*; count all requests of parallel batches except Produce."""
    cluster = PlayedCluster(brokers, partitions)
    found = []
    with ExitStack() as undo:
        sink = ParallelSink(SinkDriver(undo.enter_context(cluster.client("driver")), SINK, TOPIC, clock=cluster.clock))
        of_workers = [
            (undo.enter_context(cluster.client("workers")), WriterTransactions(cluster.clock)) for _ in range(workers)
        ]
        for version in range(batches):
            cluster.requests.clear()
            plan = sink.plan()
            plan.must_write(version, WRITER, BatchNumbering.OF_A_QUERY)
            written = []
            for task in range(tasks):
                client, ids = of_workers[task % workers]
                touched = frozenset({TopicPartition(TOPIC, task % partitions)})
                transaction = ids.begin(client, plan, version)
                written.append(cluster.wrote(transaction, touched))
                ids.wrote(plan.sink, transaction, dict.fromkeys(touched, _END))
            sink.commit(plan, version, WRITER, written)
            counted = CountedInMemory(
                cluster.requests["workers"],
                cluster.requests["driver"],
                [],
                cluster.connections("workers"),
                cluster.connections("driver"),
                cluster.progress_characters,
            )
            found.append(counted)
    return found


def run_atomic_in_memory(*, brokers: int, partitions: int, batches: int) -> list[Requests]:
    """Run *batches* that are one transaction each; return the driver's requests of each."""
    cluster = PlayedCluster(brokers, partitions)
    found = []
    with cluster.client("driver") as client:
        driver = SinkDriver(client, SINK, TOPIC, clock=cluster.clock)
        sink = AtomicSink(driver)

        def write_rows(plan: Plan) -> list[TaskRows]:
            written = cluster.wrote(plan.driver, frozenset({TopicPartition(TOPIC, 0)}))
            return [dict.fromkeys(written.partitions, RowRange(0, 0))]

        for version in range(batches):
            cluster.requests.clear()
            sink.write(version, WRITER, BatchNumbering.OF_A_QUERY, write_rows, attempts=1)
            if driver.remembered.ahead is not None:
                # In a sink a separate thread makes these requests for the next batch.
                driver.remembered.ahead()
            found.append(cluster.requests["driver"])
    return found
