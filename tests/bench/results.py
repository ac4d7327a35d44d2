"""The results of a benchmark, with the machine, versions, commit and settings that a reader needs to assess them.

``tests/bench/results/<name>.json`` holds the newest run of each; :mod:`report` generates the tables and the chart.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
_PACKAGES = (
    "pyspark",
    "pyarrow",
    "numpy",
    "lz4",
    "zstandard",
    "crc32c",
    "confluent-kafka",
    "kafka-python",
    "aiokafka",
    "fastavro",
)


def environment() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": _commit(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {_processor()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def save(name: str, content: Mapping[str, Any], directory: Path = RESULTS) -> Path:
    """Write a result; return the path of its file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.json"
    path.write_text(json.dumps({"name": name, **environment(), **content}, indent=1) + "\n")
    return path


def load(directory: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Return the results by name."""
    found = [json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))]
    return {result["name"]: result for result in found}


def _commit() -> str:
    commit = _git("rev-parse", "--short", "HEAD")
    # Results that other benchmarks have just written do not change the measured code.
    changed = _git("status", "--porcelain", "--", ":/", ":(exclude,top)tests/bench/results")
    return f"{commit}-dirty" if commit and changed else commit or "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
