"""For every test: figures that are worth reading beyond "passed" are shown at the end of the run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_FIGURE = "figure"

#: About half a minute on an idle core.
_SIMULATED_RUNS = 400

Figure = Callable[[str, object], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sim-runs", type=int, default=_SIMULATED_RUNS, help="seeds that tests/sim tries (%(default)s)")


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """``figure("longest stall", "1.2 s")``: shown in the run's summary, and kept in its JUnit report."""

    def note(name: str, value: object) -> None:
        record_property(_FIGURE, f"{name}: {value}")

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = [
        f"{report.nodeid.split('/')[-1]}  " + ", ".join(text for key, text in report.user_properties if key == _FIGURE)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        if any(key == _FIGURE for key, _ in report.user_properties)
    ]
    if lines:
        terminalreporter.section("figures")
        for line in sorted(lines):
            terminalreporter.line(line)
