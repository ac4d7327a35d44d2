"""Writes that are interrupted: slow enough for it, in each of the ways, and what is in the topic then."""

from __future__ import annotations

import time
from collections import Counter
from random import Random
from typing import Any, Final

from kafka_sink.client.blocking.admin import LATEST, AdminClient
from tests.support.amounts import STOPS
from tests.support.readback import read_topic
from tests.support.waiting import until

ROWS: Final = 2000
#: A write of the rows takes half a minute, and has acknowledged some of them soon.
SLOWLY: Final = {"maxRecordsPerSecond": "60", "kafka.linger.ms": "5"}
#: The part of a slow write within which it is interrupted; each of two tasks has 1,000 rows, and takes longer.
LASTS_S: Final = 5.0
#: The arguments of kafka_sink.write, without the version.
WAYS: Final[dict[str, dict[str, Any]]] = {
    "at-least-once": {},
    "atomic": {"app_id": "stopped", "atomic": True},
    "parallel": {"app_id": "stopped", "atomic": False},
}

#: A program: a session, and for each argument after three (a URL of Spark Connect or "-", servers, rounds) a write to
#: the topic WAY=TOPIC that says when it was interrupted, waits for a line, and is repeated.
PROGRAM: Final = """
import sys
from traceback import extract_tb
from pyspark.sql import SparkSession
from kafka_sink import write
from tests.support.stopped_writes import ROWS, SLOWLY, WAYS

url, servers, *topics = sys.argv[1:]
builder = SparkSession.builder
if url == "-":
    builder = builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
else:
    builder = builder.remote(url)
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
to = {"kafka.bootstrap.servers": servers}
rows = spark.range(0, ROWS, 1, 2).selectExpr("cast(id as string) as value")
for version, named in enumerate(topics):
    way, topic = named.split("=")
    number = {"version": version} if "app_id" in WAYS[way] else {}
    try:
        print("begins", flush=True)
        write(rows, options={**to, **SLOWLY}, topic=topic, **WAYS[way], **number)
        print("it was not interrupted", flush=True)
    except KeyboardInterrupt as stopped:
        # It may come before the call of the sink.
        is_ours = any("kafka_sink" in frame.filename for frame in extract_tb(stopped.__traceback__))
        print("stopped:", stopped if is_ours else "the write was stopped: nothing has called it", flush=True)
    input()
    print("rows:", write(rows, options=to, topic=topic, **WAYS[way], **number).rows, flush=True)
spark.stop()
"""


def numbered(way: str) -> dict[str, Any]:
    """The arguments of kafka_sink.write for the first version."""
    return {**WAYS[way], "version": 0} if "app_id" in WAYS[way] else {}


def end(servers: str, topic: str) -> int:
    """How many records brokers have appended to *topic*, also those that are not committed."""
    with AdminClient(servers) as admin:
        partitions = [each.topic_partition for each in admin.describe_topics([topic])[topic].partitions]
        return sum(admin.offsets(partitions, LATEST).values())


def await_first_rows(servers: str, topic: str) -> None:
    until(f"rows in {topic}", lambda: end(servers, topic) > 0)


def await_moment(servers: str, topic: str, random: Random) -> None:
    """A moment of a slow write to *topic* that has just begun: its first rows; of many writes, any of its moments, also
    before its first rows and at its end."""
    if STOPS == 1:
        await_first_rows(servers, topic)
    else:
        time.sleep(random.uniform(0, LASTS_S))


def check_nothing_follows(servers: str, topic: str, *, isolation: str = "read_uncommitted") -> int:
    """How many rows the topic has when its write was stopped, by default also those of transactions that were aborted,
    and still has when one that was on its way to a broker would have arrived."""
    when_stopped = len(read_topic(servers, topic, isolation=isolation))
    if STOPS > 1:
        time.sleep(2)
        assert len(read_topic(servers, topic, isolation=isolation)) == when_stopped
    return when_stopped


def check_written_again(servers: str, topic: str, way: str, when_stopped: int) -> None:
    """Nothing was added between the end of the interrupted write, when the topic had *when_stopped* records, and the
    repeated one; exactly once, every row is there once."""
    values = Counter(message.value for message in read_topic(servers, topic))
    if way == "at-least-once":
        assert values.total() == when_stopped + ROWS, f"{values.total()} records, {when_stopped} when it was stopped"
    else:
        assert values == Counter(str(number).encode() for number in range(ROWS))
