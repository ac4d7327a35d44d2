"""Tries connections without sending a request: whether a name resolves, a port answers, and TLS and SASL agree.

Runs on the calling thread. Every wait has a limit. A connection is closed as soon as its outcome is known.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_sink.common.clock import Clock
from kafka_sink.common.threads import start_thread
from kafka_sink.network.channel.channel_builder import ChannelBuilder
from kafka_sink.network.channel.selectable import ChannelState, Disconnect
from kafka_sink.network.polling.causes import cause_of
from kafka_sink.network.polling.selector import KSelector
from kafka_sink.network.transport.resolver import SocketAddress, resolve
from kafka_sink.network.transport.transport import OS_DEFAULT_BUFFER


def resolve_within(host: str, port: int, timeout_ms: int) -> list[SocketAddress]:
    """The addresses of *host*. The system's resolver cannot be interrupted, so it runs on a thread of its own, which is
    left behind if it does not answer in time.

    :raises OSError: if the name is unknown, or there was no answer in time.
    """
    outcome: list[list[SocketAddress] | OSError] = []

    def look_up() -> None:
        try:
            outcome.append(resolve(host, port))
        except OSError as error:
            outcome.append(error)

    start_thread("kafkalite-check-resolver", look_up).join(timeout_ms / 1000)
    if not outcome:
        raise TimeoutError(f"cannot resolve host name {host!r}: no answer within {timeout_ms} ms")
    if isinstance(outcome[0], OSError):
        raise outcome[0]
    return outcome[0]


def connect_all(
    addresses: Mapping[str, SocketAddress], builder: ChannelBuilder, timeout_ms: int, clock: Clock
) -> dict[str, Disconnect | None]:
    """Connect to all *addresses* at the same time, as far as the protocol of *builder* goes. The outcome of each: None
    if the connection is ready for requests."""
    selector = KSelector(builder, clock)
    try:
        return _Attempts(selector, clock).outcomes(addresses, timeout_ms)
    finally:
        selector.close()


class _Attempts:
    """Connection attempts that share a selector and a deadline."""

    def __init__(self, selector: KSelector, clock: Clock) -> None:
        self._selector = selector
        self._clock = clock
        self._outcomes: dict[str, Disconnect | None] = {}
        self._established: set[str] = set()

    def outcomes(self, addresses: Mapping[str, SocketAddress], timeout_ms: int) -> dict[str, Disconnect | None]:
        for name, address in addresses.items():
            self._begin(name, address)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while pending := [name for name in addresses if name not in self._outcomes]:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                self._outcomes |= {name: self._timed_out(name, timeout_ms) for name in pending}
                break
            self._selector.poll(left_ms)
            self._take(pending)
        return {name: self._outcomes[name] for name in addresses}

    def _begin(self, name: str, address: SocketAddress) -> None:
        try:
            self._selector.connect(name, address, OS_DEFAULT_BUFFER, OS_DEFAULT_BUFFER)
        except OSError as error:
            self._outcomes[name] = Disconnect(ChannelState.NOT_CONNECTED, cause_of(error))

    def _take(self, pending: list[str]) -> None:
        self._established.update(self._selector.connected)
        self._outcomes.update(self._selector.disconnected)
        for name in pending:
            if name not in self._outcomes and self._selector.can_send(name):
                self._outcomes[name] = None
                self._selector.close_connection(name)

    def _timed_out(self, name: str, timeout_ms: int) -> Disconnect:
        is_established = name in self._established
        state = ChannelState.AUTHENTICATE if is_established else ChannelState.NOT_CONNECTED
        return Disconnect(state, f"no answer within {timeout_ms} ms")
