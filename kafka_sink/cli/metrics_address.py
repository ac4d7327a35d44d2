"""The options of an address for Prometheus, which several commands have, and what serves it while they run.

The server has a thread of its own; see :mod:`kafka_sink.http.metrics_server`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from kafka_sink.common.metrics import Metric

C = TypeVar("C", bound=Callable[..., Any])

_log = logging.getLogger("kafka_sink.cli")


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
    from kafka_sink.http.metrics_server import MetricsServer

    with MetricsServer(host, port, collect) as server:
        _log.info("metrics=%s", server.url)
        yield
