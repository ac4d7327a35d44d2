"""Drivers of a sink, and their tasks, that run on the model: the real protocols, one request at a time.

A driver is a function of the answers that it has received (:class:`Told`), so it can be copied with the state of the
world, and needs no thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from unittest import mock

from kafka_sink.client.blocking.blocking import Exchange
from kafka_sink.client.blocking.leader_requests import LogTransaction
from kafka_sink.client.metadata.cluster import PartitionInfo
from kafka_sink.common.errors import ApiError, ErrorCode, KafkaError, error_for
from kafka_sink.common.model import Node, OffsetAndMetadata, TopicPartition, TransactionVersion
from kafka_sink.exactly_once import planning, writing
from kafka_sink.exactly_once.accepting import accept, standing
from kafka_sink.exactly_once.model import (
    AttemptError,
    BatchNumbering,
    ExactlyOnceError,
    FencedError,
    Memories,
    Plan,
    ProgressError,
    RowRange,
)
from kafka_sink.exactly_once.protocols import AtomicSink, ParallelSink
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.transactions import (
    FENCED,
    Transaction,
    TransactionDescription,
    driver_id,
    repair_id,
    sink_id,
)
from kafka_sink.exactly_once.transactions import OpenTransaction as WrittenTransaction
from kafka_sink.exactly_once.writing import WriterTransactions
from tests.exploration.model import GROUP, PARTITIONS, TOPIC, Offset, offsets_of

T = TypeVar("T")

TIMEOUT_MS: Final = 20_000
_FENCE_TIMEOUT_MS: Final = 1000
#: The time that passes in a pause: longer than any wait for brokers.
_PAUSE_MS: Final = 2500

#: Added to a driver's number for the host on which its first task has a copy.
_COPY: Final = 100

#: Read-only requests.
LOOKS: Final = frozenset({"describe", "list", "offsets", "end_offsets", "open", "cluster"})
PAUSE: Final = ("pause",)
#: The prefix of requests to the second of two clusters.
ELSEWHERE: Final = "elsewhere"
#: The answer with which a task fails.
FAILED: Final = ErrorCode.NETWORK_EXCEPTION
_LOGS: Final = tuple(PartitionInfo(TOPIC, place.partition, Node(1, "broker", 1)) for place in PARTITIONS)
#: The query that all drivers run.
_WRITER: Final = "query"


class Settings(NamedTuple):
    """The settings of an exploration: a *protocol*, a transaction *version*, with or without two-phase commit, and the
    *width* of a batch: its tasks, each of which writes to one partition.

    *others* is a further condition or event of each run:

    * "apart": every batch is planned by one process and committed by another, as by Spark's data sources.
    * "copies": the first task runs on two hosts. In the parallel protocol Spark takes one of them. In the atomic one
      the copy waits, and a task may fail.
    * "last epochs": producer ids reach their last epoch.
    * "two clusters": each process writes each batch to two clusters, under one name.
    * "moved": a query runs on two clusters under one name, has written its first batch there, and writes one more. The
      client of a driver may be moved to the other cluster between batches, as when the address of a name changes.
    * "expired": the first batch of a query has been written. Once, all drivers may be frozen for so long that the
      brokers expire the progress, the ids at rest, or both.
    * "accepted": operators run ``kafkalite txn accept`` at any time, with any version, two in all. In the parallel
      protocol the first batch has been torn before.
    """

    protocol: str
    version: TransactionVersion
    two_phase: bool
    batches: int
    others: str = ""
    width: int = len(PARTITIONS)

    @property
    def numbers(self) -> range:
        """Return the numbers of the batches, without those that were written before the start."""
        if self.others == "moved":
            return range(2)
        has_written = self.others == "expired"
        return range(has_written, self.batches + has_written)

    def tasks(self, batch: int) -> range:
        """Return the tasks of *batch*, one for each partition; fewer in a batch for which a host has many ids."""
        return range(1 if batch == 2 and self.others == "two clusters" else self.width)

    def numbering(self, batch: int) -> BatchNumbering:
        is_of_query = self.others == "expired" or (self.others == "moved" and batch > 0)
        return BatchNumbering.OF_A_QUERY if is_of_query else BatchNumbering.OF_AN_APPLICATION

    @property
    def begins_torn(self) -> bool:
        return self.others == "accepted" and self.protocol == "parallel" and not self.two_phase


@dataclass(frozen=True)
class Ended:
    """The end of a driver: with *error*, or without one after all batches."""

    error: KafkaError | None


#: A driver as a function of the callable that answers its requests.
Run: TypeAlias = Callable[[Callable[[tuple[Any, ...]], Any]], Ended]


class _Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        # The time of a decision is part of the progress, and must not distinguish states.
        return 0


class Client:
    """A coordinator client whose requests *answer* answers; with *elsewhere* that of the second of two clusters."""

    timeout_ms = 4 * _PAUSE_MS

    def __init__(
        self, answer: Callable[[tuple[Any, ...]], Any], settings: Settings, *, elsewhere: bool = False
    ) -> None:
        prefix = (ELSEWHERE,) if elsewhere else ()
        self._answer: Callable[[tuple[Any, ...]], Any] = lambda request: answer((*prefix, *request))
        self._wait: Callable[[], Any] = lambda: answer(PAUSE)
        self._version = settings.version
        self._may_move = settings.others == "moved"
        self.clock = _Clock()
        self.remembered = Memories()

    @property
    def leaders(self) -> Client:
        return self

    def run(self, exchange: Exchange[T]) -> T:
        try:
            while True:
                exchange.send(None)
                self._pause()
        except StopIteration as end:
            outcome: T = end.value
            return outcome

    def together(self, *exchanges: Exchange[Any]) -> tuple[Any, ...]:
        try:
            return tuple(self.run(exchange) for exchange in exchanges)
        finally:
            for exchange in exchanges:
                exchange.close()

    def _pause(self) -> None:
        self._wait()
        self.clock.now_ms += _PAUSE_MS

    def _ask(self, *request: Any, waits: bool = True) -> Any:
        while True:
            answer = self._answer(request)
            if not isinstance(answer, ErrorCode):
                return answer
            retries = (ErrorCode.CONCURRENT_TRANSACTIONS, *((ErrorCode.UNSTABLE_OFFSET_COMMIT,) if waits else ()))
            if answer not in retries:
                raise error_for(answer, str(request))
            self._pause()
            if self.clock.now_ms > 4 * self.timeout_ms:
                raise error_for(ErrorCode.REQUEST_TIMED_OUT, str(request))

    def in_background(self, look: Callable[[], T]) -> Callable[[], T | None]:
        """Call *look* immediately, so that it misses all events until the next batch begins."""
        try:
            found = look()
        except KafkaError:
            return lambda: None
        return lambda: found

    # --- requests of the protocols -----------------------------------------------------------------------------------

    def require_verification(self) -> None:
        """Do nothing: every broker of the model verifies transactions."""

    def transaction_version(self) -> TransactionVersion:
        return self._version

    async def partitions(self, topic: str) -> tuple[PartitionInfo, ...]:
        if self._may_move:
            self.remembered.belong_to(self._ask("cluster"))
        return _LOGS

    async def broker_setting(self, name: str) -> str | None:
        return None

    async def init_producer_id(
        self,
        name: str,
        timeout_ms: int,
        *,
        expected: Transaction | None = None,
        two_phase: bool = False,
        repeat_lost: bool = True,
        final: Collection[ErrorCode] = (),
    ) -> Transaction:
        request = ("init", name, timeout_ms, None if expected is None else expected.producer, two_phase)
        given = self._answer(request) if final else self._ask(*request)
        if isinstance(given, ErrorCode):
            raise error_for(given, name)
        assert isinstance(given, Transaction)
        return given

    async def fence_open(self, opened: Transaction) -> None:
        answer = self._answer(("init", opened.transactional_id, _FENCE_TIMEOUT_MS, opened.producer, False))
        overtaken = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED)
        if isinstance(answer, ErrorCode) and answer not in overtaken:
            raise error_for(answer, str(opened))

    async def add_to_transaction(
        self, transaction: Transaction, partitions: Collection[TopicPartition], group: str | None = None
    ) -> None:
        if partitions:
            self._ask("add", transaction, frozenset(partitions), False)
        if group is not None:
            self._ask("add", transaction, frozenset(), True)

    async def end(
        self, transactions: Iterable[Transaction], version: TransactionVersion, *, commit: bool
    ) -> dict[Transaction, ErrorCode]:
        codes = {}
        for each in transactions:
            try:
                self._ask("end", each, commit)
                codes[each] = ErrorCode.NONE
            except KafkaError as error:
                codes[each] = error.code  # type: ignore[attr-defined]
        return codes

    async def commit_offsets(
        self,
        transaction: Transaction,
        version: TransactionVersion,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        before: TopicPartition,
    ) -> OffsetAndMetadata | None:
        if version is TransactionVersion.V1:
            self._ask("add", transaction, frozenset(), True)
        given = tuple(Offset(place.partition, each.offset, each.metadata) for place, each in offsets.items())
        return offsets_of(self._ask("commit_offsets", transaction, given)).get(before.partition)

    async def fetch_offsets(
        self, group: str, topic: str, partitions: Sequence[int], *, require_stable: bool = True, waits: bool = True
    ) -> dict[int, OffsetAndMetadata]:
        return offsets_of(self._ask("offsets", require_stable, waits=waits))

    async def describe(self, names: Iterable[str]) -> dict[str, TransactionDescription]:
        asked = tuple(sorted(names))
        found = self._ask("describe", asked) if asked else ()
        return {each.transaction.transactional_id: each for each in found}

    async def list_ids(
        self, states: Sequence[str] = (), pattern: str | None = None, producer_ids: Collection[int] = ()
    ) -> list[str]:
        return list(self._ask("list", tuple(states), frozenset(producer_ids)))

    # --- requests to leaders -----------------------------------------------------------------------------------------

    async def partitions_of(self, topics: Collection[str] | None) -> list[PartitionInfo]:
        return list(_LOGS)

    async def end_offsets(
        self, partitions: Collection[TopicPartition], *, stable: bool, hasty: bool = False
    ) -> dict[TopicPartition, int]:
        ends = self._ask("end_offsets", stable)
        return {place: ends[place.partition] for place in partitions}

    async def open_before(
        self, ends: Mapping[TopicPartition, int], *, hasty: bool = False
    ) -> dict[TopicPartition, list[LogTransaction]]:
        opened = self._ask("open") if ends else ()
        found = {place: [each for each in opened[place.partition] if each.start_offset < ends[place]] for place in ends}
        return {place: each for place, each in found.items() if each}

    # --- requests of tasks -------------------------------------------------------------------------------------------

    async def open_transactions(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[LogTransaction]]:
        opened = self._ask("open")
        return {place: list(opened[place.partition]) for place in partitions}

    def write(self, transaction: Transaction, partition: int, value: str) -> RowRange:
        """Write a row; return its range of offsets."""
        if self._version is TransactionVersion.V1:
            self._ask("add", transaction, frozenset({PARTITIONS[partition]}), False)
        offset = self._ask("write", transaction, partition, value)
        return RowRange(offset, offset + 1)

    def end_of(self, partition: int) -> int:
        ends: tuple[int, ...] = self._ask("end_offsets", False)
        return ends[partition]


class Told:
    """A driver with the answers that it has received so far. The objects of one driver are a tree, in which equal
    answers lead to one object, so that identity compares them, and no driver runs twice on the same answers.

    *run* is the driver: a function of the callable that answers it.
    """

    def __init__(self, run: Run, before: Told | None = None, answer: Any = None) -> None:
        self._run, self.before, self.answer = run, before, answer
        self.asked: tuple[Any, ...] | Ended | None = None
        self._following: dict[Any, Told] = {}

    def after(self, answer: Any) -> Told:
        """Return the driver that has also received *answer*."""
        # The key has the type, because an error's code equals a number.
        key = type(answer), answer
        following = self._following.get(key)
        if following is None:
            following = self._following[key] = Told(self._run, self, answer)
        return following

    def request(self, likely: Callable[[tuple[Any, ...]], Any]) -> tuple[Any, ...] | Ended:
        """Return the driver's next request, or its end. If the driver must run for that, it continues with *likely*
        answers to its end, because continuing takes much less time than another run from the beginning."""
        if self.asked is None:
            self.go_on(likely)
        assert self.asked is not None
        return self.asked

    def go_on(self, answer: Callable[[tuple[Any, ...]], Any]) -> Ended:
        """Answer the driver to its end, without a run for the known part of its requests."""
        told = self
        while told.asked is not None:
            if isinstance(told.asked, Ended):
                return told.asked
            told = told.after(answer(told.asked))
        return told.run_on(answer)

    def run_on(self, answer: Callable[[tuple[Any, ...]], Any]) -> Ended:
        told, told_before = self, self._answers()

        def next_answer(request: tuple[Any, ...]) -> Any:
            nonlocal told
            for each in told_before:
                return each
            told.asked = request
            answered = answer(request)
            told = told.after(answered)
            return answered

        ended = told.asked = self._run(next_answer)
        return ended

    def _answers(self) -> Iterator[Any]:
        found: list[Any] = []
        told: Told = self
        while told.before is not None:
            found.append(told.answer)
            told = told.before
        return iter(found[::-1])


def driver_of(settings: Settings, life: int, accepts: int | None = None) -> Told:
    """Return driver number *life* at its start; or the operator who *accepts* a batch."""
    return Told(partial(run_driver, settings, life) if accepts is None else partial(run_operator, settings, accepts))


# The patches let a driver reuse ids within a few batches, and look ahead once after each batch if there are several.
@mock.patch.object(writing, "FEWEST_IDS", 0)
@mock.patch.object(planning, "LOOKS_AHEAD_MS", (0,))
def run_driver(settings: Settings, life: int, answer: Callable[[tuple[Any, ...]], Any]) -> Ended:
    """Write all batches of *settings*; batches that are committed are skipped."""
    with mock.patch.object(planning, "PLANNED_ALONE", int(len(settings.numbers) == 1)):
        return _written(settings, life, answer)


def _written(settings: Settings, life: int, answer: Callable[[tuple[Any, ...]], Any]) -> Ended:
    places = (False, True) if settings.others == "two clusters" else (False,)
    clients: list[Any] = [Client(answer, settings, elsewhere=each) for each in places]
    drivers = [_steps_of(each, settings, life) for each in clients]
    hosts = [_host(clients[0], life)]
    if settings.others == "copies":
        hosts.insert(0, _host(clients[0], life + _COPY))
    try:
        for batch in settings.numbers:
            for client, steps in zip(clients, drivers, strict=True):
                try:
                    if settings.protocol == "atomic":
                        _write_atomically(client, steps, settings, life, batch)
                        continue
                    pair = [steps, steps]
                    if settings.others == "apart":
                        pair = [_steps_of(Client(answer, settings), settings, life) for _ in range(2)]
                    _write_in_parallel(client, pair, hosts, settings, life, batch)
                except ProgressError as error:
                    # Spark's checkpoint has such a batch as committed.
                    if "is older than" not in str(error):
                        raise
    except KafkaError as error:
        return Ended(error)
    return Ended(None)


def run_operator(settings: Settings, version: int, answer: Callable[[tuple[Any, ...]], Any]) -> Ended:
    """Do as ``kafkalite txn accept --version``, with a writer only if the sink's progress has expired."""
    client: Any = Client(answer, settings)
    steps = SinkDriver(client, GROUP, TOPIC, topics=None, clock=client.clock)
    try:
        found = client.run(standing(steps))
        writer = _WRITER if found.progress is None and settings.others == "expired" else None
        reason = found.against(version, writer)
        if reason is not None:
            return Ended(ExactlyOnceError(reason))
        accept(steps, version, writer)
    except KafkaError as error:
        return Ended(error)
    return Ended(None)


