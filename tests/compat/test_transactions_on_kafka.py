"""kafkalite's transactions on a real Kafka and on the embedded broker, at both transaction versions: librdkafka reads
the committed records."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from confluent_kafka import KafkaException as ForeignError
from confluent_kafka import Producer as ForeignProducer
from confluent_kafka import TopicPartition as ForeignPartition

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.coordinator.store import FILE_NAME
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.client.blocking.blocking import BlockingClient
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.columns.record_columns import BinaryColumn, ColumnChunk
from kafka_sink.common.config import parse
from kafka_sink.common.errors import (
    ApiError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionStateError,
)
from kafka_sink.common.model import ConsumerGroupMetadata, OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition
from kafka_sink.producer.transactions.manager import TransactionManager
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from tests.compat.kafka_version import is_at_least, requires_kafka
from tests.golden.make_transaction_answers import ANSWERS
from tests.support import amounts, transactional_worker
from tests.support.forks import FORKS
from tests.support.kafka_tools import run_kafka_tool
from tests.support.parts import producer_with_parts
from tests.support.readback import read_topic, read_values
from tests.support.transaction_script import ask_everything
from tests.support.transactional_worker import RECORDS_PER_ROUND
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.real_kafka import RealKafka

ANSWERS_OF_4_3 = requires_kafka("4.3", "the APIs and answers that were recorded")
FEATURE_TOOL = "org.apache.kafka.tools.FeatureCommand"
LAST_EPOCH = 2**15 - 2
#: How often a worker process is killed, and the rounds that it would write otherwise.
LIVES = amounts.WORKER_LIVES
ENDLESS = 1_000_000
#: Kafka 4.0 and later must be downgraded to version 1; older ones have no other.
LOWERED = pytest.mark.skipif(not amounts.LONG and is_at_least("4.0"), reason="only with --long")
VERSION_2 = requires_kafka("4.0", "transactions version 2 (KIP-890, part 2)")


@dataclass(frozen=True)
class Target:
    """The broker of a test: a real Kafka, or the embedded broker."""

    bootstrap_servers: str
    #: The finalized transaction.version.
    level: int
    #: None for the embedded broker.
    kafka: RealKafka | None
    #: The folder of the partitions' directories.
    logs: Path


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("Kafka", 2), id="Kafka, version 2", marks=VERSION_2),
        pytest.param(("Kafka", 1), id="Kafka, version 1", marks=LOWERED),
        *(
            pytest.param((where, level), id=f"{where}, version {level}")
            for where, level in (("embedded", 2), ("embedded", 1))
        ),
        pytest.param(("embedded, 3 nodes", 2), id="embedded, 3 nodes, version 2", marks=amounts.only_long),
    ],
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    where, level = request.param
    if where == "Kafka":
        yield from _real(request.getfixturevalue("real_kafka"), level)
        return
    directory = tmp_path_factory.mktemp("embedded")
    config = replace(
        BrokerConfig(), transaction_version=level, transaction_abort_timed_out_transaction_cleanup_interval_ms=100
    )
    with EmbeddedCluster(nodes=3 if "3" in where else 1, config=config, data_dir=directory) as embedded:
        yield Target(embedded.bootstrap_servers, level, None, directory / "logs")


def _real(real_kafka: RealKafka, level: int) -> Iterator[Target]:
    """Yield the real Kafka at the transaction.version *level*; restore it afterwards."""
    server = ("--bootstrap-server", real_kafka.bootstrap_servers)
    is_lowered = level == 1 and is_at_least("4.0")
    if is_lowered:
        run_kafka_tool(FEATURE_TOOL, *server, "downgrade", "--feature", "transaction.version=1")
    yield Target(real_kafka.bootstrap_servers, level, real_kafka, real_kafka.partition_directory("logs", 0).parent)
    if is_lowered:
        run_kafka_tool(FEATURE_TOOL, *server, "upgrade", "--feature", "transaction.version=2")


@pytest.fixture
def topic(cluster: Target) -> str:
    name = f"transactions-{uuid.uuid4().hex[:8]}"
    with AdminClient(cluster.bootstrap_servers) as admin:
        admin.create_topic(name, partitions=3)
    return name


@pytest.fixture
def transactional_id() -> str:
    return f"id-{uuid.uuid4().hex[:8]}"


class Producers:
    """Creates producers, and closes them without waiting at the end of the test."""

    def __init__(self, bootstrap_servers: str, level: int) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._level = level
        self._made: dict[KafkaProducer, TransactionManager] = {}

    def __call__(self, transactional_id: str, **properties: Any) -> KafkaProducer:
        given = {name.replace("_", "."): value for name, value in properties.items()}
        producer, pipeline = producer_with_parts(
            {"bootstrap.servers": self._bootstrap_servers, "transactional.id": transactional_id, **given}
        )
        assert pipeline.transactions is not None
        self._made[producer] = pipeline.transactions
        producer.init_transactions()
        assert pipeline.transactions.transaction_version == self._level
        return producer

    def identity(self, producer: KafkaProducer) -> ProducerIdAndEpoch:
        """Return the current producer id and epoch of *producer*."""
        return self._made[producer].identity

    def close(self) -> None:
        for producer in self._made:
            producer.close(timeout=0)


@pytest.fixture
def make_producer(cluster: Target) -> Iterator[Producers]:
    producers = Producers(cluster.bootstrap_servers, cluster.level)
    yield producers
    producers.close()


def values(cluster: Target, topic: str, isolation: str = "read_committed") -> list[bytes]:
    return sorted(read_values(cluster.bootstrap_servers, topic, isolation=isolation))


def committed_offset(cluster: Target, topic: str, group: str, isolation: str = "read_committed") -> int:
    """Return the committed offset; with read_committed wait until no transaction is open, because brokers write the end
    of a transaction to the group after their response to EndTxn."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "isolation.level": isolation}
    )
    try:
        (place,) = consumer.committed([ForeignPartition(topic, 0)], timeout=30)
        offset: int = place.offset
        return offset
    finally:
        consumer.close()


