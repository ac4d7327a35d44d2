"""Explores every interleaving of a small world: up to three drivers with up to two tasks each, which may die at any
point and be succeeded, and brokers that time out transactions, lose their ends, lose responses, and still answer as
coordinators after they were replaced.

    python -m tests.exploration.explore [--only TEXT] [--states N] [--seconds N] [--walks N] [--seed N]

Every state is checked: no row is visible twice, and if all drivers died now, the next driver would make every batch
visible once and leave nothing open. A driver that was alone succeeds, unless transactions time out.

A complete exploration ("all") covers everything within its bounds: the number of faults in one run, the number of times
that a driver overtakes another live one, and brokers that write the ends of a transaction immediately, when a driver
waits for them, or never. Random walks with twice as many faults and switches, and one more batch, test beyond these.
"""

from __future__ import annotations

import argparse
import gc
import logging
import random
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, TypeAlias

from kafka_sink.broker.coordinator.transaction_state import NO_PRODUCER_EPOCH
from kafka_sink.common.errors import ApiError, ErrorCode, KafkaError, KafkaTimeoutError
from kafka_sink.common.model import TransactionVersion
from kafka_sink.exactly_once.model import LostEndError, ProgressError, TornBatchError
from kafka_sink.exactly_once.transactions import COMPLETING_MS, driver_id, sink_id
from tests.exploration.drivers import (
    ELSEWHERE,
    FAILED,
    LOOKS,
    PAUSE,
    Ended,
    Settings,
    Told,
    driver_of,
    is_of_task,
    run_driver,
)
from tests.exploration.model import COORDINATORS, GROUP, NEARLY_LAST_EPOCH, TOPIC, Model

#: The number of the driver before all others, the base of the operators' numbers, and the number of the driver that
#: starts after all others have died.
_FIRST = 0
_OPERATOR = 5
_LAST = 9

_DRIVER_ID: Final = driver_id(sink_id(GROUP, TOPIC))


#: An event, as a text or as the parts of one, because few are ever printed.
Step: TypeAlias = str | tuple[object, ...]
#: The probability that the next step of a walk is without a fault, if there is such a step.
_CALM: Final = 0.7


#: The maximum number of states of a world that is not explored completely.
BOUND: Final = 100_000


class ViolationError(AssertionError):
    """A promise is broken; the text has the steps that led to it."""


class Faults(NamedTuple):
    """The numbers of faults that may still happen, at most *most* in all: *deaths* of drivers, *late* requests of dead
    ones, lost *answers*, transactions that time out, transactions whose *ends* are lost, and coordinators of the
    *group* or of *transactions*, or *leaders*, that are replaced and do not know it. The *tasks* of this number of dead
    drivers may continue to write. *switches* is how often a driver may be frozen, and overtaken by another one.

    Only with some of Settings.others: tasks that *fail*, clients that are *moved* to another cluster, *weeks* that
    pass, and operators (*accepts*; not counted as faults) that start."""

    most: int = 2
    switches: int = 1
    group: int = 0
    transactions: int = 0
    leaders: int = 0
    deaths: int = 1
    late: int = 1
    answers: int = 1
    time_outs: int = 1
    ends: int = 1
    tasks: int = 0
    fail: int = 0
    moved: int = 0
    weeks: int = 0
    accepts: int = 0

    def with_others(self, settings: Settings) -> Faults:
        """Add the faults that only *settings* have. Two clusters have no replaced coordinators, and with operators no
        ends are lost, which operators handle in another way."""
        return self._replace(**_FAULTS_OF_OTHERS.get(settings.others, {}))

    def __str__(self) -> str:
        parts = [f"{count} {name}" for name, count in self._asdict().items() if count and name != "most"]
        return f"at most {self.most} faults ({', '.join(parts)})"

    def can(self, fault: str) -> bool:
        return self.most > 0 and getattr(self, fault) > 0

    def after(self, fault: str) -> Faults:
        return self._replace(**{fault: getattr(self, fault) - 1, "most": self.most - 1})


_NONE_REPLACED: Final = {"group": 0, "transactions": 0, "leaders": 0}
_FAULTS_OF_OTHERS: Final[dict[str, dict[str, int]]] = {
    "copies": {"fail": 1},
    "two clusters": _NONE_REPLACED,
    "moved": {"moved": 1, **_NONE_REPLACED},
    "expired": {"weeks": 1},
    "accepted": {"accepts": 2, "ends": 0},
}

