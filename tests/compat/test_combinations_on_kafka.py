"""Combinations of features that other tests prove separately: formats, dead letters, limits, quotas, tokens and changed
passwords, exactly once from Spark to a real Kafka over SASL_SSL, with sessions of a few seconds and retried tasks.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.client.blocking.admin import AdminClient
from tests.compat.identity_kafka import PASSWORD, IdentityKafka
from tests.compat.kafka_version import requires_kafka
from tests.conftest import Figure
from tests.support.amounts import only_long
from tests.support.kafka_tools import run_kafka_tool
from tests.support.readback import read_topic
from tests.support.securities import create_scram_user
from tests.support.spark_job import run_spark_job
from tests.support.token_server import SECRET
from tests.support.waiting import until

pytestmark = [
    only_long,
    requires_kafka("4.0", "the package of its callback handlers for tokens, without deprecated ones"),
    pytest.mark.timeout(600),
]

ROWS = 200_000
#: Kafka's quota for the producer, in bytes per second.
QUOTA = 1_500_000

#: The first attempt of the first task fails in its middle; with dead letters one row in ten is bad.
SPARK_JOB = """
from pyspark import TaskContext
from pyspark.sql import functions as f

def failing(batches):
    context = TaskContext.get()
    for batch in batches:
        yield batch.slice(0, batch.num_rows // 2)
        if given["fails"] and context.partitionId() == 0 and context.attemptNumber() == 0:
            raise RuntimeError("the first attempt")
        yield batch.slice(batch.num_rows // 2)

ids = spark.range(0, given["rows"], 1, 4)
key = f.col("id").cast("string").alias("key")
text = f.repeat(f.lit("x"), 100)
if "value.format" in given["options"]:
    value = f.struct("id", text.alias("text"), f.array("id", "id").alias("list"), (f.col("id") / 8).alias("weight"))
else:
    value = text
bad = f.col("id") % 10 == 0 if given["options"].get("deadLetterTopic") else f.lit(False)
at = f.timestamp_millis(f.when(bad, -1).otherwise(1_700_000_000_000))
rows = ids.mapInArrow(failing, ids.schema).select(key, value.alias("value"), at.alias("timestamp"))
writer = rows.write.format("kafkalite").mode("append").options(**given["options"])
for version in range(given["batches"]):
    for attempt in range(4):
        try:
            writer.options(txnAppId=given["topic"], txnVersion=str(version)).save()
            break
        except Exception as error:
            # The moment between the two places of a password: whoever logs in then is refused.
            if attempt == 3 or "AuthenticationError" not in str(error):
                raise
"""


class _Write:
    """Batches of :data:`ROWS` rows in all, over the listener of *way*, with *options*."""

    def __init__(self, kafka: IdentityKafka, way: str, name: str, options: Mapping[str, str], batches: int = 1) -> None:
        self.kafka, self.topic, self.rejected = kafka, f"combined-{name}", f"combined-{name}-rejected"
        self._batches = batches
        with AdminClient(kafka.kafka.bootstrap_servers) as admin:
            for topic in (self.topic, self.rejected):
                # The rows have timestamps of 2023.
                admin.create_topic(topic, 3, 1, {"retention.ms": "-1"})
        given = {f"kafka.{option}": value for option, value in kafka.properties(way).items()}
        own = {option: value.replace("REJECTED", self.rejected) for option, value in options.items()}
        self.options = {**given, "topic": self.topic, **own}

    def run(self, directory: Path, *, fails: bool = True) -> str:
        """Write the batches; return Spark's output. :meth:`missing_and_twice` counts the rows."""
        given: dict[str, Any] = {"options": self.options, "topic": self.topic, "rows": ROWS // self._batches}
        done = run_spark_job(SPARK_JOB, {**given, "batches": self._batches, "fails": fails}, directory, 500)
        return done.stdout + done.stderr

    def missing_and_twice(self) -> tuple[int, int]:
        """Return the numbers of missing and of repeated rows; waits, because rows become visible after EndTxn."""
        with suppress(AssertionError):
            until("the rows", lambda: self._count()[0] == 0, 30)
        return self._count()

    def _count(self) -> tuple[int, int]:
        found = [*self._read(self.topic), *self._read(self.rejected)]
        counts = Counter(int(key) for key in found)
        rows = range(ROWS // self._batches)
        return (
            sum(max(self._batches - counts[row], 0) for row in rows),
            sum(max(counts[row] - self._batches, 0) for row in rows),
        )

    def _read(self, topic: str) -> list[bytes]:
        return [message.key or b"" for message in read_topic(self.kafka.kafka.bootstrap_servers, topic)]


@pytest.mark.behaviour("Sink options and commit messages", "Options that are proven by themselves hold together")
@pytest.mark.parametrize(
    ("name", "way", "options"),
    [
        ("avro", "scram512", {"value.format": "avro", "kafka.buffer.memory": "33554432"}),
        ("json", "scram512", {"value.format": "json", "kafka.buffer.memory": "33554432"}),
        ("protobuf", "scram512", {"value.format": "protobuf", "kafka.buffer.memory": "33554432"}),
        ("dead-letters", "scram512", {"onBadRow": "dead-letter", "deadLetterTopic": "REJECTED"}),
        ("limited", "scram512", {"maxRecordsPerSecond": "10000"}),
        ("jwt-bearer", "bearer", {}),
    ],
)
def test_options_hold_together_exactly_once(
    name: str, way: str, options: dict[str, str], identity_kafka: IdentityKafka, tmp_path: Path, figure: Figure
) -> None:
    write = _Write(identity_kafka, way, name, options)
    printed = write.run(tmp_path)
    assert PASSWORD not in printed and SECRET not in printed
    missing, twice = write.missing_and_twice()
    figure(f"{name}, {ROWS:,} rows: missing/twice", f"{missing}/{twice}")
    assert (missing, twice) == (0, 0)


@pytest.mark.behaviour("Faults: exactly once", "A quota of a real Kafka slows an exactly-once write and fails nothing")
def test_quota_of_a_real_kafka_slows_and_fails_nothing(
    identity_kafka: IdentityKafka, tmp_path: Path, figure: Figure
) -> None:
    write = _Write(identity_kafka, "scram512", "quota", {"kafka.compression.type": "none"})
    quota = _Quota(identity_kafka)
    quota.alter("--add-config", f"producer_byte_rate={QUOTA}")
    try:
        before = time.monotonic()
        write.run(tmp_path)
        figure(
            f"{ROWS * 110 // 1_000_000} MB under a quota of {QUOTA / 1e6} MB/s", f"{time.monotonic() - before:.0f} s"
        )
    finally:
        quota.alter("--delete-config", "producer_byte_rate")
    assert write.missing_and_twice() == (0, 0)


class _Quota:
    def __init__(self, kafka: IdentityKafka) -> None:
        self._kafka = kafka.kafka

    def alter(self, *change: str) -> None:
        run_kafka_tool(
            "kafka.admin.ConfigCommand",
            "--bootstrap-server", self._kafka.bootstrap_servers, "--alter",
            "--entity-type", "users", "--entity-name", "alice", *change
        )  # fmt: skip


@pytest.mark.behaviour("SASL", "A password that changes under load takes effect with the next task, exactly once")
def test_password_that_changes_under_load_takes_effect(
    identity_kafka: IdentityKafka, tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    write = _Write(identity_kafka, "scram512", "rotated", {}, batches=20)
    secrets = identity_kafka.directory / "secrets.properties"
    before = secrets.read_text()
    passwords = [f"rotated-{number}-s3cret" for number in range(3)]
    is_over = threading.Event()

    def rotate() -> None:
        for password in passwords:
            if is_over.wait(8):
                return
            secrets.write_text(before.replace(PASSWORD, password))
            login = identity_kafka.properties("scram512")
            create_scram_user(identity_kafka.kafka.bootstrap_servers, login, "alice", password)

    rotating = threading.Thread(target=rotate)
    rotating.start()
    try:
        printed = write.run(tmp_path, fails=False)
    finally:
        is_over.set()
        rotating.join()
        secrets.write_text(before)
        create_scram_user(
            identity_kafka.kafka.bootstrap_servers, identity_kafka.properties("scram512"), "alice", PASSWORD
        )
    assert not any(password in printed for password in passwords)
    missing, twice = write.missing_and_twice()
    figure(f"{len(passwords)} changes in 20 batches: missing/twice", f"{missing}/{twice}")
    assert (missing, twice) == (0, 0)
