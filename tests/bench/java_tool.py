"""Kafka's own tool that measures its Java producer."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

KAFKA_SCRIPT: Final = Path(__file__).parents[2] / "scripts" / "kafka.sh"


def records_per_s(topic: str, records: int, settings: Mapping[str, Any], *what: str) -> float:
    """Return the rate that ``ProducerPerformance`` reports for *records*; *what* are its arguments for their size or
    file; RuntimeError if it fails."""
    pairs = [f"{name}={value}" for name, value in settings.items()]
    tool = ["org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(records), *what]
    done = subprocess.run(
        ["bash", str(KAFKA_SCRIPT), "run", *tool, "--throughput", "-1", "--producer-props", *pairs],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^(\d+) records sent, ([\d.]+) records/sec", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not found or int(found[-1][0]) != records:
        raise RuntimeError(f"the Java tool failed: {done.stdout[-500:]} {done.stderr[-500:]}")
    return float(found[-1][1])
