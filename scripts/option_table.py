"""Writes the option tables into a page: ``python -m scripts.option_table docs/options.md``.

Run manually when an option changes; a test checks that the page is up to date. It only reads the option tables.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import MISSING
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kafka_sink.common import config as c
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.registry.config import RegistryConfig
from kafka_sink.spark.options import SinkOptions
from kafka_sink.spark.write_spec import (
    BAD_ROWS,
    EXACTLY_ONCE_OPTIONS,
    FORMATS_AND_SCHEMAS,
    KAFKA_PREFIX,
    REFUSED,
    SINK_DEFAULTS,
    TOPIC_AND_ROWS,
    WriteSpec,
)
from scripts.pages import print_into

#: Producer options that have another meaning in the sink, because each task has a producer.
SINK_MEANINGS: Final[Mapping[str, str]] = {
    "acks": (
        "acknowledgements to wait for: from all in-sync replicas (all or -1), or from the leader (1). 0 is refused: "
        "without acknowledgements it is not known whether rows were written (one of all, -1, 1)"
    ),
    "buffer.memory": (
        "limit for the unacknowledged data of each task, bytes; the task waits when it reaches the limit, and N tasks "
        "that run on an executor at the same time need N times this memory (from 1 to "
        "9223372036854775807)"
    ),
    "transaction.two.phase.commit.enable": (
        "exactly once with a transaction for each task: the transactions have no time-out (KIP-939), so a batch whose "
        "commit is recorded waits until the query starts again; brokers must offer it (true or false)"
    ),
}


class Group(NamedTuple):
    """Options of one purpose: an example of their use, and a pattern that matches their names unless their declarations
    name the group."""

    heading: str
    example: str
    names: str = "-"


#: An option belongs to the first group whose pattern matches its name.
GROUPS: Final = (
    Group(
        TOPIC_AND_ROWS,
        """df.write.format("kafkalite").mode("append").option("kafka.bootstrap.servers", "broker:9092") \\
    .option("topic", "orders").option("topicPartitions", 6).save()""",
    ),
    Group(
        FORMATS_AND_SCHEMAS,
        """kafka_sink.write(orders.selectExpr("id AS key", "struct(*) AS value"), topic="orders",
                 options={**brokers, "key.format": "json", "value.format": "avro", "value.schema": "order.avsc"})""",
    ),
    Group(
        BAD_ROWS,
        """rejecting = {"topic": "orders", "deadLetterTopic": "orders-bad", "maxBadRows": "1%"}
kafka_sink.write(orders, options={**brokers, **rejecting})""",
    ),
    Group(
        EXACTLY_ONCE_OPTIONS,
        """df.writeStream.format("kafkalite").options(**brokers, topic="orders", transactionalIdPrefix="orders-sink") \\
    .option("checkpointLocation", "/data/orders").start()
numbered = {"topic": "orders", "txnAppId": "orders-job", "txnVersion": 17}
df.write.format("kafkalite").mode("append").options(**brokers, **numbered).save()""",
    ),
    Group(
        "Schema registry",
        """registry = {"schema.registry.url": "https://registry:8081",
            "basic.auth.user.info": "${env:REGISTRY_LOGIN}"}""",
        "|".join(map(re.escape, c.keys(RegistryConfig))),
    ),
    Group(
        "TLS",
        """tls = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/etc/kafka/ca.pem"}""",
        r"kafka\.ssl\..+|kafka\.security\.protocol",
    ),
    Group(
        "Logins",
        """login = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512",
         "kafka.sasl.username": "orders", "kafka.sasl.password": "${file:/etc/kafka/login.properties:password}"}""",
        r"kafka\.sasl\..+",
    ),
    Group(
        "Delivery and transactions",
        """patient = {"kafka.delivery.timeout.ms": 600_000, "kafka.max.block.ms": 300_000}""",
        r"kafka\.(acks|retries|retry\..+|delivery\..+|request\..+|max\.(block|in\.flight).+|enable\.idempotence|transaction\..+)",
    ),
    Group(
        "Batches, compression and memory",
        """dense = {"kafka.compression.type": "zstd", "kafka.batch.size": 1 << 20, "kafka.linger.ms": 200}""",
        r"kafka\.(batch|linger|buffer|compression|max\.request|partitioner)\..+",
    ),
    Group(
        "Connections and metadata",
        """brokers = {"kafka.bootstrap.servers": "broker-1:9092,broker-2:9092", "kafka.client.id": "orders"}""",
        r"kafka\..+",
    ),
)
_HEAD: Final = "| option | default | meaning |\n| --- | --- | --- |\n"


def option_tables() -> str:
    """Return the groups in Markdown: the sink's own options, a schema registry's, and ``kafka.*`` with their meaning in
    the sink; each with a heading to link to, and an example."""
    tables = [
        markdown_table(WriteSpec),
        markdown_table(SinkOptions),
        markdown_table(RegistryConfig),
        markdown_table(
            ProducerConfig, prefix=KAFKA_PREFIX, defaults=SINK_DEFAULTS, meanings=SINK_MEANINGS, without=REFUSED
        ),
    ]
    rows = [row for table in tables for row in table.splitlines()[2:]]
    declared = {name: entry.group for table in (WriteSpec, SinkOptions) for name, (entry, _) in c.keys(table).items()}
    found: dict[Group, list[str]] = {each: [] for each in GROUPS}
    for row in rows:
        name = row.split("`")[1]
        heading = declared.get(name)
        group = next((each for each in GROUPS if each.heading == heading or re.fullmatch(each.names, name)), None)
        if group is None:
            raise ValueError(f"the option {name} has no group of GROUPS: declare it with one of their headings")
        found[group].append(row)
    return "\n".join(
        f"## {group.heading}\n\n```python\n{group.example}\n```\n\n{_HEAD}" + "".join(f"{row}\n" for row in of_group)
        for group, of_group in found.items()
    )


def markdown_table(
    config: type[Any],
    *,
    prefix: str = "",
    defaults: Mapping[str, object] = MappingProxyType({}),
    meanings: Mapping[str, str] = MappingProxyType({}),
    without: Collection[str] = (),
) -> str:
    """The option table of *config* in Markdown: name, default and meaning; *defaults* and *meanings* override the
    table's own."""
    rows = ["| option | default | meaning |", "| --- | --- | --- |"]
    for name, (entry, item) in c.keys(config).items():
        if name in without:
            continue
        rule = f" ({entry.validator.expected})" if entry.validator else ""
        default, meaning = defaults.get(name, item.default), meanings.get(name, f"{entry.doc}{rule}")
        rows.append(f"| {_named(prefix + name)} | {_shown_default(default)} | {meaning} |")
    rows += [f"| {_named(prefix + name)} | none | has no effect: {why} |" for name, why in config.NO_EFFECT.items()]
    return "\n".join(rows)


def _named(option: str) -> str:
    """Return the option with an anchor for links, in the spelling that Spark's users write."""
    return f'<a id="{option}"></a>`{option}`'


def _shown_default(default: Any) -> str:
    if default is MISSING:
        return "required"
    if default is None or default == () or default == "":
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(default) if isinstance(default, tuple) else str(default)


if __name__ == "__main__":
    print_into(Path(sys.argv[1]), "options", option_tables())
