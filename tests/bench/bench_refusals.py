"""The cost of a write that cannot succeed: seconds and connections until its error, compared with Spark's own sink.

    python -m tests.bench.bench_refusals [--jars JARS] [--tasks 20] [--max-block-ms 5000]

Five mistakes, against embedded brokers behind a proxy that counts connections: a wrong password, a topic without
permission to write, a missing topic, a certificate that the client does not trust, and brokers that do not answer.
Spark tries a task once, as ``local[…]`` does. JARS (``scripts/bench.sh jars``) are those of Spark's own connector;
without them only kafkalite is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table

import kafka_sink
from kafka_sink import EmbeddedCluster
from kafka_sink.broker.config import AUTHORIZER, BrokerConfig
from kafka_sink.common.acl import AclBinding, AclOperation, ResourceType
from kafka_sink.common.config import parse
from tests.bench.spark_sinks import session
from tests.support.certificates import Authority
from tests.support.counting_proxy import CountingProxy
from tests.support.ports import free_ports
from tests.support.secure_cluster import users

TOPIC: Final = "orders"
_READER: Final = "reader"


def write_by_kafka(df: DataFrame, options: Mapping[str, str]) -> None:
    df.write.format("kafka").options(**options).save()


def write_by_format(df: DataFrame, options: Mapping[str, str]) -> None:
    df.write.format("kafkalite").mode("append").options(**options).save()


def write_by_program(df: DataFrame, options: Mapping[str, str]) -> None:
    kafka_sink.write(df, options)


def write_atomically(df: DataFrame, options: Mapping[str, str]) -> None:
    kafka_sink.write(df, options, app_id="refused", version=0)


SINKS: Final[Mapping[str, Callable[[DataFrame, Mapping[str, str]], None]]] = {
    'Spark\'s format("kafka")': write_by_kafka,
    'format("kafkalite")': write_by_format,
    "kafka_sink.write": write_by_program,
    "kafka_sink.write, exactly once": write_atomically,
}


def sasl(password: str) -> dict[str, str]:
    line = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    return {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{line} username="{_READER}" password="{password}";',
    }


MISTAKES: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "wrong password": ("SASL_PLAINTEXT", sasl("wrong")),
    "no permission": ("SASL_PLAINTEXT", sasl("right")),
    "missing topic": ("PLAINTEXT", {"topic": "nowhere"}),
    "unknown certificate": ("SSL", {"kafka.security.protocol": "SSL"}),
    "no answer": ("", {}),
}


@contextlib.contextmanager
def brokers() -> Iterator[Mapping[str, tuple[int, CountingProxy]]]:
    """Yield for each listener the port of the proxy in front of it, and the proxy."""
    key, _, chain = Authority("nobody knows").issue("127.0.0.1").pem().partition("-----BEGIN CERTIFICATE-----")
    names = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL")
    fronts, behind = free_ports(3), free_ports(3)
    properties = {
        "listeners": [f"{name}://127.0.0.1:{behind + at}" for at, name in enumerate(names)],
        "advertised.listeners": [f"{name}://127.0.0.1:{fronts + at}" for at, name in enumerate(names)],
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": f"-----BEGIN CERTIFICATE-----{chain}",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": users(**{_READER: "right"}),
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "auto.create.topics.enable": "false",
    }
    with EmbeddedCluster(config=parse(BrokerConfig, properties)) as cluster, contextlib.ExitStack() as stack:
        cluster.create_topic(TOPIC, 4)
        kind, principal = ResourceType.TOPIC, f"User:{_READER}"
        may_read = AclBinding(principal=principal, operation=AclOperation.READ, resource_type=kind, resource_name=TOPIC)
        cluster.create_acls([may_read])
        yield {
            name: (fronts + at, stack.enter_context(CountingProxy({fronts + at: behind + at})))
            for at, name in enumerate(names)
        }


def measured(df: DataFrame, mistake: str, sink: str, max_block_ms: int) -> str:
    """Measure on separate brokers, because tasks that Spark has abandoned still connect for a while."""
    listener, options = MISTAKES[mistake]
    with brokers() as listeners:
        port, proxy = listeners.get(listener, (free_ports(), None))
        common = {
            "kafka.bootstrap.servers": f"127.0.0.1:{port}",
            "topic": TOPIC,
            "kafka.max.block.ms": str(max_block_ms),
        }
        since = time.perf_counter()
        with contextlib.suppress(Exception):
            SINKS[sink](df, {**common, **options})
            raise SystemExit(f"{mistake}: {sink} has written")
        seconds = time.perf_counter() - since
        return f"{seconds:.1f} s" + (f", connections: {proxy.connections}" if proxy else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jars", default="")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--max-block-ms", type=int, default=5000)
    given = parser.parse_args()
    spark = session(given.jars, 2, with_null=False)
    kafka_sink.register(spark)
    df = spark.range(0, 50 * given.tasks, 1, given.tasks).selectExpr("cast(id as string) as value")
    sinks = [name for name in SINKS if given.jars or SINKS[name] is not write_by_kafka]
    table = Table("mistake", *sinks)
    for mistake in MISTAKES:
        table.add_row(mistake, *(measured(df, mistake, sink, given.max_block_ms) for sink in sinks))
    Console(width=180).print(table)
    spark.stop()


if __name__ == "__main__":
    main()
