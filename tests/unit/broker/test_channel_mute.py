"""Reasons for which a connection is muted: every event in every state, possible ones and refused ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_sink.broker.network.processor import ClientConnection
from tests.support.cases import with_each

#: Whether a request has no response yet, and whether the client is throttled.
State = tuple[bool, bool]
EVENTS: dict[str, Callable[[ClientConnection], None]] = {
    "request": ClientConnection.received,
    "answer": ClientConnection.answered,
    "throttling begins": lambda connection: connection.throttle(begins=True),
    "throttling ends": lambda connection: connection.throttle(begins=False),
}
#: From Kafka's KafkaChannel.ChannelMuteState; all other events are refused.
POSSIBLE: dict[tuple[State, str], State] = {
    ((False, False), "request"): (True, False),
    ((True, False), "answer"): (False, False),
    ((True, False), "throttling begins"): (True, True),
    ((True, True), "answer"): (False, True),
    ((True, True), "throttling ends"): (True, False),
    ((False, True), "throttling ends"): (False, False),
}


@pytest.mark.behaviour("Broker connections", "Mute states change as Kafka's table says; all other events are refused")
@with_each("state", [(False, False), (True, False), (False, True), (True, True)])
@with_each("event", EVENTS)
def test_every_event_in_every_state(state: State, event: str) -> None:
    connection = ClientConnection("127.0.0.1", *state)
    following = POSSIBLE.get((state, event))
    if following is None:
        with pytest.raises(RuntimeError, match="is not possible now"):
            EVENTS[event](connection)
    else:
        EVENTS[event](connection)
    assert (connection.unanswered, connection.throttled) == (following or state)


@pytest.mark.behaviour("Broker connections", "A throttled channel waits for the response and for the end of throttling")
@pytest.mark.behaviour("Broker connections", "Unmuting needs that nothing else holds the channel")
@pytest.mark.parametrize("order", [("answer", "throttling ends"), ("throttling ends", "answer")])
def test_throttled_channel_waits_for_response_and_throttle_end(order: tuple[str, str]) -> None:
    connection = ClientConnection("127.0.0.1")
    assert not connection.is_muted
    for event in ("request", "throttling begins", order[0]):
        EVENTS[event](connection)
        assert connection.is_muted
    EVENTS[order[1]](connection)
    assert not connection.is_muted
