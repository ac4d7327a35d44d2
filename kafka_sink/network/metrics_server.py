"""Serves metrics at an address that Prometheus scrapes.

It has a thread, and what :mod:`kafka_sink.network.local_server` starts for each request.

Source: https://prometheus.io/docs/specs/om/open_metrics_spec.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final

from kafka_sink.common.errors import ConfigError
from kafka_sink.common.threads import start_loop
from kafka_sink.network.local_server import LocalHandler, LocalServer

PATH: Final = "/metrics"
CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class _Server(LocalServer):
    def __init__(self, address: tuple[str, int], render: Callable[[], str]) -> None:
        super().__init__(address, _Handler)
        self.render = render


class _Handler(LocalHandler):
    def do_GET(self) -> None:  # noqa: N802
        if self.is_refused():
            return
        server = self.server
        if not isinstance(server, _Server):
            raise RuntimeError("the handler belongs to another server")
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, f"the metrics are at {PATH}")
            return
        try:
            text = server.render()
        except (OSError, ValueError) as error:
            self.send_body(503, "text/plain; charset=utf-8", f"{error}\n".encode())
        else:
            self.send_body(200, CONTENT_TYPE, text.encode())


class MetricsServer:
    """Serves what *render* returns at :attr:`url`, until :meth:`close`.

    :param port: 0 = any free port.
    :raises ConfigError: if the port is in use.
    """

    def __init__(self, host: str, port: int, render: Callable[[], str]) -> None:
        try:
            self._server = _Server((host, port), render)
        except OSError as error:
            raise ConfigError(
                f"the metrics cannot be served at {host}:{port}: {error.strerror}; choose another port, or 0"
            ) from None
        self._thread = start_loop("metrics-server", self._server)

    @property
    def url(self) -> str:
        return self._server.url + PATH

    def close(self) -> None:
        """Stop; what was begun is answered."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
