"""The sink, a login over TLS and the embedded broker in Pythons without what macOS lacks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.spark_job import run_spark_job

_HIDING = Path(__file__).parents[1] / "support" / "as_on_macos"

_JOB = """
import os, selectors, socket
from pathlib import Path
from tests.support.readback import read_topic
from tests.support.secure_cluster import PASSWORD, USER, address, client_properties, produce, quoted, secure_cluster

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
    rows = spark.range(200).selectExpr("cast(id as string) as value")
    options = {"topic": "t", **{f"kafka.{name}": value for name, value in properties.items()}}
    rows.write.format("kafkalite").mode("append").options(**options).save()
    stored = [message.value for message in read_topic(address(cluster, "PLAINTEXT"), "t")]
    print(json.dumps([written, len(stored), len(set(stored[100:]))]))
    print(json.dumps([lacks(0), *spark.sparkContext.parallelize([0], 1).map(lacks).collect()]))
"""


@pytest.mark.behaviour("Package", "A write, a login over TLS and the embedded broker need nothing that macOS lacks")
def test_nothing_needs_what_macos_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, keys = Authority(), tmp_path / "client.pem"
    keys.write_text(authority.issue("alice").pem())
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(_HIDING), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("TMPDIR", str(temporary))
    given = {"broker": authority.issue("127.0.0.1").pem(), "trust": authority.pem, "client": str(keys)}
    written, lacks = run_spark_job(_JOB, given, tmp_path).stdout.splitlines()
    assert written == "[100, 300, 200]"
    assert lacks == '[["PollSelector", false, false], ["PollSelector", false, false]]'
    # The keys of both sides were in files, which are gone.
    assert list(temporary.glob("*.pem")) == []
