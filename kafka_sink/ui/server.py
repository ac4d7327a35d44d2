"""The web server of the pages: uvicorn on a thread of its own, on loopback.

Source: https://www.uvicorn.org.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import uvicorn

from kafka_sink.common.threads import Thread, start_loop
from kafka_sink.network.transport.listener import listening_socket, local_address
from kafka_sink.ui.cluster_view import ClusterView
from kafka_sink.ui.pages import Pages
from kafka_sink.ui.reports import Reports
from kafka_sink.ui.shown import ByteView

_HOST: Final = "127.0.0.1"
_END_S: Final = 10.0


class PageServer:
    """Serves the pages of the cluster at *bootstrap_servers* while it is entered.

    :param port: the port of 127.0.0.1; 0 = any free port, see :attr:`url`.
    :param report: a file of the option reportPath, or a folder with such files.
    :param properties: client properties under Kafka's names.
    :param decode: makes JSON of a value in Confluent's wire format; without it bytes are shown.
    :raises OSError: if the port is in use.
    :raises ConfigError: if a property is unknown or invalid.
    """

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
        self._pages = pages = Pages(self._cluster, None if report is None else Reports(report), ByteView(decode))
        self._socket = listening_socket(_HOST, port)
        self._server = uvicorn.Server(
            uvicorn.Config(
                pages.app(),
                lifespan="off",
                ws="none",
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread: Thread | None = None

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{local_address(self._socket).port}/"

    def rendered_metrics(self) -> str:
        """As the page ``/metrics`` has them; see :meth:`Pages.rendered_metrics`."""
        return self._pages.rendered_metrics()

    def run(self) -> None:
        """Serve until :meth:`end_with_program`; the body of the server's thread."""
        self._server.run(sockets=[self._socket])

    def end_with_program(self) -> None:
        """Make :meth:`run` return."""
        self._server.should_exit = True

    def __enter__(self) -> PageServer:
        self._thread = start_loop("kafkalite-ui", self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.end_with_program()
        if self._thread is not None:
            self._thread.join(_END_S)
        self._socket.close()
        self._cluster.close()
