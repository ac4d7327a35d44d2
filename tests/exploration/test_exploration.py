"""No interleaving of a small world breaks a promise; the exploration detects broken rules. KAFKALITE_EXPLORED_STATES
sets the maximum number of states."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_sink.common.model import TransactionVersion
from kafka_sink.exactly_once.model import LostEndError
from tests.conftest import Figure
from tests.exploration.drivers import LOOKS, PAUSE, Settings, run_driver
from tests.exploration.explore import Faults, Scope, all_settings, beyond, with_others, worlds
from tests.exploration.model import COORDINATORS, PARTITIONS, Model
from tests.exploration.mutations import MUTATIONS, Mutation
from tests.support import amounts
from tests.support.amounts import LONG

SEED = 1
#: Each coordinator, and the leaders, may be replaced once without learning of it.
REPLACED = {"group": 1, "transactions": 1, "leaders": 1}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disable the sink's warnings, because explored events cause many."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.behaviour(
    "Exactly once: every interleaving", "No interleaving of two drivers, their tasks and brokers breaks a promise"
)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scope", worlds(), ids=str)
def test_no_interleaving_breaks_a_promise(scope: Scope, figure: Figure) -> None:
    report = scope.explored(amounts.EXPLORED_STATES)
    assert report.is_complete or scope.states is not None
    figure("states", f"{report.states} ({'all' if report.is_complete else 'bounded'})")


@pytest.mark.behaviour(
    "Exactly once: every interleaving", "No interleaving of two drivers, their tasks and brokers breaks a promise"
)
@pytest.mark.timeout(3600)
def test_random_walks_beyond_the_bound_break_no_promise(figure: Figure) -> None:
    for settings in (*all_settings(1), *with_others(2))[:: 1 if LONG else 5]:
        walks = beyond(settings, Faults(2, 1, **REPLACED, tasks=1)).walk(amounts.RANDOM_WALKS, SEED)
        figure("beyond the bound", str(walks))


@pytest.mark.behaviour("Exactly once: every interleaving", "The exploration notices every broken rule")
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_exploration_notices_every_broken_rule(mutation: Mutation) -> None:
    assert mutation.caught() is not None


@pytest.mark.behaviour(
    "Exactly once: every interleaving",
    "A lost end is not passed over because a replaced coordinator does not know the id",
)
@pytest.mark.parametrize("version", TransactionVersion)
def test_lost_end_is_noticed_behind_a_replaced_coordinator(version: TransactionVersion) -> None:
    settings = Settings("atomic", version, two_phase=False, batches=1)
    model, finds_current = Model(version).with_replaced("transactions"), True

    def answer(request: tuple[Any, ...]) -> Any:
        nonlocal model, finds_current
        answered = None
        if request != PAUSE:
            is_look = request[0] in LOOKS
            finds_current |= not is_look and COORDINATORS.get(request[0]) == "transactions"
            following, answered = (model if finds_current else model.of_replaced("transactions")).ask(*request)
            model = model if is_look else following
        loses = request[0] == "end" and request[2]
        for name in model.deciding:
            model = model.complete(name, frozenset(PARTITIONS if loses else ()))
        return answered

    assert run_driver(settings, 1, answer).error is None
    assert model.visible() == []
    finds_current = False
    assert isinstance(run_driver(settings, 2, answer).error, LostEndError)
