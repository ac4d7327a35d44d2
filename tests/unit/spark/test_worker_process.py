"""Changes that the sink makes in Spark's Python processes, and state that it does not change."""

from __future__ import annotations

import gc
import inspect
import os
import pickle
import socket
import subprocess
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.worker import write_into_data_source

from kafka_sink.spark.task.worker_process import WorkerProcess, connection_to_jvm, worker_process

T = TypeVar("T")


@pytest.fixture(autouse=True)
def reused_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")


@pytest.fixture
def loopback() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a TCP connection, as between a worker and the JVM."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        worker = socket.create_connection(listener.getsockname())
        jvm, _ = listener.accept()
        with worker, jvm:
            yield worker, jvm


def no_delay(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


def as_spark_does(sock: socket.socket, call: Callable[[], T]) -> T:
    """Run *call* as ``pyspark/daemon.py`` does: in its function "worker", which has the connection as "sock"."""
    loop = compile("def worker(sock, call):\n    return call()\n", "/somewhere/pyspark/daemon.py", "exec")
    names: dict[str, Any] = {}
    exec(loop, names)
    result: T = names["worker"](sock, call)
    return result


class Cycle:
    def __init__(self) -> None:
        self.myself = self


@pytest.fixture
def freezes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of modules at each freeze."""
    counted: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: 0)
    monkeypatch.setattr(gc, "freeze", lambda: counted.append(len(sys.modules)))
    return counted


def test_what_was_imported_is_frozen_once(freezes: list[int]) -> None:
    process = WorkerProcess()
    for _ in range(3):
        with process.task(tuned=True):
            pass
    assert len(freezes) == 1


def test_imports_of_a_later_task_are_frozen_too(freezes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    process = WorkerProcess()
    with process.task(tuned=True):
        pass
    with process.task(tuned=True):
        monkeypatch.setitem(sys.modules, "imported_late", types.ModuleType("imported_late"))
    assert freezes[1] == freezes[0] + 1


def test_garbage_of_before_and_after_is_collected() -> None:
    process = WorkerProcess()
    before = weakref.ref(Cycle())
    with process.task(tuned=True):
        pass
    after = weakref.ref(Cycle())
    gc.collect()
    assert before() is None
    assert after() is None


def test_nothing_is_frozen_in_a_worker_for_one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER")
    gc.unfreeze()
    with WorkerProcess().task(tuned=True):
        pass
    assert gc.get_freeze_count() == 0


def test_the_connection_to_the_jvm_has_no_delay(loopback: tuple[socket.socket, socket.socket]) -> None:
    connection, _ = loopback

    def task() -> bool:
        with WorkerProcess().task(tuned=True):
            return no_delay(connection)

    assert not no_delay(connection)
    assert as_spark_does(connection, task)


def test_no_other_connection_is_touched(loopback: tuple[socket.socket, socket.socket]) -> None:
    connection, another = loopback

    def task() -> bool:
        with WorkerProcess().task(tuned=True):
            return no_delay(another)

    assert not as_spark_does(connection, task)


def test_unix_sockets_are_left_as_they_are() -> None:
    one, another = socket.socketpair()
    with one, another:
        assert as_spark_does(one, connection_to_jvm) is None


def test_a_default_timeout_of_the_application_changes_nothing(loopback: tuple[socket.socket, socket.socket]) -> None:
    """It would make a new socket object of the same descriptor non-blocking, and PySpark would read nothing."""
    connection, _ = loopback

    def task() -> bool:
        with WorkerProcess().task(tuned=True):
            return os.get_blocking(connection.fileno())

    socket.setdefaulttimeout(10)
    try:
        assert as_spark_does(connection, task)
    finally:
        socket.setdefaulttimeout(None)


def test_a_connection_that_is_closed_is_no_error(loopback: tuple[socket.socket, socket.socket]) -> None:
    connection, _ = loopback
    connection.close()

    def task() -> str:
        with WorkerProcess().task(tuned=True):
            return "done"

    assert as_spark_does(connection, task) == "done"


def test_freezing_ends_after_the_first_tasks(freezes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    process = WorkerProcess()
    for number in range(6):
        monkeypatch.setitem(sys.modules, f"made_by_task_{number}", types.ModuleType("made"))
        with process.task(tuned=True):
            pass
    assert len(freezes) == 3


def test_nothing_is_touched_when_switched_off(loopback: tuple[socket.socket, socket.socket]) -> None:
    connection, _ = loopback

    def task() -> bool:
        with WorkerProcess().task(tuned=False):
            return no_delay(connection)

    gc.unfreeze()
    assert not as_spark_does(connection, task)
    assert gc.get_freeze_count() == 0


def test_a_failed_task_leaves_the_process_tuned() -> None:
    gc.unfreeze()
    with pytest.raises(ValueError, match="a row"), WorkerProcess().task(tuned=True):
        raise ValueError("a row")
    assert gc.get_freeze_count() > 0


# Runs in another process: pandas is imported in this one.
LAST_STEP = """
import sys
import pyarrow as pa
from kafka_sink.spark.internals import spare_pandas

original = pa.array
spare_pandas()
spare_pandas()
messages = pa.array([b"message"])
assert pa.record_batch([messages], names=["m"]).to_pydict() == {"m": [b"message"]}
messages.validate(full=True)
assert "pandas" not in sys.modules and pa.array is original
spare_pandas()
assert pa.array(["text"], pa.large_string()).type == pa.large_string() and pa.array is original
assert "pandas" in sys.modules, "pyarrow imports it no more: spare_pandas is needed no more"
spare_pandas()
assert pa.array is original
"""


@pytest.mark.behaviour("Tasks", "A task imports no pandas: 40 MB of each worker")
def test_array_of_a_message_imports_no_pandas() -> None:
    done = subprocess.run([sys.executable, "-c", LAST_STEP], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


def test_spark_makes_its_message_as_expected() -> None:
    assert "messages = pa.array([pickled])" in inspect.getsource(write_into_data_source)


def test_a_function_of_a_task_uses_the_state_of_its_process() -> None:
    """Spark pickles nested functions together with the objects that they refer to."""
    passed_on = pickle.loads(CloudPickleSerializer().dumps(lambda: worker_process))  # type: ignore[no-untyped-call]
    assert passed_on() is worker_process
