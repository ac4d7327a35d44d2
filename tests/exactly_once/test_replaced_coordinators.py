"""A group coordinator that was replaced, has not learned of it, and still answers from its former state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.common.model import OffsetAndMetadata
from kafka_sink.exactly_once.model import BatchNumbering, OutdatedProgressError, UndecidedError
from tests.exactly_once.world import PARTITIONS, QUERY, World

pytestmark = pytest.mark.behaviour(
    "Exactly once: replaced coordinators", "No decision is made on progress that a replaced coordinator told"
)


@pytest.fixture(scope="module", params=[2, 1], ids=["version 2", "version 1"])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=1, config=replace(BrokerConfig(), transaction_version=request.param)) as running:
        yield running


@pytest.fixture
def replace_coordinator(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Callable[[], None]]:
    """Return a function that saves the current progress as that of a replaced coordinator. The function's result makes
    the driver read from this coordinator, until a commit of offsets finds the current one."""

    def replaced() -> Callable[[], None]:
        known = world.client.run(world.client.fetch_offsets(world.topic, world.topic, range(PARTITIONS)))

        def begin() -> None:
            fetch_offsets, commit_offsets = world.client.fetch_offsets, world.client.commit_offsets
            is_current = False

            async def fetch(group: str, topic: str, partitions: Sequence[int], **options: Any) -> Any:
                if is_current:
                    return await fetch_offsets(group, topic, partitions, **options)
                return {partition: known[partition] for partition in partitions if partition in known}

            async def commit(*arguments: Any) -> OffsetAndMetadata | None:
                nonlocal is_current
                found = await commit_offsets(*arguments)
                is_current = True
                return found

            monkeypatch.setattr(world.client, "fetch_offsets", fetch)
            monkeypatch.setattr(world.client, "commit_offsets", commit)
            world.restart()

        return begin

    return replaced


def meanwhile(world: World, protocol: str, version: int, *values: bytes) -> None:
    """Write a batch with another driver, which the current coordinator answers."""
    other = World(world.bootstrap, world.topic)
    try:
        other.write_batch(protocol, version, *values)
    finally:
        other.client.close()


@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
@pytest.mark.parametrize("committed", [1, 2])
def test_batch_committed_before_is_written_once(
    world: World, protocol: str, committed: int, replace_coordinator: Callable[[], Callable[[], None]]
) -> None:
    """Also the first batch, of which the replaced coordinator has no progress."""
    rows = [b"0", b"1"][:committed]
    for version, row in enumerate(rows[:-1]):
        world.write_batch(protocol, version, row)
    ask_it = replace_coordinator()
    meanwhile(world, protocol, committed - 1, rows[-1])
    ask_it()
    world.write_batch(protocol, committed - 1, rows[-1])
    assert sorted(map(bytes, world.committed())) == rows  # type: ignore[arg-type]
    world.write_batch(protocol, committed, b"next")
    assert sorted(map(bytes, world.committed())) == [*rows, b"next"]  # type: ignore[arg-type]


def test_transactions_of_an_unknown_decision_are_not_aborted(
    world: World, replace_coordinator: Callable[[], Callable[[], None]]
) -> None:
    """A dead driver has decided them and not committed all; the coordinator's answer to its successor lacks that
    decision."""
    world.write_batch("parallel", 0, b"0")
    ask_it = replace_coordinator()
    other = World(world.bootstrap, world.topic)
    other.decide_and_die(1, b"1a", b"1b", b"1c")
    other.client.close()
    ask_it()
    plan = world.parallel.plan()
    assert not plan.must_write(1, QUERY, BatchNumbering.OF_A_QUERY)
    assert sorted(map(bytes, world.committed())) == [b"0", b"1a", b"1b", b"1c"]  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
def test_batch_after_the_unknown_one_may_run_again(
    world: World, protocol: str, replace_coordinator: Callable[[], Callable[[], None]]
) -> None:
    world.write_batch(protocol, 0, b"0")
    ask_it = replace_coordinator()
    meanwhile(world, protocol, 1, b"1")
    ask_it()
    with pytest.raises(OutdatedProgressError, match=r"said version 0, and the latest is version 1") as caught:
        world.write_batch(protocol, 2, b"2")
    assert isinstance(caught.value, UndecidedError)
    assert sorted(map(bytes, world.committed())) == [b"0", b"1"]  # type: ignore[arg-type]
    world.write_batch(protocol, 2, b"2")
    assert sorted(map(bytes, world.committed())) == [b"0", b"1", b"2"]  # type: ignore[arg-type]


@pytest.mark.usefixtures("few_ids")
def test_decision_that_only_seems_torn_is_not_called_so(
    world: World, replace_coordinator: Callable[[], Callable[[], None]]
) -> None:
    """Its tasks' ids are already used for another batch, which the replaced coordinator does not know."""
    world.write_batch("parallel", 0, b"0", b"0")
    ask_it = replace_coordinator()
    for version in (1, 2):
        world.write_batch("parallel", version, b"%d" % version, b"%d" % version)
    ask_it()
    plan = world.parallel.plan()
    assert plan.progress is not None
    assert plan.progress.version == 2
