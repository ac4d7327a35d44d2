"""Who may ask an HTTP server that is meant for its own machine.

A page of any origin can make a browser send requests to a port of this machine, also under a name of its own that it
lets point here (DNS rebinding). Such requests name another host or origin.

Source: https://fetch.spec.whatwg.org (Origin), https://datatracker.ietf.org/doc/html/rfc9110#name-host-and-authority.
"""

from __future__ import annotations

import ipaddress
from typing import Final

#: Under which names this machine is reached; the port may be that of a tunnel.
_HERE: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})


def refusal_of(host: str, origin: str | None, served: str = "127.0.0.1", *, has_any_name: bool = False) -> str | None:
    """Why a request with the headers Host and Origin is refused; None if it is not.

    :param served: the address that the server listens on: beyond loopback, clients may name any address in numbers.
    :param has_any_name: beyond loopback, clients may also name any host: Prometheus does, and nothing can be changed.
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    is_known = name in _HERE or (served not in _HERE and (has_any_name or _is_address(name)))
    if not is_known:
        return "This server answers to 127.0.0.1 and localhost only."
    if origin is not None and origin != f"http://{host}":
        return "This server answers to itself only, and not to other origins."
    return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
