"""A task that Spark has abandoned sends nothing more."""

from __future__ import annotations

import select
import socket
import threading

import pytest

from kafka_sink.spark.task.worker_process import AbandonedWorker
from tests.unit.spark.test_worker_process import as_spark_does

needs_linux = pytest.mark.skipif(not hasattr(select, "POLLRDHUP"), reason="only Linux reports it")


@needs_linux
@pytest.mark.behaviour("Stop means stop", "A task that Spark has given up sends nothing more")
def test_process_ends_when_spark_closes_the_connection_of_a_task() -> None:
    worker, jvm = socket.socketpair()
    ended = threading.Event()
    watch = AbandonedWorker(ended.set)

    def task() -> None:
        with watch.ended_during_task():
            # Bytes that the task has not read do not hide the closed connection.
            jvm.sendall(b"rows")
            jvm.close()
            assert ended.wait(60)

    with worker:
        as_spark_does(worker, task)


@needs_linux
def test_process_goes_on_when_the_connection_ends_after_the_task() -> None:
    worker, jvm = socket.socketpair()
    ended = threading.Event()
    watch = AbandonedWorker(ended.set)

    def task() -> None:
        with watch.ended_during_task():
            pass

    with worker:
        as_spark_does(worker, task)
        jvm.close()
        for thread in threading.enumerate():
            if thread.name == "kafkalite-task-watch":
                thread.join(60)
    assert not ended.is_set()


def test_outside_of_spark_nothing_is_watched() -> None:
    with AbandonedWorker(lambda: None).ended_during_task():
        pass
    assert not [each for each in threading.enumerate() if each.name == "kafkalite-task-watch"]
