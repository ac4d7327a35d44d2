"""One driver process of a sequence, in the role of Spark: a checkpoint of planned and committed batches, tasks in
worker processes, and a protocol of exactly once. It resumes from the checkpoint, and can die or freeze at a point.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Final

from kafka_sink.client.requests.outcomes import CoordinatorKey, CoordinatorRequest, Done, Errors
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import OffsetAndMetadata, TopicPartition, TransactionVersion
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import BatchNumbering, FencedError, Plan
from kafka_sink.exactly_once.protocols import AtomicSink, ParallelSink, TaskRows
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.transactions import (
    OpenTransaction,
    Transaction,
    TransactionDescription,
    driver_id,
    sink_id,
)
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kafka_sink.protocol.messages.metadata import GROUP
from kafka_sink.protocol.schema import Struct
from tests.exactly_once.workers import Task, Workers

#: The number of a driver's worker processes, each of which runs one task at a time.
WORKERS: Final = 5
WRITER: Final = "the-query"
FENCED: Final = 3
FAILED: Final = 4

#: The points at which a driver can end. ``anytime`` is a random time after the tasks, ``mid-end`` is between the ends
#: of a batch's transactions, or with a single one after the request and before its response.
POINTS: Final = (
    "mid-tasks",
    "after-tasks",
    "before-verify",
    "before-decision",
    "between-offsets-and-end",
    "after-decision",
    "mid-end",
    "after-end",
    "before-commit-log",
    "anytime",
)

#: Points that do not exist in a batch with one transaction: it has no verification, and its end is the decision.
NOT_IN_ATOMIC: Final = ("before-verify", "after-end")


def points_of(protocol: str) -> list[str]:
    return [point for point in POINTS if protocol == "parallel" or point not in NOT_IN_ATOMIC]


@dataclass(frozen=True)
class Load:
    """*rows* per batch over *partitions*; each run of a batch draws its number of tasks from *tasks*."""

    rows: int = 40
    partitions: int = 4
    tasks: tuple[int, ...] = (1, 2, 3, 4, 5, 6)

    def rows_of(self, version: int) -> list[bytes]:
        return [b"%d-%d" % (version, number) for number in range(self.rows)]


@dataclass(frozen=True)
class LifeSettings:
    """The settings of a driver. *fault* is the point at which it ends, in its batch number *at* or the next one that
    reaches the point; None: it exits after *batches*.

    *transaction_version* replaces the cluster's own. A negative *control* omits a part that the protocol needs:
    "no-record", "id-per-task" or "plain-offsets".
    """

    bootstrap: str
    topic: str
    sink: str
    protocol: str
    checkpoint: Path
    seed: int
    batches: int
    fault: str | None
    at: int
    freezes: bool
    control: str | None = None
    transaction_version: TransactionVersion | None = None
    load: Load = Load()


class DyingClient(CoordinatorClient):
    """A client that dies between the requests of a driver, and omits the requests that a negative control omits."""

    def __init__(self, life: Life, settings: LifeSettings) -> None:
        super().__init__({"bootstrap.servers": settings.bootstrap}, timeout_ms=20_000)
        self._life = life
        self._settings = settings
        #: Whether the driver is committing a batch.
        self.is_committing = False

    def transaction_version(self) -> TransactionVersion:
        return self._settings.transaction_version or super().transaction_version()

    async def describe(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        if self.is_committing:
            self._life.reach("before-verify")
        return await super().describe(transactional_ids)

    async def commit_offsets(
        self,
        transaction: Transaction,
        transaction_version: TransactionVersion,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        before: TopicPartition,
    ) -> OffsetAndMetadata | None:
        if not self.is_committing:
            return await super().commit_offsets(transaction, transaction_version, group, offsets, before)
        self._life.reach("before-decision")
        if self._settings.control == "no-record":
            found = await self.fetch_offsets(group, before.topic, [before.partition], require_stable=False)
            return found.get(before.partition)
        committed = await super().commit_offsets(transaction, transaction_version, group, offsets, before)
        self._life.reach("between-offsets-and-end")
        return committed

    async def end(
        self, transactions: Iterable[Transaction], transaction_version: TransactionVersion, *, commit: bool
    ) -> dict[Transaction, ErrorCode]:
        given = list(transactions)
        if not (self.is_committing and commit):
            return await super().end(given, transaction_version, commit=commit)
        if [each.transactional_id for each in given] == [driver_id(sink_id(self._settings.sink, self._settings.topic))]:
            if self._settings.control in ("no-record", "plain-offsets"):
                return {given[0]: ErrorCode.NONE}
            if self._settings.protocol == "atomic":
                self._life.reach_soon("mid-end", 0.003)
            outcomes = await super().end(given, transaction_version, commit=commit)
            self._life.reach("after-decision")
            return outcomes
        half = await super().end(given[: len(given) // 2], transaction_version, commit=commit)
        self._life.reach("mid-end")
        rest = await super().end(given[len(given) // 2 :], transaction_version, commit=commit)
        self._life.reach("after-end")
        return {**half, **rest}


@dataclass(frozen=True)
class PlainOffsetCommit(CoordinatorRequest[None]):
    """A commit of offsets without a transaction."""

    api_key = ApiKey.OFFSET_COMMIT

    group: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata]

    @property
    def coordinator(self) -> CoordinatorKey:
        return GROUP, self.group

    @property
    def max_version(self) -> int:
        return 8

    def build(self, version: int) -> Struct:
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset.offset, committed_metadata=offset.metadata
                    )
                ],
            )
            for (topic, partition), offset in self.offsets.items()
        ]
        return OffsetCommitRequest(group_id=self.group, topics=topics)

    def read(self, body: Struct) -> Done[None] | Errors[None]:
        code = self._expect(body, OffsetCommitResponse).topics[0].partitions[0].error_code
        return self._read_code(code, None, "the offsets could not be committed")


class PlainOffsetsClient(DyingClient):
    """A client that commits offsets without a transaction, as a consumer does, so that no fence prevents it."""

    async def commit_offsets(
        self,
        transaction: Transaction,
        transaction_version: TransactionVersion,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        before: TopicPartition,
    ) -> OffsetAndMetadata | None:
        # The offsets of SinkDriver.prove, which are never committed, stay in a transaction.
        if not self.is_committing or any("|nobody|" in each.metadata for each in offsets.values()):
            return await super().commit_offsets(transaction, transaction_version, group, offsets, before)
        found = await self.fetch_offsets(group, before.topic, [before.partition], require_stable=False)
        self._life.reach("before-decision")
        await self.ask(PlainOffsetCommit(group, offsets))
        return found.get(before.partition)


class Life:
    """A driver; it runs in a separate process."""

    def __init__(self, settings: LifeSettings) -> None:
        self._settings = settings
        self._random = random.Random(settings.seed)
        self._workers = Workers(settings.bootstrap, WORKERS)
        self._busy: set[int] = set()
        self._batch = 0
        self._is_past_fault = False
        client = PlainOffsetsClient if settings.control == "plain-offsets" else DyingClient
        self._client = client(self, settings)
        #: A control without a record in the driver's transaction has no progress that a query could require.
        self._numbers = BatchNumbering.OF_AN_APPLICATION if settings.control else BatchNumbering.OF_A_QUERY
        kind = ParallelSink if settings.protocol == "parallel" else AtomicSink
        self._sink = kind(SinkDriver(self._client, settings.sink, settings.topic))

    def reach(self, point: str) -> None:
        """Kill or freeze this process if *point* is that of its fault."""
        settings = self._settings
        if point == settings.fault and self._batch >= settings.at and not self._is_past_fault:
            self._is_past_fault = True
            os.kill(os.getpid(), signal.SIGSTOP if settings.freezes else signal.SIGKILL)

    def reach_soon(self, point: str, within_s: float) -> None:
        if point == self._settings.fault:
            threading.Timer(self._random.uniform(0, within_s), self.reach, [point]).start()

    def run(self) -> int:
        for batch in range(self._settings.batches):
            self._batch = batch
            version = self._next_version()
            (self._settings.checkpoint / f"planned-{version}").touch()
            try:
                self._run_batch(version)
            except FencedError:
                return FENCED
            self.reach("before-commit-log")
            (self._settings.checkpoint / f"committed-{version}").touch()
        return 0

    def _next_version(self) -> int:
        done = [int(path.name.split("-")[1]) for path in self._settings.checkpoint.glob("committed-*")]
        return max(done, default=-1) + 1

    def _run_batch(self, version: int) -> None:
        if isinstance(self._sink, AtomicSink):
            self._client.is_committing = False

            def write_rows(plan: Plan) -> list[TaskRows]:
                self._client.is_committing = False
                written = self._run_tasks(plan, version, self._by_partition(version), is_atomic=True)
                self._tasks_done()
                return [rows for _, rows in written]

            self._sink.write(version, WRITER, self._numbers, write_rows, attempts=3)
            return
        self._client.is_committing = False
        plan = self._sink.plan()
        if not plan.must_write(version, WRITER, self._numbers):
            return
        count = self._random.choice(self._settings.load.tasks)
        rows = self._rows(version)
        written = self._run_tasks(plan, version, [tuple(rows[index::count]) for index in range(count)], is_atomic=False)
        self._tasks_done()
        self._sink.commit(plan, version, WRITER, [transaction for transaction, _ in written])

    def _tasks_done(self) -> None:
        self.reach("after-tasks")
        self._client.is_committing = True
        self.reach_soon("anytime", 0.05)

    def _rows(self, version: int) -> list[tuple[int, bytes]]:
        load = self._settings.load
        return [(self._random.randrange(load.partitions), value) for value in load.rows_of(version)]

    def _by_partition(self, version: int) -> list[tuple[tuple[int, bytes], ...]]:
        load = self._settings.load
        count = min(self._random.choice(load.tasks), load.partitions)
        rows = self._rows(version)
        tasks = [tuple(row for row in rows if row[0] % count == index) for index in range(count)]
        return [task for task in tasks if task]

    def _run_tasks(
        self, plan: Plan, version: int, parts: list[tuple[tuple[int, bytes], ...]], *, is_atomic: bool
    ) -> list[tuple[OpenTransaction, TaskRows]]:
        """Return the result of each task's first successful attempt; slow attempts get a second one concurrently."""
        waiting = [self._task(plan, version, index, rows, is_atomic) for index, rows in enumerate(parts)]
        results: dict[int, tuple[OpenTransaction, TaskRows]] = {}
        running: dict[int, Task] = {}
        while len(results) < len(parts):
            waiting = [task for task in waiting if task.index not in results]
            self._give_out(waiting, running)
            if results:
                self.reach("mid-tasks")
            elif self._settings.fault == "mid-tasks":
                time.sleep(self._random.uniform(0, 0.03))
                self.reach("mid-tasks")
            for ready in wait(self._workers.connections, timeout=5):
                worker = self._workers.connections.index(ready)  # type: ignore[arg-type]
                answer = self._workers.connections[worker].recv()
                self._busy.discard(worker)
                task = running.pop(worker, None)
                if task is None or task.index in results:
                    continue
                if isinstance(answer, tuple):
                    results[task.index] = answer
                elif is_atomic:
                    raise answer
                elif not any(other.index == task.index for other in [*running.values(), *waiting]):
                    waiting.append(replace(task, pause_s=0.0, fails=False))
        return [results[index] for index in range(len(parts))]

    def _give_out(self, waiting: list[Task], running: dict[int, Task]) -> None:
        for worker, connection in enumerate(self._workers.connections):
            if waiting and worker not in self._busy:
                task = running[worker] = waiting.pop(0)
                connection.send(task)
                self._busy.add(worker)
                if task.pause_s > 0 and not task.is_atomic:
                    waiting.append(replace(task, pause_s=0.0, fails=False))

    def _task(self, plan: Plan, version: int, index: int, rows: tuple[tuple[int, bytes], ...], is_atomic: bool) -> Task:
        chance = self._random.random()
        return Task(
            plan=plan,
            version=version,
            index=index,
            topic=self._settings.topic,
            rows=rows,
            is_atomic=is_atomic,
            fails=chance < 0.06,
            pause_s=self._random.uniform(0.05, 0.8) if 0.06 < chance < 0.18 else 0.0,
            has_fixed_id=self._settings.control == "id-per-task",
        )
