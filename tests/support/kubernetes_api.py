"""A Kubernetes API server that takes everything and runs nothing: what spark-submit would have created."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextlib.contextmanager
def kubernetes_api() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yields its address and the objects that it was given, in order."""
    created: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404})

        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            created.append(given)
            self._answer(201, {**given, "metadata": {**given["metadata"], "uid": str(len(created))}})

        do_PUT = do_PATCH = do_POST

        def _answer(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", created
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
