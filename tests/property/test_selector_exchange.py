"""Two selectors talk over real sockets while a random hand mutes, unmutes, polls and holds memory back.

Whatever it does, every frame arrives once, whole and in order.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_sink.network.channel_builder import PlaintextChannelBuilder
from kafka_sink.network.memory_pool import SimpleMemoryPool
from kafka_sink.network.receive import NetworkReceive
from kafka_sink.network.selector import KSelector
from kafka_sink.network.send import NetworkSend
from tests.fakes.clock import FakeClock

CONNECTIONS = ("a", "b")
MEMORY_BYTES = 100_000
STEPS = 150
PATIENCE = 20_000


class End:
    """One selector, what it still has to send, and what it got."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.pool = SimpleMemoryPool(MEMORY_BYTES)
        self.selector = KSelector(PlaintextChannelBuilder(), FakeClock(), memory_pool=self.pool)
        self.outbox: dict[str, deque[bytes]] = {name: deque() for name in CONNECTIONS}
        self.sent: dict[str, list[bytes]] = {name: [] for name in CONNECTIONS}
        self.received: dict[str, list[bytes]] = {name: [] for name in CONNECTIONS}
        self.writing: set[str] = set()
        self.muted: set[str] = set()
        self.held: list[NetworkReceive] = []

    def queue(self) -> None:
        name = self.rng.choice(CONNECTIONS)
        size = self.rng.choice([0, 1, 100, 16_380, 16_381, 70_000, 400_000])
        payload = self.rng.randbytes(min(size, 64)) + bytes(max(size - 64, 0))
        self.outbox[name].append(payload)
        self.sent[name].append(payload)

    def flip_mute(self) -> None:
        name = self.rng.choice(CONNECTIONS)
        (self.selector.unmute if name in self.muted else self.selector.mute)(name)
        self.muted ^= {name}

    def release_one(self) -> None:
        if self.held:
            self.held.pop(self.rng.randrange(len(self.held))).release()

    def poll(self, *, release: bool) -> None:
        for name, frames in self.outbox.items():
            if frames and name not in self.writing:
                self.selector.send(NetworkSend(name, [frames[0][:10], frames.popleft()[10:]]))
                self.writing.add(name)
        self.selector.poll(0)
        self.writing.difference_update(send.destination for send in self.selector.completed_sends)
        assert self.selector.disconnected == {}
        sources = [receive.source for receive in self.selector.completed_receives]
        assert len(sources) == len(set(sources))
        assert not set(sources) & self.muted
        for receive in self.selector.completed_receives:
            self.received[receive.source].append(bytes(receive.payload))
            if release:
                receive.release()
            else:
                self.held.append(receive)

    def settle(self) -> None:
        for name in list(self.muted):
            self.selector.unmute(name)
        self.muted.clear()
        while self.held:
            self.release_one()


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_frame_arrives_once_whole_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    with contextlib.ExitStack() as stack:
        left, right = End(rng), End(rng)
        for end in (left, right):
            stack.callback(end.selector.close)
        for name in CONNECTIONS:
            one, other = socket.socketpair()
            left.selector.register(name, one)
            right.selector.register(name, other)
        for _ in range(STEPS):
            end = rng.choice((left, right))
            action = rng.choice((end.queue, end.flip_mute, end.release_one, None, None, None))
            if action is None:
                end.poll(release=rng.random() < 0.5)
            else:
                action()
        for _ in range(PATIENCE):
            for end in (left, right):
                end.settle()
                end.poll(release=True)
            if left.received == right.sent and right.received == left.sent:
                break
        assert left.received == right.sent
        assert right.received == left.sent
        assert left.pool.available_bytes == right.pool.available_bytes == MEMORY_BYTES
