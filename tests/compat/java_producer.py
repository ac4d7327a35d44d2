"""Kafka's Java producer, run by its performance tool."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.kafka_tools import run_kafka_tool


def write_with_java(
    properties: Mapping[str, str], topic: str, file: Path, records: int, *, per_s: int = -1, java_options: str = ""
) -> None:
    """Write *records* of 100 bytes, *per_s* of them per second; *properties*, which are written to *file*, may have
    references to secrets in files."""
    providers = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in {**properties, **providers}.items()))
    printed = run_kafka_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        "--bootstrap-server", properties["bootstrap.servers"], "--command-config", str(file), "--topic", topic,
        "--num-records", str(records), "--record-size", "100", "--throughput", str(per_s),
        java_options=java_options
    )  # fmt: skip
    assert f"{records} records sent" in printed, printed
