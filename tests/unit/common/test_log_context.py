"""Loggers whose messages name their component."""

from __future__ import annotations

import logging

import pytest

from kafka_sink.common.log_context import ContextLogger


def test_the_context_stands_before_every_line(caplog: pytest.LogCaptureFixture) -> None:
    ContextLogger("kafka_sink.test", "Producer clientId=p1").warning("lost %s", "broker 1")
    assert caplog.messages == ["[Producer clientId=p1] lost broker 1"]


def test_no_context_means_no_brackets(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        ContextLogger("kafka_sink.test", "").info("ready")
    assert caplog.messages == ["ready"]
