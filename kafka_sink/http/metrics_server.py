"""Serves metrics at an address that Prometheus scrapes.

It has a thread, and what :mod:`kafka_sink.http.local_server` starts for each request.

Source: https://prometheus.io/docs/specs/om/open_metrics_spec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kafka_sink.common.errors import ConfigError
from kafka_sink.common.exposition import rendered
from kafka_sink.common.metrics import Metric
from kafka_sink.http.local_server import LocalHandler, LocalServer

PATH: Final = "/metrics"


class _Handler(LocalHandler):
    has_any_name = True

    def do_GET(self) -> None:  # noqa: N802
        if self.is_refused():
            return
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, f"the metrics are at {PATH}")
            return
        try:
            metrics = self.server_as(MetricsServer).collect()
            text, content_type = rendered(metrics, self.headers.get("Accept", ""))
        except (OSError, ValueError) as error:
            self.send_body(503, "text/plain; charset=utf-8", f"{error}\n".encode())
        else:
            self.send_body(200, content_type, text.encode())


class MetricsServer(LocalServer):
    """Serves what *collect* returns at :attr:`url`, until :meth:`close`, in the format that a scraper asks for.

    :param port: 0 = any free port.
    :raises ConfigError: if the port is in use.
    """

    name = "metrics-server"

    def __init__(self, host: str, port: int, collect: Callable[[], Iterable[Metric]]) -> None:
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise ConfigError(
                f"the metrics cannot be served: {error.strerror or error}; choose another port, or 0"
            ) from None
        self.collect = collect
        self.start()

    @property
    def url(self) -> str:
        return super().url + PATH
