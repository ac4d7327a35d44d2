"""Gets a thread out of its wait for sockets.

Any thread may call :meth:`Wakeup.signal`; only the waiting thread calls :meth:`Wakeup.drain`. A signal is sticky: given
before the wait begins, it ends that wait at once. However many signals are given, one byte at most lies in the pipe, so
signalling can never block.
"""

from __future__ import annotations

import socket


class Wakeup:
    """A socket pair whose reading end sits in the selector."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._signalled = False
        self._closed = False

    def fileno(self) -> int:
        """The descriptor that becomes readable when somebody signals."""
        return self._reader.fileno()

    def signal(self) -> None:
        """End the current or the next wait."""
        if self._signalled or self._closed:
            return
        try:
            self._signalled = True
            self._writer.send(b"\0")
        except BaseException as error:
            # Also a KeyboardInterrupt: the flag without the byte would keep every later signal from being written.
            self._signalled = False
            # Where the owner closed it in this very moment there is nobody left to wake.
            if not (isinstance(error, OSError) and self._closed):
                raise

    def drain(self) -> None:
        """Forget the signals given so far.

        The byte is taken before the flag falls: a signal in between is not written, and need not be, because the wait
        it was meant to end has just ended.
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