def send_all(producer: KafkaProducer, topic: str, name: str, count: int = 30) -> list[bytes]:
    sent = [f"{name}-{number}".encode() for number in range(count)]
    for number, value in enumerate(sent):
        producer.send(ProducerRecord(topic, value, partition=number % 3))
    return sent


def chunk_of(name: str, count: int = 3000) -> tuple[ColumnChunk, list[bytes]]:
    rows = [f"{name}-{number}".encode() for number in range(count)]
    return ColumnChunk(value=BinaryColumn.from_arrow(pa.array(rows, pa.binary()))), rows


@pytest.mark.behaviour("Transaction coordinator", "Every request is answered in every state as a real Kafka answers it")
@pytest.mark.behaviour(
    "Same answers as Apache Kafka", "Requests of transactions are answered as Kafka does, in both transaction versions"
)
@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param(("Kafka", 2), id="Kafka, version 2", marks=ANSWERS_OF_4_3),
        pytest.param(("Kafka", 1), id="Kafka, version 1", marks=ANSWERS_OF_4_3),
        pytest.param(("embedded", 2), id="embedded, version 2"),
        pytest.param(("embedded", 1), id="embedded, version 1"),
    ],
    indirect=True,
)
def test_every_answer_is_kafkas(cluster: Target, topic: str, figure: Callable[..., None]) -> None:
    expected = json.loads(ANSWERS.read_text())["answers"]
    answers = ask_everything(cluster.bootstrap_servers, topic)
    different = {asked: (answer, expected[asked]) for asked, answer in answers.items() if answer != expected[asked]}
    assert different == {}
    assert answers.keys() == expected.keys()
    figure("answers that differ from Apache Kafka 4.3.0's in any field", f"0 of {len(answers)}")


