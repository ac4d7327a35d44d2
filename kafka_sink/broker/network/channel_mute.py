"""The mute state of a connection on the broker, as a table of transitions.

Used by the processor that owns the connection, on its thread. One request of a connection is processed at a time, so
that its answers are sent in order; throttling mutes it for longer. Transitions that are not in the table are rejected.

Source: apache/kafka ``KafkaChannel.ChannelMuteState`` and ``ChannelMuteEvent``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final


class ChannelMuteState(Enum):
    """Whether a channel is muted, and why."""

    NOT_MUTED = auto()
    MUTED = auto()
    MUTED_AND_RESPONSE_PENDING = auto()
    MUTED_AND_THROTTLED = auto()
    MUTED_AND_THROTTLED_AND_RESPONSE_PENDING = auto()


class ChannelMuteEvent(Enum):
    """The events that change the state of a muted channel."""

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
        """Stop reading; no effect on a channel that is already muted."""
        if self.state is ChannelMuteState.NOT_MUTED:
            self.state = ChannelMuteState.MUTED

    def maybe_unmute(self) -> bool:
        """Unmute the channel if no reason to mute it is left; returns whether it is unmuted now."""
        if self.state is ChannelMuteState.MUTED:
            self.state = ChannelMuteState.NOT_MUTED
        return self.state is ChannelMuteState.NOT_MUTED

    def handle(self, event: ChannelMuteEvent) -> None:
        """Apply *event*. :raises RuntimeError: if the table has no such transition; the state does not change."""
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            raise RuntimeError(f"event {event.name} is not possible for a channel that is {self.state.name}")
        self.state = following
