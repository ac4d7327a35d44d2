"""Security × path × codec × broker × memory: every byte of the written rows is stored once.

``scripts/test.sh --matrix`` runs all cells, the long run a choice with every pair of values, and the normal run those
of the choice that write to the embedded broker, and a few others (``tests/support/by_parts.py``).
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bench.topics import fresh_topic
from tests.matrix.cells import Cell, all_cells, count_of, pairs_of, pairwise_cells
from tests.matrix.conftest import CELL, IS_FULL
from tests.matrix.paths import ONE_PRODUCER, WRITERS, Write
from tests.matrix.payload import WHOLE, Payload, judge
from tests.support.securities import SECURITIES, SecureServer, Security

PARTITIONS = 4
CELL_LIMIT_S = 600
#: Enough for a few record batches of each partition, and a hundredth of a cell's rows.
LITTLE_MEMORY = {"buffer.memory": "1048576", "batch.size": "65536"}


@pytest.mark.behaviour("Security under load", "Every two values of the matrix meet in the choice of a long run")
def test_choice_of_cells_covers_every_pair_of_matrix_values() -> None:
    chosen, every = pairwise_cells(), all_cells()
    assert len(every) == len(set(every)) == 144
    assert {pair for cell in chosen for pair in pairs_of(cell)} >= {pair for cell in every for pair in pairs_of(cell)}
    assert len(chosen) <= 40
    assert chosen == pairwise_cells()


def test_half_of_the_cells_have_little_memory() -> None:
    every = all_cells()
    assert count_of(every, "small") == 72
    for security, path in itertools.product((each.name for each in SECURITIES), WRITERS):
        assert count_of([cell for cell in every if (cell.security, cell.path) == (security, path)], "small") == 2


@pytest.fixture
def server(request: pytest.FixtureRequest, cell: Cell) -> SecureServer:
    found: SecureServer = request.getfixturevalue(cell.broker)
    return found


@pytest.fixture
def security(cell: Cell) -> Security:
    return next(each for each in SECURITIES if each.name == cell.security)


@pytest.fixture
def topic(server: SecureServer, security: Security) -> Iterator[str]:
    with fresh_topic(server.looks[security], PARTITIONS) as name:
        yield name


@pytest.mark.behaviour(
    "Security under load", "Every cell of security, path and codec stores every byte, once, on both brokers"
)
@pytest.mark.timeout(CELL_LIMIT_S)
@pytest.mark.parametrize("cell", all_cells() if IS_FULL else pairwise_cells(), ids=str)
def test_matrix_cell_stores_every_byte_once(
    request: pytest.FixtureRequest,
    cell: Cell,
    server: SecureServer,
    security: Security,
    topic: str,
    payload: Payload,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    properties = {**server.client_properties(security), "compression.type": cell.codec}
    if cell.memory == "small":
        properties |= LITTLE_MEMORY
    told = {**dataclasses.asdict(cell), "rows": payload.rows, "megabytes": payload.megabytes}
    spark = None if cell.path in ONE_PRODUCER else request.getfixturevalue("spark")
    began = time.monotonic()
    try:
        WRITERS[cell.path](Write(spark, payload, properties, topic, tmp_path))
    finally:
        record_property(CELL, json.dumps({**told, "seconds": time.monotonic() - began}))
    verdict = judge(payload, {"bootstrap.servers": server.looks[security]}, topic)
    # Spark's tasks write concurrently, so the rows of a partition have no order.
    kept = verdict if cell.path in ONE_PRODUCER else dataclasses.replace(verdict, out_of_order=0)
    assert kept == WHOLE