@pytest.mark.behaviour(
    "Transactions", "Readers of committed records see what was committed, and nothing of what was aborted"
)
def test_what_was_committed_is_read_and_what_was_aborted_is_not(
    cluster: Target, make_producer: Producers, topic: str, transactional_id: str
) -> None:
    producer = make_producer(transactional_id)
    expected: list[bytes] = []
    written = 0
    for number in range(4):
        producer.begin_transaction()
        sent = send_all(producer, topic, f"kept-{number}")
        chunk, rows = chunk_of(f"rows-{number}")
        producer.send_columns(topic, chunk, np.arange(len(rows), dtype=np.int32) % 3)
        producer.commit_transaction()
        expected += sent + rows
        producer.begin_transaction()
        written += len(send_all(producer, topic, f"dropped-{number}"))
        producer.flush()
        producer.abort_transaction()
    assert values(cluster, topic) == sorted(expected)
    assert len(values(cluster, topic, "read_uncommitted")) == len(expected) + written


def test_nothing_is_seen_before_the_commit(
    cluster: Target, make_producer: Producers, topic: str, transactional_id: str
) -> None:
    producer = make_producer(transactional_id)
    producer.begin_transaction()
    sent = send_all(producer, topic, "pending")
    producer.flush()
    assert values(cluster, topic) == []
    producer.commit_transaction()
    assert values(cluster, topic) == sorted(sent)


@pytest.mark.behaviour("Transactions in the log", "Kafka's own tool finds the transactional batches and markers")
def test_kafkas_own_tool_finds_transactional_batches_and_markers(
    cluster: Target, make_producer: Producers, topic: str, transactional_id: str
) -> None:
    producer = make_producer(transactional_id)
    producer.begin_transaction()
    send_all(producer, topic, "kept")
    producer.commit_transaction()
    producer.close()
    log = next((cluster.logs / f"{topic}-0").glob("*.log"))
    dump = partial(run_kafka_tool, "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", str(log))
    # Brokers write the markers after their response to EndTxn.
    until("the marker", lambda: "endTxnMarker: COMMIT" in dump())
    batches = [line for line in dump().splitlines() if line.startswith("baseOffset")]
    assert all("isTransactional: true" in line and "isvalid: true" in line for line in batches)


@pytest.mark.behaviour("Kafka's Java clients", "kafka-transactions.sh finds and ends a hanging transaction")
@pytest.mark.behaviour(
    "Kafka's Java clients", "A transaction that no coordinator knows of is found, ended and read past"
)
def test_kafkas_own_tool_finds_and_ends_a_hanging_transaction(tmp_path: Path) -> None:
    """A transaction that no coordinator knows any more, so that it holds the last stable offset back."""
    tool = "org.apache.kafka.tools.TransactionsCommand"
    hour_ago = int(time.time() * 1000) - 3_600_000
    with EmbeddedCluster(data_dir=tmp_path) as embedded:
        embedded.create_topic("t", partitions=1)
        with KafkaProducer({"bootstrap.servers": embedded.bootstrap_servers, "transactional.id": "lost"}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(ProducerRecord("t", b"dropped", timestamp=hour_ago))
            producer.flush()
            producer.close(timeout=0)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as file:
        file.execute("DELETE FROM transactions")
    with EmbeddedCluster(data_dir=tmp_path) as embedded:
        server = ("--bootstrap-server", embedded.bootstrap_servers)
        with KafkaProducer({"bootstrap.servers": embedded.bootstrap_servers}) as plain:
            plain.send(ProducerRecord("t", b"kept")).result()
        assert [message.value for message in read_topic(embedded.bootstrap_servers, "t")] == []
        found = run_kafka_tool(tool, *server, "find-hanging", "--broker-id", "1")
        assert [line.split()[:2] for line in found.splitlines()[1:] if line.strip()] == [["t", "0"]]
        run_kafka_tool(tool, *server, "abort", "--topic", "t", "--partition", "0", "--start-offset", "0")
        assert [message.value for message in read_topic(embedded.bootstrap_servers, "t")] == [b"kept"]


def test_offsets_are_committed_with_the_transaction(
    cluster: Target, make_producer: Producers, topic: str, transactional_id: str
) -> None:
    producer = make_producer(transactional_id)
    group = f"group-{transactional_id}"
    producer.begin_transaction()
    send_all(producer, topic, "kept")
    producer.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(17, "note")}, group)
    producer.commit_transaction()
    assert committed_offset(cluster, topic, group) == 17
    producer.begin_transaction()
    producer.send_offsets_to_transaction({TopicPartition(topic, 0): 99}, group)
    producer.abort_transaction()
    assert committed_offset(cluster, topic, group) == 17


