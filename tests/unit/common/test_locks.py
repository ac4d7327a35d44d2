"""Detection of a call within another one, by the modules of the frames of a thread."""

from __future__ import annotations

from collections.abc import Callable

from kafka_sink.common.locks import is_nested
from tests.support.cases import with_each

PRODUCER = "kafka_sink.producer.batching.buffer_pool"
LEAVES = "kafka_sink.common.locks"
SHELL = "kafka_sink.common.threads"


def called_by(module: str, call: Callable[[], bool]) -> Callable[[], bool]:
    """A function of *module* that returns the result of *call*."""
    names = {"__name__": module, "call": call}
    exec("def caller():\n    return call()", names)
    caller: Callable[[], bool] = names["caller"]  # type: ignore[assignment]
    return caller


@with_each(
    ("modules", "expected"),
    [
        ([PRODUCER, PRODUCER, "job"], False),
        ([PRODUCER, LEAVES, PRODUCER, "job"], False),
        ([PRODUCER, "job.handler", PRODUCER, "job"], True),
        ([PRODUCER, LEAVES, "job.handler", LEAVES, PRODUCER, "job"], True),
        # A task keeps its producer: an interrupt releases the locks of both.
        ([PRODUCER, "kafka_sink.spark.task.task_writer", LEAVES, "kafka_sink.spark.task.task_writer"], False),
        ([PRODUCER, "kafka_sink.spark.task.task_writer", SHELL, "threading"], False),
    ],
)
def test_only_calls_inside_other_calls_are_nested(modules: list[str], expected: bool) -> None:
    call = is_nested
    for module in modules:
        call = called_by(module, call)
    assert call() is expected
