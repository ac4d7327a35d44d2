"""A network in memory: bytes stay in order within a connection, everything else is random.

Implements :class:`kafka_sink.network.channel.selectable.Selectable` for one client; simulated time advances only in its
poll. The network copies the bytes of a frame when they are "written to the socket", piece by piece: a buffer that is
changed before that changes the request that the broker gets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.network.channel.selectable import ChannelState, Disconnect
from kafka_sink.network.frames import NetworkReceive, NetworkSend
from kafka_sink.network.transport.resolver import SocketAddress
from kafka_sink.network.transport.transport import Socket
from kafka_sink.protocol.framing import SIZE_BYTES
from tests.sim.plan import Faults
from tests.sim.world import ViolationError, World

#: The most consecutive polls without events and without elapsed time; with more of them the sender is spinning.
_MOST_IDLE_POLLS = 50


@dataclass(slots=True)
class Frame:
    """A request on its way to a broker."""

    payload: bytes
    #: When the client passed it to the network (a moment of the world).
    sent: int


@dataclass(slots=True)
class Answer:
    """The response of a broker; *on_read* is called when the client reads it."""

    payload: bytes
    on_read: Callable[[], None]


#: Acts as the brokers: (node id, frame) → response, None for none, "close" to lose the connection.
Broker = Callable[[int, Frame], "Answer | str | None"]


@dataclass(slots=True)
class Link:
    """One connection."""

    connection_id: str
    node_id: int
    number: int
    established: bool = False
    reported: bool = False
    #: The client has closed it, or the network has lost it.
    gone: bool = False
    #: Requests no longer reach the broker.
    deaf: bool = False
    #: Responses no longer reach the client.
    dumb: bool = False
    lost: Disconnect | None = None
    outgoing: NetworkSend | None = None
    outgoing_sent: int = 0
    writable_ms: int = 0
    tape: bytearray = field(default_factory=bytearray)
    #: The frame in the slot, once the transport has all of its bytes, and whether they were sent.
    taken: Frame | None = None
    has_left: bool = False
    #: Requests without a response, including the one being written.
    unanswered: int = 0
    request_due_ms: int = 0
    answer_due_ms: int = 0
    arrived: deque[Answer] = field(default_factory=deque)


class _Pen:
    """Accepts at most *room* bytes."""

    def __init__(self, tape: bytearray, room: int) -> None:
        self._tape = tape
        self._room = room

    def write(self, buffers: Sequence[memoryview]) -> int:
        taken = 0
        for buffer in buffers:
            piece = buffer[: self._room - taken]
            self._tape += piece
            taken += piece.nbytes
            if taken >= self._room:
                break
        return taken


class SimNetwork:
    """The producer's selector and everything between it and the brokers."""

    def __init__(self, world: World, faults: Faults, broker: Broker, *, max_in_flight: int, acks: bool) -> None:
        self._world = world
        self._faults = faults
        self._broker = broker
        self._max_in_flight = max_in_flight
        self._expects_answers = acks
        self.faults_active = True
        #: The nodes that accept connections.
        self.running: set[int] = set()
        self._lives: dict[int, int] = {}
        #: The latest end of the next polls, because the application's thread resumes then.
        self.horizon_ms = FOREVER_MS
        #: Until when the client has nothing to do, as far as it knows; now if a poll had an event.
        self.sleeps_until_ms = 0
        self._idle_polls = 0
        self._links: dict[str, Link] = {}
        self._link_count = 0
        self._woken = False
        self.is_closed = False
        self.completed_sends: list[NetworkSend] = []
        self.completed_receives: list[NetworkReceive] = []
        self.connected: list[str] = []
        self.disconnected: dict[str, Disconnect] = {}

    # --- faults ------------------------------------------------------------------------------------------------------

    def _strikes(self, share: float) -> bool:
        return self.faults_active and self._world.chance(share)

    def _latency_ms(self) -> int:
        latency_ms = self._world.rng.randint(*self._faults.latency_ms)
        if self._strikes(self._faults.slow_share):
            latency_ms += self._world.rng.randint(1, self._faults.slow_ms)
        return latency_ms

    def reset_one(self) -> None:
        """Lose one of the connections."""
        links = [link for link in self._links.values() if not link.gone]
        if links:
            self._lose(self._world.rng.choice(links), "connection reset by peer")

    def lose_all(self) -> None:
        """End the client's process, which neither sends nor receives anything afterwards."""
        for link in self._links.values():
            link.gone = True
        self._links.clear()

    def stop_node(self, node_id: int) -> None:
        """End the node's process, with its connections and its unhandled requests."""
        self.running.discard(node_id)
        for link in list(self._links.values()):
            if link.node_id == node_id and not link.gone:
                self._lose(link, "connection reset by peer")
        # Frames that outlive a lost connection do not outlive the process.
        self._lives[node_id] = self._lives.get(node_id, 0) + 1

    def _lose(self, link: Link, cause: str) -> None:
        self._world.note("link {} to node {} is lost: {}", link.number, link.node_id, cause)
        link.gone = True
        link.arrived.clear()
        link.lost = Disconnect(ChannelState.READY, cause)

    # --- what the client does ----------------------------------------------------------------------------------------

    def connect(
        self, connection_id: str, address: SocketAddress, send_buffer_bytes: int, receive_buffer_bytes: int
    ) -> None:
        if connection_id in self._links:
            raise RuntimeError(f"there is a connection {connection_id} already")
        node_id = address.port - 9000
        self._link_count += 1
        link = Link(connection_id, node_id, self._link_count)
        self._links[connection_id] = link
        if self._strikes(self._faults.connect_hangs):
            self._world.note("link {} to node {} hangs", link.number, node_id)
            return
        refused = self._strikes(self._faults.connect_refused)

        def accept() -> None:
            if link.gone:
                return
            if refused or node_id not in self.running:
                link.gone = True
                link.lost = Disconnect(ChannelState.NOT_CONNECTED, "connection refused")
            else:
                link.established = True

        self._world.after(max(self._latency_ms(), 1), accept)

    def register(self, connection_id: str, sock: Socket) -> NoReturn:
        raise RuntimeError("a client registers no sockets")

    def send(self, send: NetworkSend) -> None:
        link = self._links.get(send.destination)
        if link is None or not link.established:
            raise RuntimeError(f"there is no connection {send.destination}")
        if link.outgoing is not None:
            raise RuntimeError(f"connection {send.destination} has a frame that is not fully written yet")
        link.outgoing = send
        link.outgoing_sent = self._world.moment
        link.unanswered += 1
        if link.unanswered > self._max_in_flight:
            raise ViolationError(
                f"{link.unanswered} requests are in flight on link {link.number}, {self._max_in_flight} are allowed"
            )

    def can_send(self, connection_id: str) -> bool:
        link = self._links.get(connection_id)
        return link is not None and link.reported and link.outgoing is None

    def is_open(self, connection_id: str) -> bool:
        return connection_id in self._links

    def mute(self, connection_id: str) -> NoReturn:
        raise RuntimeError("a client mutes no connections")

    def unmute(self, connection_id: str) -> NoReturn:
        raise RuntimeError("a client mutes no connections")

    def close_connection(self, connection_id: str) -> None:
        link = self._links.pop(connection_id, None)
        if link is not None:
            self._world.note("link {} to node {} is closed by the client", link.number, link.node_id)
            link.gone = True

    def close(self) -> None:
        for connection_id in list(self._links):
            self.close_connection(connection_id)
        self.is_closed = True

    def wakeup(self) -> None:
        self._woken = True

    # --- poll --------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int) -> None:
        if timeout_ms < 0:
            raise ViolationError(f"poll with the time-out {timeout_ms}")
        world = self._world
        began_ms = world.now_ms
        self.completed_sends, self.completed_receives = [], []
        self.connected, self.disconnected = [], {}
        end_ms = min(world.now_ms + timeout_ms, FOREVER_MS)
        while True:
            world.run_due()
            self._gather()
            if self.completed_sends or self.completed_receives or self.connected or self.disconnected or self._woken:
                self._idle_polls = 0
                self.sleeps_until_ms = world.now_ms
                break
            self.sleeps_until_ms = end_ms
            stop_ms = min(end_ms, self.horizon_ms)
            if world.now_ms >= stop_ms:
                break
            next_ms = min(world.next_event_ms, stop_ms)
            if next_ms >= FOREVER_MS:
                raise ViolationError("the sender sleeps and nothing will ever wake it")
            world.now_ms = max(next_ms, world.now_ms)
        self._woken = False
        self._idle_polls = self._idle_polls + 1 if end_ms <= began_ms else 0
        if self._idle_polls > _MOST_IDLE_POLLS:
            raise ViolationError("the sender spins: it polls again and again without letting time pass")

    def _gather(self) -> None:
        for connection_id, link in list(self._links.items()):
            if link.lost is not None:
                del self._links[connection_id]
                self.disconnected[connection_id] = link.lost
                continue
            if link.established and not link.reported:
                link.reported = True
                self.connected.append(connection_id)
            if link.arrived:
                answer = link.arrived.popleft()
                link.unanswered -= 1
                self._world.moment += 1
                answer.on_read()
                self.completed_receives.append(NetworkReceive(connection_id, memoryview(answer.payload)))
            if link.outgoing is not None and link.writable_ms <= self._world.now_ms:
                self._write(link, link.outgoing)

    def _write(self, link: Link, send: NetworkSend) -> None:
        if link.taken is None:
            room = send.remaining
            if room > 1 and self._strikes(self._faults.partial_writes):
                room = self._world.rng.randint(1, room)
            send.write_to(_Pen(link.tape, room).write)
            if not send.completed:
                self._pause(link)
                return
            link.taken = Frame(bytes(link.tape[SIZE_BYTES:]), link.outgoing_sent)
            link.tape = bytearray()
            if self._strikes(self._faults.transport_keeps):
                # The transport keeps the frame's end, or only its own bytes after the frame. With acks=0 the latter may
                # duplicate records, if the connection is lost then: acks=0 guarantees nothing.
                if self._expects_answers and self._world.chance(0.5):
                    self._leave(link, link.taken)
                self._pause(link)
                return
        self._leave(link, link.taken)
        if not self._expects_answers and link.taken.payload[:2] == b"\0\0":
            link.unanswered -= 1
        link.outgoing, link.taken, link.has_left = None, None, False
        self.completed_sends.append(send)

    def _pause(self, link: Link) -> None:
        pause_ms = self._world.rng.randint(0, self._faults.write_pause_ms)
        link.writable_ms = self._world.now_ms + pause_ms
        self._world.after(pause_ms, lambda: None)

    def _leave(self, link: Link, frame: Frame) -> None:
        if not link.has_left:
            link.has_left = True
            self._travel(link, frame)

    # --- on the way --------------------------------------------------------------------------------------------------

    def _travel(self, link: Link, frame: Frame) -> None:
        if self._strikes(self._faults.stalled):
            link.deaf = self._world.chance(0.5)
            link.dumb = not link.deaf
            self._world.note(
                "link {}: {} are swallowed from now on", link.number, "requests" if link.deaf else "answers"
            )
        if link.deaf:
            return
        due_ms = max(self._world.now_ms + self._latency_ms(), link.request_due_ms)
        link.request_due_ms = due_ms
        life = self._lives.get(link.node_id, 0)
        self._world.at(due_ms, lambda: self._arrive(link, frame, life))

    def _arrive(self, link: Link, frame: Frame, life: int) -> None:
        if link.node_id not in self.running or life != self._lives.get(link.node_id, 0):
            return
        if link.gone and not self._faults.zombies:
            return
        if not link.gone and self._strikes(self._faults.request_lost):
            self._lose(link, "request lost")
            return
        answer = self._broker(link.node_id, frame)
        if link.gone or answer is None or link.dumb:
            return
        if isinstance(answer, str) or self._strikes(self._faults.answer_lost):
            self._lose(link, "closed by the broker" if isinstance(answer, str) else "answer lost")
            return
        # A response takes at least 1 ms: otherwise a client without back-off could retry for ever within a millisecond.
        due_ms = max(self._world.now_ms + max(self._latency_ms(), 1), link.answer_due_ms)
        link.answer_due_ms = due_ms
        found = answer
        self._world.at(due_ms, lambda: None if link.gone else link.arrived.append(found))
