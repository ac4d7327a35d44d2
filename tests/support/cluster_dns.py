"""The names of Kubernetes' services (``SERVICE.NAMESPACE.svc.cluster.local``), for pods: in the place of CoreDNS."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Final

DOMAIN: Final = "cluster.local"
_NO_SUCH_NAME: Final = 3
_A: Final = 1
_TTL_S: Final = 5


def serve_dns(address: str, addresses_of: Callable[[str, str], Sequence[str]]) -> None:
    """Answer on port 53 until the process ends; *addresses_of* are those of the service (name, namespace), or none."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            query, answering = self.request
            labels, end = _name(query)
            (kind,) = struct.unpack_from(">H", query, end)
            found: Sequence[str] = ()
            if labels[-2:] == DOMAIN.split("."):
                labels = labels[:-2]
            if len(labels) == 3 and labels[2] == "svc":
                found = addresses_of(labels[0], labels[1])
            # Of the other kinds, such as AAAA, a name that exists has no records.
            records = found if kind == _A else ()
            flags = 0x8180 | (0 if found else _NO_SUCH_NAME)
            head = query[:2] + struct.pack(">5H", flags, 1, len(records), 0, 0)
            body = b"".join(
                b"\xc0\x0c" + struct.pack(">HHIH", _A, 1, _TTL_S, 4) + socket.inet_aton(each) for each in records
            )
            answering.sendto(head + query[12 : end + 4] + body, self.client_address)

    server = socketserver.ThreadingUDPServer((address, 53), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def _name(query: bytes) -> tuple[list[str], int]:
    """The labels of the name that a query asks for, and where it ends."""
    labels, at = [], 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode().lower())
        at += 1 + length
    return labels, at + 1
