"""A KeyboardInterrupt at every line of a Spark task's write, with a running broker.

No task may continue with the producer of an interrupted one, whose batches have unknown outcomes.
"""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import suppress

import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.task.task_writer import write_task
from tests.conftest import Figure
from tests.fakes.interrupting import Points, interrupt
from tests.fakes.left_producers import LeftProducers
from tests.support import amounts
from tests.support.readback import read_topic
from tests.unit.spark.test_task_writer import batches

TOPIC = "rows"

#: "all": every line of a task. Otherwise as many lines as fit into two seconds, at equal distances.
_ALL = amounts.INTERRUPT_POINTS == "all"
_STRIDE = 1 if _ALL else 453

#: Real seconds after which a thread that should have ended is considered stuck.
_PATIENCE_S = 60


def sender_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("kafka-producer")]


@pytest.mark.behaviour("Faults: interrupts and signals", "An interrupted task leaves no thread and nothing wrong")
def test_an_interrupted_task_leaves_no_thread_and_nothing_wrong(figure: Figure, left_producers: LeftProducers) -> None:
    with EmbeddedCluster(nodes=1) as cluster:
        cluster.create_topic(TOPIC, 3)
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": TOPIC}
        options = parse_options(given).spec
        rows = batches(3, 20, 3)
        expected = {str(number).encode() for number in range(60)}
        tried = whole = 0
        for point in itertools.count(0, _STRIDE):
            # The interrupted task starts with the producer that this task leaves.
            write_task(iter(rows), options)
            whole += 1
            points = Points(point, interrupt)
            with suppress(KeyboardInterrupt):
                points.during(lambda: write_task(iter(rows), options))
                whole += 1
            if points.struck is None:
                break
            tried += 1
            deadline = time.monotonic() + _PATIENCE_S
            # A producer that was left stays until a task takes it.
            while len(sender_threads()) > left_producers.usable:
                assert time.monotonic() < deadline, f"a sender thread goes on after {points.struck}"
                time.sleep(0.001)
        figure("interrupted", f"{tried} points")
        stored = read_topic(cluster.bootstrap_servers, TOPIC)
        assert {record.value for record in stored} <= expected
        # All rows of each task that completed are stored.
        assert all(sum(record.value == value for record in stored) >= whole for value in expected)
