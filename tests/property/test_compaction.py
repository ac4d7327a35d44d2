"""A compacted log against a model: random writers, readers during the compaction, crashes at every step of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kafka_sink.broker.log.partition_log import LogConfig
from kafka_sink.common.errors import ApiError, ErrorCode
from tests.fakes.compacted_log import CONFIG, DIRECTORY, HOUR_MS, CompactedLog, table_of
from tests.fakes.memory_filesystem import Crash, MemoryFileSystem
from tests.support.amounts import COMPACTED_LOGS
from tests.support.cases import with_each

assert CONFIG.compaction is not None
RULES = CONFIG.compaction
CONFIGS: dict[str, LogConfig] = {
    "all at once": CONFIG,
    "few keys fit": replace(CONFIG, compaction=replace(RULES, map_bytes=1000)),
    "with lags": replace(CONFIG, compaction=replace(RULES, min_lag_ms=600_000, max_lag_ms=HOUR_MS)),
    "no wait for tombstones": replace(CONFIG, compaction=replace(RULES, delete_retention_ms=0)),
    "large segments": replace(CONFIG, segment_bytes=5000, segment_ms=600_000),
}


@pytest.mark.behaviour("Compaction", "Readers see what a model allows, while a log is compacted and afterwards")
@with_each("seed", range(COMPACTED_LOGS))
def test_readers_see_what_the_model_allows(seed: int) -> None:
    name = list(CONFIGS)[seed % len(CONFIGS)]
    world = CompactedLog(seed, CONFIGS[name])
    chance = world.random.random
    for _ in range(90):
        world.write_at_random()
        world.sleep(world.random.randint(1, 300_000))
        if chance() < 0.08:
            while world.compact(lambda: world.check() if chance() < 0.05 else None):
                pass
            world.check()
            world.check_compacted()
            world.check_producers()
        if chance() < 0.03:
            if chance() < 0.5:
                world.log.close()
            world.reopen()
            world.check()
        if chance() < 0.01:
            start = world.log.delete_records_before(world.random.randint(world.log.start_offset, world.log.end_offset))
            world.rows = {offset: row for offset, row in world.rows.items() if offset >= start or row.outcome == "open"}


@pytest.mark.behaviour("Compaction", "24 hours of a compacted topic: a reader that follows has every last value")
def test_a_reader_of_24_hours_has_every_last_value() -> None:
    """A batch or the end of a transaction every two minutes; the reader reads the new records twice an hour."""
    world = CompactedLog(24, replace(CONFIG, segment_bytes=4000, segment_ms=10 * 60_000))
    following: list[tuple[bytes | None, bytes | None]] = []
    position = compactions = largest = 0
    for minute in range(0, 24 * 60, 2):
        world.write_at_random()
        world.sleep(2 * 60_000)
        compactions += world.compact()
        largest = max(largest, world.log.size)
        if minute % 30 == 0:
            found = world.read(position, committed=True).records
            following += [(record.key, record.value) for record in found]
            position = world.log.last_stable_offset
        if minute % 120 == 0:
            world.check_compacted()
            world.check_producers()
            world.reopen()
    for producer in (2, 3):
        world.end(producer, commit=True)
    following += [(record.key, record.value) for record in world.read(position, committed=True).records]
    fresh = world.read(committed=True).records
    assert table_of(following) == table_of((record.key, record.value) for record in fresh) == world.table()
    assert compactions > 20
    # About 150 kB were written.
    assert largest < 40_000


#: The file of the first segment, which a compaction replaces.
FIRST = DIRECTORY / f"{0:020d}.log"


def prepared() -> CompactedLog:
    """A log with every kind of data that a compaction handles, due for its third compaction: it has gaps, and a
    tombstone and the marker of an aborted transaction whose retention times are over."""
    world = CompactedLog(7, replace(CONFIG, segment_bytes=700, compaction=replace(RULES, delete_retention_ms=600_000)))
    world.write((b"key-1", b"hidden"), producer=3, in_transaction=True)
    world.end(3, commit=False)
    for number in range(3):
        for _ in range(5):
            world.write_at_random()
            world.sleep(1000)
        world.end(2, commit=False)
        world.end(3, commit=True)
        for _ in range(2):
            world.write((b"last", b"x" * 450), producer=1)
        assert number == 2 or world.compact()
        world.sleep(HOUR_MS)
    world.write((b"key-2", b"seen"), producer=3, in_transaction=True)
    world.end(3, commit=True)
    world.log.close()
    world.reopen()
    return world


def steps_of_a_compaction(world: CompactedLog) -> int:
    again = world.on(world.disk.clone())
    again.disk.steps = 0
    assert again.compact()
    again.check_compacted()
    return again.disk.steps


@pytest.mark.behaviour("Compaction", "A crash at any step of a compaction leaves the old segments or the new one")
@pytest.mark.parametrize("lose", [lambda disk: None, MemoryFileSystem.lose_unflushed], ids=["killed", "power failure"])
def test_a_crash_at_every_step_leaves_a_right_log(lose: Callable[[MemoryFileSystem], None]) -> None:
    world = prepared()
    steps = steps_of_a_compaction(world)
    assert steps > 15
    states = set()
    for step in range(1, steps + 1):
        crashed = world.on(world.disk.clone())
        crashed.disk.steps, crashed.disk.crash_at, crashed.disk.crash_bytes = 0, step, 10
        with pytest.raises(Crash):
            crashed.compact()
        crashed.disk.crash_at = None
        lose(crashed.disk)
        crashed.reopen()
        assert crashed.log.truncated_bytes == 0
        assert not [path for path in crashed.disk.files if path.suffix == ".cleaned"]
        assert crashed.log.end_offset == world.log.end_offset
        crashed.check()
        crashed.check_producers()
        states.add(crashed.disk.files[FIRST].data == world.disk.files[FIRST].data)
        if step % 5 == 0:
            # The next compaction completes the work.
            while crashed.compact():
                pass
            crashed.check_compacted()
    assert states == {True, False}


@pytest.mark.behaviour("Compaction", "An error of the disk at any step of a compaction costs no record")
def test_an_error_at_every_step_costs_no_record() -> None:
    world = prepared()
    for step in range(1, steps_of_a_compaction(world) + 1):
        hurt = world.on(world.disk.clone())
        hurt.disk.steps, hurt.disk.fail_at = 0, step
        with pytest.raises(OSError, match="Input/output error"):
            hurt.compact()
        try:
            hurt.check()
        except ApiError as error:
            # It is unknown which of two files has the name of the segment.
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        hurt.reopen()
        hurt.check()
        assert not [path for path in hurt.disk.list_directory(DIRECTORY) if path.endswith(".cleaned")]
