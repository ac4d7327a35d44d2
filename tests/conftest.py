"""For every test: the end of a run shows the figures that tests have noted, and a test finds logging and signals in
their default state."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.support import amounts, figures, ways
from tests.support.by_parts import left_out
from tests.support.real_kafka import wait_for_download
from tests.support.scheduling import longest_first, make_scheduler, needs_kafka

# The duration of an example depends on the machine more than on the code.
settings.register_profile("kafkalite", deadline=None)
settings.load_profile("kafkalite")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FIGURE = "figure"

_SIMULATED_RUNS = amounts.SIMULATED_RUNS

_SCRIPTS = Path(__file__).parents[1] / "scripts"
_SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Small queries run in less time than Spark needs to generate and compile Java code for each of them.
_INTERPRETED = " -Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
#: The archive of Spark's classes that ``scripts/test.sh`` makes. A JVM with other jars ignores it, and would print a
#: warning on stdout.
_SPARK_CLASSES = Path(
    os.environ.get("KAFKALITE_SPARK_CLASSES") or Path(__file__).parents[1] / ".work" / "spark-classes.jsa"
)

#: Loggers of other packages: objects that a test has left log a complaint when they are collected, in any later test.
_LOGGERS_OF_OTHERS = ("asyncio", "aiokafka", "kafka")

#: Tests that are not repeated after a failure: those that depend on no other process's speed, and exactly once.
_NEVER_AGAIN = tuple(
    f"tests/{folder}/"
    for folder in ("architecture", "exactly_once", "exploration", "golden", "property", "sim", "unit")
)
#: The failures of tests that passed when they were repeated, a line each; it is never cleared.
_FAILED_ONCE = Path(__file__).parents[1] / ".work" / "failed_once.txt"

_LOGGERS = ("", "kafka_sink", "kafka_sink.client", "kafka_sink.network", "kafka_sink.producer")

Figure = Callable[[str, object], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sim-runs", type=int, default=_SIMULATED_RUNS, help="seeds that tests/sim tries (%(default)s)")
    parser.addoption("--figures", type=Path, metavar="FILE", help="write the figures of the tests that passed, as JSON")
    parser.addoption("--ways", type=Path, metavar="FILE", help="add to FILE which ways to write the tests have proven")


def pytest_report_header() -> str:
    """Return PySpark's version, which the ledger (``tests/proof``) records with the result of the run."""
    return f"PySpark {metadata.version('pyspark')}"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "behaviour(part, text): what the test holds (scripts/test.sh --behaviours)")
    config.addinivalue_line("markers", "way(name): the way to write that the test proves (scripts/test.sh --ways)")
    if amounts.LONG and _knows_all(config):
        config.pluginmanager.register(_FailuresAtOnce(config))
    _spare_the_processor()
    for name in _LOGGERS_OF_OTHERS:
        logging.getLogger(name).propagate = False
    # A shell's background jobs ignore SIGINT, and the programs that a test interrupts would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _knows_all(config: pytest.Config) -> bool:
    """Return whether this process knows the outcomes of all tests; a worker of pytest-xdist knows only its own."""
    return not hasattr(config, "workerinput")


