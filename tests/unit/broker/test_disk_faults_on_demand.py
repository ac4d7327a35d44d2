"""A disk that fails on demand by a fault, under a partition's log."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafka_sink.broker.faults.disk import FaultyFileSystem
from kafka_sink.broker.faults.faults import Faults
from kafka_sink.broker.log.filesystem import LogFile
from tests.fakes.memory_filesystem import MemoryFileSystem


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def disk(faults: Faults) -> FaultyFileSystem:
    return FaultyFileSystem(MemoryFileSystem(), faults)


def opened(disk: FaultyFileSystem, directory: str = "my-orders-3") -> LogFile:
    return disk.open(Path("/data/logs") / directory / "0.log")


@pytest.mark.behaviour("Faults on demand", "A full disk takes half of a write, and says so")
def test_a_full_disk_takes_half_and_says_so(disk: FaultyFileSystem, faults: Faults) -> None:
    file = opened(disk)
    file.append([b"before"])
    with faults.on("disk.write", topic="my-orders", partition=3, times=1) as fault:
        with pytest.raises(OSError) as caught:
            file.append([b"abcd", b"efgh"])
        assert caught.value.errno == errno.ENOSPC
        assert file.read(0, 100) == b"beforeabcd" and file.size == 10
        file.truncate(6)
        file.append([b"after"])
    assert fault.hits == 1 and file.read(0, 100) == b"beforeafter"


def test_a_flush_that_fails(disk: FaultyFileSystem, faults: Faults) -> None:
    file = opened(disk)
    faults.on("disk.flush", every=2)
    file.append([b"v"])
    file.flush()
    with pytest.raises(OSError) as caught:
        file.flush()
    assert caught.value.errno == errno.EIO
    file.flush()
    file.close()


def test_disk_fault_leaves_other_partitions_and_files_alone(disk: FaultyFileSystem, faults: Faults) -> None:
    fault = faults.on("disk.write", topic="my-orders", partition=3)
    for directory in ("my-orders-4", "my-3", "logs", "my-orders-x"):
        file = opened(disk, directory)
        file.append([b"v"])
        file.flush()
    assert fault.hits == 0
