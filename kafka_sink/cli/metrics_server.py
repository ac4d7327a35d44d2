"""Serves a broker's metrics at an address that Prometheus scrapes.

Source: https://prometheus.io/docs/specs/om/open_metrics_spec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        self.send_body(200, CONTENT_TYPE, server.render().encode())


@contextmanager
def metrics_server(host: str, port: int, render: Callable[[], str]) -> Iterator[str]:
    """Serve what *render* returns while the block runs; the value is the address.

    :raises ConfigError: if the port is in use.
    """
    try:
        server = _Server((host, port), render)
    except OSError as error:
        raise ConfigError(f"--metrics-port {port}: {error.strerror}; choose another port, or 0") from None
    thread = start_loop("metrics-server", server)
    try:
        yield server.url + PATH
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
