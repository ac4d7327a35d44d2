"""The faults of one cluster: any thread sets and removes them; handler threads check them for every request.

Without faults the check reads one empty tuple. This module must not apply faults: it only determines which are due.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final

from kafka_sink.broker.faults.fault import ANY, Answer, Close, Delay, Drop, Duplicate, Effect, FailDisk, Fault, Slow
from kafka_sink.common.errors import ConfigError, ErrorCode


class FaultHandle:
    """One fault that is set. As a context manager it removes the fault at the end of the block."""

    def __init__(self, fault: Fault, remove: Callable[[FaultHandle], None]) -> None:
        self.fault: Final = fault
        self._remove = remove
        self._random = random.Random(fault.seed)
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._seen = 0
        self._hits = 0

    @property
    def hits(self) -> int:
        """How often the fault was applied."""
        return self._hits

    def remove(self) -> None:
        """Remove the fault. A second call does nothing."""
        self._remove(self)

    def is_due(self) -> bool:
        """Count one matching operation; returns whether the fault applies to it, which counts as a hit."""
        with self._lock:
            self._seen += 1
            due = self._is_chosen() and (self.fault.times is None or self._hits < self.fault.times)
            self._hits += due
            return due

    def _is_chosen(self) -> bool:
        fault = self.fault
        if fault.nth is not None:
            return self._seen == fault.nth
        if fault.every is not None:
            return self._seen % fault.every == 0
        return fault.probability is None or self._random.random() < fault.probability

    def __enter__(self) -> FaultHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


class Faults:
    """The fault injection of a cluster."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Faults that apply to requests and to the disk; usually none.
        # Replaced as a whole under the lock, read without it.
        self.of_requests: tuple[FaultHandle, ...] = ()
        self.of_disk: tuple[FaultHandle, ...] = ()

    def on(
        self,
        target: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        node: int | None = None,
        nth: int | None = None,
        every: int | None = None,
        probability: float | None = None,
        seed: int = 0,
        times: int | None = None,
        error: ErrorCode | None = None,
        delay_ms: int | None = None,
        drop: str | None = None,
        close: str | None = None,
        duplicate: bool = False,
        slow_ms: int | None = None,
    ) -> FaultHandle:
        """Set a fault::

            with cluster.faults.on("produce", topic="orders", nth=3, error=ErrorCode.NOT_LEADER_OR_FOLLOWER) as fault:
                ...
            assert fault.hits == 1

        *target*: the API's name in lower case; ``any``; ``disk.write`` or ``disk.flush`` of partitions' files, which
        need no effect. *topic*, *partition*, *node* (a broker's id) restrict it. Of the matching operations it applies
        to all, to the *nth*, to one of *every* so many, or to each with a *probability* (from *seed*); at most *times*
        times.

        The effect is one of: *error*, the request is not handled but answered with this code, for each of its
        partitions if it has any; *delay_ms*, the answer is delayed; *drop*, the ``request`` or its ``answer`` is lost,
        and the connection is silent from then on; *close* of the connection on the ``request``, on its ``answer`` or
        after ``half`` of the answer; *duplicate*, the request is handled twice; *slow_ms*, the answer is sent in small
        pieces over this time.

        :raises ConfigError: if the fault can never apply.
        """
        # The signature and its description are the public API, and make the length of this function.
        effects: list[Effect | None] = [
            Answer(error) if error is not None else None,
            Delay(delay_ms) if delay_ms is not None else None,
            Drop(drop) if drop is not None else None,
            Close(close) if close is not None else None,
            Duplicate() if duplicate else None,
            Slow(slow_ms) if slow_ms is not None else None,
        ]
        effect = _only_effect(target, [each for each in effects if each is not None])
        return self.set(Fault(target, effect, topic, partition, node, nth, every, probability, seed, times))

    def set(self, fault: Fault) -> FaultHandle:
        """Set *fault*."""
        handle = FaultHandle(fault, self._forget)
        with self._lock:
            if fault.is_of_disk:
                self.of_disk = (*self.of_disk, handle)
            else:
                self.of_requests = (*self.of_requests, handle)
        return handle

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self.of_requests = self.of_disk = ()

    def _forget(self, handle: FaultHandle) -> None:
        with self._lock:
            self.of_requests = tuple(other for other in self.of_requests if other is not handle)
            self.of_disk = tuple(other for other in self.of_disk if other is not handle)

    def may_befall(self, api_name: str, node_id: int) -> list[FaultHandle]:
        """The faults for requests of this API on this node, for any topic."""
        return [
            handle
            for handle in self.of_requests
            if handle.fault.target in (api_name, ANY) and handle.fault.node in (None, node_id)
        ]

    def disk_fails(self, target: str, topic: str, partition: int) -> bool:
        """Whether this write to (or flush of) a partition's file has to fail; each call counts as an operation."""
        for handle in self.of_disk:
            fault = handle.fault
            if (
                fault.target == target
                and fault.topic in (None, topic)
                and fault.partition in (None, partition)
                and handle.is_due()
            ):
                return True
        return False


def _only_effect(target: str, effects: list[Effect]) -> Effect:
    """The effect of a fault: the only one of *effects*, or the failure of a disk, which needs none.

    :raises ConfigError: if there is no effect, or more than one.
    """
    if target.startswith("disk."):
        effects = [*effects, FailDisk()]
    if len(effects) != 1:
        raise ConfigError(
            f"fault on {target}: expected exactly one of error, delay_ms, drop, close, duplicate, slow_ms, got "
            f"{len(effects)}; set one fault per effect"
        )
    return effects[0]
