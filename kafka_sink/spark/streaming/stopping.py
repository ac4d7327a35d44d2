"""The end of a streaming job: by itself, or on SIGTERM and SIGINT when the micro-batch under way is done.

Called on the main thread of the user's driver program; under ``spark-submit`` signals reach the JVM around it instead,
which would end at once, so they are caught there as well. It never lets a stream go on that loses its rows.

Ctrl-C goes to every process of the terminal's foreground group: to both of these, and to each ``chmod`` that Hadoop's
local file system runs for a file of the checkpoint. So on a terminal, where this process hears of it anyway, the JVM
ignores SIGINT, and what it runs inherits that.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql.streaming.query import StreamingQuery

from kafka_sink.spark.streaming.continuous import refuse_continuous

#: How often a stop that was asked for is looked at, and then the end of the micro-batch, seconds.
_LOOK_S: Final = 0.25
_LOOK_AT_BATCH_S: Final = 0.02

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

#: What Hadoop says of a program that SIGINT or SIGTERM has ended.
_ENDED_BY_SIGNAL: Final = re.compile(r"ExitCodeException exitCode=(130|143)\b")

_log = logging.getLogger(__name__)


class _Stop:
    """Set by the first signal; a second one asks not to wait for the micro-batch. One that reaches both Python and the
    JVM is one."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.at_once = threading.Event()
        self._counts = Counter[str]()

    def ask(self, receiver: str) -> None:
        self._counts[receiver] += 1
        (self.at_once if self._counts[receiver] > 1 else self.asked).set()

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        self.ask("python")


class _JvmHandler:
    """The JVM's view of a :class:`_Stop`; called on a thread of its own."""

    def __init__(self, stop: _Stop) -> None:
        self._stop = stop

    def handle(self, number: Any) -> None:
        self._stop.ask("jvm")

    class Java:
        implements = ("sun.misc.SignalHandler",)


def run_until_stopped(query: StreamingQuery) -> None:
    """Return when *query* has ended, or SIGTERM or SIGINT came and its micro-batch under way is done.

    A batch that began in the very moment of the stop is left to the next start, and so is the one under way after a
    second signal: it is void with exactly-once, and may be there twice with at-least-once. So is one that fails because
    the signal also went to a program that Hadoop had just started, as when it is sent to a whole process group.

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
        # The JVM may know of the failure before Python does of the signal.
        is_stopped = failed is not None and _failed_by_signal(query) and stop.asked.wait(_LOOK_S)
    if is_stopped:
        _log.warning(
            "the signal to stop has also ended a program that Hadoop ran for the checkpoint: the micro-batch under way "
            "is left to the next start"
        )
    elif failed is not None:
        raise failed


def _failed_by_signal(query: StreamingQuery) -> bool:
    """Whether *query* failed because a program that Hadoop ran for it was ended by a signal to stop (as far as can be
    seen: over Spark Connect that is another machine's)."""
    java_query: Any = getattr(query, "_jsq", None)
    cause = None if java_query is None else java_query.exception().get()
    while cause is not None:
        # The message of Java's exception for the query leaves this part of its cause out.
        if _ENDED_BY_SIGNAL.search(str(cause.toString())):
            return True
        cause = cause.getCause()
    return False


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
    try:
        with _jvm_signals_to(stop):
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
    handlers: dict[signal.Signals, Any] = dict.fromkeys(_SIGNALS, _JvmHandler(stop))
    if _is_in_foreground():
        handlers[signal.SIGINT] = jvm.sun.misc.SignalHandler.SIG_IGN
    previous = {
        number: jvm.sun.misc.Signal.handle(_jvm_signal(jvm, number), handler) for number, handler in handlers.items()
    }
    try:
        yield
    finally:
        for number, before in previous.items():
            jvm.sun.misc.Signal.handle(_jvm_signal(jvm, number), before)


def _is_in_foreground() -> bool:
    """Whether a terminal's Ctrl-C reaches this process."""
    try:
        terminal = os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _jvm_signal(jvm: Any, number: signal.Signals) -> Any:
    return jvm.sun.misc.Signal(number.name.removeprefix("SIG"))
