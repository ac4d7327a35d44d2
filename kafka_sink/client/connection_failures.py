"""Why brokers cannot be reached, for error messages.

Written by one NetworkClient's thread; :meth:`ConnectionFailures.report` may be called from any. It only remembers: the
last cause per address, until a connection to that address works again.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConnectionFailure:
    """An address and what went wrong there last."""

    host: str
    port: int
    cause: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}: {self.cause}"


class ConnectionFailures:
    """The last cause per address that is not connected."""

    def __init__(self) -> None:
        # Replaced, never changed: readers need no lock.
        self._failures: dict[tuple[str, int], ConnectionFailure] = {}

    def record(self, host: str, port: int, cause: str) -> bool:
        """Remember *cause*; True when it is news."""
        failure = ConnectionFailure(host, port, cause)
        if self._failures.get((host, port)) == failure:
            return False
        self._failures = {**self._failures, (host, port): failure}
        return True

    def clear(self, host: str, port: int) -> None:
        """The address can be reached."""
        if (host, port) in self._failures:
            self._failures = {key: failure for key, failure in self._failures.items() if key != (host, port)}

    def report(self) -> tuple[ConnectionFailure, ...]:
        """Every failure that still stands."""
        return tuple(self._failures.values())
