"""Serves metrics at an address that Prometheus scrapes.

It has a thread, and what :mod:`kafka_sink.http.local_server` starts for each request.

Source: https://prometheus.io/docs/specs/om/open_metrics_spec.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kafka_sink.common.errors import ConfigError
from kafka_sink.http.local_server import LocalHandler, LocalServer

PATH: Final = "/metrics"
CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class _Handler(LocalHandler):
    has_any_name = True

    def do_GET(self) -> None:  # noqa: N802
        if self.is_refused():
            return
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, f"the metrics are at {PATH}")
            return
        try:
            text = self.server_as(MetricsServer).render()
        except (OSError, ValueError) as error:
            self.send_body(503, "text/plain; charset=utf-8", f"{error}\n".encode())
        else:
            self.send_body(200, CONTENT_TYPE, text.encode())


class MetricsServer(LocalServer):
    """Serves what *render* returns at :attr:`url`, until :meth:`close`.

    :param port: 0 = any free port.
    :raises ConfigError: if the port is in use.
    """

    name = "metrics-server"

    def __init__(self, host: str, port: int, render: Callable[[], str]) -> None:
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise ConfigError(
                f"the metrics cannot be served: {error.strerror or error}; choose another port, or 0"
            ) from None
        self.render = render
        self.start()

    @property
    def url(self) -> str:
        return super().url + PATH
