"""Schedules of a few drivers, a lost end, and late requests or an outdated answer, which :mod:`.explore` would reach
only after very many states."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import lru_cache, partial
from itertools import product
from typing import Any, Final, NamedTuple
from unittest import mock

import pytest

from kafka_sink.broker.coordinator.transaction_state import TransactionMetadata
from kafka_sink.common.model import TopicPartition, TransactionVersion
from kafka_sink.exactly_once.protocols import AtomicSink
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.situation import Situation
from kafka_sink.exactly_once.transactions import COMPLETING_MS, Transaction, driver_id, sink_id
from tests.conftest import Figure
from tests.exploration.drivers import LOOKS, PAUSE, Ended, Settings, Told, driver_of, is_of_task
from tests.exploration.explore import Alone, Life
from tests.exploration.model import COORDINATORS, GROUP, OFFSETS, PARTITIONS, TOPIC, Model
from tests.support.cases import with_each

_DRIVER_ID: Final = driver_id(sink_id(GROUP, TOPIC))
_PLACES: Final = {
    "group": frozenset({OFFSETS}),
    "rows": frozenset(PARTITIONS),
    "all": frozenset({OFFSETS, *PARTITIONS}),
}

pytestmark = pytest.mark.behaviour(
    "Exactly once: every interleaving", "A lost end and a request or an answer that is too old break no promise"
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    _beginning.cache_clear()
    yield
    logging.disable(logging.NOTSET)


@lru_cache
def _beginning(settings: Settings, number: int) -> Told:
    """Return driver *number* for all schedules, which share its runs."""
    return driver_of(settings, number)


class _Stage:
    """Drivers that take a step on call. Ends are written immediately; the first one of the driver's id for which
    *loses* is true is lost in *places*. *replaced* answers the read-only requests of driver 1, until one of its changes
    has found the current coordinator of its kind."""

    def __init__(
        self, settings: Settings, places: frozenset[TopicPartition], loses: Callable[[TransactionMetadata], bool]
    ) -> None:
        self.model = Model(settings.version)
        self.replaced: Model | None = None
        self.kind = ""
        self.has_lost = False
        self._settings, self._places, self._loses = settings, places, loses
        self._told: dict[int, Told] = {}

    def asks(self, number: int) -> tuple[Any, ...] | Ended:
        told = self._told.setdefault(number, _beginning(self._settings, number))
        return told.request(Alone([self.model], Life(number, told)).answer)

    def step(self, number: int) -> None:
        request, answer = self.asks(number), None
        assert not isinstance(request, Ended)
        if request != PAUSE:
            is_look, is_of_kind = request[0] in LOOKS, COORDINATORS[request[0]] == self.kind
            if number == 1 and is_of_kind and not is_look:
                self.replaced = None
            if number == 1 and is_of_kind and self.replaced is not None:
                _, answer = self.replaced.ask(*request)
            else:
                self.model, answer = self.model.ask(*request)
        self._told[number] = self._told[number].after(answer)
        for name in self.model.deciding:
            ending, lost = dict(self.model.ids)[name], frozenset[TopicPartition]()
            if name == _DRIVER_ID and not self.has_lost and self._loses(ending):
                lost = self._places & ending.partitions
                self.has_lost = bool(lost)
            self.model = self.model.complete(name, lost)

    def until(self, number: int, reached: Callable[[tuple[Any, ...]], bool]) -> bool:
        """Run driver *number* until *reached* is true for its next request; return whether it got there."""
        while not isinstance(request := self.asks(number), Ended):
            if reached(request):
                return True
            self.step(number)
        return False

    def until_repair(self, number: int, operation: str) -> bool:
        """Run driver *number* until its next request is *operation* for writing a lost commit again."""
        return self.until(number, _is_repair) and self.until(
            number, lambda request: request[0] == operation and request[1].transactional_id == _DRIVER_ID
        )

    def end(self, number: int) -> Ended:
        self.until(number, lambda request: False)
        ended = self.asks(number)
        assert isinstance(ended, Ended)
        return ended

    def broken(self, *ended: Ended) -> str | None:
        """Return the promise that is broken after all drivers have *ended*; None if none is."""
        values = [value.partition(" ")[0] for value in self.model.visible()]
        if twice := sorted({value for value in values if values.count(value) > 1}):
            return f"twice: {twice}"
        batches = self._settings.numbers
        missing = {f"{batch}-{task}" for batch in batches for task in self._settings.tasks(batch)} - {*values}
        if missing and any(each.error is None for each in ended):
            return f"missing: {sorted(missing)}"
        return None


def _is_fence(request: tuple[Any, ...]) -> bool:
    return bool(request[:2] == ("init", _DRIVER_ID))


def _is_repair(request: tuple[Any, ...]) -> bool:
    """Return whether *request* records that a lost commit is written again."""
    return _is_fence(request) and request[2] in COMPLETING_MS


def _is_decision(request: tuple[Any, ...]) -> bool:
    return bool(request[0] == "end" and request[2])


class Schedule(NamedTuple):
    """A schedule. *run* returns the broken promise, None if none is, and "-" if the schedule cannot happen."""

    text: str
    run: Callable[[], str | None]


def _late_fence(settings: Settings, places: str, fence: int, operation: str, dies: bool) -> str | None:
    """Driver 1 is frozen before its *fence*-th InitProducerId. The end of a decision of driver 2 is lost; driver 2
    begins to write it again, and dies or is also frozen before its *operation*. Then driver 1 resumes."""
    is_frozen = False
    stage = _Stage(settings, _PLACES[places], lambda ending: is_frozen and ending.state.is_commit)
    for _ in range(fence - 1):
        if stage.until(1, _is_fence):
            stage.step(1)
    if not stage.until(1, _is_fence):
        return "-"
    is_frozen = True
    if not stage.until_repair(2, operation):
        return "-"
    ended = [stage.end(1)]
    if not dies:
        ended.append(stage.end(2))
    return stage.broken(*ended)


def _two_late_fences(settings: Settings, places: str, operation: str, dies: bool, order: tuple[int, ...]) -> str | None:
    """Drivers 1 and 3 are frozen before their first InitProducerId. The end of a decision of driver 2 is lost; driver 2
    begins to write it again, and dies or is also frozen before its *operation*. Then the two requests arrive, and the
    drivers resume in this *order*."""
    is_frozen = False
    stage = _Stage(settings, _PLACES[places], lambda ending: is_frozen and ending.state.is_commit)
    if not all(stage.until(number, _is_fence) for number in (1, 3)):
        return "-"
    is_frozen = True
    if not stage.until_repair(2, operation):
        return "-"
    stage.step(1)
    stage.step(3)
    return stage.broken(*(stage.end(number) for number in order if number != 2 or not dies))


def _replaced_leaders(version: TransactionVersion, rows: int, is_replaced: bool) -> str | None:
    """Driver 2 dies after *rows* rows, and the abort of its transaction is lost. The leaders that answer driver 1
    before its first row were replaced before all rows."""
    settings = Settings("atomic", version, two_phase=False, batches=1)
    stage = _Stage(settings, _PLACES["rows"], lambda ending: not ending.state.is_commit)
    if is_replaced:
        stage.kind, stage.replaced = "leaders", stage.model
    for _ in range(rows):
        stage.until(2, lambda request: request[0] == "write")
        stage.step(2)
    return stage.broken(stage.end(1)) if stage.end(1) and stage.has_lost else "-"


def _replaced_coordinator(settings: Settings, places: str, operation: str, kind: str, since: str) -> str | None:
    """The end of a decision of driver 2 is lost; it dies then, or before its *operation* while it writes the end again.
    The coordinator of this *kind* that first answers driver 1 has been a replaced one *since* that point."""
    stage = _Stage(settings, _PLACES[places], lambda ending: ending.state.is_commit)
    if since != "the beginning":
        stage.until(2, _is_fence if since == "the first fence" else _is_decision)
    old = stage.model
    is_there = stage.until_repair(2, operation) if operation else stage.until(2, lambda _: stage.has_lost)
    if not is_there:
        return "-"
    stage.kind, stage.replaced = kind, old
    return stage.broken(stage.end(1))


_BOTH: Final = [
    Settings(protocol, version, two_phase=False, batches=2)
    for protocol in ("parallel", "atomic")
    for version in TransactionVersion
]


def _schedules() -> Iterator[Schedule]:
    for settings, places, operation in product(_BOTH, _PLACES, ("", "add", "end")):
        what = f"{settings.protocol}, version {settings.version.value}, lost in {places}, before {operation or 'plan'}"
        for kind, since in product(("transactions", "group"), ("the beginning", "the first fence", "the decision")):
            text = f"{what}; coordinator of {kind} replaced since {since}"
            yield Schedule(text, partial(_replaced_coordinator, settings, places, operation, kind, since))
        for fence, dies in product((1, 2, 3), (True, False)) if operation else ():
            text = f"{what}; driver 2 {'dead' if dies else 'frozen'}, driver 1 frozen before fence {fence}"
            yield Schedule(text, partial(_late_fence, settings, places, fence, operation, dies))
        for order, dies in (
            product(((1, 3, 2, 4), (3, 1, 2, 4), (2, 3, 1), (4, 3, 2)), (True, False)) if operation else ()
        ):
            text = f"{what}; driver 2 {'dead' if dies else 'frozen'}, drivers 1 and 3 frozen, then {order}"
            yield Schedule(text, partial(_two_late_fences, settings, places, operation, dies, order))
    for version, rows, is_replaced in product(TransactionVersion, (1, 2), (True, False)):
        leaders = "replaced leaders" if is_replaced else "current leaders"
        text = f"version {version.value}, driver 2 dies after {rows} rows; {leaders}"
        yield Schedule(text, partial(_replaced_leaders, version, rows, is_replaced))


SCHEDULES: Final = list(_schedules())


def test_no_schedule_breaks_a_promise(figure: Figure) -> None:
    found = {each.text: each.run() for each in SCHEDULES}
    assert {text: broken for text, broken in found.items() if broken not in (None, "-")} == {}
    figure("schedules", sum(broken is None for broken in found.values()))


async def _fence_blindly(driver: SinkDriver) -> tuple[Transaction, int]:
    timeout_ms = driver.wanted_timeout_ms
    return await driver.client.init_producer_id(driver_id(driver.id), timeout_ms), timeout_ms


async def _nothing_open(*_: object) -> list[TopicPartition]:
    return []


_NO_RECORD: Final = (Situation, "is_decision_lost", property(lambda s: False))


@pytest.mark.parametrize(
    "rules",
    [
        # The record alone also detects a fence that is repeated unconditionally, which then ends in an error.
        [(SinkDriver, "fence", _fence_blindly), _NO_RECORD],
        [_NO_RECORD],
        [(AtomicSink, "_open_before", _nothing_open)],
        [(Situation, "is_in_progress", property(lambda s: True))],
    ],
    ids=lambda rules: " and ".join(name for _, name, _ in rules),
)
def test_schedules_notice_a_broken_rule(rules: list[tuple[type, str, object]]) -> None:
    with ExitStack() as patched:
        for owner, name, broken in rules:
            patched.enter_context(mock.patch.object(owner, name, broken))
        assert any(each.run() not in (None, "-") for each in SCHEDULES)


@with_each("version", TransactionVersion)
def test_a_driver_aborts_what_was_not_decided_and_nothing_else(version: TransactionVersion) -> None:
    stage = _Stage(Settings("parallel", version, two_phase=False, batches=2), frozenset(), lambda _: False)
    # Driver 2 takes over while the tasks of driver 1 write, and dies after its decision.
    assert stage.until(1, is_of_task) and stage.until(2, is_of_task)
    assert stage.until(1, lambda request: not is_of_task(request))
    assert stage.until(2, lambda request: _is_decision(request) and request[1].transactional_id != _DRIVER_ID)
    ended: dict[bool, set[str]] = {True: set(), False: set()}
    while not isinstance(request := stage.asks(3), Ended):
        if request[0] == "end" and request[1].transactional_id != _DRIVER_ID:
            ended[request[2]].add(request[1].transactional_id)
        stage.step(3)
    assert request.error is None and stage.broken(request) is None
    assert ended[True] and ended[False]
    assert not ended[True] & ended[False]
