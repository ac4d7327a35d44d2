"""Explores every interleaving of a small world: two drivers with two tasks each, one of which may die at any point and
be followed, and brokers that time out transactions, lose their ends, lose answers, and answer as coordinators that they
no longer are.

    python -m tests.exploration.explore [--states N] [--faults N] [--switches N] [--batches N]

After every step each state is judged: no row is visible twice, and if everybody died now, the next driver would make
every batch visible once and leave nothing open. A driver that was alone succeeds, unless transactions time out.

Where all is explored ("all"), nothing else can happen within the bound: the number of faults in one run, how often a
driver overtakes another one that is alive, and that brokers write the ends of a transaction at once, when somebody
waits for them, or never.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from kafka_sink.broker.coordinator.transaction_metadata import NO_PRODUCER_EPOCH
from kafka_sink.common.errors import ApiError, ErrorCode, KafkaError, KafkaTimeoutError
from kafka_sink.common.model import TransactionVersion
from kafka_sink.exactly_once.lost_ends import LostEndError
from kafka_sink.exactly_once.model import TornBatchError
from kafka_sink.exactly_once.transaction_description import COMPLETING_MS
from tests.exploration.drivers import LOOKS, PAUSE, Ended, Settings, is_of_task, next_request, run_driver
from tests.exploration.model import COORDINATORS, NEARLY_LAST_EPOCH, Model

#: The number of the driver that is sent after everybody has died.
_LAST = 9


class ViolationError(AssertionError):
    """A promise is broken; the text has the steps that lead there."""


class Faults(NamedTuple):
    """How many faults may still happen, at most *most* in all: *deaths* of drivers, *late* requests of dead ones, lost
    *answers*, transactions that time out, transactions whose *ends* are lost, and *coordinators* or leaders that are
    replaced and do not know it. The *tasks* of so many dead drivers may go on with their rows. *switches* is how often
    a driver may be overtaken by another one that is alive."""

    most: int = 2
    switches: int = 1
    coordinators: int = 0
    deaths: int = 1
    late: int = 1
    answers: int = 1
    time_outs: int = 1
    ends: int = 1
    tasks: int = 0

    def can(self, fault: str) -> bool:
        return self.most > 0 and getattr(self, fault) > 0

    def after(self, fault: str) -> Faults:
        return self._replace(**{fault: getattr(self, fault) - 1, "most": self.most - 1})


@dataclass(frozen=True)
class Life:
    """A driver, by the answers that it has received."""

    number: int
    answers: tuple[Any, ...] = ()
    #: The replaced coordinators that it asks, and the current ones that it has found since these were replaced.
    asks_old: frozenset[str] = frozenset()
    has_found: frozenset[str] = frozenset()
    #: The driver has died, and its tasks have not.
    is_orphan: bool = False


@dataclass(frozen=True)
class World:
    model: Model
    lives: tuple[Life, ...]
    faults: Faults
    begun: int
    #: The driver that took the last step.
    active: int = 1
    #: A request of a dead driver that is still on its way.
    late: tuple[Any, ...] | None = None
    #: The ids that were decided in the last step.
    just_decided: frozenset[str] = frozenset()
    has_timed_out: bool = False
    #: A lost commit was written again, and its transaction timed out meanwhile.
    is_repair_over: bool = False
    #: A driver was told something by a coordinator that had been replaced.
    was_replaced: bool = False
    #: There were requests of two drivers: both were alive, or one of a dead driver has arrived late.
    were_two: bool = False


class Report(NamedTuple):
    """*states* were visited; *is_complete* if there are no more."""

    settings: Settings
    states: int
    is_complete: bool

    def __str__(self) -> str:
        protocol, version, two_phase, batches, others = self.settings
        bound = "all" if self.is_complete else "bounded"
        kind = "two-phase" if two_phase else "ordinary"
        what = f"{protocol}, version {version.value}, {kind}, {batches} batches{', ' if others else ''}{others}"
        return f"{what}: {self.states} states ({bound})"


class Explorer:
    """Explores *settings* with *faults*, from the beginning of two drivers."""

    def __init__(self, settings: Settings, faults: Faults, *, most_states: int, drivers: int = 2) -> None:
        self._settings, self._faults, self._most_states, self._drivers = settings, faults, most_states, drivers
        self._next = lru_cache(maxsize=None)(lambda life: next_request(settings, life.number, life.answers))
        self._judged: set[tuple[Model, bool, bool, bool]] = set()

    def run(self) -> Report:
        """:raises ViolationError: if a promise is broken."""
        first_epoch = NEARLY_LAST_EPOCH if self._settings.others == "last epochs" else NO_PRODUCER_EPOCH
        first = World(Model(self._settings.version, first_epoch=first_epoch), (Life(1),), self._faults, 1)
        seen = {first}
        came_from: dict[World, tuple[World, str] | None] = {first: None}
        waiting = [first]
        while waiting and len(seen) < self._most_states:
            # The newest first: deep runs are met early, also within a bound.
            world = waiting.pop()
            try:
                self._judge(world)
                steps = list(self._steps(world))
            except ViolationError as error:
                raise ViolationError(f"{error}\n{_steps_to(world, came_from)}") from error
            for step, after in steps:
                decided = frozenset(after.model.deciding) - frozenset(world.model.deciding)
                following = replace(after, just_decided=decided)
                if following not in seen:
                    seen.add(following)
                    came_from[following] = world, step
                    waiting.append(following)
        return Report(self._settings, len(seen), not waiting)

    # --- steps -------------------------------------------------------------------------------------------------------

    def _steps(self, world: World) -> Iterator[tuple[str, World]]:
        yield from self._steps_of_brokers(world)
        if world.begun < self._drivers:
            begun = world.begun + 1
            lives = (*world.lives, Life(begun))
            yield f"driver {begun} starts", replace(world, lives=lives, begun=begun, were_two=len(lives) > 1)
        for life in world.lives:
            if life.is_orphan or life.number == world.active:
                yield from self._steps_of_driver(world, life)
            elif all(each.is_orphan or each.number != world.active for each in world.lives):
                yield from self._steps_of_driver(replace(world, active=life.number), life)
            elif world.faults.switches:
                left = world.faults._replace(switches=world.faults.switches - 1)
                yield from self._steps_of_driver(replace(world, active=life.number, faults=left), life)
        yield from self._replaced(world)

    def _replaced(self, world: World) -> Iterator[tuple[str, World]]:
        if not world.faults.can("coordinators"):
            return
        # An end that was lost in a partition whose leader is replaced is not found by a plan that asks the old one;
        # docs/exactly-once.md says so.
        leaders = {"leaders"} if world.faults.ends == self._faults.ends else set()
        for coordinator in sorted(({"group", "transactions"} | leaders) - world.model.replaced):
            after = replace(
                world, model=world.model.with_replaced(coordinator), faults=world.faults.after("coordinators")
            )
            yield f"{coordinator}: replaced without knowing it", after

    def _steps_of_brokers(self, world: World) -> Iterator[tuple[str, World]]:
        model, faults = world.model, world.faults
        for name in self._due(world):
            yield f"the ends of {name} are written", replace(world, model=model.complete(name))
            for lost in model.losses(name) if faults.can("ends") and "leaders" not in model.replaced else ():
                after = replace(world, model=model.complete(name, lost), faults=faults.after("ends"))
                yield f"the ends of {name} are lost in {', '.join(sorted(map(str, lost)))}", after
        if faults.can("time_outs"):
            for name in model.timing_out:
                left = faults.after("time_outs")
                is_over = world.is_repair_over or dict(model.ids)[name].timeout_ms in COMPLETING_MS
                after = replace(world, model=model.time_out(name), faults=left, is_repair_over=is_over)
                yield f"{name} times out", replace(after, has_timed_out=True)
        if world.late is not None:
            following, _ = model.ask(*world.late)
            yield f"late: {world.late}", replace(world, model=following, late=None, were_two=True)

    def _due(self, world: World) -> list[str]:
        """The ids whose ends may be written now: they have just been decided, or somebody waits."""
        if any(self._next(life) == PAUSE for life in world.lives):
            return world.model.deciding
        return [name for name in world.model.deciding if name in world.just_decided]

    def _steps_of_driver(self, world: World, life: Life) -> Iterator[tuple[str, World]]:
        request = self._next(life)
        others = tuple(each for each in world.lives if each is not life)
        faults = world.faults
        if life.is_orphan and not is_of_task(request):
            yield f"the tasks of driver {life.number} end", replace(world, lives=others)
            return
        if isinstance(request, Ended):
            if request.error is not None and not (world.were_two or world.has_timed_out or world.was_replaced):
                raise ViolationError(f"driver {life.number} was alone and failed: {request.error!r}")
            yield f"driver {life.number} ends: {request.error}", replace(world, lives=others)
            return
        if request == PAUSE:
            if not world.model.deciding:
                yield f"driver {life.number} waits", replace(world, lives=(*others, _told(life, None)))
        else:
            text, following, answer, asking = "", world.model, None, life
            for text, following, answer, asking in _answers(world.model, life, request):
                was_replaced = world.was_replaced or bool(asking.asks_old)
                lives = _sorted(*others, _told(asking, answer))
                yield text, replace(world, model=following, lives=lives, was_replaced=was_replaced)
            if faults.can("answers") and request[0] not in LOOKS:
                yield f"{text}, answer lost", replace(world, model=following, faults=faults.after("answers"))
        if faults.can("deaths") and not life.is_orphan:
            left = faults.after("deaths")
            dead = replace(world, lives=others, faults=left)
            yield f"driver {life.number} dies", dead
            if faults.tasks and is_of_task(request):
                going_on = _sorted(*others, replace(life, is_orphan=True))
                yield (
                    f"driver {life.number} dies, its tasks go on",
                    replace(dead, lives=going_on, faults=left._replace(tasks=faults.tasks - 1)),
                )
            # The late request of a death is no fault of its own.
            if faults.late and world.late is None and request[0] not in (*LOOKS, *PAUSE):
                yield (
                    f"driver {life.number} dies, {request} is on its way",
                    replace(dead, late=request, faults=left._replace(late=faults.late - 1)),
                )

    # --- judgement ---------------------------------------------------------------------------------------------------

    def _judge(self, world: World) -> None:
        key = (world.model, world.has_timed_out, world.is_repair_over, world.were_two)
        if key in self._judged:
            return
        self._judged.add(key)
        _check_once(world.model)
        for asks_old in {frozenset[str](), world.model.replaced}:
            self._judge_last(world, asks_old)

    def _judge_last(self, world: World, asks_old: frozenset[str]) -> None:
        """Judge what the last driver does. It asks the replaced coordinators *asks_old* until the current ones accept a
        change."""
        steps: list[str] = []
        model, life = world.model, Life(_LAST, (), asks_old, world.model.replaced - asks_old)

        def answer(request: tuple[Any, ...]) -> Any:
            nonlocal model, life
            answered = None
            if request != PAUSE:
                text, model, answered, life = next(_answers(model, life, request))
                steps.append(text)
            for name in model.deciding:
                model = model.complete(name)
            _check_once(model)
            return answered

        try:
            ended = run_driver(self._settings, _LAST, answer)
            for name in model.deciding:
                model = model.complete(name)
            if life.asks_old and _has_waited(ended.error):
                return
            self._check_end(world, model, ended)
        except ViolationError as error:
            raise ViolationError(f"{error}\n" + "\n".join(reversed(steps))) from error

    def _check_end(self, world: World, model: Model, ended: Ended) -> None:
        if ended.error is not None:
            if self._is_known(world, ended.error):
                return
            raise ViolationError(f"the last driver cannot go on: {ended.error!r}")
        _check_once(model)
        expected = {f"{batch}-{task}" for batch in range(self._settings.batches) for task in (0, 1)}
        missing = expected - {value.partition(" ")[0] for value in model.visible()}
        if missing:
            raise ViolationError(f"missing: {sorted(missing)}")
        if not model.is_settled:
            raise ViolationError("something is left open")

    def _is_known(self, world: World, error: KafkaError) -> bool:
        """Whether the sink may stop in this way, having written nothing wrong; docs/exactly-once.md says so."""
        if isinstance(error, LostEndError):
            return world.were_two or world.is_repair_over
        is_parallel = self._settings.protocol == "parallel" and not self._settings.two_phase
        has_timed_out = world.is_repair_over or (world.has_timed_out and is_parallel)
        return isinstance(error, TornBatchError) and has_timed_out


def _answers(model: Model, life: Life, request: tuple[Any, ...]) -> Iterator[tuple[str, Model, Any, Life]]:
    """What may follow from *request* of *life*: what happened, the cluster, the answer, and whom the driver asks from
    now on. The last is the current coordinator's: no other accepts a change."""
    text = f"driver {life.number}: {request[0]}{request[1:]}"
    coordinator = COORDINATORS.get(request[0])
    if coordinator in model.replaced and coordinator not in life.has_found and request[0] in LOOKS:
        _, told = model.of_replaced(coordinator).ask(*request)
        asking = replace(life, asks_old=life.asks_old | {coordinator})
        yield f"{text} -> {told}, by a replaced coordinator", model, told, asking
    if coordinator in life.asks_old and request[0] in LOOKS:
        return
    following, answer = model.ask(*request)
    if coordinator in model.replaced:
        life = replace(life, asks_old=life.asks_old - {coordinator}, has_found=life.has_found | {coordinator})
    yield f"{text} -> {answer}", following, answer, life


