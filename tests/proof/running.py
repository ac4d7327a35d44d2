"""Runs a part within a time limit, and creates its record from its output."""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Final

from tests.proof.ledger import Record, Sources
from tests.proof.parts import Part

#: A part is considered stalled after this multiple of its estimate, plus further minutes.
_LATE: Final = 3
_MORE_MINUTES: Final = 5
_END_S: Final = 30
#: The lines that pytest prints at its start (tests/conftest.py).
_PYTHON: Final = re.compile(r"^platform \S+ -- Python ([\d.]+)", re.MULTILINE)
_SPARK: Final = re.compile(r"^PySpark ([\d.]+)", re.MULTILINE)
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_SHOWN: Final = 3
_COUNT: Final = re.compile(r"(\d[\d,]*) (\w+)")


def run(part: Part, root: Path, sources: Sources) -> Record | None:
    """Run *part* with its output in ``.work/proof/NAME.log``; return its record, None if the sources have changed."""
    log, kept = root / ".work" / "proof" / f"{part.name}.log", root / ".work" / "failed_once.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    trees, once_before, begun = sources.tree_of(part), _lines(kept), time.monotonic()
    code = _ended(part, root, log)
    seconds = round(time.monotonic() - begun)
    after = Sources(root)
    if after.changed() or after.tree_of(part) != trees:
        return None
    printed = log.read_text(encoding="utf-8", errors="replace")
    outcome, reason = "passed" if code == 0 else "failed", ""
    if code != 0:
        reason = f"it took more than {_limit_s(part) // 60} min" if code is None else f"exit code {code}"
        reason = ", ".join([reason, *_FAILED.findall(printed)[:_SHOWN]])
    elif cannot_run := re.search(part.lacks, printed, re.MULTILINE):
        outcome, reason = "cannot run", cannot_run[1]
    return Record(
        part=part.name,
        outcome=outcome,
        command=" ".join(part.command),
        trees=trees,
        commit=after.commit,
        date=f"{datetime.now(UTC):%Y-%m-%dT%H:%MZ}",
        seconds=seconds,
        counts=counts_in(printed, part.counts),
        versions=_versions(part, printed),
        machine=machine(),
        reason=reason,
        # Without the time, so that a test that fails repeatedly has one line.
        failed_once=dict.fromkeys((line.split(" ", 2)[2] for line in _lines(kept)[len(once_before) :]), ""),
    )


def counts_in(printed: str, pattern: str) -> Mapping[str, int]:
    """Return by word the sums of the counts in the lines of *printed* that match *pattern*."""
    counts = Counter[str]()
    for line in printed.splitlines():
        if found := re.match(pattern, line):
            for count, word in _COUNT.findall(found["counts"]):
                counts[word] += int(count.replace(",", ""))
    return dict(counts)


def machine() -> str:
    """Return the machine's cores, memory and system, without its name."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}"


def _ended(part: Part, root: Path, log: Path) -> int | None:
    """Run the command of *part*; return its exit code, None if it exceeded the time limit."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            part.command,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return process.wait(_limit_s(part))
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.returncode is None:
            _end(process)


def _limit_s(part: Part) -> int:
    return 60 * (_LATE * part.minutes + _MORE_MINUTES)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End *process* and its child processes, with time to clean up first."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _versions(part: Part, printed: str) -> Mapping[str, str]:
    python, spark = _PYTHON.search(printed), _SPARK.search(printed)
    found = {"python": python[1] if python else platform.python_version()}
    if spark is not None:
        found["spark"] = spark[1]
    else:
        try:
            found["spark"] = metadata.version("pyspark")
        except metadata.PackageNotFoundError:
            print("PySpark is not installed beside the ledger, so its version is not in the record", file=sys.stderr)
    return found | ({"kafka": part.kafka} if part.kafka else {})


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