#: The brokers that may be replaced, by the names of their faults and in the model.
_REPLACED: Final = ("group", "transactions", "leaders")


class Life(NamedTuple):
    """A driver with its answers (*told*), or an operator who *accepts* a batch; the client connects to *cluster*."""

    number: int
    told: Told
    #: The replaced coordinators to which it sends requests, and those whose successors it has found.
    asks_old: frozenset[str] = frozenset()
    has_found: frozenset[str] = frozenset()
    #: The driver has died, but its tasks still run.
    is_orphan: bool = False
    cluster: int = 0
    accepts: int | None = None

    def asks(self, request: tuple[Any, ...]) -> tuple[int, tuple[Any, ...]]:
        """Return the cluster of *request*, and the request without its prefix."""
        return (1 - self.cluster, request[1:]) if request[0] == ELSEWHERE else (self.cluster, request)

    def after(self, answer: Any) -> Life:
        return self._replace(told=self.told.after(answer))


class World(NamedTuple):
    models: tuple[Model, ...]
    lives: tuple[Life, ...]
    faults: Faults
    begun: int
    #: The driver that took the last step.
    active: int = 1
    #: A dead driver and its request that is still in flight.
    late: tuple[Life, tuple[Any, ...]] | None = None
    #: The clusters and ids that were decided in the last step.
    just_decided: frozenset[tuple[int, str]] = frozenset()
    has_timed_out: bool = False
    #: Whether the brokers have expired progress or ids.
    has_expired: bool = False
    was_moved: bool = False
    #: The batches that operators have accepted.
    accepted: frozenset[int] = frozenset()
    #: Whether the transaction that writes a lost commit again has timed out.
    is_repair_over: bool = False
    #: Whether an end was lost.
    has_lost: bool = False
    #: Whether a driver has received an answer of a replaced coordinator.
    was_replaced: bool = False
    #: Whether there were requests of two drivers: both were alive, or one of a dead driver has arrived late.
    were_two: bool = False

    @property
    def deciding(self) -> frozenset[tuple[int, str]]:
        return frozenset((cluster, name) for cluster, model in enumerate(self.models) for name in model.deciding)

    def following(self, cluster: int, model: Model, **changes: Any) -> World:
        """Return the world with *model* as the state of *cluster*, and with *changes*."""
        models = tuple(model if number == cluster else each for number, each in enumerate(self.models))
        return self._replace(models=models, **changes)


#: The end of the last driver, the clusters after it, and its steps.
_Last: TypeAlias = tuple[Ended, tuple[Model, ...], tuple[Step, ...]]


class Report(NamedTuple):
    """The number of visited *states*, by random *walks* or by all steps; *is_complete* if there are no more states."""

    settings: Settings
    states: int
    is_complete: bool
    walks: int = 0

    def __str__(self) -> str:
        bound = f"{self.walks} random walks" if self.walks else "all" if self.is_complete else "bounded"
        return f"{_text_of(self.settings)}: {self.states} states ({bound})"


def _text_of(settings: Settings) -> str:
    protocol, version, two_phase, batches, others, width = settings
    kind = "two-phase" if two_phase else "ordinary"
    what = f"{protocol}, version {version.value}, {kind}, {batches} batches of {width} tasks"
    return f"{what}, {others}" if others else what


