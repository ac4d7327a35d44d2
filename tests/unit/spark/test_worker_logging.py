"""The log lines of Spark's Python processes, each in a separate process."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

LINES = """
import logging
from kafka_sink.spark.task.worker_process import worker_process
log = logging.getLogger("kafka_sink.producer.sending")
{before}
for _ in range(2):
    with worker_process.task(tuned=False):
        log.info("quiet")
        log.warning("said %d", 7)
logging.getLogger("mine").warning("theirs")
"""
LINE = r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARNING kafka_sink\.producer\.sending: said 7\n"


def lines(before: str = "", level: str | None = None) -> str:
    environment = {**os.environ, **({} if level is None else {"KAFKALITE_LOG_LEVEL": level})}
    code = LINES.format(before=before)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return run.stderr


@pytest.mark.behaviour("Tasks", "Lines of Spark's Python processes have time, level and logger")
def test_lines_have_time_level_and_logger() -> None:
    assert re.fullmatch(rf"({LINE}){{2}}theirs\n", lines())


def test_lines_go_only_where_logging_is_configured() -> None:
    configured = 'logging.basicConfig(format="mine: %(message)s")'
    assert lines(configured) == "mine: said 7\n" * 2 + "mine: theirs\n"


@pytest.mark.parametrize(("level", "count"), [("info", 4), ("ERROR", 0), ("WARNING", 2)])
def test_the_environment_says_the_level(level: str, count: int) -> None:
    assert lines(level=level).count("kafka_sink.producer.sending: ") == count


def test_an_unknown_level_is_told() -> None:
    assert "KAFKALITE_LOG_LEVEL=LOUD is not a level of logging; expected one of CRITICAL" in lines(level="loud")


@pytest.mark.behaviour("Tasks", "Where Spark collects the lines of its Python processes, they go only there")
def test_lines_go_to_sparks_own_log_of_workers() -> None:
    before = (
        "import os; os.environ['PYSPARK_SPARK_SESSION_UUID'] = 'x'\n"
        "import pytest; worker_io = pytest.importorskip('pyspark.logger.worker_io')\n"
        "import contextlib; stack = contextlib.ExitStack(); stack.enter_context(worker_io.capture_outputs())"
    )
    code = LINES.format(before="").replace("for _", f"{before}\nfor _")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if "Skipped" in run.stderr:
        pytest.skip("this Spark does not collect the lines of its Python processes")
    assert "said 7" not in run.stderr
    assert run.stdout.count('"logger": "kafka_sink.producer.sending"') == 2