class _FailuresAtOnce:
    """Prints each failure immediately, because a long run ends an hour later."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            terminal = self._plugins.get_plugin("terminalreporter")
            assert isinstance(terminal, pytest.TerminalReporter)
            terminal.ensure_newline()
            terminal.section(f"failed: {report.nodeid}", "-")
            terminal.line(report.longreprtext)


def _spare_the_processor() -> None:
    """Make the JVMs and Pythons that tests start compile less, which is most of their CPU time: they run for seconds.

    A JVM without its optimizing compiler needs half of the CPU time, and Spark's with its classes from an archive half
    of that again; a Python that may store bytecode compiles the project's sources once and not at every start, nor
    PySpark's if it imports them from the environment.
    """
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ[variable] = str(_SCRIPTS / "spark_python.sh")
    os.environ["KAFKALITE_SPARK_PYTHON"] = sys.executable
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # Spark splits the options at spaces.
    spark = _SHORT_LIVED_JVM
    if not amounts.LONG:
        spark += _INTERPRETED
    if _SPARK_CLASSES.exists() and " " not in str(_SPARK_CLASSES):
        spark += f" -XX:SharedArchiveFile={_SPARK_CLASSES} -Xlog:disable"
    for variable in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
        os.environ.setdefault(variable, spark)
    for variable in ("SPARK_LAUNCHER_OPTS", "KAFKA_OPTS"):
        os.environ.setdefault(variable, _SHORT_LIVED_JVM)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt the thousands of collected tests, which stay until the run ends, from garbage collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(_NEVER_AGAIN):
            item.add_marker(pytest.mark.flaky(reruns=0))
        why = left_out(item.nodeid)
        if why is not None:
            item.add_marker(pytest.mark.skip(reason=why))
        item.user_properties += [(ways.PROPERTY, marker.args[0]) for marker in item.iter_markers(ways.PROPERTY)]
    if hasattr(config, "workerinput"):
        longest_first(items)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Wait for the download of Kafka before the test, so that the wait does not count towards the test's time-out.

    After the last test of a file, exempt the objects that its tests have left from garbage collection.
    """
    if needs_kafka(item.nodeid.split("::", 1)[0]):
        wait_for_download()
    outcome = yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return outcome


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return make_scheduler(config, log)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Restore the logging that the command line and PySpark configure for their process, which all tests share."""
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    formatters = {handler: handler.formatter for handler in root.handlers}
    yield
    for name, level in levels.items():
        # setLevel() clears the caches of all loggers.
        if logging.getLogger(name).level != level:
            logging.getLogger(name).setLevel(level)
    root.handlers[:] = formatters
    for handler, formatter in formatters.items():
        handler.formatter = formatter


@pytest.fixture(autouse=True)
def _kafka_has_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Read longer from a real Kafka, which writes the markers of a transaction after its response to EndTxn."""
    if not needs_kafka(request.node.nodeid.split("::", 1)[0]):
        yield
        return
    from tests.support import readback

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readback, "end_wait_ms", readback.KAFKA_WAIT_MS)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests of a process (``support/scheduling.py``)."""
    from tests.support.shared_session import start_session

    session = start_session()
    yield session
    session.stop()


@pytest.fixture
def few_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make exactly-once writers reuse their ids as early as allowed, as a worker with many tasks in a batch does."""
    monkeypatch.setattr("kafka_sink.exactly_once.writing.FEWEST_IDS", 0)


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """``figure("longest stall", "1.2 s")``: shown in the run's summary, and kept in its JUnit report."""

    def note(name: str, value: object) -> None:
        record_property(_FIGURE, f"{name}: {value}")

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not _knows_all(config):
        return
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"failed once: {report.nodeid}", "-")
        terminalreporter.line(report.longreprtext)
        _FAILED_ONCE.parent.mkdir(exist_ok=True)
        with _FAILED_ONCE.open("a", encoding="utf-8") as kept:
            last = report.longreprtext.strip().rpartition("\n")[2]
            kept.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {report.nodeid} [{report.when}] {last.strip()}\n")
    noted: dict[str, list[str]] = {}
    passed: dict[str, list[str]] = {}
    for outcome, reports in terminalreporter.stats.items():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "call":
                texts = [str(text) for key, text in report.user_properties if key == _FIGURE]
                if texts:
                    noted[report.nodeid] = texts
                    if outcome == "passed":
                        passed[report.nodeid] = texts
    if noted:
        terminalreporter.section("figures")
        for line in sorted(f"{test.split('/')[-1]}  " + ", ".join(texts) for test, texts in noted.items()):
            terminalreporter.line(line)
    path: Path | None = config.getoption("--figures")
    if path:
        figures.save(passed, path)
    path = config.getoption("--ways")
    if path:
        ways.add(_outcomes_by_way(terminalreporter), path)


def _outcomes_by_way(terminalreporter: pytest.TerminalReporter) -> Iterator[tuple[str, str, str]]:
    """Return for each way of each test: passed, failed or skipped, and the reason for skipping it."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and (report.when == "call" or report.outcome != "passed"):
                reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
                for name, way in report.user_properties:
                    if name == ways.PROPERTY:
                        yield str(way), report.outcome, reason
