"""How a process shares its limit on open files between log files, connections of a broker, and those over HTTP.

Log files use at most half of it. Connections may use the other half and what log files do not use, but never the last
part: with it a broker can still open logs and answer the clients that are connected. Each server of pages or metrics
has a small part, and the connections of a broker leave one to them: with it those who run the broker see what holds it.
Any thread.
"""

from __future__ import annotations

import resource
from typing import Final

#: The minimum with which a log can be rolled, copied and read at the same time.
_FEWEST: Final = 16
_MOST: Final = 1 << 15
_KEPT_FREE: Final = 1 / 8
_KEPT_LOCAL: Final = 1 / 8
_FEWEST_LOCAL: Final = 8
_MOST_LOCAL: Final = 64


def most_log_files() -> int:
    """The number of log files that may be open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else min(max(soft // 2, _FEWEST), _MOST)


def most_local_connections() -> int:
    """The number of connections that one HTTP server for this machine may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_LOCAL if soft == resource.RLIM_INFINITY else min(max(soft // 16, _FEWEST_LOCAL), _MOST_LOCAL)


def is_reserved(descriptor: int) -> bool:
    """Whether *descriptor* is among the last ones, which are for log files. The system assigns the lowest free number,
    so there are few left.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft != resource.RLIM_INFINITY and descriptor >= soft - max(int(soft * _KEPT_FREE), _FEWEST)


def is_reserved_for_local(descriptor: int) -> bool:
    """Whether *descriptor* is among the last ones, which are for log files and HTTP servers for this machine."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return is_reserved(descriptor + max(int(soft * _KEPT_LOCAL), _FEWEST_LOCAL))
