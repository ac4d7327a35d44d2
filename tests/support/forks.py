"""Processes of the tests that are forks of one which has imported what they need: most of what a start would take."""

from __future__ import annotations

import multiprocessing
from typing import Final

#: ``FORKS.Process(target=…)`` is as with any context of multiprocessing; nothing of the test's own process is in it.
FORKS: Final = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "kafka_sink.cli.commands.broker",
        "tests.exactly_once.lives",
        "tests.support.broker_process",
        "tests.support.good_client",
        "tests.support.transactional_worker",
    ]
)
