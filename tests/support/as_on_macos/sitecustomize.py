"""A Python as it is on macOS: without what only Linux has, and with accepted sockets that inherit O_NONBLOCK.

Python imports this at its start, and so do Spark's workers, where this folder is in PYTHONPATH. It cannot give them
what only macOS has, such as kqueue: selectors takes poll.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import select
import signal
import sys
import time
from typing import Any, Final

_LINUX: Final[dict[Any, tuple[str, ...]]] = {
    select: ("epoll", "EPOLL"),
    os: (
        *("memfd_create", "MFD_", "eventfd", "EFD_", "posix_fallocate", "posix_fadvise", "POSIX_FADV", "fdatasync"),
        *("sched_getaffinity", "sched_setaffinity", "copy_file_range", "splice", "pidfd_open", "pipe2", "getrandom"),
        *("setxattr", "getxattr", "listxattr", "removexattr", "unshare", "setns", "getresuid", "getresgid"),
        *("O_TMPFILE", "O_DIRECT", "O_PATH", "O_NOATIME", "timerfd_"),
    ),
    signal: ("sigtimedwait", "sigwaitinfo", "pidfd_send_signal", "SIGRTMIN", "SIGRTMAX", "SIGPWR", "SIGPOLL"),
    time: ("CLOCK_BOOTTIME", "CLOCK_TAI", "pthread_getcpuclockid"),
    fcntl: ("F_OFD_", "F_SETPIPE_SZ", "F_GETPIPE_SZ", "F_ADD_SEALS", "F_NOTIFY"),
    mmap: ("MAP_POPULATE",),
}
_SOCKETS: Final = (
    *("TCP_QUICKACK", "TCP_USER_TIMEOUT", "TCP_KEEPIDLE", "TCP_CORK", "TCP_DEFER_ACCEPT", "TCP_CONGESTION", "TCP_INFO"),
    *("SOCK_NONBLOCK", "SOCK_CLOEXEC", "SO_BINDTODEVICE", "SO_MARK", "SO_PRIORITY", "MSG_NOSIGNAL", "MSG_MORE"),
    *("MSG_ERRQUEUE", "MSG_CMSG_CLOEXEC", "AF_NETLINK", "AF_ALG", "AF_VSOCK", "AF_PACKET"),
)


def _hide(owner: Any, names: tuple[str, ...]) -> None:
    for name in [each for each in vars(owner) if each.startswith(names) and each != "O_DIRECTORY"]:
        delattr(owner, name)


for _owner, _names in _LINUX.items():
    _hide(_owner, _names)

# Only now, because what socket imports takes what select has.
import socket  # noqa: E402

_hide(socket, _SOCKETS)
_accept, _stat = socket.socket.accept, os.stat


def _accept_as_bsd(self: socket.socket) -> tuple[socket.socket, Any]:
    accepted, address = _accept(self)
    if self.gettimeout() == 0:
        os.set_blocking(accepted.fileno(), False)
    return accepted, address


def _refuse_proc(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        _check(arguments[0])


def _check(path: Any) -> None:
    if isinstance(path, str | os.PathLike) and str(path).startswith("/proc"):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def _stat_without_proc(path: Any, *arguments: Any, **named: Any) -> os.stat_result:
    _check(path)
    return _stat(path, *arguments, **named)


socket.socket.accept = _accept_as_bsd  # type: ignore[method-assign]
os.stat = _stat_without_proc
sys.addaudithook(_refuse_proc)

# PySpark comes from the environment, with its bytecode, as by scripts/spark_python.sh.
sys.path[:] = [each for each in sys.path if not each.endswith(("pyspark.zip", "-src.zip"))]
