"""Drivers that are killed and frozen at every step, on the embedded broker; and that the count finds a broken protocol.

Longer: KAFKALITE_DRIVER_LIVES.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import Figure
from tests.exactly_once.lives import run_in_process
from tests.support.broker_process import BrokerProcess

LIVES = int(os.environ.get("KAFKALITE_DRIVER_LIVES", "8"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    process.kill()


@pytest.mark.timeout(30 + 10 * LIVES)
@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
def test_whatever_dies_nothing_is_lost_torn_or_there_twice(
    broker: BrokerProcess, protocol: str, figure: Figure
) -> None:
    verdict = run_in_process(broker.bootstrap_servers, protocol, LIVES, "--seed", "11")
    figure(protocol, verdict["text"])
    assert verdict["is_exact"], verdict


def test_a_driver_that_wakes_up_just_before_its_decision_changes_nothing(broker: BrokerProcess) -> None:
    verdict = run_in_process(broker.bootstrap_servers, "parallel", 0, "--zombie")
    assert verdict["is_exact"], verdict
    assert verdict["ended"]["woken: fenced"] == 1


@pytest.mark.parametrize(
    ("control", "lives", "finds"),
    [
        pytest.param("no-record", 6, "duplicates", id="no record of the decision"),
        pytest.param("plain-offsets", 0, "duplicates", id="a record that nothing fences"),
        pytest.param("id-per-task", 6, "is_stuck", id="one id for each number of a task"),
    ],
)
def test_the_count_finds_a_protocol_with_a_part_left_out(
    broker: BrokerProcess, control: str, lives: int, finds: str, figure: Figure
) -> None:
    options = ["--seed", "5", "--control", control, *([] if lives else ["--zombie"])]
    verdict: dict[str, Any] = run_in_process(broker.bootstrap_servers, "parallel", lives, *options)
    figure(control, verdict["text"])
    assert verdict[finds], verdict
