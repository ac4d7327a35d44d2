"""Serves an ASGI application on a local server; each request runs on the thread of its connection.

Source: https://asgi.readthedocs.io/en/latest/specs/www.html.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import unquote

from kafka_sink.http.local_server import LocalHandler, LocalServer


class AsgiServer(LocalServer):
    """Serves *app*, which validates Host and Origin itself: its refusals have their own headers.

    :raises OSError: if the port is in use.
    """

    def __init__(self, address: tuple[str, int], app: Any) -> None:
        super().__init__(address, _AsgiHandler)
        self.app = app


class _AsgiHandler(LocalHandler):
    def _answer(self) -> None:
        asyncio.run(self.server_as(AsgiServer).app(self._scope(), self._receive, self._send))

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815

    def _scope(self) -> dict[str, Any]:
        path, _, query = self.path.partition("?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": self.command,
            "scheme": "http",
            "root_path": "",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in self.headers.items()],
            "client": self.client_address,
            "server": self.server.server_address,
        }

    async def _receive(self) -> dict[str, Any]:
        # The application reads no bodies.
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            # The application sets its own policy.
            self.policy = {}
            self.send_response_only(message["status"])
            for name, value in message["headers"]:
                self.send_header(name.decode("latin-1"), value.decode("latin-1"))
            self.end_headers()
        elif self.command != "HEAD":
            self.wfile.write(message.get("body", b""))
