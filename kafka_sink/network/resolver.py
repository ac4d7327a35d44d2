"""Host names to socket addresses.

Called by the thread that owns a network client, right before it connects, and by whoever binds a listener. A look-up
blocks for as long as the system's resolver takes. It never caches: addresses behind a name change, and the callers
decide when to ask again.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class SocketAddress:
    """One numeric address that a socket can connect to or be bound to."""

    family: int
    host: str
    port: int
    scope_id: int = 0
    #: The name that was looked up, which a certificate has to bear; never found out from the address.
    name: str = field(default="", compare=False)

    @property
    def sockaddr(self) -> tuple[str, int] | tuple[str, int, int, int]:
        """The address in the form the socket module wants."""
        if self.family == socket.AF_INET6:
            return (self.host, self.port, 0, self.scope_id)
        return (self.host, self.port)

    @classmethod
    def of(cls, family: int, sockaddr: object) -> SocketAddress:
        """From what ``getsockname``, ``accept`` or ``getaddrinfo`` answered."""
        if not isinstance(sockaddr, tuple) or len(sockaddr) < 2:
            return cls(family, str(sockaddr), 0)
        return cls(family, sockaddr[0], sockaddr[1], sockaddr[3] if len(sockaddr) > 3 else 0)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.family == socket.AF_INET6 else f"{self.host}:{self.port}"


def resolve(host: str, port: int) -> list[SocketAddress]:
    """Every address of *host*, version 4 first as in Java, else in the resolver's order; no repeats, never empty.

    :raises OSError: the name is unknown, or the resolver cannot be reached; the text names the host.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        reason = error.strerror if isinstance(error, socket.gaierror) else "not a host name"
        raise OSError(f"cannot resolve host name {host!r}: {reason}") from error
    # Brokers that listen on version 4 alone are common, and each address that fails costs a reconnect backoff.
    inet = [entry for family in (socket.AF_INET, socket.AF_INET6) for entry in found if entry[0] == family]
    known = (SocketAddress.of(family, sockaddr) for family, _, _, _, sockaddr in inet)
    addresses = [replace(address, name=host) for address in dict.fromkeys(known)]
    if not addresses:
        raise OSError(f"cannot resolve host name {host!r}: it has no internet address")
    return addresses


def canonical_names(addresses: list[SocketAddress]) -> list[str]:
    """The full host name of every address, or the address itself where it has none."""
    return [socket.getnameinfo(address.sockaddr, socket.NI_NUMERICSERV)[0] for address in addresses]
