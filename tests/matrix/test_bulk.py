"""Bulk writes over TLS: a million rows of 1 kB from Spark arrive complete, and memory stays flat over gigabytes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from tests.bench.spark_sinks import rows
from tests.bench.topics import end_offsets, fresh_topic
from tests.conftest import Figure
from tests.matrix.conftest import IS_FULL
from tests.matrix.payload import read_committed
from tests.support import amounts
from tests.support.securities import SASL_SSL, SSL, SecureServer, Security

PARTITIONS = 4
ROWS = 1_000_000
WRITE_LIMIT_S = 600
SOAK_MB = amounts.MATRIX_SOAK_MB
#: The rate that even a slow machine reaches.
LEAST_MB_PER_S = 3
#: The retention of a long run's topic, per partition.
RETENTION = {"retention.bytes": "200000000", "segment.bytes": "50000000", "file.delete.delay.ms": "1000"}
GROWTH_LIMIT_MIB = 32


@pytest.mark.behaviour("Security under load", "A million rows of a kilobyte arrive whole")
@pytest.mark.skipif(not IS_FULL, reason="a part of scripts/test.sh --matrix")
@pytest.mark.timeout(WRITE_LIMIT_S)
@pytest.mark.parametrize("security", [SSL, SASL_SSL], ids=lambda security: security.name)
def test_a_million_rows_of_a_kilobyte_arrive_whole(
    kafka: SecureServer, security: Security, spark: SparkSession, figure: Figure
) -> None:
    options = {f"kafka.{name}": value for name, value in kafka.client_properties(security).items()}
    with fresh_topic(kafka.looks[security], PARTITIONS) as topic:
        began = time.monotonic()
        data = rows(spark, "1 kB", ROWS, PARTITIONS)
        data.write.format("kafkalite").mode("append").options(**options, topic=topic).save()
        figure("seconds", round(time.monotonic() - began, 1))
        seen = np.zeros(ROWS, np.int64)
        changed = 0
        for message in read_committed({"bootstrap.servers": kafka.looks[security]}, topic):
            key, value = message.key(), message.value()
            assert key is not None and value is not None
            seen[int(key)] += 1
            changed += value.lstrip(b"x") != key or len(value) < 990
    assert (np.count_nonzero(seen == 0), np.count_nonzero(seen > 1), changed) == (0, 0, 0)


@pytest.mark.behaviour("Security under load", "Memory stays flat over SASL_SSL")
@pytest.mark.skipif(not SOAK_MB, reason="KAFKALITE_MATRIX_SOAK_MB is not set")
@pytest.mark.timeout(300 + SOAK_MB // LEAST_MB_PER_S)
def test_memory_stays_flat_over_sasl_ssl(kafka: SecureServer, figure: Figure, tmp_path: Path) -> None:
    config = tmp_path / "properties.json"
    config.write_text(json.dumps({**kafka.client_properties(SASL_SSL), "buffer.memory": 32 * 2**20}))
    with fresh_topic(kafka.looks[SASL_SSL], PARTITIONS, RETENTION) as topic:
        done = subprocess.run(
            [sys.executable, "-m", "tests.matrix.soaking", str(config), topic, str(SOAK_MB)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
            timeout=240 + SOAK_MB // LEAST_MB_PER_S
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        stored = end_offsets(kafka.looks[SASL_SSL], topic, PARTITIONS)
    told = json.loads(done.stdout)
    memory = told["mib"]
    figure("MB", SOAK_MB)
    figure("rows sent/acknowledged/stored", f"{told['sent']}/{told['acknowledged']}/{stored}")
    figure("MB/s", round(SOAK_MB / told["seconds"]))
    figure("MiB of memory, first/last/peak", "/".join(f"{memory[name]:.0f}" for name in ("first", "last", "peak")))
    assert told["sent"] == told["acknowledged"] == stored
    # A short run ends before buffers and caches have reached their size.
    assert memory["peak"] - memory["first"] < GROWTH_LIMIT_MIB or SOAK_MB < 1_000
