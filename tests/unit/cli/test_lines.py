"""Names from other systems, in logs and tables: none of them can start a new line."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kafka_sink.cli import output

NAME = "x\n2026-01-01 00:00:00,000 ERROR   forged\r\x1b[31m\u202e\u2028\ud800"
SHOWN = r"x\n2026-01-01 00:00:00,000 ERROR   forged\r\x1b[31m\u202e\u2028\ud800"


@pytest.fixture
def logged() -> Iterator[None]:
    """Restore the logging configuration after a test."""
    root, level = logging.getLogger(), logging.getLogger("kafka_sink").level
    handlers = root.handlers[:]
    yield
    root.handlers[:] = handlers
    logging.getLogger("kafka_sink").setLevel(level)


@pytest.mark.behaviour(
    "Groups and transactions from the command line",
    "Names of clients, groups and topics with control characters forge no line",
)
@pytest.mark.usefixtures("logged")
def test_a_name_makes_no_line_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    output.configure_logging(debug=False)
    log = logging.getLogger("kafka_sink.broker")
    log.warning("closing a connection of %s", NAME)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"closing a connection of {SHOWN}")
    try:
        raise ValueError(NAME)
    except ValueError:
        log.exception("closing a connection of %s", NAME)
    first, *traceback = capsys.readouterr().err.splitlines()
    assert first.endswith(SHOWN)
    assert len(traceback) > 2
    assert all(each.startswith("    ") and "\x1b" not in each for each in traceback)


@pytest.mark.behaviour(
    "Groups and transactions from the command line",
    "Names of clients, groups and topics with control characters forge no line",
)
def test_a_name_makes_no_line_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(["group", NAME], [[NAME, 1], ["other", 2]])
    output.line(f"deleted {NAME}")
    said = capsys.readouterr().out
    assert said.count(SHOWN) == 3
    assert not [line for line in said.splitlines() if line.lstrip().startswith("2026")]
