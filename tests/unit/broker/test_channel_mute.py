"""The mute table: every pair of state and event, those it lists and those it must refuse."""

from __future__ import annotations

import pytest

from kafka_sink.broker.network.processor import TRANSITIONS, ChannelMute, ChannelMuteEvent, ChannelMuteState
from tests.support.cases import with_each

S, E = ChannelMuteState, ChannelMuteEvent

#: Written out again, from Kafka's source, so that the table cannot judge itself.
LEGAL = {
    (S.MUTED, E.REQUEST_RECEIVED, S.MUTED_AND_RESPONSE_PENDING),
    (S.MUTED_AND_RESPONSE_PENDING, E.RESPONSE_SENT, S.MUTED),
    (S.MUTED_AND_RESPONSE_PENDING, E.THROTTLE_STARTED, S.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING),
    (S.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, E.RESPONSE_SENT, S.MUTED_AND_THROTTLED),
    (S.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, E.THROTTLE_ENDED, S.MUTED_AND_RESPONSE_PENDING),
    (S.MUTED_AND_THROTTLED, E.THROTTLE_ENDED, S.MUTED),
}


def in_state(state: ChannelMuteState) -> ChannelMute:
    channel = ChannelMute()
    channel.state = state
    return channel


@pytest.mark.behaviour("Broker connections", "Mute states change as Kafka's table says; all other events are refused")
def test_the_table_is_kafkas() -> None:
    assert {(state, event, following) for (state, event), following in TRANSITIONS.items()} == LEGAL


@pytest.mark.behaviour("Broker connections", "Mute states change as Kafka's table says; all other events are refused")
@with_each("state", S)
@with_each("event", E)
def test_every_event_in_every_state(state: ChannelMuteState, event: ChannelMuteEvent) -> None:
    channel = in_state(state)
    following = {(before, what): after for before, what, after in LEGAL}.get((state, event))
    if following is None:
        with pytest.raises(
            RuntimeError, match=f"event {event.name} is not possible for a channel that is {state.name}"
        ):
            channel.handle(event)
        assert channel.state is state
    else:
        channel.handle(event)
        assert channel.state is following


@pytest.mark.behaviour("Broker connections", "Unmuting needs that nothing else holds the channel")
@with_each("state", S)
def test_unmute_needs_that_nothing_else_holds_the_channel(state: ChannelMuteState) -> None:
    channel = in_state(state)
    assert channel.maybe_unmute() is (state in (S.MUTED, S.NOT_MUTED))
    assert channel.state is (S.NOT_MUTED if state is S.MUTED else state)


@with_each("state", S)
def test_mute_changes_only_a_channel_that_is_read(state: ChannelMuteState) -> None:
    channel = in_state(state)
    channel.mute()
    assert channel.state is (S.MUTED if state is S.NOT_MUTED else state)


@pytest.mark.behaviour("Broker connections", "A throttled channel waits for the response and for the end of throttling")
@pytest.mark.parametrize("first", [E.RESPONSE_SENT, E.THROTTLE_ENDED])
def test_throttled_channel_waits_for_response_and_throttle_end(first: ChannelMuteEvent) -> None:
    second = E.THROTTLE_ENDED if first is E.RESPONSE_SENT else E.RESPONSE_SENT
    channel = ChannelMute()
    channel.mute()
    channel.handle(E.REQUEST_RECEIVED)
    channel.handle(E.THROTTLE_STARTED)
    channel.handle(first)
    assert not channel.maybe_unmute()
    channel.handle(second)
    assert channel.maybe_unmute()
