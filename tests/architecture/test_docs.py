"""The site: every page is built without a warning, and the reference is complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_sink.common.errors import KafkaError

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: Errors that no user sees: of the command line, which prints their texts.
OF_COMMANDS = {"InputTooLongError"}


@pytest.mark.behaviour("Documentation", "The site is built without a warning; links between pages lead somewhere")
def test_the_site_is_built_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-E", "-b", "html", str(DOCS), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tutorial.html" in (tmp_path / "llms.txt").read_text()


@pytest.mark.behaviour("Documentation", "Every error that users see has a cause and a remedy in docs/errors.md")
def test_every_error_is_on_the_page_of_errors() -> None:
    declared = {
        name
        for path in (ROOT / "kafka_sink").rglob("*.py")
        for name, bases in re.findall(r"^class (\w+Error)\(([^)]*)\):", path.read_text(), re.MULTILINE)
        if bases.partition(",")[0] != "Exception" or name == KafkaError.__name__
    }
    named = set(re.findall(r"`(\w+Error)`", (DOCS / "errors.md").read_text()))
    assert declared - OF_COMMANDS == named
