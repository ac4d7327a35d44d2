"""The model of scale agrees with counted batches, and the table in docs/internals/scale.md with the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_sink.exactly_once import writing
from tests.bench import bench_scale, scale_model
from tests.bench.bench_scale import DOCS, docs_table, message_bytes, metadata_cost, progress_characters, run_really
from tests.bench.scale_model import Shape, connections_of_a_worker, connections_of_the_driver
from tests.bench.scale_worlds import run_atomic_in_memory, run_in_memory
from tests.conftest import Figure
from tests.support import amounts
from tests.support.benchmarks import run_module

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 100

#: A tenth of the tasks in scale.md, or all: 10,000 tasks and 1,000 brokers. Each task has one partition, because each
#: worker keeps the metadata of all of them, here in one process.
TASKS = amounts.SCALE_TASKS
IN_MEMORY = Shape(TASKS, TASKS // 10, TASKS // 10, TASKS, touched=0)
REAL = Shape(tasks=100, workers=2, brokers=10, partitions=40, touched=40)

#: Requests whose numbers depend on the hashes of ids, which select their coordinators.
BY_CHANCE = ("DescribeTransactions", "ApiVersions")


def assert_is(counted: Mapping[str, int], expected: Mapping[str, float]) -> None:
    """Every count equals the model's; those that depend on chance approximately."""
    for name in {*counted, *expected}:
        share = 0.3 if name in BY_CHANCE else 0
        assert counted.get(name, 0) == pytest.approx(expected.get(name, 0), rel=share), name


@amounts.only_long
def test_metadata_and_connections_are_a_workers_and_not_a_tasks() -> None:
    first, *later = run_really(REAL, exactly_once=False)
    # A worker that requests the brokers before it knows the topic requests the topic's metadata separately.
    assert REAL.workers <= first.workers["Metadata"] <= 2 * REAL.workers < REAL.tasks
    assert {**first.workers, "Metadata": REAL.workers} == scale_model.at_least_once(REAL)
    for batch in later:
        assert set(batch.workers) == {"Produce"}


@amounts.only_long
def test_a_parallel_batch_on_real_brokers_is_the_models() -> None:
    first, second, third = run_really(REAL, exactly_once=True)
    # Each worker requests the leaders once, when it first examines whether it can reuse an id. On a busy machine the
    # last of the further connections to a broker may begin as late as this.
    workers, driver = ({"ApiVersions": counted["ApiVersions"]} for counted in (third.workers, third.driver))
    assert_is(third.workers, {**scale_model.tasks_of_parallel(REAL), "Metadata": REAL.workers, **workers})
    assert_is(third.driver, {**scale_model.driver_of_parallel(REAL), **driver})
    # Each of a worker's two clients sends these when it starts, and none in later batches.
    assert 2 * REAL.workers <= first.workers["Metadata"] <= 3 * REAL.workers
    assert second.workers["Metadata"] == 0
    made = sum(batch.workers["ApiVersions"] for batch in (first, second, third))
    # A client may have four connections to a broker, and begins more of them on a busy machine.
    expected = REAL.workers * connections_of_a_worker(REAL, exactly_once=True)
    assert 0.9 * expected <= made <= 2 * expected < REAL.tasks
    assert sum(third.message_bytes) / REAL.tasks == pytest.approx(message_bytes(REAL.touched), rel=0.1)


def test_a_parallel_batch_in_memory_is_the_models(figure: Figure) -> None:
    shape = IN_MEMORY
    batches = run_in_memory(
        brokers=shape.brokers, partitions=shape.partitions, tasks=shape.tasks, workers=shape.workers, batches=3
    )
    third = batches[-1]
    # A worker requests the leaders once, and then connects to them; their number depends on chance.
    connected = third.workers["ApiVersions"]
    expected = {**scale_model.tasks_of_parallel(shape), "Metadata": shape.workers, "ApiVersions": connected}
    # Here the partitions of a worker's tasks have one leader.
    expected["ListOffsets"] = shape.workers
    assert_is(third.workers, expected)
    # The last of its further connections may begin as late as this.
    begun = third.driver["ApiVersions"]
    assert_is(third.driver, {**scale_model.driver_of_parallel(shape), "ApiVersions": begun})
    assert third.driver_connections == pytest.approx(connections_of_the_driver(shape), rel=0.02)
    # These batches send no rows, so workers connect to leaders only for the requests about open transactions.
    coordinators = connections_of_a_worker(shape, exactly_once=True) - 1 - shape.leaders_of_a_worker
    leaders = min(shape.brokers, shape.tasks_of_a_worker)
    assert shape.workers * coordinators * 0.9 <= third.worker_connections
    assert third.worker_connections <= shape.workers * (coordinators + 2 * leaders)
    assert third.progress_characters == pytest.approx(progress_characters(shape.tasks, shape.workers), rel=0.1)
    figure(
        f"{shape.tasks:,} tasks, {shape.brokers} brokers in memory",
        f"{sum(third.driver.values()):,} requests of the driver, {sum(third.workers.values()):,} of the tasks",
    )


def test_an_atomic_batch_in_memory_is_the_models() -> None:
    shape = replace(IN_MEMORY, partitions=10 * TASKS)
    *_, last = run_atomic_in_memory(brokers=shape.brokers, partitions=shape.partitions, batches=3)
    # The last batch may need no new connection.
    assert last == Counter({**scale_model.driver_of_atomic(shape), "ApiVersions": last["ApiVersions"]})


def test_the_sink_has_and_looks_at_as_many_ids_as_the_model_says() -> None:
    assert writing.MAX_IDS_CHECKED == scale_model.MAX_IDS_CHECKED
    assert writing.FEWEST_IDS == scale_model.FEWEST_IDS


def test_metadata_has_forty_two_bytes_a_partition() -> None:
    least, more = metadata_cost(10, 100, runs=1), metadata_cost(10, 1100, runs=1)
    assert (more.bytes - least.bytes) / 1000 == pytest.approx(42, abs=1)
    assert more.peak_bytes > more.kept_bytes > least.kept_bytes > 0


def test_a_task_has_the_models_share_of_progress_and_message() -> None:
    assert progress_characters(10_000, 1000) / 10_000 == pytest.approx(6.4, abs=0.1)
    assert (message_bytes(1001) - message_bytes(1)) / 1000 == pytest.approx(38, abs=2)


def test_the_table_of_the_page_is_the_models() -> None:
    page = (ROOT / "docs" / "internals" / "scale.md").read_text(encoding="utf-8")
    assert docs_table(DOCS) in page, "python -m tests.bench.bench_scale --docs"


def test_the_benchmark_runs() -> None:
    arguments = ["--tasks", "40", "--workers", "20", "--brokers", "20", "--partitions", "100", "--nodes", "2"]
    found = run_module(bench_scale.__name__, arguments, TIMEOUT_S)
    assert set(found["counted"]) == {"in memory", "embedded brokers"}
    assert found["coefficients"]["metadata"]["partitions"] == 100
