"""Ports for servers that start later."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

#: Systems give connections ports from 32768 on (Linux) or 49152 on (macOS). One of those that is free now could be any
#: client's when the server starts.
_FIRST: Final = 15_000
_LAST: Final = 32_000
# Not the one that tests seed.
_random = random.SystemRandom()


def free_ports(count: int = 1) -> int:
    """The first of *count* ports that follow each other, on which nobody listens now."""
    while True:
        first = _random.randrange(_FIRST, _LAST - count)
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for port in range(first, first + count):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
