"""Causes for which Spark does not find ``format("kafkalite")``: a check names the cause, and ``register`` removes it;
then the sink, a login over TLS and the embedded broker. In a separate process, whose environment names no interpreter,
and in Pythons without the features that macOS lacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support import ways
from tests.support.certificates import Authority
from tests.support.spark_version import requires_data_sources

pytestmark = requires_data_sources

ROOT: Final = Path(__file__).parents[2]
HIDING: Final = ROOT / "tests" / "support" / "as_on_macos"

#: The interpreter that Spark finds first cannot run, and its environment names no other one, as with
#: spark.pyspark.python alone. Without its session the thread is in the state after an interrupt.
JOB: Final = """
import json, os, selectors, socket, sys, threading
from pathlib import Path
from pyspark.sql import SparkSession
import kafka_sink
from kafka_sink.spark.format_lookup import look_up
from tests.support.readback import read_topic
from tests.support.secure_cluster import PASSWORD, USER, address, client_properties, produce, quoted, secure_cluster

given = json.loads(Path(sys.argv[1]).read_text())
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()

def look():
    found = look_up(spark)
    print(found.status.value, found.found, found.what_to_do, sep=" | ")

look()
other = threading.Thread(target=look)
other.start()
other.join()
spark.newSession().createDataFrame([], "value string")
look()
kafka_sink.register(spark)
spark._jvm.org.apache.spark.sql.SparkSession.clearActiveSession()
look()

def lacks(_):
    there = [name for name in ("memfd_create", "fdatasync", "sched_getaffinity") if hasattr(os, name)]
    return there + [selectors.DefaultSelector.__name__, hasattr(socket, "TCP_QUICKACK"), Path("/proc/self").exists()]

with secure_cluster(given["broker"], ssl_client_auth="required", ssl_truststore_certificates=given["trust"]) as cluster:
    line = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    properties = client_properties(
        cluster, "SASL_SSL", ssl_truststore_certificates=given["trust"], ssl_keystore_location=given["client"],
        sasl_mechanism="SCRAM-SHA-512", sasl_jaas_config=f'{line} username="alice" password={quoted(PASSWORD)};',
    )
    written = produce(properties, 100)
    rows = spark.range(0, 200, 1, 2).selectExpr("cast(id as string) as value")
    options = {"topic": "t", **{f"kafka.{name}": value for name, value in properties.items()}}
    rows.write.format("kafkalite").mode("append").options(**options).save()
    stored = [message.value for message in read_topic(address(cluster, "PLAINTEXT"), "t")]
    print(json.dumps([written, len(stored), len(set(stored[100:]))]))
    print(json.dumps([lacks(0), *spark.sparkContext.parallelize([0], 1).map(lacks).collect()]))
"""


@pytest.mark.way(ways.DF_WRITE)
@pytest.mark.behaviour(
    "Package", "Where Spark does not find the format, a check names the cause, and register mends it for good"
)
@pytest.mark.behaviour("Package", "A write, a login over TLS and the embedded broker need nothing that macOS lacks")
def test_register_mends_lookup_and_no_part_of_linux_is_needed(tmp_path: Path) -> None:
    job, python3, keys, given = (tmp_path / name for name in ("job.py", "python3", "client.pem", "given.json"))
    job.write_text(JOB)
    python3.write_text("#!/bin/sh\nexit 1\n")
    python3.chmod(0o755)
    authority = Authority()
    keys.write_text(authority.issue("alice").pem())
    broker = authority.issue("127.0.0.1").pem()
    given.write_text(json.dumps({"broker": broker, "trust": authority.pem, "client": str(keys)}))
    temporary, hiding = tmp_path / "temporary", tmp_path / "hiding"
    temporary.mkdir()
    hiding.mkdir()
    # PySpark 4.0 imports psutil if it is installed, and psutil needs the hidden features.
    (hiding / "psutil.py").write_text("raise ImportError\n")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environ |= {"PATH": f"{tmp_path}:{environ['PATH']}", "TMPDIR": str(temporary)}
    done = subprocess.run(
        [sys.executable, job, given],
        env={**environ, "PYTHONPATH": os.pathsep.join([str(HIDING), str(hiding), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    of_session, of_thread, of_another, registered, written, lacks = done.stdout.splitlines()
    assert of_session.startswith("failed | Spark has looked for formats with the interpreter python3, which has no ")
    assert of_thread.startswith("failed | no session is active in this thread")
    assert of_another.startswith("failed | another session is active in this thread")
    for line in (of_session, of_thread, of_another):
        assert "call kafka_sink.register(spark)" in line
    assert f"PYSPARK_PYTHON={sys.executable}" in of_session
    assert registered.startswith("ok | ")
    assert written == "[100, 300, 200]"
    assert lacks == '[["PollSelector", false, false], ["PollSelector", false, false]]'
    # The temporary files with the keys of both sides are deleted.
    assert list(temporary.glob("*.pem")) == []
