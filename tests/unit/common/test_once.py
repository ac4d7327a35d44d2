"""Warnings about values that are read repeatedly."""

from __future__ import annotations

import logging

import pytest

from kafka_sink.common import config as c
from kafka_sink.common.log_context import Said, once, warn
from kafka_sink.producer.config import ProducerConfig

log = logging.getLogger("kafka_sink.test")


def test_a_warning_is_said_once_within_and_always_outside(caplog: pytest.LogCaptureFixture) -> None:
    said = Said()
    for _ in range(3):
        with once(said):
            warn(log, "of %s", "one")
            warn(log, "of %s", "two")
    assert caplog.messages == ["of one", "of two"]
    with once(Said()):
        warn(log, "of %s", "one")
    warn(log, "of %s", "one")
    warn(log, "of %s", "one")
    assert caplog.messages == ["of one", "of two", "of one", "of one", "of one"]


def test_nothing_is_said_where_somebody_else_says_it(caplog: pytest.LogCaptureFixture) -> None:
    with once(Said(all_of_it=True)):
        warn(log, "of %s", "one")
    assert caplog.messages == []


def test_options_without_effect_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    given = {"bootstrap.servers": "127.0.0.1:9092", next(iter(ProducerConfig.NO_EFFECT)): "x"}
    said = Said()
    for _ in range(3):
        with once(said):
            c.parse(ProducerConfig, given)
    (message,) = caplog.messages
    assert message.startswith("options without effect here: ")
