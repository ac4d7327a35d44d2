"""The web server of the pages, on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from kafka_sink.common.metrics import Metric
from kafka_sink.http.local_asgi import AsgiServer
from kafka_sink.ui.cluster_view import ClusterView
from kafka_sink.ui.pages import Pages
from kafka_sink.ui.reports import Reports
from kafka_sink.ui.shown import ByteView

_HOST: Final = "127.0.0.1"


class PageServer(AsgiServer):
    """Serves the pages of the cluster at *bootstrap_servers* while it is entered.

    :param port: the port of 127.0.0.1; 0 = any free port, see :attr:`url`.
    :param report: a file of the option reportPath, or a folder with such files.
    :param properties: client properties under Kafka's names.
    :param decode: makes JSON of a value in Confluent's wire format; without it bytes are shown.
    :raises OSError: if the port is in use.
    :raises ConfigError: if a property is unknown or invalid.
    """

    name = "kafkalite-ui"

    def __init__(
        self,
        bootstrap_servers: str,
        port: int,
        *,
        report: Path | None = None,
        properties: dict[str, Any] | None = None,
        timeout_ms: int = 15_000,
        decode: Callable[[bytes], str] | None = None,
    ) -> None:
        self._cluster = ClusterView(bootstrap_servers, properties or {}, timeout_ms)
        self._pages = Pages(self._cluster, None if report is None else Reports(report), ByteView(decode))
        super().__init__((_HOST, port), self._pages.app())

    @property
    def url(self) -> str:
        return super().url + "/"

    def metrics(self) -> Iterator[Metric]:
        """As the page ``/metrics`` has them; see :meth:`Pages.metrics`."""
        return self._pages.metrics()

    def close(self) -> None:
        """Stop, and close the connections to the cluster."""
        super().close()
        self._cluster.close()
