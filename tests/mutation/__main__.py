"""Mutates what is listed in :data:`TARGETS`, and prints what the unit tests do not notice.

    python -m tests.mutation [NAME …] [--processes N]

Each mutant is tried in a fork of this process, in which everything but the mutated package is imported already. A
mutant that changes nothing is listed in :data:`EQUIVALENT` with the reason. Exits with 1 if another one survives.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from tests.mutation.mutants import Mutant, mutants

ROOT: Final = Path(__file__).parents[2]
#: A mutant may loop for ever.
_TIMEOUT_S: Final = 20


class Target(NamedTuple):
    """What is mutated: a *module*, in these *names* (empty: everywhere), and the *tests* that must notice it. *fresh*
    are the packages that depend on it, which are imported anew."""

    module: str
    tests: Sequence[str]
    fresh: Sequence[str]
    names: frozenset[str] = frozenset()


_UNIT: Final = "tests.unit.exactly_once."
_EXACTLY_ONCE: Final = ("kafka_sink.exactly_once", "tests.unit.exactly_once", "tests.fakes.immediate")

TARGETS: Final = {
    "situation": Target("kafka_sink.exactly_once.situation", [f"{_UNIT}test_situation"], _EXACTLY_ONCE),
    "description": Target(
        "kafka_sink.exactly_once.transaction_description",
        [f"{_UNIT}test_situation", f"{_UNIT}test_decision"],
        _EXACTLY_ONCE,
    ),
    "progress": Target(
        "kafka_sink.exactly_once.progress",
        [f"{_UNIT}{name}" for name in ("test_progress", "test_same_rows", "test_decision", "test_manifest")],
        _EXACTLY_ONCE,
    ),