def test_a_member_that_the_group_does_not_know_can_only_abort(
    cluster: Target, make_producer: Producers, topic: str, transactional_id: str
) -> None:
    producer = make_producer(transactional_id)
    stranger = ConsumerGroupMetadata(f"group-{transactional_id}", generation_id=7, member_id="nobody")
    producer.begin_transaction()
    send_all(producer, topic, "dropped")
    with pytest.raises(TransactionAbortableError, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION"):
        producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, stranger)
    with pytest.raises(TransactionAbortableError):
        producer.commit_transaction()
    producer.abort_transaction()
    producer.begin_transaction()
    sent = send_all(producer, topic, "kept")
    producer.commit_transaction()
    assert values(cluster, topic) == sorted(sent)


@pytest.mark.behaviour("Transactions", "A second producer with the same transactional.id fences the first")
def test_a_second_producer_fences_the_first(
    cluster: Target, make_producer: Producers, topic: str, transactional_id: str
) -> None:
    first = make_producer(transactional_id)
    first.begin_transaction()
    send_all(first, topic, "open")
    first.flush()
    second = make_producer(transactional_id)
    second.begin_transaction()
    sent = send_all(second, topic, "second")
    second.commit_transaction()
    with pytest.raises(ProducerFencedError):
        first.commit_transaction()
    with pytest.raises(ProducerFencedError, match="must be closed"):
        first.begin_transaction()
    assert values(cluster, topic) == sorted(sent)


def test_a_fenced_producer_that_goes_on_sending_writes_nothing(
    cluster: Target, make_producer: Producers, topic: str, transactional_id: str
) -> None:
    first = make_producer(transactional_id)
    make_producer(transactional_id)
    first.begin_transaction()
    # The producer may learn that it is fenced before it has sent all records.
    with contextlib.suppress(ProducerFencedError):
        send_all(first, topic, "late")
    with pytest.raises(KafkaError):
        first.commit_transaction()
    with pytest.raises(ProducerFencedError):
        first.abort_transaction()
    assert values(cluster, topic, "read_uncommitted") == []


def test_librdkafka_and_we_fence_each_other(
    cluster: Target, make_producer: Producers, topic: str, transactional_id: str
) -> None:
    foreign = ForeignProducer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": transactional_id})
    foreign.init_transactions(30)
    foreign.begin_transaction()
    foreign.produce(topic, b"foreign")
    foreign.flush()
    ours = make_producer(transactional_id)
    with pytest.raises(ForeignError):
        foreign.commit_transaction(30)
    ours.begin_transaction()
    sent = send_all(ours, topic, "ours")
    ours.commit_transaction()
    successor = ForeignProducer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": transactional_id})
    successor.init_transactions(30)
    ours.begin_transaction()
    ours.send(ProducerRecord(topic, b"late"))
    with pytest.raises(KafkaError):
        ours.commit_transaction()
    assert values(cluster, topic) == sorted(sent)


def test_calls_out_of_order_are_refused(
    cluster: Target, make_producer: Producers, topic: str, transactional_id: str
) -> None:
    producer = make_producer(transactional_id)
    chunk, _ = chunk_of("rows", 3)
    for attempt in (
        lambda: producer.send(ProducerRecord(topic, b"outside")),
        lambda: producer.send_columns(topic, chunk),
        producer.commit_transaction,
        producer.abort_transaction,
        producer.init_transactions,
    ):
        with pytest.raises(TransactionStateError):
            attempt()
    assert values(cluster, topic, "read_uncommitted") == []


def test_a_time_out_above_the_brokers_limit_is_explained(
    cluster: Target, make_producer: Producers, transactional_id: str
) -> None:
    with pytest.raises(ApiError, match=r"transaction\.max\.timeout\.ms"):
        make_producer(transactional_id, transaction_timeout_ms=900_001)


