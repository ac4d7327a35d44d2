"""Wakes a thread that waits for sockets.

Any thread may call :meth:`Wakeup.signal`; only the waiting thread calls :meth:`Wakeup.drain`. A signal is sticky: if it
is given before the wait begins, it ends that wait at once. However many signals are given, there is at most one byte in
the pipe, so signalling never blocks.
"""

from __future__ import annotations

import socket


class Wakeup:
    """A socket pair whose reading end is registered with the selector."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._signalled = False
        self._closed = False

    def fileno(self) -> int:
        """The descriptor that becomes readable on a signal."""
        return self._reader.fileno()

    def signal(self) -> None:
        """End the current wait, or the next one."""
        if self._signalled or self._closed:
            return
        try:
            self._signalled = True
            self._writer.send(b"\0")
        except BaseException as error:
            # Also on a KeyboardInterrupt: a flag without a byte would suppress all later signals.
            self._signalled = False
            # If the owner has just closed it, no thread waits any more.
            if not (isinstance(error, OSError) and self._closed):
                raise

    def drain(self) -> None:
        """Clear the signals given so far.

        The byte is read before the flag is cleared: a signal in between writes no byte, and needs none, because the
        wait that it was meant to end has just ended.
        """
        try:
            self._reader.recv(16)
        except BlockingIOError:
            return
        self._signalled = False

    def close(self) -> None:
        self._closed = True
        self._reader.close()
        self._writer.close()
