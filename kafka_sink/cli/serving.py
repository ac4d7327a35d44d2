"""Shared parts of commands that run until a signal: its handler, metrics at an address for Prometheus, and metrics in
a file.

The main thread waits for the signal, and writes the file during that time; the server of metrics
(:mod:`kafka_sink.http.local_server`) has its own threads. The file is replaced atomically, so no reader sees a part of
it; an error of rendering or writing it is logged and has no other effect.
"""

from __future__ import annotations

import logging
import os
import select
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

import click

from kafka_sink.common.files import replace_text
from kafka_sink.common.metrics import Metric

INTERVAL_MS: Final = 10_000
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
C = TypeVar("C", bound=Callable[..., Any])
_log = logging.getLogger("kafka_sink.cli")


def write_metrics_until(stopped: Callable[[int], bool], path: Path, render: Callable[[], str]) -> None:
    """Write the result of *render* to *path* every :data:`INTERVAL_MS`, and once more at the end.

    :param stopped: waits for the end, at most as many ms as its argument; returns whether it has come.
    """
    is_over = False
    while not is_over:
        is_over = stopped(INTERVAL_MS)
        try:
            replace_text(path, render())
        except Exception as error:
            _log.warning("cannot write metrics to %s: %s", path, error, exc_info=not isinstance(error, OSError))


class StopSignals:
    """The first stop signal ends :meth:`wait`; the second one ends the process.

    The first signal also counts while the cluster is still starting. It is transferred through a pipe: a signal handler
    may run while the main thread holds any lock, so it must not acquire one.
    """

    def __enter__(self) -> StopSignals:
        self._received = 0
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._previous_fd = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._previous = {number: signal.signal(number, self._on_signal) for number in STOP_SIGNALS}
        return self

    def __exit__(self, *raised: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_fd)
        os.close(self._writer)
        os.close(self._reader)

    def wait(self, timeout_ms: int | None = None) -> bool:
        """Wait for a stop signal, at most *timeout_ms*; returns whether one has arrived."""
        arrival = select.poll()
        arrival.register(self._reader, select.POLLIN)
        return bool(arrival.poll(timeout_ms)) and bool(os.read(self._reader, 1))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._received += 1
        if self._received > 1:
            os._exit(128 + number)


def metrics_address(command: C) -> C:
    """Add the options; the command gets ``metrics_port``, which may be None, and ``metrics_host``."""
    command = click.option("--metrics-host", default="127.0.0.1", show_default=True, help="Address of --metrics-port.")(
        command
    )
    return click.option(
        "--metrics-port",
        type=click.IntRange(0, 65535),
        help="Serve metrics as OpenMetrics at http://HOST:PORT/metrics, for Prometheus; 0 selects a free port.",
    )(command)


@contextmanager
def served(host: str, port: int | None, collect: Callable[[], Iterable[Metric]]) -> Iterator[None]:
    """Serve what *collect* returns; nothing without a port. :raises ConfigError: if the port is in use."""
    if port is None:
        yield
        return
    # Commands that serve nothing start without it.
    from kafka_sink.http.local_server import MetricsServer

    with MetricsServer(host, port, collect) as server:
        _log.info("metrics=%s", server.url)
        yield
