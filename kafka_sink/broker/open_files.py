"""How the broker shares the process's limit on open files between log files and connections.

Log files use at most half of it. Connections may use the other half and what log files do not use, but never the last
part: with it the broker can still open logs and answer the clients that are connected. Any thread.
"""

from __future__ import annotations

import resource
from typing import Final

#: The minimum with which a log can be rolled, copied and read at the same time.
_FEWEST: Final = 16
_MOST: Final = 1 << 15
_KEPT_FREE: Final = 1 / 8


def most_log_files() -> int:
    """The number of log files that may be open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else min(max(soft // 2, _FEWEST), _MOST)


def is_reserved(descriptor: int) -> bool:
    """Whether *descriptor* is among the last ones. The system assigns the lowest free number, so there are few left."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft != resource.RLIM_INFINITY and descriptor >= soft - max(int(soft * _KEPT_FREE), _FEWEST)
