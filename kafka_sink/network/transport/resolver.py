"""Resolves host names to socket addresses.

Called by the thread that owns a network client, before it connects, and by threads that bind listeners. A lookup blocks
for as long as the system's resolver takes. Results are not cached: the addresses of a name may change, and the callers
decide when to resolve again.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class SocketAddress:
    """One numeric address that a socket can connect to or be bound to."""

    family: int
    host: str
    port: int
    scope_id: int = 0
    #: The name that was resolved, which a certificate must match; never derived from the address.
    name: str = field(default="", compare=False)

    @property
    def sockaddr(self) -> tuple[str, int] | tuple[str, int, int, int]:
        """The address as the socket module expects it."""
        if self.family == socket.AF_INET6:
            return (self.host, self.port, 0, self.scope_id)
        return (self.host, self.port)

    @classmethod
    def of(cls, family: int, sockaddr: object) -> SocketAddress:
        """Convert the result of ``getsockname``, ``accept`` or ``getaddrinfo``."""
        if not isinstance(sockaddr, tuple) or len(sockaddr) < 2:
            return cls(family, str(sockaddr), 0)
        return cls(family, sockaddr[0], sockaddr[1], sockaddr[3] if len(sockaddr) > 3 else 0)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.family == socket.AF_INET6 else f"{self.host}:{self.port}"


def resolve(host: str, port: int) -> list[SocketAddress]:
    """All addresses of *host*, IPv4 first as in Java, else in the resolver's order; without duplicates, never empty.

    :raises OSError: if the name is unknown, or the resolver cannot be reached; the text contains the host.
    """
    if not host.isprintable():
        # The system's resolver ends at a NUL, and TLS would compare the certificate with the whole name.
        raise OSError(f"cannot resolve host name {host!r}: not a host name")
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        reason = error.strerror if isinstance(error, socket.gaierror) else "not a host name"
        raise OSError(f"cannot resolve host name {host!r}: {reason}") from error
    # Brokers that listen only on IPv4 are common, and each failed address costs a reconnect backoff.
    inet = [entry for family in (socket.AF_INET, socket.AF_INET6) for entry in entries if entry[0] == family]
    known = (SocketAddress.of(family, sockaddr) for family, _, _, _, sockaddr in inet)
    addresses = [replace(address, name=host) for address in dict.fromkeys(known)]
    if not addresses:
        raise OSError(f"cannot resolve host name {host!r}: it has no IP address")
    return addresses


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to *host*. :raises OSError: if the name cannot be resolved."""
    return all(ipaddress.ip_address(address.host).is_loopback for address in resolve(host, 0))


def address_of_this_machine(wildcard: str) -> str | None:
    """The address from which this machine reaches others, of the family of *wildcard* (``0.0.0.0`` or ``::``).

    None if it reaches no other machine. Nothing is sent: connecting a datagram socket only chooses an address.
    """
    # Addresses for documentation (RFC 5737, RFC 3849), which exist nowhere.
    family, elsewhere = (socket.AF_INET6, "2001:db8::1") if ":" in wildcard else (socket.AF_INET, "192.0.2.1")
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect((elsewhere, 9))
            return SocketAddress.of(family, sock.getsockname()).host
    except OSError:
        return None


def canonical_names(addresses: list[SocketAddress]) -> list[str]:
    """The canonical host name of each address, or the address itself if it has none."""
    return [socket.getnameinfo(address.sockaddr, socket.NI_NUMERICSERV)[0] for address in addresses]