@contextmanager
def _without_collections() -> Iterator[None]:
    """Disable garbage collection: all states are kept and have no cycles, and scans would take a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Explorer:
    """Explores *settings* with *faults*, from the start of the first of *drivers*: breadth first, or depth first
    (*is_deep*), which reaches long runs early within a bound.
    """

    def __init__(
        self, settings: Settings, faults: Faults, *, most_states: int, drivers: int = 2, is_deep: bool = True
    ) -> None:
        self._settings, self._most_states, self._drivers = settings, most_states, drivers
        self._is_deep = is_deep
        self._faults = faults.with_others(settings)
        self._beginnings: dict[tuple[int, int | None], Told] = {}
        #: One object for equal models, which caches their answers.
        self._models: dict[Model, Model] = {}
        self._judged: set[tuple[Any, ...]] = set()
        self._last: dict[tuple[tuple[Model, ...], Life], _Last | None] = {}

    def _beginning(self) -> World:
        settings = self._settings
        first_epoch = NEARLY_LAST_EPOCH if settings.others == "last epochs" else NO_PRODUCER_EPOCH
        model = Model(settings.version, first_epoch=first_epoch)
        if settings.others == "expired":
            model = _with_first_batch(model, settings._replace(batches=1, others=""))
        if settings.begins_torn:
            model = _with_first_batch(model, settings._replace(batches=1, others=""), is_torn=True)
        if settings.others == "moved":
            ran = [_until_second_plan(model, self._life(number + 1, cluster=number)) for number in range(2)]
            return World(tuple(each for each, _ in ran), tuple(life for _, life in ran), self._faults, 2, were_two=True)
        models = (model,) * (2 if settings.others == "two clusters" else 1)
        return World(models, (self._life(1),), self._faults, 1, has_timed_out=settings.begins_torn)

    def _life(self, number: int, accepts: int | None = None, **more: Any) -> Life:
        told = self._beginnings.get((number, accepts))
        if told is None:
            told = self._beginnings[number, accepts] = driver_of(self._settings, number, accepts)
        return Life(number, told, accepts=accepts, **more)

    @_without_collections()
    def walk(self, walks: int, seed: int) -> Report:
        """Take *walks* random walks, each to its end. Faults are rare, so that some walks are long.

        :raises ViolationError: if a promise is broken.
        """
        chance = random.Random(seed)
        seen: set[World] = set()
        for _ in range(walks):
            world, taken = self._beginning(), ["walk"]
            while True:
                seen.add(world)
                try:
                    self._judge(world)
                    steps = list(self._steps(world))
                except ViolationError as error:
                    raise ViolationError("\n".join([str(error), *reversed(taken)])) from error
                if not steps:
                    break
                calm = [each for each in steps if each[1].faults == world.faults]
                step, after = chance.choice(calm if calm and chance.random() < _CALM else steps)
                taken.append(_text(step))
                world = after._replace(just_decided=after.deciding - world.deciding)
        return Report(self._settings, len(seen), is_complete=False, walks=walks)

    @_without_collections()
    def run(self) -> Report:
        """:raises ViolationError: if a promise is broken."""
        first = self._beginning()
        seen = {first}
        came_from: dict[World, tuple[World, Step] | None] = {first: None}
        waiting = deque([first])
        while waiting and len(seen) < self._most_states:
            world = waiting.pop() if self._is_deep else waiting.popleft()
            try:
                self._judge(world)
                steps = list(self._steps(world))
            except ViolationError as error:
                raise ViolationError(f"{error}\n{_steps_to(world, came_from)}") from error
            for step, after in steps:
                models = tuple(self._models.setdefault(each, each) for each in after.models)
                following = after._replace(models=models, just_decided=after.deciding - world.deciding)
                if following not in seen:
                    seen.add(following)
                    came_from[following] = world, step
                    waiting.append(following)
        return Report(self._settings, len(seen), not waiting)

    # --- steps -------------------------------------------------------------------------------------------------------

    def _steps(self, world: World) -> Iterator[tuple[Step, World]]:
        yield from self._steps_of_brokers(world)
        if world.begun < self._drivers:
            begun = world.begun + 1
            lives = (*world.lives, self._life(begun))
            yield f"driver {begun} starts", world._replace(lives=lives, begun=begun, were_two=len(lives) > 1)
        yield from self._operators(world)
        for life in world.lives:
            if life.is_orphan or life.number == world.active:
                yield from self._steps_of_driver(world, life)
            elif all(each.is_orphan or each.number != world.active for each in world.lives):
                yield from self._steps_of_driver(world._replace(active=life.number), life)
            elif world.faults.switches:
                left = world.faults._replace(switches=world.faults.switches - 1)
                yield from self._steps_of_driver(world._replace(active=life.number, faults=left), life)
        yield from self._replaced(world)

    def _operators(self, world: World) -> Iterator[tuple[Step, World]]:
        if not world.faults.accepts:
            return
        left = world.faults._replace(accepts=world.faults.accepts - 1)
        for version in self._versions_to_accept(world):
            operator = self._life(_OPERATOR + world.faults.accepts, version)
            after = world._replace(lives=_sorted(*world.lives, operator), faults=left, were_two=True)
            yield f"an operator accepts {version}", after

    def _versions_to_accept(self, world: World) -> range:
        """Return all versions; after an expiry, which only the operator can resolve, the last one with visible rows."""
        if not world.has_expired:
            return range(-1, self._settings.numbers.stop)
        seen = {int(value.partition("-")[0]) for value in world.models[0].visible()}
        return range(max(seen, default=-1), max(seen, default=-1) + 1)

    def _replaced(self, world: World) -> Iterator[tuple[Step, World]]:
        for coordinator in _REPLACED:
            if world.faults.can(coordinator) and coordinator not in world.models[0].replaced:
                model = world.models[0].with_replaced(coordinator)
                yield (
                    f"{coordinator}: replaced without knowing it",
                    world.following(0, model, faults=world.faults.after(coordinator)),
                )

    def _steps_of_brokers(self, world: World) -> Iterator[tuple[Step, World]]:
        faults = world.faults
        for cluster, name in sorted(self._due(world)):
            model, where = world.models[cluster], f" in cluster {cluster}" if len(world.models) > 1 else ""
            yield f"the ends of {name}{where} are written", world.following(cluster, model.complete(name))
            for lost in model.losses(name) if faults.can("ends") else ():
                after = world.following(cluster, model.complete(name, lost), faults=faults.after("ends"), has_lost=True)
                yield f"the ends of {name}{where} are lost in {', '.join(sorted(map(str, lost)))}", after
        if faults.can("time_outs"):
            left = faults.after("time_outs")
            for cluster, model in enumerate(world.models):
                for name in model.timing_out:
                    is_over = world.is_repair_over or dict(model.ids)[name].timeout_ms in COMPLETING_MS
                    after = world.following(cluster, model.time_out(name), faults=left, is_repair_over=is_over)
                    yield f"{name} times out", after._replace(has_timed_out=True)
        yield from self._weeks(world)
        if world.late is not None:
            life, request = world.late
            cluster, asked = life.asks(request)
            following, answer = world.models[cluster].ask(*asked)
            after = self._accepting(world, life, request, answer).following(cluster, following, late=None)
            yield f"late: {request}", after._replace(were_two=True)

    def _weeks(self, world: World) -> Iterator[tuple[Step, World]]:
        if not world.faults.can("weeks"):
            return
        (model,) = world.models
        has_timed_out = world.has_timed_out or bool(model.timing_out)
        left = world.faults.after("weeks")
        for gone in ({"offsets"}, {"ids"}, {"ids", "offsets"}):
            after = model.after_a_week(offsets="offsets" in gone, ids="ids" in gone)
            text = f"a week passes; gone: {', '.join(sorted(gone))}"
            yield text, world.following(0, after, faults=left, has_expired=True, has_timed_out=has_timed_out)

    def _due(self, world: World) -> frozenset[tuple[int, str]]:
        """Return the clusters and ids whose ends may be written now: they were just decided, or a driver waits."""
        if any(_asked_by(world, life) == PAUSE for life in world.lives):
            return world.deciding
        return world.deciding & world.just_decided

    def _steps_of_driver(self, world: World, life: Life) -> Iterator[tuple[Step, World]]:
        request = _asked_by(world, life)
        others = tuple(each for each in world.lives if each is not life)
        if life.is_orphan and not is_of_task(request):
            yield f"the tasks of driver {life.number} end", world._replace(lives=others)
            return
        if isinstance(request, Ended):
            is_calm = not (world.were_two or world.has_timed_out or world.was_replaced)
            if request.error is not None and is_calm and not (world.has_expired or world.was_moved):
                raise ViolationError(f"driver {life.number} was alone and failed: {request.error!r}")
            yield f"driver {life.number} ends: {request.error}", world._replace(lives=others)
            return
        if request == PAUSE:
            if not world.deciding:
                yield f"driver {life.number} waits", world._replace(lives=(*others, life.after(None)))
        elif request[0] == "cluster":
            yield from self._clusters(world, life, others)
        else:
            yield from self._answered(world, life, request, others)
        if life.accepts is None:
            yield from self._deaths(world, life, request, others)

    def _clusters(self, world: World, life: Life, others: tuple[Life, ...]) -> Iterator[tuple[Step, World]]:
        lives = _sorted(*others, life.after(str(life.cluster)))
        yield f"driver {life.number}: in cluster {life.cluster}", world._replace(lives=lives)
        if world.faults.can("moved"):
            there = life._replace(cluster=1 - life.cluster)
            lives = _sorted(*others, there.after(str(there.cluster)))
            after = world._replace(lives=lives, faults=world.faults.after("moved"), was_moved=True)
            yield f"driver {life.number}: moved to cluster {there.cluster}", after

    def _answered(
        self, world: World, life: Life, request: tuple[Any, ...], others: tuple[Life, ...]
    ) -> Iterator[tuple[Step, World]]:
        faults, (cluster, asked) = world.faults, life.asks(request)
        text: tuple[object, ...] = ()
        following, answer = world.models[cluster], None
        for text, following, answer, asking in _answers(world.models[cluster], life, asked):
            was_replaced = world.was_replaced or bool(asking.asks_old)
            lives = _sorted(*others, asking.after(answer))
            after = self._accepting(world, life, request, answer)
            yield text, after.following(cluster, following, lives=lives, was_replaced=was_replaced)
        if faults.can("answers") and asked[0] not in LOOKS:
            after = self._accepting(world, life, request, answer)
            yield (*text, ", answer lost"), after.following(cluster, following, faults=faults.after("answers"))
        if faults.can("fail") and asked[0] == "write" and self._settings.protocol == "atomic" and not life.is_orphan:
            failed = world._replace(lives=_sorted(*others, life.after(FAILED)), faults=faults.after("fail"))
            yield (*text, ", and the task fails"), failed.following(cluster, following)
            yield f"driver {life.number}: a task fails at {asked[0]}", failed
            if faults.tasks:
                lives = _sorted(*others, life.after(FAILED), life._replace(is_orphan=True))
                left = failed.faults._replace(tasks=faults.tasks - 1)
                yield f"driver {life.number}: a task fails, and goes on", failed._replace(lives=lives, faults=left)

    def _deaths(
        self, world: World, life: Life, request: tuple[Any, ...], others: tuple[Life, ...]
    ) -> Iterator[tuple[Step, World]]:
        faults, (_, asked) = world.faults, life.asks(request)
        if faults.can("deaths") and not life.is_orphan:
            left = faults.after("deaths")
            dead = world._replace(lives=others, faults=left)
            yield f"driver {life.number} dies", dead
            if faults.tasks and is_of_task(request):
                going_on = _sorted(*others, life._replace(is_orphan=True))
                yield (
                    f"driver {life.number} dies, its tasks go on",
                    dead._replace(lives=going_on, faults=left._replace(tasks=faults.tasks - 1)),
                )
            # The late request of a death is not counted as a further fault.
            if faults.late and world.late is None and asked[0] not in (*LOOKS, *PAUSE):
                yield (
                    f"driver {life.number} dies, {request} is on its way",
                    dead._replace(late=(life, request), faults=left._replace(late=faults.late - 1)),
                )

    def _accepting(self, world: World, life: Life, request: tuple[Any, ...], answer: Any) -> World:
        """Return the world after *answer* to *request*, with the accepted batch if it is the operator's decision.

        :raises ViolationError: if readers do not see exactly one row of the batch, which then needs no operator.
        """
        if life.accepts is None or request[0] != "end" or answer is not None:
            return world
        (model,) = world.models
        _, transaction, commit = request
        proposed = {each.offset for producer_id, each in model.pending if producer_id == transaction.producer_id}
        if not commit or transaction.transactional_id != _DRIVER_ID or proposed != {life.accepts + 1}:
            return world
        seen = [value for value in model.visible() if value.startswith(f"{life.accepts}-")]
        if len(seen) != 1 and not world.has_expired:
            raise ViolationError(f"batch {life.accepts} was accepted, of which readers see {seen}")
        return world._replace(accepted=world.accepted | {life.accepts})

    # --- checks ------------------------------------------------------------------------------------------------------

    def _judge(self, world: World) -> None:
        told = (world.has_timed_out, world.has_expired, world.was_moved, world.accepted)
        key = (world.models, *told, world.is_repair_over, world.were_two, world.has_lost)
        if key in self._judged:
            return
        self._judged.add(key)
        for model in world.models:
            _check_once(model)
        for cluster, model in enumerate(world.models if self._settings.others == "moved" else world.models[:1]):
            for asks_old in {frozenset[str](), model.replaced}:
                found = model.replaced - asks_old
                self._judge_last(world, self._life(_LAST, asks_old=asks_old, has_found=found, cluster=cluster))

    def _judge_last(self, world: World, life: Life) -> None:
        """Run the last driver, and check its result."""
        key = world.models, life
        if key not in self._last:
            self._last[key] = self._run_last(world.models, life)
        last = self._last[key]
        if last is None:
            return
        ended, models, steps = last
        try:
            for model in models if self._settings.others == "two clusters" else [models[life.cluster]]:
                self._check_end(world, model, ended)
        except ViolationError as error:
            raise ViolationError("\n".join([str(error), *map(_text, reversed(steps))])) from error

    def _run_last(self, models: Sequence[Model], life: Life) -> _Last | None:
        """Return the end of the last driver, the clusters after it, and its steps. None if it has waited for a change
        that a replaced coordinator never learns of, and has written nothing."""
        alone = Checked(list(models), life)
        try:
            ended = life.told.go_on(alone.answer)
            alone.complete()
            if alone.life.asks_old and _has_waited(ended.error):
                return None
            if life.asks_old and ended.error is None and not alone.models[life.cluster].is_settled:
                # A replaced coordinator may not list the newest open transactions; the next plan ends them.
                replaced = alone.models[life.cluster].replaced
                alone.life = alone.life._replace(asks_old=frozenset(), has_found=replaced)
                ended = life.told.go_on(alone.answer)
                alone.complete()
        except ViolationError as error:
            raise ViolationError("\n".join([str(error), *map(_text, reversed(alone.steps))])) from error
        return ended, tuple(alone.models), tuple(alone.steps)

    def _check_end(self, world: World, model: Model, ended: Ended) -> None:
        if ended.error is not None:
            if self._is_known(world, ended.error):
                return
            raise ViolationError(f"the last driver cannot go on: {ended.error!r}")
        batches = [each for each in self._settings.numbers if each not in world.accepted]
        expected = {f"{batch}-{task}" for batch in batches for task in self._settings.tasks(batch)}
        missing = expected - {value.partition(" ")[0] for value in model.visible()}
        if missing:
            raise ViolationError(f"missing: {sorted(missing)}")
        if not model.is_settled:
            raise ViolationError("something is left open")

    def _is_known(self, world: World, error: KafkaError) -> bool:
        """Return whether the sink may stop with *error* without a wrong row, as exactly-once.md documents."""
        if isinstance(error, LostEndError):
            # A fence preceded the proof: another driver's, or one after a description by a replaced coordinator. Such a
            # description may also begin the repair of a commit that was not lost.
            replaced = frozenset(name for model in world.models for name in model.replaced)
            was_replaced = "transactions" in replaced or (world.has_lost and bool(replaced))
            return world.were_two or world.is_repair_over or world.has_expired or was_replaced
        if isinstance(error, ProgressError):
            return world.has_expired or world.was_moved
        is_parallel = self._settings.protocol == "parallel" and not self._settings.two_phase
        has_timed_out = world.is_repair_over or (world.has_timed_out and is_parallel)
        return isinstance(error, TornBatchError) and has_timed_out


def _with_first_batch(model: Model, settings: Settings, *, is_torn: bool = False) -> Model:
    """Return the cluster after the first batch. *is_torn*: its driver has died between two commits, and its other
    transactions have timed out."""

    class Death(BaseException):
        pass

    def answer(request: tuple[Any, ...]) -> Any:
        nonlocal model
        if is_torn and request[0] == "end" and request[1].transactional_id != _DRIVER_ID and ends:
            raise Death
        ends.extend([request] if request[0] == "end" and request[1].transactional_id != _DRIVER_ID else [])
        answered = None
        if request != PAUSE:
            model, answered = model.ask(*request)
        for name in model.deciding:
            model = model.complete(name)
        return answered

    ends: list[tuple[Any, ...]] = []
    with suppress(Death):
        run_driver(settings, _FIRST, answer)
    return model.after_a_week(offsets=False, ids=False)


def _asked_by(world: World, life: Life) -> tuple[Any, ...] | Ended:
    """Return the next request of *life*. The likely answers are those that it gets if it is alone from now on."""
    return life.told.request(Alone(list(world.models), life).answer)


class Alone:
    """Answers drivers in turn, each of which is alone: only their own steps happen in *models*, and each end is written
    immediately. A driver sends requests to its replaced coordinators until the current ones accept a change."""

    def __init__(self, models: list[Model], life: Life) -> None:
        self.models, self.life = models, life
        self.steps: list[Step] = []

    def answer(self, request: tuple[Any, ...]) -> Any:
        answered = None
        cluster, asked = self.life.asks(request)
        if asked[0] == "cluster":
            return str(cluster)
        if request != PAUSE:
            text, self.models[cluster], answered, self.life = next(_answers(self.models[cluster], self.life, asked))
            self.steps.append(text)
        self.complete()
        return answered

    def complete(self) -> None:
        for cluster, model in enumerate(self.models):
            for name in model.deciding:
                model = model.complete(name)
            self.models[cluster] = model


class Checked(Alone):
    """Checks after each step that no row is visible twice."""

    def complete(self) -> None:
        super().complete()
        for model in self.models:
            _check_once(model)


def _until_second_plan(model: Model, life: Life) -> tuple[Model, Life]:
    """Return the cluster and the driver after its first batch, before it requests the id of the cluster again."""
    places = 0
    while not isinstance(request := life.told.request(Alone([model, model], life).answer), Ended):
        answer = None
        if request[0] == "cluster":
            places += 1
            if places > 1:
                break
            answer = str(life.cluster)
        elif request != PAUSE:
            model, answer = model.ask(*request)
        life = life.after(answer)
        for name in model.deciding:
            model = model.complete(name)
    return model, life


def _answers(
    model: Model, life: Life, request: tuple[Any, ...]
) -> Iterator[tuple[tuple[object, ...], Model, Any, Life]]:
    """Yield the possible results of *request* of *life*: the event, the cluster, the answer, and the driver with its
    coordinators from now on. The last result is the current coordinator's: no other one accepts a change."""
    text = "driver ", life.number, ": ", request[0], request[1:], " -> "
    coordinator = COORDINATORS.get(request[0])
    if coordinator in model.replaced and coordinator not in life.has_found and request[0] in LOOKS:
        _, told = model.of_replaced(coordinator).ask(*request)
        asking = life._replace(asks_old=life.asks_old | {coordinator})
        yield (*text, told, ", by a replaced coordinator"), model, told, asking
    if coordinator in life.asks_old and request[0] in LOOKS:
        return
    following, answer = model.ask(*request)
    if coordinator in model.replaced:
        life = life._replace(asks_old=life.asks_old - {coordinator}, has_found=life.has_found | {coordinator})
    yield (*text, answer), following, answer, life


