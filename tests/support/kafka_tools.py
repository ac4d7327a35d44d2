"""Kafka's own command line classes, all in one JVM."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.compat.java_judges.judging import JavaJudges
from tests.support.real_kafka import TOOL_TIMEOUT_S, run_script, skip_on_other_brokers, skip_without_kafka

#: Starts with the first request, and ends with this process.
_JAVA: Final = JavaJudges()


def run_kafka_tool(class_name: str, *arguments: str, java_options: str = "") -> str:
    """Return the output of one of Kafka's own command line classes, such as org.apache.kafka.tools.DumpLogSegments;
    needs no running Kafka. With *java_options*, it has a JVM of its own."""
    skip_without_kafka()
    skip_on_other_brokers("a tool of Kafka")
    # The script knows the packages of the classes in other versions.
    if java_options or os.environ.get("KAFKALITE_KAFKA_VERSION"):
        return run_script("run", class_name, *arguments, timeout_s=TOOL_TIMEOUT_S, java_options=java_options)
    verdict = _JAVA.ask("Tool", {"class": class_name, "arguments": arguments})
    if verdict.refused is not None:
        pytest.fail(f"{class_name} {' '.join(arguments)} failed:\n{verdict.refused[-4000:]}", pytrace=False)
    return str(verdict.taken)
