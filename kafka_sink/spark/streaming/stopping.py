"""Stops a streaming job on SIGTERM or SIGINT after its current micro-batch, or returns when it ends without a signal.

Called on the main thread of the user's driver program. Under ``spark-submit`` the signals go to the surrounding JVM,
which would exit at once, so they are handled there as well. A stream that loses its rows is stopped.

Ctrl-C goes to every process of the terminal's foreground process group: to this process, to the JVM, and to each
``chmod`` that Hadoop's local file system runs for a checkpoint file. On a terminal this process receives the signal
anyway, so the JVM ignores SIGINT there, and its child processes inherit this.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from kafka_sink.common.errors import KafkaError
from kafka_sink.spark.internals import java_query, jvm_with_callbacks
from kafka_sink.spark.versions import WriterCommitMessage

#: The intervals at which a requested stop and the end of the micro-batch are checked, seconds.
_CHECK_S: Final = 0.25
_CHECK_BATCH_S: Final = 0.02

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

#: Hadoop's message for a program that was ended by SIGINT or SIGTERM.
_ENDED_BY_SIGNAL: Final = re.compile(r"ExitCodeException exitCode=(130|143)\b")

_ROWS_ARE_LOST: Final = (
    "trigger(continuous=…) does not pass rows to a sink that is written in Python, and they are LOST; stop the "
    "query and use trigger(processingTime=…) or trigger(availableNow=True)"
)

_log = logging.getLogger(__name__)


def refuse_continuous(query: StreamingQuery) -> None:
    """Stop *query* if it has the continuous trigger, as far as that is visible: not with Spark Connect.

    :raises KafkaError: if it had that trigger.
    """
    running = java_query(query)
    if running is not None and "Continuous" in running.streamingQuery().getClass().getSimpleName():
        query.stop()
        raise KafkaError(f"query {query.id} was stopped: {_ROWS_ARE_LOST}")


def refuse_epoch(messages: Sequence[WriterCommitMessage | None], epoch: int) -> None:
    """Log an error if no task of *epoch* reported anything.

    :raises KafkaError: if no task reported anything; Spark logs it at every epoch and continues.
    """
    if messages and all(message is None for message in messages):
        text = f"no task of epoch {epoch} received any row: {_ROWS_ARE_LOST}"
        _log.error("ROWS ARE BEING LOST: %s", text)
        raise KafkaError(text)


class Stop:
    """A request to stop, set by the first signal; after a second signal the micro-batch is not awaited. A signal that
    reaches both Python and the JVM counts once."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.at_once = threading.Event()
        self._counts = Counter[str]()

    def ask(self, receiver: str) -> None:
        self._counts[receiver] += 1
        (self.at_once if self._counts[receiver] > 1 else self.requested).set()

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        self.ask("python")


class JvmHandler:
    """The signal handler in the JVM for a :class:`Stop`; called on a separate thread."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def handle(self, number: Any) -> None:
        self._stop.ask("jvm")

    class Java:
        implements = ("sun.misc.SignalHandler",)


def run_until_stopped(query: StreamingQuery) -> None:
    """Return when *query* has ended, or after SIGTERM or SIGINT when its current micro-batch is complete.

    The next start repeats a batch that began at the moment of the stop, the current batch after a second signal, and a
    batch that failed because the signal also ended a program that Hadoop had just started, for example when the signal
    was sent to a whole process group. With exactly-once this repeats no row; with at-least-once it may duplicate some.

    :raises KafkaError: if *query* has the continuous trigger, which loses every row; the query is stopped.
    :raises StreamingQueryException: if *query* failed.
    """
    refuse_continuous(query)
    stop = Stop()
    with _signals_to(stop):
        while query.isActive and not stop.requested.is_set():
            stop.requested.wait(_CHECK_S)
        if query.isActive:
            _log.warning("stopping: the current micro-batch is completed first (a second signal stops immediately)")
            before = _last_batch(query)
            while query.isActive and query.status["isTriggerActive"] and _last_batch(query) == before:
                if stop.at_once.wait(_CHECK_BATCH_S):
                    break
            query.stop()
        failed = query.exception()
        # The JVM may see the failure before Python receives the signal.
        is_stopped = failed is not None and _failed_by_signal(query) and stop.requested.wait(_CHECK_S)
    if is_stopped:
        _log.warning(
            "the signal to stop also ended a program that Hadoop ran for the checkpoint: the query writes the current "
            "micro-batch after its next start"
        )
    elif failed is not None:
        raise failed


def _failed_by_signal(query: StreamingQuery) -> bool:
    """Whether *query* failed because a stop signal ended a program that Hadoop ran for it. False if this is not
    visible: with Spark Connect the program runs on another machine."""
    failed = java_query(query)
    cause = None if failed is None else failed.exception().get()
    while cause is not None:
        # The message of the Java exception of the query does not contain this part of its cause.
        if _ENDED_BY_SIGNAL.search(str(cause.toString())):
            return True
        cause = cause.getCause()
    return False


def _last_batch(query: StreamingQuery) -> int | None:
    progress = query.lastProgress
    return None if progress is None else int(progress["batchId"])


@contextmanager
def _signals_to(stop: Stop) -> Iterator[None]:
    """Pass the signals to *stop*; also those of the JVM, which with Spark Connect is not part of this program."""
    jvm = jvm_with_callbacks()
    with ExitStack() as previous:
        for number in _SIGNALS:
            previous.callback(signal.signal, number, signal.signal(number, stop.on_signal))
        of_jvm = {} if jvm is None else dict.fromkeys(_SIGNALS, JvmHandler(stop))
        if jvm is not None and _is_in_foreground():
            of_jvm[signal.SIGINT] = jvm.sun.misc.SignalHandler.SIG_IGN
        for number, handler in of_jvm.items():
            java_signal = jvm.sun.misc.Signal(number.name.removeprefix("SIG"))
            previous.callback(jvm.sun.misc.Signal.handle, java_signal, jvm.sun.misc.Signal.handle(java_signal, handler))
        yield


def _is_in_foreground() -> bool:
    """Whether this process receives Ctrl-C from a terminal."""
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
