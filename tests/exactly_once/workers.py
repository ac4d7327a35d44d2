"""Processes that run tasks as Spark's Python workers do: each runs one task at a time, until its driver ends.

A worker whose driver is dead finishes its task (and so still writes as a zombie), and then exits.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from kafka_sink import ProducerRecord
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import AttemptError, Plan, RowRange
from kafka_sink.exactly_once.transactions import OpenTransaction, Transaction, writer_id
from kafka_sink.exactly_once.writing import WriterTransactions
from kafka_sink.producer import config as producer_config
from tests.exactly_once.world import open_producer

Begin = Callable[[CoordinatorClient, Plan, "Task"], Transaction]


class TaskFailed(AttemptError):
    """The injected failure of an attempt at a task, which its next attempt does not have."""


@dataclass(frozen=True)
class Task:
    """Rows (partition, value) of one task, and the behaviour of this attempt at it."""

    plan: Plan
    version: int
    index: int
    topic: str
    rows: tuple[tuple[int, bytes], ...]
    is_atomic: bool
    fails: bool
    pause_s: float
    has_fixed_id: bool


def run_task(
    bootstrap: str, client: CoordinatorClient, ids: WriterTransactions, task: Task
) -> tuple[OpenTransaction, dict[TopicPartition, RowRange]]:
    properties = {"bootstrap.servers": bootstrap, "linger.ms": 0, "max.block.ms": 20_000, "delivery.timeout.ms": 40_000}
    if task.is_atomic:
        transaction = task.plan.driver
    elif task.has_fixed_id:
        # A naive sink uses the same id for all attempts at a task, in any process.
        name = writer_id(task.plan.sink, bytes(6), task.index)
        transaction = client.run(client.init_producer_id(name, task.plan.timeout_ms))
    else:
        transaction = ids.begin(client, task.plan, task.version)
    producer = open_producer(producer_config.read(properties), transaction, task.plan.transaction_version)
    try:
        futures = []
        for number, (partition, value) in enumerate(task.rows):
            if number == len(task.rows) // 2:
                producer.flush()
                time.sleep(task.pause_s)
                if task.fails:
                    raise TaskFailed(f"task {task.index}")
            futures.append(producer.send(ProducerRecord(task.topic, value, partition=partition)))
        producer.flush()
        offsets: dict[TopicPartition, list[int]] = defaultdict(list)
        for future in futures:
            written = future.result(0)
            offsets[TopicPartition(task.topic, written.partition)].append(written.offset)
        rows = {place: RowRange(min(those), max(those) + 1) for place, those in offsets.items()}
    finally:
        producer.abandon()
    if not (task.is_atomic or task.has_fixed_id):
        ids.wrote(task.plan.sink, transaction, {place: each.end for place, each in rows.items()})
    return OpenTransaction(transaction, frozenset(rows)), rows


def _serve(bootstrap: str, connection: Connection) -> None:
    ids = WriterTransactions()
    with CoordinatorClient({"bootstrap.servers": bootstrap}, timeout_ms=20_000) as client:
        while True:
            try:
                task = connection.recv()
                answer: Any
                try:
                    answer = run_task(bootstrap, client, ids, task)
                except TaskFailed as failed:
                    answer = failed
                except Exception as error:
                    answer = RuntimeError(f"{type(error).__name__}: {error}")
                connection.send(answer)
            except (EOFError, OSError):
                return


class Workers:
    """*count* worker processes; they must be forked before this process has threads."""

    def __init__(self, bootstrap: str, count: int) -> None:
        self.connections: list[Connection] = []
        self.pids: list[int] = []
        for _ in range(count):
            ours, theirs = multiprocessing.Pipe()
            pid = os.fork()
            if pid == 0:
                ours.close()
                for other in self.connections:
                    other.close()
                try:
                    _serve(bootstrap, theirs)
                finally:
                    os._exit(0)
            theirs.close()
            self.connections.append(ours)
            self.pids.append(pid)
