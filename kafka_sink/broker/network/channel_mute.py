"""When a connection may be read: the mute state of a channel on the broker, as a table.

Owned by the processor that owns the connection, on its thread. One request of a connection is in process at a time, so
its answers leave in order; throttling holds it back longer. What the table does not list is refused.

Source: apache/kafka ``KafkaChannel.ChannelMuteState`` and ``ChannelMuteEvent``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final


class ChannelMuteState(Enum):
    """Why a channel is not read, or that it is."""

    NOT_MUTED = auto()
    MUTED = auto()
    MUTED_AND_RESPONSE_PENDING = auto()
    MUTED_AND_THROTTLED = auto()
    MUTED_AND_THROTTLED_AND_RESPONSE_PENDING = auto()


class ChannelMuteEvent(Enum):
    """What can happen to a muted channel."""

    REQUEST_RECEIVED = auto()
    RESPONSE_SENT = auto()
    THROTTLE_STARTED = auto()
    THROTTLE_ENDED = auto()


_State = ChannelMuteState
_Event = ChannelMuteEvent

TRANSITIONS: Final[Mapping[tuple[ChannelMuteState, ChannelMuteEvent], ChannelMuteState]] = MappingProxyType(
    {
        (_State.MUTED, _Event.REQUEST_RECEIVED): _State.MUTED_AND_RESPONSE_PENDING,
        (_State.MUTED_AND_RESPONSE_PENDING, _Event.RESPONSE_SENT): _State.MUTED,
        (_State.MUTED_AND_RESPONSE_PENDING, _Event.THROTTLE_STARTED): _State.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING,
        (_State.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, _Event.RESPONSE_SENT): _State.MUTED_AND_THROTTLED,
        (_State.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, _Event.THROTTLE_ENDED): _State.MUTED_AND_RESPONSE_PENDING,
        (_State.MUTED_AND_THROTTLED, _Event.THROTTLE_ENDED): _State.MUTED,
    }
)


class ChannelMute:
    """The mute state of one channel."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state = ChannelMuteState.NOT_MUTED

    def mute(self) -> None:
        """Stop reading; nothing changes for a channel that is not read already."""
        if self.state is ChannelMuteState.NOT_MUTED:
            self.state = ChannelMuteState.MUTED

    def maybe_unmute(self) -> bool:
        """Read again if nothing holds the channel back any more; says whether it is read now."""
        if self.state is ChannelMuteState.MUTED:
            self.state = ChannelMuteState.NOT_MUTED
        return self.state is ChannelMuteState.NOT_MUTED

    def handle(self, event: ChannelMuteEvent) -> None:
        """Move on. :raises RuntimeError: the table has no such transition; the state stays."""
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            raise RuntimeError(f"a channel that is {self.state.name} cannot take {event.name}")
        self.state = following