def _has_waited(error: KafkaError | None) -> bool:
    """Return whether a driver has waited for a change that a replaced coordinator never learns of."""
    return isinstance(error, KafkaTimeoutError | LostEndError) or (
        isinstance(error, ApiError) and error.code is ErrorCode.REQUEST_TIMED_OUT
    )


def _text(step: Step) -> str:
    return step if isinstance(step, str) else "".join(map(str, step))


def _sorted(*lives: Life) -> tuple[Life, ...]:
    return tuple(sorted(lives, key=lambda life: life.number))


def _check_once(model: Model) -> None:
    values = [value.partition(" ")[0] for value in model.visible()]
    twice = {value for value in values if values.count(value) > 1}
    if twice:
        raise ViolationError(f"twice: {sorted(twice)} in {model.visible()}")


def _steps_to(world: World, came_from: dict[World, tuple[World, Step] | None]) -> str:
    steps: list[str] = []
    while (before := came_from[world]) is not None:
        world, step = before
        steps.append(_text(step))
    return "\n".join(steps)


def all_settings(batches: int) -> list[Settings]:
    """Return both protocols in both versions, the parallel one also with two-phase commit."""
    return [
        Settings(protocol, version, two_phase, batches)
        for protocol in ("parallel", "atomic")
        for version in TransactionVersion
        for two_phase in (False, True)
        if protocol == "parallel" or not two_phase
    ]


