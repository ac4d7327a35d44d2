"""Keeps the connections of this worker process from one task to the next.

Spark's own sink keeps its producers between the tasks of an executor. Here each task has its own producer, and only the
connections are kept, with their TLS sessions, their authentication and the cluster metadata. A task takes them, and
returns them only if all of its rows were acknowledged, so no state of a failed task reaches the next one.

Used by the single thread on which Spark runs a worker's tasks, and by a thread that closes connections unused for
:data:`MOST_IDLE_MS`. A forked process begins with none. No secret is stored outside the connections themselves.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from kafka_sink.common.clock import Clock
from kafka_sink.common.locks import leaves
from kafka_sink.common.threads import at_fork, start_thread
from kafka_sink.producer.kafka_producer import ClientNetwork

#: Spark itself ends a worker after one minute without a task.
MOST_IDLE_MS: Final = 30_000

#: A task requests metadata again that is older. It does not wait for the answer, so its first rows may still be
#: distributed over the partitions that were known before.
MOST_AGE_MS: Final = 30_000

_log = logging.getLogger(__name__)


class KeptNetworks:
    """At most one network for each set of producer properties and for the state of the files that they name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        at_fork(self, KeptNetworks._forked)
        self._forked()

    def _forked(self) -> None:
        # The connections belong to the parent process: they are neither used nor closed here.
        self._changed = threading.Condition()
        self._kept: dict[bytes, tuple[ClientNetwork, int]] = {}
        self._closer: threading.Thread | None = None

    @leaves("_changed")
    def take(self, key: bytes) -> ClientNetwork | None:
        """The connections of the last task with this key; None if there are none that can be reused."""
        with self._changed:
            network, _ = self._kept.pop(key, (None, 0))
        if network is None:
            return None
        if network.can_go_on(self._clock.monotonic_ms(), MOST_AGE_MS):
            return network
        _close(network)
        return None

    @leaves("_changed")
    def keep(self, key: bytes, network: ClientNetwork) -> None:
        """Keep the network of a task's producer, under the key with which the task began."""
        with self._changed:
            before, _ = self._kept.pop(key, (None, 0))
            self._kept[key] = (network, self._clock.monotonic_ms())
            if self._closer is None:
                self._closer = start_thread("kafkalite-idle-connections", self._close_idle)
        if before is not None:
            _close(before)

    def _close_idle(self) -> None:
        """The closing thread; it ends when no connections are kept any more."""
        while True:
            with self._changed:
                now_ms = self._clock.monotonic_ms()
                idle = [key for key, (_, since_ms) in self._kept.items() if now_ms - since_ms >= MOST_IDLE_MS]
                closed = [self._kept.pop(key)[0] for key in idle]
                if not self._kept and not closed:
                    self._closer = None
                    return
                if not closed:
                    oldest_ms = min(since_ms for _, since_ms in self._kept.values())
                    self._clock.wait(self._changed, oldest_ms + MOST_IDLE_MS - now_ms)
            for network in closed:
                _close(network)


def _close(network: ClientNetwork) -> None:
    try:
        network.client.close()
    except Exception:
        _log.exception("could not close unused connections")
