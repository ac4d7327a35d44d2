"""A process that writes to many sinks in turn, each with its own client id, keeps a bounded number of clients."""

from __future__ import annotations

import gc
import os
import threading

import pyarrow as pa
import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import BatchNumbering
from kafka_sink.spark.driver.write_report import sink_of, transactions_to_commit
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.task.shared_client import MOST_CLIENTS
from kafka_sink.spark.task.transactional_task import write_in_transaction
from kafka_sink.spark.write_spec import ExactlyOnce
from tests.bench import resources
from tests.conftest import Figure
from tests.support.amounts import MANY_SINKS
from tests.support.waiting import until

WRITER = "an application"
MIB = 1024 * 1024


def write_batch(servers: str, topic: str, number: int) -> None:
    """Write a batch of a new sink, as a driver and a worker do."""
    given = {"kafka.bootstrap.servers": servers, "topic": topic, "kafka.client.id": f"job-{number}"}
    options = parse_options(given).spec
    exactly_once = ExactlyOnce(f"sink-{number}", topic, 0, two_phase=False)
    plan = sink_of(options, exactly_once).plan(WRITER)
    assert plan.must_write(0, WRITER, BatchNumbering.OF_AN_APPLICATION)
    commit = write_in_transaction(iter([pa.record_batch({"value": [str(number)]})]), options, plan, 0, WRITER)
    # Spark may commit in another process than the one that has planned.
    sink = sink_of(options, exactly_once)
    sink.commit(plan, 0, WRITER, transactions_to_commit(sink, plan, [commit], options))


def known_clients() -> int:
    """Return the number of clients in this process; earlier tests may have left some."""
    gc.collect()
    return sum(isinstance(each, CoordinatorClient) for each in gc.get_objects())


@pytest.mark.behaviour(
    "Tasks", "Many sinks with properties of their own leave no more connections and threads than the first ten"
)
@pytest.mark.skipif(not resources.available(), reason="no /proc on this system")
def test_many_sinks_one_after_another_leave_what_ten_leave(cluster: EmbeddedCluster, figure: Figure) -> None:
    cluster.create_topic("rows", partitions=1)
    most = 10
    others = known_clients()
    used: list[tuple[int, int, int]] = []
    for number in range(MANY_SINKS):
        write_batch(cluster.bootstrap_servers, "rows", number)
        if number + 1 in (most, MANY_SINKS):
            gc.collect()
            pid = os.getpid()
            used.append((resources.open_descriptors(pid), threading.active_count(), resources.resident_bytes(pid)))
    descriptors, threads, _ = used[0]
    # A thread closes connections within a short time; those of idle clients are closed after minutes.
    until("the ends", lambda: resources.open_descriptors(os.getpid()) <= descriptors + 5)
    until("the threads", lambda: threading.active_count() <= threads)
    assert known_clients() <= others + MOST_CLIENTS
    for what, each in (("after ten", used[0]), (f"after {MANY_SINKS}", used[-1])):
        figure(what, f"{each[0]} descriptors, {each[1]} threads, {each[2] // MIB} MiB")