def going_on(batches: int) -> list[Settings]:
    """Return the settings in which a driver continues after its own last batch without a fence: those of version 2."""
    return [each for each in all_settings(batches) if each.version is TransactionVersion.V2]


def with_others(batches: int) -> list[Settings]:
    """Return the settings with a further condition or event in each run: see Settings."""
    return [
        each._replace(others=others)
        for each in all_settings(batches)
        for others in (
            *(() if each.protocol == "atomic" else ("apart",)),
            *("copies", "last epochs", "two clusters", "moved", "expired", "accepted"),
        )
        if others == "expired" or not each.two_phase
    ]


class Scope(NamedTuple):
    """A small world: its *settings* and *faults*, the number of *drivers* that start, in turn or concurrently as far as
    faults.switches allows, and the maximum number of visited *states* (None: all)."""

    settings: Settings
    faults: Faults
    drivers: int
    states: int | None = None

    def __str__(self) -> str:
        return f"{_text_of(self.settings)}; {self.drivers} drivers, {self.faults}"

    def explored(self, most_states: int = sys.maxsize) -> Report:
        """Explore breadth first if all states are visited, so that a violation has the fewest steps; otherwise depth
        first, because breadth first would only visit the beginnings of a large world.

        :raises ViolationError: if a promise is broken.
        """
        most = sys.maxsize if self.states is None else min(self.states, most_states)
        is_deep = self.states is not None
        explorer = Explorer(self.settings, self.faults, most_states=most, drivers=self.drivers, is_deep=is_deep)
        return explorer.run()