def _steps_of(client: Any, settings: Settings, life: int) -> SinkDriver:
    with _random_of(life):
        return SinkDriver(client, GROUP, TOPIC, timeout_ms=TIMEOUT_MS, two_phase=settings.two_phase, clock=client.clock)


def _host(client: Any, number: int) -> WriterTransactions:
    with _random_of(number):
        return WriterTransactions(client.clock)


def _random_of(number: int) -> Any:
    return mock.patch.object(os, "urandom", lambda count: bytes([number] * count))


def is_of_task(request: tuple[Any, ...] | Ended) -> bool:
    """Return whether *request* is one of a task, or a pause."""
    if isinstance(request, Ended):
        return False
    operation, *arguments = request[1:] if request[0] == ELSEWHERE else request
    if operation == "init":
        return arguments[0] not in (driver_id(sink_id(GROUP, TOPIC)), repair_id(sink_id(GROUP, TOPIC)))
    return operation in ("write", *PAUSE) or (operation == "add" and not arguments[-1])


def _write_atomically(client: Any, steps: SinkDriver, settings: Settings, life: int, batch: int) -> None:
    has_copies = settings.others == "copies"
    begun: list[Plan] = []

    def write_rows(plan: Plan) -> list[dict[TopicPartition, RowRange]]:
        begun.append(plan)
        written = []
        try:
            for task in settings.tasks(batch):
                value = f"{batch}-{task} of {life}" + (f" again {len(begun)}" if len(begun) > 1 else "")
                written.append({PARTITIONS[task]: client.write(plan.driver, task, value)})
                if has_copies and task == 0 and writing.may_write(1):
                    client.write(plan.driver, task, f"{value} by a copy")
        except ApiError as error:
            # Tasks report such an error in this way.
            raise (FencedError if error.code in FENCED else AttemptError)(str(error)) from error
        return written

    AtomicSink(steps).write(batch, _WRITER, settings.numbering(batch), write_rows, attempts=2 + has_copies)


def _write_in_parallel(
    client: Any,
    drivers: Sequence[SinkDriver],
    hosts: Sequence[WriterTransactions],
    settings: Settings,
    life: int,
    batch: int,
) -> None:
    """Plan with the first of *drivers* and commit with the second one. The first task runs on each of *hosts*, the
    others on the last one."""
    planner, committer = drivers
    plan = ParallelSink(planner).plan(_WRITER)
    numbers = settings.numbering(batch)
    if not plan.must_write(batch, _WRITER, numbers):
        return
    written = []
    for task in settings.tasks(batch):
        place = PARTITIONS[task]
        for ids in hosts[-1:] if task else hosts:
            transaction = ids.begin(client, plan, batch)
            client.write(transaction, task, f"{batch}-{task} of {life}")
            ids.wrote(plan.sink, transaction, {place: client.end_of(task)})
        written.append(WrittenTransaction(transaction, frozenset({place})))
    ParallelSink(committer).commit(plan, batch, _WRITER, written, numbers=numbers)
    if planner is committer:
        ParallelSink(committer).look_ahead()