def test_closing_aborts_the_open_transaction(
    cluster: Target, make_producer: Producers, topic: str, transactional_id: str
) -> None:
    producer = make_producer(transactional_id)
    producer.begin_transaction()
    send_all(producer, topic, "dropped")
    producer.close()
    other = make_producer(f"{transactional_id}-other")
    other.begin_transaction()
    sent = send_all(other, topic, "kept")
    other.commit_transaction()
    # An open transaction would hold the last stable offset at its first record.
    assert values(cluster, topic) == sorted(sent)


def test_worker_killed_repeatedly_writes_each_round_exactly_once(
    cluster: Target, topic: str, transactional_id: str
) -> None:
    # The embedded broker is faster than a cluster, so the kill must come earlier.
    longest_s = 0.03 if cluster.kafka is not None else 0.003
    group = f"group-{transactional_id}"
    rng = random.Random(5)

    def work(rounds: int) -> tuple[BaseProcess, Connection]:
        tells, told = FORKS.Pipe(duplex=False)
        worker = FORKS.Process(
            target=transactional_worker.main,
            args=(cluster.bootstrap_servers, topic, group, transactional_id, rounds, told),
            daemon=True,
        )
        worker.start()
        told.close()
        return worker, tells

    for _ in range(LIVES):
        worker, tells = work(ENDLESS)
        with tells:
            for _ in range(rng.randrange(2, 6)):
                tells.recv()
            time.sleep(rng.random() * longest_s)
            worker.kill()
            worker.join()
    # The transaction of the last killed worker may still be open.
    rounds = committed_offset(cluster, topic, group, "read_uncommitted") + 3
    assert rounds > LIVES
    worker, tells = work(rounds)
    with tells:
        worker.join(120)
    assert worker.exitcode == 0
    assert committed_offset(cluster, topic, group) == rounds
    expected = [f"{number}-{item}".encode() for number in range(rounds) for item in range(RECORDS_PER_ROUND)]
    assert values(cluster, topic) == sorted(expected)


# 32,767 requests; tests/sim covers both versions with ids that begin at one of their last epochs.
@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param(("Kafka", 2), id="Kafka, version 2", marks=[VERSION_2, amounts.only_long]),
        pytest.param(("Kafka", 1), id="Kafka, version 1", marks=LOWERED),
    ],
    indirect=True,
)
def test_beyond_the_last_epoch_comes_another_id(
    cluster: Target, make_producer: Producers, topic: str, transactional_id: str
) -> None:
    exhaust_epochs(cluster, transactional_id)
    producer = make_producer(transactional_id)
    last = make_producer.identity(producer)
    assert last.epoch == LAST_EPOCH
    producer.begin_transaction()
    expected = send_all(producer, topic, "last")
    producer.commit_transaction()
    if cluster.level == 1:
        # Only an error increases the epoch; here a compacted topic refuses a record without a key.
        compacted = f"{topic}-compacted"
        with AdminClient(cluster.bootstrap_servers) as admin:
            admin.create_topic(compacted, partitions=1, configs={"cleanup.policy": "compact"})
        producer.begin_transaction()
        send_all(producer, topic, "dropped")
        producer.send(ProducerRecord(compacted, b"without a key"))
        with pytest.raises(TransactionAbortableError, match="INVALID_RECORD"):
            producer.commit_transaction()
        producer.abort_transaction()
    first = make_producer.identity(producer)
    assert first.producer_id != last.producer_id
    assert first.epoch == 0
    for number in range(3):
        producer.begin_transaction()
        expected += send_all(producer, topic, f"round-{number}")
        producer.commit_transaction()
    assert values(cluster, topic) == sorted(expected)


def exhaust_epochs(cluster: Target, transactional_id: str) -> None:
    """Let the coordinator increase the id's epoch up to the one before the last."""
    config = parse(ClientConfig, {"bootstrap.servers": cluster.bootstrap_servers})
    client = BlockingClient(config, client_id="epochs", timeout_ms=30_000)
    try:
        epoch = -1
        while epoch < LAST_EPOCH - 1:
            answer = client.request(
                None,
                ApiKey.INIT_PRODUCER_ID,
                lambda version: InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000),
            )
            assert isinstance(answer, InitProducerIdResponse)
            if answer.error_code == 0:
                epoch = answer.producer_epoch
    finally:
        client.close()
