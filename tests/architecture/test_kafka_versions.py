"""The versions of Apache Kafka that scripts/kafka.sh runs, as errors and the documentation state them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from kafka_sink.common.version import OLDEST_KAFKA
from tests.support.cases import with_each

ROOT = Path(__file__).parents[2]


def kafka_sh(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / "scripts" / "kafka.sh"), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={name: value for name, value in os.environ.items() if not name.startswith("KAFKALITE_")},
    )


def test_errors_name_the_oldest_version_that_is_tested() -> None:
    oldest = kafka_sh("versions").stdout.split()[0]
    assert oldest.rpartition(".")[0] == OLDEST_KAFKA


def test_the_page_has_a_row_for_each_version_that_is_tested() -> None:
    table = (ROOT / "docs" / "versions.md").read_text().partition("## Versions of Kafka\n")[2]
    rows = re.findall(r"^\| (\d+\.\d+\.\d+) \|", table, re.MULTILINE)
    assert rows == kafka_sh("versions").stdout.split()


@with_each("wrong", ["2.8.2", "3", "3.7", "latest"])
def test_versions_that_cannot_be_run_are_refused_by_name(wrong: str) -> None:
    done = kafka_sh("fetch", "--version", wrong)
    assert done.returncode == 1
    assert f"; got {wrong}." in done.stderr
