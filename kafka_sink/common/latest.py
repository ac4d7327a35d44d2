"""What a long-lived process keeps of the latest keys only."""

from __future__ import annotations

from typing import Generic, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")


class Latest(Generic[_K, _V]):
    """The values of the *most* keys that were used last; the others are forgotten. Threads may share it."""

    def __init__(self, most: int) -> None:
        self._most = most
        #: The latest last.
        self._values: dict[_K, _V] = {}

    def get(self, key: _K) -> _V | None:
        """The value of *key*, which is now the latest; None if there is none."""
        value = self._values.get(key)
        return None if value is None else self.put(key, value)

    def put(self, key: _K, value: _V) -> _V:
        """Keep *value*, which is not None, and return it."""
        self._values.pop(key, None)
        self._values[key] = value
        for oldest in list(self._values)[: -self._most]:
            self._values.pop(oldest, None)
        return value
