"""Ports for servers that start later."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket
from typing import Final

#: Systems give connections ports from 32768 on (Linux) or 49152 on (macOS), so a free one of these may be in use when
#: the server starts. The ports below are those of scripts/kafka.sh.
_FIRST: Final = 24_000
#: Each process of a run has ports of its own, because a port stays free until its server starts.
_OF_A_PROCESS: Final = 800
_PROCESSES: Final = 10


def _own_ports() -> range:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _PROCESSES
    return range(_FIRST + worker * _OF_A_PROCESS, _FIRST + (worker + 1) * _OF_A_PROCESS)


def _in_turn() -> itertools.cycle[int]:
    """Return the ports from a random one on, so that two runs seldom use the same; not with the seeded generator."""
    ports = _own_ports()
    begin = random.SystemRandom().randrange(len(ports))
    return itertools.cycle([*ports[begin:], *ports[:begin]])


_ports: Final = _in_turn()


def free_ports(count: int = 1) -> int:
    """Return the first of *count* consecutive ports without a listener. Later calls return other ports."""
    while True:
        ports = [next(_ports) for _ in range(count)]
        if ports[-1] - ports[0] != count - 1:
            # The sequence has wrapped around.
            continue
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for port in ports:
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return ports[0]
