"""Runs the simulator from the command line.

``python -m tests.sim.run --seed S`` replays one seed and prints its trace; ``--sim-runs N [--from F]`` tries N seeds.
With ``--transactions`` the runs are those of :mod:`tests.sim.transaction_simulation`.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.sim.simulation import Simulation
from tests.sim.transaction_simulation import TransactionSimulation
from tests.sim.world import ViolationError

Kind = type[Simulation] | type[TransactionSimulation]


def replay(kind: Kind, seed: int, last: int) -> int:
    simulation = kind(seed, tracing=True)
    print(simulation.plan)
    try:
        outcome: object = simulation.run()
        failed = False
    except ViolationError as error:
        outcome, failed = f"VIOLATION: {error}", True
    print("\n".join(simulation.world.trace[-last:] if last else simulation.world.trace))
    print(outcome)
    return int(failed)


def try_many(kind: Kind, first: int, count: int, *, verbose: bool) -> int:
    began = time.monotonic()
    failures = 0
    records = stored = succeeded = 0
    for seed in range(first, first + count):
        try:
            outcome = kind(seed).run()
        except ViolationError as error:
            failures += 1
            print(f"seed {seed}: {error}", flush=True)
        else:
            if verbose:
                print(outcome)
            records += outcome.records
            stored += outcome.stored_batches
            succeeded += outcome.succeeded
    seconds = time.monotonic() - began
    print(
        f"{count} runs in {seconds:.1f} s: {failures} failed; {records} records, {succeeded} acknowledged, "
        f"{stored} batches stored"
    )
    return int(failures > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one and print its trace")
    parser.add_argument("--last", type=int, default=0, help="print only so many lines of the trace")
    parser.add_argument("--sim-runs", type=int, default=200)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="print what each run came to")
    parser.add_argument("--transactions", action="store_true", help="runs with transactions")
    args = parser.parse_args()
    kind: Kind = TransactionSimulation if args.transactions else Simulation
    return (
        replay(kind, args.seed, args.last)
        if args.seed is not None
        else try_many(kind, args.first, args.sim_runs, verbose=args.verbose)
    )


if __name__ == "__main__":
    sys.exit(main())
