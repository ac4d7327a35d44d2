"""One coordinator client per set of properties in a process that Spark reuses.

Spark's planner, committer, workers and the threads of a driver share the clients, whose calls are serialized. The most
recently used :data:`MOST_CONNECTED` clients keep their connections between batches, until they were idle for
:data:`MOST_IDLE_MS`; a client connects again when it is used again. A forked process begins without clients.

The store's lock is never held while a client is created, sends requests or is closed. Its thread closes connections.
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Final

from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.locks import leaves
from kafka_sink.common.threads import at_fork, start_thread
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.spark.write_spec import ProducerSpec

#: The connections of all but the most recently used clients are closed.
MOST_CONNECTED: Final = 10

#: All but the most recently used are discarded, with the cached state of their sinks, once unused.
MOST_CLIENTS: Final = 50

#: Shorter than the idle time-outs of brokers and load balancers, ms.
MOST_IDLE_MS: Final = 180_000

_log = logging.getLogger(__name__)


class SharedClients:
    """The clients of one process by the digest of their properties."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        at_fork(self, SharedClients._forked)
        self._forked()

    def _forked(self) -> None:
        # The connections belong to the parent process: they are neither used nor closed here.
        self._changed = threading.Condition()
        #: Also those that are discarded, as long as a caller uses them.
        self._clients: weakref.WeakValueDictionary[bytes, CoordinatorClient] = weakref.WeakValueDictionary()
        #: From the least to the most recently used.
        self._recent: dict[bytes, CoordinatorClient] = {}
        self._closer: threading.Thread | None = None
        #: Some connections are to be closed before they are idle.
        self._is_crowded = False

    def get(self, producer: ProducerSpec) -> CoordinatorClient:
        """The client for the cluster of *producer*; max.block.ms is its time-out."""
        key = producer.digest
        client = self._find(key)
        if client is None:
            config = producer.here()
            made = CoordinatorClient(config, timeout_ms=config.max_block_ms, clock=self._clock)
            client = self._find(key, made)
            assert client is not None
            if client is not made:
                # Another thread was faster.
                made.close()
        return client

    @leaves("_changed")
    def _find(self, key: bytes, made: CoordinatorClient | None = None) -> CoordinatorClient | None:
        """The client of *key*, now the most recently used; *made* if there was none."""
        with self._changed:
            client = self._clients.get(key, made)
            if client is None:
                return None
            self._clients[key] = client
            self._recent.pop(key, None)
            self._recent[key] = client
            if self._closer is None:
                self._closer = start_thread("kafkalite-idle-clients", self._close_idle)
            if len(self._recent) > MOST_CLIENTS:
                del self._recent[next(iter(self._recent))]
            if len(self._recent) > MOST_CONNECTED:
                self._is_crowded = True
                self._changed.notify()
            return client

    def _close_idle(self) -> None:
        """The closing thread; it runs until the process ends, because a client may be used again at any time."""
        while True:
            self._close_connections()
            with self._changed:
                if not self._is_crowded:
                    self._clock.wait(self._changed, MOST_IDLE_MS)

    def _close_connections(self) -> None:
        """Close those of idle clients. This thread keeps no client while it waits, so that it can be discarded."""
        with self._changed:
            self._is_crowded = False
            latest = list(self._recent.values())[-MOST_CONNECTED:]
            clients = list(self._clients.values())
        for client in clients:
            try:
                client.rest(MOST_IDLE_MS if client in latest else 0)
            except Exception:
                _log.exception("could not close the connections of an unused client")


_clients: Final = SharedClients()


def shared_client(producer: ProducerSpec) -> CoordinatorClient:
    """The client of this process for the cluster of *producer*; max.block.ms is its time-out."""
    return _clients.get(producer)