#: Batches, tasks, drivers and faults of the worlds, the smallest first, and the maximum of states (None: all).
_SIZES: Final = (
    (1, 1, 1, 1, None),
    (1, 1, 1, 2, None),
    (1, 2, 1, 2, BOUND),
    (2, 1, 1, 2, BOUND),
    (1, 1, 2, 1, BOUND),
    (1, 2, 2, 1, BOUND),
    (2, 2, 2, 2, BOUND),
    (2, 2, 3, 2, BOUND),
)


def worlds() -> list[Scope]:
    """Return the explored worlds, the smallest first, followed by those of :func:`with_others`."""
    found = []
    for batches, width, drivers, most, states in _SIZES:
        faults = Faults(most, drivers - 1, group=1, transactions=1, leaders=1, tasks=1)
        found += [Scope(each._replace(width=width), faults, drivers, states) for each in all_settings(batches)]
    others = Faults(1, 0, group=1, transactions=1, leaders=1, tasks=1)
    return found + [Scope(each, others.with_others(each), 2, BOUND) for each in with_others(2)]


def beyond(settings: Settings, faults: Faults) -> Explorer:
    """Return an explorer beyond *faults* and *settings*: with one more batch, and twice the number of each fault."""
    more = Faults(*(2 * each for each in faults))
    return Explorer(settings._replace(batches=settings.batches + 1), more, most_states=0, drivers=3)


