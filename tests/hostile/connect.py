"""Programs over Spark Connect with hostile options and rows, on a server that another program uses."""

from __future__ import annotations

import logging
import random
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pyspark.errors import PySparkException

import kafka_sink
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.common.errors import KafkaError
from tests.hostile.servers import OPEN, SECRET, shared_server
from tests.support.connect_server import ConnectServer

_NASTY: Final = (
    *(
        "",
        " ",
        "\0",
        "-1",
        "0",
        "9" * 400,
        "NaN",
        "1e9",
        "true",
        "[",
        '{"type":',
        "[" * 50_000,
        '"int"',
        "\u202e",
        "a,b",
    ),
    *(
        "${env:NOWHERE}",
        "${file:/etc/hostname:x}",
        "x" * 200_000,
        "avro",
        "protobuf",
        "json",
        "exactly-once",
        "../..",
        "a\nb",
    ),
)
_OPTIONS: Final = (
    *("topic", "topicPartitions", "topicReplicationFactor", "maxRecordsPerSecond", "key.format", "key.schema"),
    *("value.format", "value.schema", "value.message", "value.refs", "onBadRow", "deadLetterTopic", "maxBadRows"),
    *("includeHeaders", "deliveryGuarantee", "txnAppId", "txnVersion", "auto.register.schemas", "nowhere"),
    *("schema.registry.url", "kafka.bootstrap.servers", "kafka.security.protocol", "kafka.sasl.mechanism"),
    *("kafka.acks", "kafka.batch.size", "kafka.linger.ms", "kafka.compression.type", "kafka.max.request.size"),
    *("kafka.ssl.truststore.certificates", "kafka.ssl.keystore.key", "kafka.interceptor.classes", "kafka.client.id"),
)
#: Secrets that a program passes in its options, and that no error may contain.
_SECRETS: Final = {
    "kafka.sasl.jaas.config": f'PlainLoginModule required username="a" password="{SECRET}"',
    "kafka.ssl.keystore.key": f"-----BEGIN PRIVATE KEY-----{SECRET}",
    "kafka.sasl.password": SECRET,
    "basic.auth.user.info": f"alice:{SECRET}",
    "bearer.auth.token": SECRET,
}
_VALUES: Final = (
    *(
        "cast(null as binary)",
        "'x'",
        "1",
        "array(1, null)",
        "map('a', 1)",
        "named_struct('a', 1, 'A', null)",
        "X'ff00'",
    ),
    *("cast('nan' as double)", "interval 1 day", "timestamp'0001-01-01 00:00:00'", "cast(9e37 as decimal(38, 0))"),
    *("repeat('x', 2000000)", "char(0)", "struct(array(map(1, struct(null as `a.b`))))", "current_date()", "null"),
)
_COLUMNS: Final = ("key", "topic", "partition", "headers", "timestamp", "value", "nowhere")
#: A builtin exception at the end of a traceback; other exceptions have their module before their name.
_RAW: Final = re.compile(r"^\w+(?:Error|Exception|Exit|Interrupt)\b", re.MULTILINE)


class _Connected:
    """A server with two programs, and the cluster that they write to."""

    def __init__(self) -> None:
        from pyspark.sql import SparkSession

        # PySpark's client logs the errors that it raises, too.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        folder = Path(OPEN.enter_context(TemporaryDirectory()))
        server = ConnectServer(folder)
        OPEN.callback(server.stop)
        cluster = OPEN.enter_context(EmbeddedCluster())
        for topic in ("served", "t"):
            cluster.create_topic(topic, 1)
        server.wait_until_ready()
        self.hostile, self.served = (SparkSession.builder.remote(server.url).create() for _ in range(2))
        for session in (self.hostile, self.served):
            # Stopped before the server: otherwise the session retries its release request for ten minutes.
            OPEN.callback(session.stop)
        self.options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.max.block.ms": "2000"}

    def serve(self) -> None:
        """Write a row with the well-behaved program."""
        kafka_sink.write(self.served.sql("select 'x' as value"), options=self.options, topic="served")


@cache
def _connected() -> _Connected:
    return _Connected()


def spark_connect(rng: random.Random) -> None:
    """A write succeeds or raises an error without secrets; the server serves other programs as before."""
    connected = _connected()
    columns = ["value", *rng.sample(_COLUMNS, rng.choice((0, 0, 1, 2)))]
    rows = connected.hostile.sql("select " + ", ".join(f"{rng.choice(_VALUES)} as {name}" for name in columns))
    asked: dict[str, Any] = {name: rng.choice(_NASTY) for name in rng.sample(_OPTIONS, rng.choice((0, 1, 2)))}
    asked |= {name: _SECRETS[name] for name in rng.sample(list(_SECRETS), rng.choice((0, 1)))}
    if rng.random() < 0.3:
        asked |= {"schema.registry.url": f"http://127.0.0.1:{shared_server().port}", "value.format": "avro"}
    options = {**connected.options, "topic": "t", **asked}
    try:
        if rng.random() < 0.5:
            rows.write.format("kafkalite").mode("append").options(**options).save()
        else:
            kafka_sink.write(rows, options=options)
    except (KafkaError, PySparkException) as error:
        said = str(error)
        assert SECRET not in said, (asked, said)
        assert _RAW.search(said) is None, (asked, columns, said)
    connected.serve()
