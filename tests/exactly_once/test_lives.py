"""Drivers are killed and frozen at every step, on the embedded broker; negative controls show that the count finds a
broken protocol.

Longer runs: KAFKALITE_DRIVER_LIVES, KAFKALITE_LIVES_AT_A_POINT, KAFKALITE_INTERRUPTIONS, KAFKALITE_TASKS.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Figure
from tests.exactly_once.life import points_of
from tests.exactly_once.lives import run_in_process
from tests.support import amounts
from tests.support.broker_process import BrokerProcess

LIVES = amounts.DRIVER_LIVES
#: The number of drivers at every point; 0: some at one point.
LIVES_AT_A_POINT = amounts.LIVES_AT_A_POINT
#: The number of rounds of all points; 0: one point once.
ROUNDS = amounts.INTERRUPTIONS
#: Each run of a batch has 1 task or this number of tasks.
TASKS = amounts.TASKS

_BOTH = ("parallel", "atomic")
_PLACES = [(protocol, point) for protocol in _BOTH for point in points_of(protocol)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    process.kill()


@pytest.mark.behaviour(
    "Faults: exactly once", "Whatever dies or freezes, nothing is lost, torn or there twice on the embedded broker"
)
@pytest.mark.timeout(200 + 20 * LIVES)
@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
def test_exactly_once_survives_kills_and_freezes(broker: BrokerProcess, protocol: str, figure: Figure) -> None:
    verdict = run_in_process(broker.bootstrap_servers, protocol, LIVES, "--seed", "11")
    figure(protocol, verdict["text"])
    assert verdict["is_exact"], verdict


@pytest.mark.behaviour(
    "Faults: exactly once", "Drivers that are killed at one point, again and again, lose and repeat nothing"
)
@pytest.mark.behaviour(
    "Faults: exactly once",
    "Drivers that are frozen at one point and wake up beside a successor lose and repeat nothing",
)
@pytest.mark.timeout(200 + 20 * LIVES_AT_A_POINT)
@pytest.mark.parametrize(("protocol", "point"), _PLACES if LIVES_AT_A_POINT else [("parallel", "mid-end")])
@pytest.mark.parametrize("end", ["killed", "frozen"])
def test_drivers_that_end_at_one_point_lose_and_repeat_nothing(
    broker: BrokerProcess, protocol: str, point: str, end: str, figure: Figure
) -> None:
    options = ["--point", point, *(["--freeze"] if end == "frozen" else [])]
    lives = LIVES_AT_A_POINT or 2
    verdict = run_in_process(broker.bootstrap_servers, protocol, lives, *options)
    figure(f"{protocol}, {point}", verdict["text"])
    assert verdict["is_exact"], verdict
    assert verdict["ended"][end] >= lives - verdict["ended"].get("failed", 0)


@pytest.mark.behaviour("Faults: exactly once", "The number of tasks may change between two runs of a batch")
@pytest.mark.timeout(200 + 2 * TASKS)
@pytest.mark.parametrize("protocol", ["parallel", pytest.param("atomic", marks=amounts.only_long)])
def test_task_count_may_change_between_runs_of_a_batch(broker: BrokerProcess, protocol: str, figure: Figure) -> None:
    lives = max(LIVES_AT_A_POINT, 1)
    verdict = run_in_process(broker.bootstrap_servers, protocol, lives, "--tasks", str(TASKS), "--seed", "3")
    figure(f"{protocol}, 1 or {TASKS} tasks", verdict["text"])
    assert verdict["is_exact"], verdict


@pytest.mark.behaviour("Faults: exactly once", "A driver that wakes up just before its decision changes nothing")
def test_driver_woken_before_its_decision_is_fenced(broker: BrokerProcess) -> None:
    verdict = run_in_process(broker.bootstrap_servers, "parallel", 0, "--zombie")
    assert verdict["is_exact"], verdict
    assert verdict["ended"]["woken: fenced"] == 1


@pytest.mark.behaviour("Faults: exactly once", "The count of the tests finds a protocol with a part left out")
@pytest.mark.parametrize(
    ("control", "lives", "finds"),
    [
        pytest.param("no-record", 6, "duplicates", id="no record of the decision", marks=amounts.only_long),
        pytest.param("plain-offsets", 0, "duplicates", id="a record that nothing fences"),
        pytest.param("id-per-task", 6, "is_stuck", id="one id for each number of a task", marks=amounts.only_long),
    ],
)
def test_lives_count_finds_a_protocol_with_a_part_left_out(
    broker: BrokerProcess, control: str, lives: int, finds: str, figure: Figure
) -> None:
    options = ["--seed", "5", "--control", control, *([] if lives else ["--zombie"])]
    verdict: dict[str, Any] = run_in_process(broker.bootstrap_servers, "parallel", lives, *options)
    figure(control, verdict["text"])
    assert verdict[finds], verdict


@pytest.mark.behaviour("Faults: exactly once", "A broker that is killed at every step costs time only")
@pytest.mark.timeout(60 + 240 * ROUNDS)
@pytest.mark.parametrize("protocol", ["parallel", "atomic"] if ROUNDS else ["parallel"])
def test_a_broker_that_is_killed_at_every_step_costs_time_only(protocol: str, tmp_path: Path, figure: Figure) -> None:
    broker = BrokerProcess(tmp_path / "broker")
    broker.start()

    def kill(point: str, sink: str) -> None:
        broker.kill()
        broker.start()

    steps = ["--point", "mid-end"] if ROUNDS == 0 else []
    verdict = run_in_process(
        broker.bootstrap_servers, protocol, max(ROUNDS, 1), "--interruptions", *steps, on_reached=kill
    )
    broker.kill()
    figure(protocol, f"{verdict['text']}; longest stall at each step {verdict['stalls']}")
    assert verdict["is_exact"], verdict