def _has_waited(error: KafkaError | None) -> bool:
    """Whether a driver has waited for what a replaced coordinator never learns, and has written nothing."""
    return isinstance(error, KafkaTimeoutError | LostEndError) or (
        isinstance(error, ApiError) and error.code is ErrorCode.REQUEST_TIMED_OUT
    )


def _told(life: Life, answer: Any) -> Life:
    return replace(life, answers=(*life.answers, answer))


def _sorted(*lives: Life) -> tuple[Life, ...]:
    return tuple(sorted(lives, key=lambda life: life.number))


def _check_once(model: Model) -> None:
    values = [value.partition(" ")[0] for value in model.visible()]
    twice = {value for value in values if values.count(value) > 1}
    if twice:
        raise ViolationError(f"twice: {sorted(twice)} in {model.visible()}")


def _steps_to(world: World, came_from: dict[World, tuple[World, str] | None]) -> str:
    steps: list[str] = []
    while (before := came_from[world]) is not None:
        world, step = before
        steps.append(step)
    return "\n".join(steps)


def all_settings(batches: int) -> list[Settings]:
    """Both protocols, both versions, and with two-phase commit where it has a meaning."""
    return [
        Settings(protocol, version, two_phase, batches)
        for protocol in ("parallel", "atomic")
        for version in TransactionVersion
        for two_phase in (False, True)
        if protocol == "parallel" or not two_phase
    ]


def going_on(batches: int) -> list[Settings]:
    """The settings in which a driver goes on after its own last batch without a fence: version 2, several batches."""
    return [each for each in all_settings(batches) if each.version is TransactionVersion.V2]


def with_others(batches: int) -> list[Settings]:
    """The settings in which something else happens in each run: see Settings."""
    return [
        each._replace(others=others)
        for each in all_settings(batches)
        if not each.two_phase
        for others in (("apart", "copies", "last epochs") if each.protocol == "parallel" else ("last epochs",))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Explore every interleaving of a small world.")
    parser.add_argument("--states", type=int, default=2_000_000, help="the most states of each setting")
    parser.add_argument("--faults", type=int, default=2, help="that may happen in one run")
    parser.add_argument("--switches", type=int, default=1, help="how often a living driver is overtaken by another")
    parser.add_argument("--batches", type=int, default=1)
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    faults = Faults(asked.faults, asked.switches, coordinators=1, tasks=1)
    print(f"at most {asked.faults} faults and {asked.switches} switches between living drivers in one run")
    for settings in (*all_settings(asked.batches), *with_others(asked.batches)):
        print(Explorer(settings, faults, most_states=asked.states).run(), flush=True)


if __name__ == "__main__":
    main()