def main() -> None:
    parser = argparse.ArgumentParser(description="Explore every interleaving of small worlds, the smallest first.")
    parser.add_argument("--only", default="", metavar="TEXT", help="the worlds with this in the lines that are printed")
    parser.add_argument("--states", type=int, default=20_000, help="the most states of a world that is not complete")
    parser.add_argument("--seconds", type=float, default=3600, help="no world begins after so many")
    parser.add_argument("--walks", type=int, default=0, help="random walks beyond the bound, of each setting")
    parser.add_argument("--seed", type=int, default=0, help="of the walks")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    begun, left_out = time.monotonic(), []
    chosen = [scope for scope in worlds() if asked.only in str(scope)]
    if not chosen:
        parser.error(f"no world has {asked.only!r} in its line")
    for scope in chosen:
        since = time.monotonic()
        if since - begun > asked.seconds:
            left_out.append(scope)
            continue
        report = scope.explored(asked.states)
        kind = "all" if report.is_complete else "bounded"
        print(f"{scope}: {report.states} states ({kind}), {time.monotonic() - since:.0f} s", flush=True)
    for settings in (*all_settings(1), *with_others(1)) if asked.walks else ():
        faults = Faults(2, 1, group=1, transactions=1, leaders=1, tasks=1)
        print(beyond(settings, faults).walk(asked.walks, asked.seed), flush=True)
    for scope in left_out:
        print(f"left out: {scope}", flush=True)


if __name__ == "__main__":
    main()
