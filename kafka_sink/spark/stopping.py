"""The end of a streaming job: by itself, or on SIGTERM and SIGINT when the micro-batch under way is done.

Called on the main thread of the user's driver program; under ``spark-submit`` signals reach the JVM around it instead,
which would end at once, so they are caught there as well. It never lets a stream go on that loses its rows.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql.streaming.query import StreamingQuery

from kafka_sink.spark.continuous import refuse_continuous

#: How often a stop that was asked for is looked at, and then the end of the micro-batch, seconds.
_LOOK_S: Final = 0.25
_LOOK_AT_BATCH_S: Final = 0.02

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger(__name__)


class _Stop:
    """Set by the first signal; a second one asks not to wait for the micro-batch."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.at_once = threading.Event()

    def ask(self) -> None:
        (self.at_once if self.asked.is_set() else self.asked).set()

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        self.ask()


class _JvmHandler:
    """The JVM's view of a :class:`_Stop`; called on a thread of its own."""

    def __init__(self, stop: _Stop) -> None:
        self._stop = stop

    def handle(self, number: Any) -> None:
        self._stop.ask()

    class Java:
        implements = ("sun.misc.SignalHandler",)


def run_until_stopped(query: StreamingQuery) -> None:
    """Return when *query* has ended, or SIGTERM or SIGINT came and its micro-batch under way is done.

    A batch that began in the very moment of the stop is left to the next start, and so is the one under way after a
    second signal: it is void with exactly-once, and may be there twice with at-least-once.

    :raises KafkaError: *query* has the continuous trigger, which loses every row; it is stopped.
    :raises StreamingQueryException: *query* failed.
    """
    refuse_continuous(query)
    stop = _Stop()
    with _signals_to(stop):
        while query.isActive and not stop.asked.is_set():
            stop.asked.wait(_LOOK_S)
        if query.isActive:
            _log.warning("asked to stop: the micro-batch under way is finished first (a second signal stops at once)")
            _await_batch(query, stop)
            query.stop()
    failed = query.exception()
    if failed is not None:
        raise failed


def _await_batch(query: StreamingQuery, stop: _Stop) -> None:
    before = _last_batch(query)
    while (
        query.isActive
        and query.status["isTriggerActive"]
        and _last_batch(query) == before
        and not stop.at_once.is_set()
    ):
        stop.at_once.wait(_LOOK_AT_BATCH_S)


def _last_batch(query: StreamingQuery) -> int | None:
    progress = query.lastProgress
    return None if progress is None else int(progress["batchId"])


@contextmanager
def _signals_to(stop: _Stop) -> Iterator[None]:
    previous = {number: signal.signal(number, stop.on_signal) for number in _SIGNALS}
    with _jvm_signals_to(stop):
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


@contextmanager
def _jvm_signals_to(stop: _Stop) -> Iterator[None]:
    """Not over Spark Connect, where there is no JVM that belongs to this program."""
    gateway = SparkContext._gateway
    if gateway is None:
        yield
        return
    start_callbacks: Any = ensure_callback_server_started
    start_callbacks(gateway)
    jvm: Any = gateway.jvm
    handler = _JvmHandler(stop)
    previous = {number: jvm.sun.misc.Signal.handle(_jvm_signal(jvm, number), handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, before in previous.items():
            jvm.sun.misc.Signal.handle(_jvm_signal(jvm, number), before)


def _jvm_signal(jvm: Any, number: signal.Signals) -> Any:
    return jvm.sun.misc.Signal(number.name.removeprefix("SIG"))
