"""Connections and requests of a batch of the sink: formulas of the numbers of tasks, brokers and partitions.

``test_bench_scale.py`` compares the formulas with counted runs, and :mod:`bench_scale` prints their results. Counts
are those of brokers with transaction version 2 on which nothing fails; where a hash maps ids to coordinators, the
formula is the expected number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

#: Kafka's transaction.state.log.num.partitions: the maximum number of brokers that coordinate transactions.
COORDINATOR_PARTITIONS: Final = 50

#: The number of its ids that a worker examines together to find free ones
#: (:mod:`kafka_sink.exactly_once.writing`).
MAX_IDS_CHECKED: Final = 20

#: The minimum number of ids of a worker after some batches (also there).
FEWEST_IDS: Final = 8

#: Connections to a broker for several concurrent requests (:mod:`kafka_sink.client.blocking.blocking`).
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
        """Return the number of brokers that coordinate transactions."""
        return min(self.brokers, COORDINATOR_PARTITIONS)

    @property
    def leaders(self) -> int:
        """Return the number of brokers to which a task sends rows, if its partitions' leaders are spread evenly."""
        return min(self.brokers, self.touched)

    @property
    def leaders_of_a_worker(self) -> int:
        """Return the maximum for all tasks of a worker, which they reach if they write to different partitions."""
        return min(self.brokers, self.touched * self.tasks_of_a_worker)

    @property
    def tasks_of_a_worker(self) -> int:
        return -(-self.tasks // self.workers)


def reached(coordinators: int, ids: int) -> float:
    """Return the expected number of *coordinators* that at least one of *ids* ids has."""
    return coordinators * (1 - (1 - 1 / coordinators) ** ids)


def connections_of_a_worker(shape: Shape, *, exactly_once: bool) -> float:
    """Return one to a bootstrap address and one to each leader, which the next tasks reuse. Exactly once adds those of
    a second client, also to the coordinators of the ids: twice as many as its tasks, at least :data:`FEWEST_IDS`."""
    found: float = 1 + shape.leaders_of_a_worker
    if exactly_once:
        # This client asks the leaders whether the ids' last transactions are complete. Some also are coordinators.
        coordinators = reached(shape.coordinators, max(2 * shape.tasks_of_a_worker, FEWEST_IDS))
        others = shape.leaders_of_a_worker * (1 - coordinators / shape.brokers)
        found += 1 + coordinators + others
    return found


def connections_of_the_driver(shape: Shape) -> int:
    """Return for exactly once: one to a bootstrap address, one to each broker, which list their open transactions, and
    further ones to the coordinators of the tasks' transactions. At least once needs none."""
    return 1 + shape.brokers + (LANES - 1) * shape.coordinators


def at_least_once(shape: Shape) -> Mapping[str, float]:
    """Return the requests of the tasks of a worker's first batch; in later batches they send only the last of these."""
    return {
        "ApiVersions": shape.workers * connections_of_a_worker(shape, exactly_once=False),
        "Metadata": shape.workers,
        "InitProducerId": shape.workers,
        "Produce": shape.tasks * shape.leaders,
    }


def tasks_of_parallel(shape: Shape) -> Mapping[str, float]:
    """Return the requests of the tasks of a batch with a transaction per task, from the third batch on: workers then
    reuse ids, whose next epoch the end of their last transaction has returned."""
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
    """Return the requests of the driver of such a batch."""
    return {
        "Metadata": 1,
        "ListTransactions": 2 * shape.brokers,
        # The outcome of the driver's last transaction, whether the last batch is committed, and if this one may be.
        "DescribeTransactions": 1 + 2 * reached(shape.coordinators, shape.tasks),
        # The driver resumes after its own last batch, and reads the progress again after the proposal.
        "OffsetFetch": 2,
        "TxnOffsetCommit": 1,
        "EndTxn": shape.tasks + 1,
    }


def driver_of_atomic(shape: Shape) -> Mapping[str, float]:
    """Return the requests of the driver of a batch that is one transaction; its tasks send only their rows."""
    return {
        "Metadata": 1,
        "ListTransactions": shape.brokers,
        # The outcome of its last transaction, and whether any part of it is still open.
        "DescribeTransactions": 1,
        "ListOffsets": 2 * max(shape.leaders, 1),
        # The driver resumes after its own last batch, and reads the progress again after the proposal.
        "OffsetFetch": 2,
        "TxnOffsetCommit": 1,
        "EndTxn": 1,
    }
