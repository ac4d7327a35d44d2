"""The memory of Python workers: check's findings on Spark's configuration, and a worker whose limit is too small."""

from __future__ import annotations

import pickle
import resource
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

from kafka_sink.errors import SinkWriteError
from kafka_sink.preflight.findings import Status
from kafka_sink.spark.check import memory_findings, mib
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.task.task_writer import write_task

BUFFER = 32
OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:9", "topic": "t"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, []),
        ({"spark.master": "local[8]", "spark.executor.cores": "8"}, []),
        ({"spark.executor.pyspark.memory": "1280m", "spark.executor.cores": "2"}, [Status.OK]),
        ({"spark.executor.pyspark.memory": "1279m", "spark.executor.cores": "2"}, [Status.WARNING]),
        ({"spark.master": "yarn"}, [Status.OK]),
        ({"spark.master": "yarn", "spark.executor.cores": "4"}, [Status.WARNING]),
        ({"spark.master": "yarn", "spark.executor.cores": "4", "spark.task.cpus": "4"}, [Status.OK]),
        ({"spark.master": "yarn", "spark.executor.cores": "4", "spark.executor.memory": "8g"}, [Status.OK]),
        ({"spark.master": "yarn", "spark.executor.cores": "4", "spark.executor.memoryOverhead": "1g"}, [Status.OK]),
        ({"spark.master": "k8s://host", "spark.executor.cores": "4"}, [Status.WARNING]),
        ({"spark.master": "k8s://host", "spark.executor.cores": "4", "spark.executor.memory": "2g"}, [Status.OK]),
        (
            {"spark.master": "yarn", "spark.executor.cores": "2", "spark.executor.pyspark.memory": "2g"},
            [Status.OK, Status.OK],
        ),
    ],
)
def test_settings_are_compared_with_what_workers_need(settings: dict[str, str], expected: list[Status]) -> None:
    assert [each.status for each in memory_findings(settings.get, BUFFER)] == expected


@pytest.mark.behaviour("kafkalite check", "Settings that leave Python workers too little memory are warned of")
def test_warning_says_what_to_set() -> None:
    settings = {"spark.master": "yarn", "spark.executor.cores": "4", "spark.executor.pyspark.memory": "600m"}
    limit, container = memory_findings(settings.get, BUFFER)
    assert limit.found == "600 MiB, which are 150 MiB of address space for each worker; a write may need 640 MiB"
    assert "set spark.executor.pyspark.memory to 2560m or more" in limit.what_to_do
    assert container.status is Status.OK
    (container,) = memory_findings({"spark.master": "yarn", "spark.executor.cores": "4"}.get, BUFFER)
    assert container.found == "384 MiB beside the heap for the JVM and 4 Python workers, which need up to 768 MiB"
    assert "set spark.executor.memoryOverhead to 1152m or more" in container.what_to_do


@pytest.mark.parametrize(
    ("size", "expected"), [("512", 512), ("512m", 512), ("2G", 2048), ("1gb", 1024), ("2048k", 2), ("1t", 1 << 20)]
)
def test_sizes_are_read_as_spark_reads_them(size: str, expected: int) -> None:
    assert mib(size) == expected


UNPICKLE = """
import pickle, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]) << 20,) * 2)
pickle.loads(sys.stdin.buffer.read())
from kafka_sink.spark.write_spec import advice_on
print(advice_on(MemoryError()), advice_on(RuntimeError("can't start new thread")), advice_on(ValueError()), sep="|")
"""


def unpickled(limit_mib: int) -> subprocess.CompletedProcess[bytes]:
    options = pickle.dumps(parse_options(OPTIONS).spec)
    command = [sys.executable, "-c", UNPICKLE, str(limit_mib)]
    return subprocess.run(command, input=options, capture_output=True, timeout=240, check=False)


@pytest.mark.behaviour("Tasks", "A worker whose limit of memory is too small names the setting before it imports numpy")
def test_worker_with_too_small_a_limit_names_the_setting() -> None:
    said = unpickled(300).stderr.decode()
    assert said.splitlines()[-2] == (
        "kafka_sink.errors.SinkWriteError: this Python worker may have 300 MiB of address space, and a write "
        "needs 352 MiB at least; set spark.executor.pyspark.memory, which is divided by spark.executor.cores, to 640m "
        "for each core, or not at all"
    )
    done = unpickled(500)
    advice = " (this Python worker may have 500 MiB of address space: raise spark.executor.pyspark.memory or lower "
    advice += "kafka.buffer.memory)"
    assert done.stdout.decode() == f"{advice}|{advice}|\n", done.stderr.decode()


def test_task_without_memory_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        raise pa.ArrowMemoryError("malloc of size 241408 failed")
        yield

    options = parse_options(OPTIONS).spec
    monkeypatch.setattr(resource, "getrlimit", lambda _: (500 << 20, 500 << 20))
    with pytest.raises(SinkWriteError, match=r"241408 failed \(this Python worker may have 500 MiB .*pyspark\.memory"):
        write_task(batches(), options)
