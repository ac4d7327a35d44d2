"""Seeded runs of the simulator; a failing one says how to replay it (``--sim-runs N`` for a long run)."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests.sim.mutations import MUTATIONS, Mutation, first_catch
from tests.sim.simulation import Simulation
from tests.sim.transaction_mutations import TRANSACTION_MUTATIONS
from tests.sim.transaction_simulation import TransactionSimulation
from tests.sim.world import ViolationError
from tests.support.amounts import only_long

pytestmark = pytest.mark.behaviour(
    "Faults: simulator",
    "The simulator keeps every promise for every seed, and notices each rule that is broken on purpose",
)

ROOT = Path(__file__).parents[2]

#: Runs per test, so that progress can be seen and several processes can share the work.
CHUNK = 50
#: Runs with transactions take this many times as long as others, so there are fewer of them.
TRANSACTIONS_COST = 8
#: Seeds within which every broken rule has to be caught.
MUTATION_SEEDS = range(2000)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        runs = metafunc.config.getoption("--sim-runs")
        chunks = [range(first, min(first + CHUNK, runs)) for first in range(0, runs, CHUNK)]
        metafunc.parametrize("seeds", chunks, ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")


def test_simulation_keeps_every_promise(seeds: range) -> None:
    failed = []
    for seed in seeds:
        try:
            Simulation(seed).run()
        except ViolationError as error:
            failed.append(f"seed {seed}: {error}\n    replay it: python -m tests.sim.run --seed {seed}")
    assert not failed, "\n".join(failed)


def test_transactions_are_whole_or_not_there(seeds: range) -> None:
    failed = []
    for seed in seeds[::TRANSACTIONS_COST]:
        try:
            TransactionSimulation(seed).run()
        except ViolationError as error:
            failed.append(f"seed {seed}: {error}\n    replay it: python -m tests.sim.run --transactions --seed {seed}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize(
    "options", [pytest.param(["--sim-runs", "4"], marks=only_long), ["--sim-runs", "1", "--transactions"]], ids=" ".join
)
def test_a_seed_replays_exactly_in_another_process(options: list[str]) -> None:
    """Whatever hashes and addresses it has there."""
    command = [sys.executable, "-m", "tests.sim.run", *options, "--verbose"]
    runs = [
        subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for hash_seed in ("1", "2")
    ]
    outcomes = [[line for line in lines if line.startswith("Outcome")] for lines in runs]
    assert len(outcomes[0]) == int(options[1])
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("mutation", (*MUTATIONS, *TRANSACTION_MUTATIONS), ids=lambda mutation: mutation.name)
def test_simulation_catches_every_broken_rule(mutation: Mutation) -> None:
    caught = first_catch(mutation, [mutation.likely_seed, *MUTATION_SEEDS])
    assert caught is not None, f"{mutation.name}: no seed noticed"
    seed, _said = caught
    if seed != mutation.likely_seed:
        warnings.warn(f"{mutation.name}: likely_seed {mutation.likely_seed} is stale; use {seed}", stacklevel=1)
