"""100 MB from Spark for each way to authenticate, at least once and exactly once, to a real Kafka whose sessions,
tokens and tickets expire during the writes: no row is missing or duplicated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_sink.client.blocking.admin import AdminClient
from tests.compat.identity_kafka import EXPIRED, LIFETIME_S, PASSWORD, RENEWALS, SESSION_MS, IdentityKafka
from tests.compat.kafka_version import requires_kafka
from tests.support.amounts import IDENTITY_MB, only_long
from tests.support.kdc import requires_kerberos
from tests.support.readback import read_topic
from tests.support.spark_job import run_spark_job
from tests.support.token_server import SECRET

pytestmark = [
    only_long,
    requires_kafka("4.0", "the package of its callback handlers for tokens, without deprecated ones"),
]

WAYS = ("mtls", "plain", "scram256", "scram512", "oauth", "kerberos")
#: Seconds that a write takes, which is longer than several lifetimes of sessions, tokens and tickets.
WRITE_S = 12
TASKS, ROW_BYTES = 2, 1000

SPARK_JOB = """
value = f"concat(cast(id as string), ' ', repeat('x', {given['row_bytes']}))"
ids = spark.range(0, given["rows"], 1, given["tasks"])
frame = ids.selectExpr(f"substring({value}, 1, {given['row_bytes']}) as value")
for topic, further in given["topics"].items():
    options = {**given["options"], **further, "topic": topic, "maxRecordsPerSecond": str(given["rate"])}
    frame.write.format("kafkalite").mode("append").options(**options).save()
"""


@pytest.mark.behaviour("SASL", "Every way to authenticate carries 100 MB through renewals, 0/0")
@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=requires_kerberos if way == "kerberos" else ()) for way in WAYS]
)
def test_each_way_carries_bulk_through_renewals(
    way: str, identity_kafka: IdentityKafka, tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    rows = IDENTITY_MB * 1_000_000 // ROW_BYTES
    topics = {f"{way}-at-least-once": {}, f"{way}-exactly-once": {"txnAppId": f"bulk-{way}", "txnVersion": "1"}}
    with AdminClient(identity_kafka.kafka.bootstrap_servers) as admin:
        for topic in topics:
            admin.create_topic(topic, 2, 1)
    given = {
        "options": {f"kafka.{name}": value for name, value in identity_kafka.properties(way).items()},
        "topics": topics,
        "rows": rows,
        "row_bytes": ROW_BYTES,
        "tasks": TASKS,
        # Per task.
        "rate": max(rows // WRITE_S // TASKS, 1),
    }
    renewed_before, ended_before = (identity_kafka.noted(what)[way] for what in (RENEWALS, EXPIRED))
    tokens, tickets = len(identity_kafka.idp.asked), 0 if identity_kafka.kdc is None else identity_kafka.kdc.logins()
    done = run_spark_job(SPARK_JOB, given, tmp_path, 280)
    assert PASSWORD not in done.stdout + done.stderr and SECRET not in done.stdout + done.stderr
    for topic in topics:
        counts = Counter(
            int((message.value or b"").split(b" ")[0])
            for message in read_topic(identity_kafka.kafka.bootstrap_servers, topic)
        )
        missing, twice = rows - len(counts), sum(count > 1 for count in counts.values())
        figure(f"{topic}, {IDENTITY_MB} MB: missing/twice", f"{missing}/{twice}")
        assert (missing, twice) == (0, 0)
    if way != "mtls":
        renewals = identity_kafka.noted(RENEWALS)[way] - renewed_before
        figure(f"renewals of sessions of {SESSION_MS // 1000} s", renewals)
        # On a busy machine a client renews some sessions too late, and connects again.
        figure("sessions that ended", identity_kafka.noted(EXPIRED)[way] - ended_before)
        assert renewals >= len(topics) * TASKS
    if way == "oauth":
        figure(f"tokens of {LIFETIME_S} s", renewed := len(identity_kafka.idp.asked) - tokens)
        assert renewed > 2
    if way == "kerberos" and identity_kafka.kdc is not None:
        figure(f"tickets of {LIFETIME_S} s", renewed := identity_kafka.kdc.logins() - tickets)
        assert renewed > 2
