"""Connections and requests of a batch of the sink: formulas of the numbers of tasks, brokers and partitions.

``test_bench_scale.py`` compares the formulas with counted runs, and :mod:`bench_scale` prints their results. Counts
are those of brokers with transaction version 2 on which nothing fails; where a hash maps ids to coordinators, the
formula is the expected number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

#: Kafka's transaction.state.log.num.partitions: so many brokers coordinate transactions at most.
COORDINATOR_PARTITIONS: Final = 50

#: How many of its ids a worker looks at together to find those that are free
#: (:mod:`kafka_sink.exactly_once.writing`).
MAX_IDS_CHECKED: Final = 20

#: How many ids a worker has at least, after some batches (there, too).
FEWEST_IDS: Final = 8

#: Connections to a broker that is asked several things at once (:mod:`kafka_sink.client.blocking.blocking`).
LANES: Final = 4


@dataclass(frozen=True)
class Shape:
    """A batch: *tasks* on *workers* (Python processes), each of which writes to *touched* partitions of the topic."""

    tasks: int
    workers: int
    brokers: int
    partitions: int
    touched: int

    @property
    def coordinators(self) -> int:
        """Brokers that coordinate transactions."""
        return min(self.brokers, COORDINATOR_PARTITIONS)

    @property
    def leaders(self) -> int:
        """Brokers that a task sends rows to, where the partitions that it writes to are spread evenly."""
        return min(self.brokers, self.touched)

    @property
    def leaders_of_a_worker(self) -> int:
        """As many at most, where its tasks write to different partitions."""
        return min(self.brokers, self.touched * self.tasks_of_a_worker)

    @property
    def tasks_of_a_worker(self) -> int:
        return -(-self.tasks // self.workers)


def reached(coordinators: int, ids: int) -> float:
    """Of so many coordinators those that at least one of so many ids has."""
    return coordinators * (1 - (1 - 1 / coordinators) ** ids)


def connections_of_a_worker(shape: Shape, *, exactly_once: bool) -> float:
    """One to a bootstrap address and one to each leader, which go on from task to task; exactly once the same again to
    the coordinators of its ids, of which it has twice as many as tasks in a batch, or :data:`FEWEST_IDS`."""
    found: float = 1 + shape.leaders_of_a_worker
    if exactly_once:
        # To the leaders once more: it asks them whether the ids' last transactions are over. Some coordinate, too.
        coordinators = reached(shape.coordinators, max(2 * shape.tasks_of_a_worker, FEWEST_IDS))
        others = shape.leaders_of_a_worker * (1 - coordinators / shape.brokers)
        found += 1 + coordinators + others
    return found


def connections_of_the_driver(shape: Shape) -> int:
    """Exactly once: one to each broker, which are all asked for open transactions, and further ones to those that
    coordinate the tasks' transactions; at least once none at all."""
    return 1 + shape.brokers + (LANES - 1) * shape.coordinators


def at_least_once(shape: Shape) -> Mapping[str, float]:
    """Requests of the tasks of one batch, on workers that have just begun; later they send only the last one."""
    return {
        "ApiVersions": shape.workers * connections_of_a_worker(shape, exactly_once=False),
        "Metadata": shape.workers,
        "InitProducerId": shape.workers,
        "Produce": shape.tasks * shape.leaders,
    }


def tasks_of_parallel(shape: Shape) -> Mapping[str, float]:
    """Requests of the tasks of a batch with a transaction a task, from the third batch on: then ids are used again, and
    the end of their last transaction has given them the next epoch."""
    in_a_worker = shape.tasks_of_a_worker
    looks = -(-in_a_worker // MAX_IDS_CHECKED)
    asked = looks * reached(shape.coordinators, min(in_a_worker, MAX_IDS_CHECKED))
    return {
        "DescribeTransactions": shape.workers * asked,
        "ListOffsets": shape.workers
        * looks
        * min(shape.brokers, max(shape.touched, 1) * min(in_a_worker, MAX_IDS_CHECKED)),
        "Produce": shape.tasks * shape.leaders,
    }


def driver_of_parallel(shape: Shape) -> Mapping[str, float]:
    """Requests of the driver of such a batch."""
    return {
        "Metadata": 1,
        "ListTransactions": 2 * shape.brokers,
        # How the driver's last transaction ended, whether the last batch is committed, and whether this one can be.
        "DescribeTransactions": 1 + 2 * reached(shape.coordinators, shape.tasks),
        # The driver goes on after its own last batch, and reads the progress again behind the proposal.
        "OffsetFetch": 2,
        "TxnOffsetCommit": 1,
        "EndTxn": shape.tasks + 1,
    }


def driver_of_atomic(shape: Shape) -> Mapping[str, float]:
    """Requests of the driver of a batch that is one transaction; its tasks send nothing but their rows."""
    return {
        "Metadata": 1,
        "ListTransactions": shape.brokers,
        # How its last transaction ended, and whether anything of it is still open.
        "DescribeTransactions": 1,
        "ListOffsets": 2 * max(shape.leaders, 1),
        # The driver goes on after its own last batch, and reads the progress again behind the proposal.
        "OffsetFetch": 2,
        "TxnOffsetCommit": 1,
        "EndTxn": 1,
    }
