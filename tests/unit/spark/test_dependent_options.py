"""Options that are checked together: options that the user did not set are adjusted, and the page lists every group."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafka_sink.common import config as c
from kafka_sink.common.errors import ConfigError
from kafka_sink.consumer.config import ConsumerConfig
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.registry.config import registry_configs
from kafka_sink.spark.options import parse_options
from tests.support.cases import with_each

PAGE = Path(__file__).parents[3] / "docs" / "options.md"
REQUIRED = {"kafka.bootstrap.servers": "127.0.0.1:9", "topic": "t"}
URL = {"schema.registry.url": "https://registry"}


class Settled(NamedTuple):
    """The values to which *given* options are resolved."""

    given: Mapping[str, str]
    becomes: Mapping[str, object]


class Refused(NamedTuple):
    """The error for *given* options."""

    given: Mapping[str, str]
    says: str


def kafka(given: Mapping[str, str]) -> Mapping[str, Any]:
    """The options of the tasks' producers."""
    options = parse_options({**REQUIRED, **{f"kafka.{name}": value for name, value in given.items()}})
    return c.as_properties(options.spec.producer.here())


def client(given: Mapping[str, str]) -> Mapping[str, Any]:
    """The options of every client, also in each task."""
    return c.as_properties(c.parse(ProducerConfig, {"bootstrap.servers": "127.0.0.1:9", **given}, prefix="kafka."))


def atomic(given: Mapping[str, str]) -> Mapping[str, Any]:
    options = parse_options({**REQUIRED, "txnAppId": "a", "txnVersion": "1", **given})
    return {**vars(options.spec), **vars(options)}


def stream(given: Mapping[str, str]) -> Mapping[str, Any]:
    options = parse_options({**REQUIRED, **given}, is_stream=True)
    return {**vars(options.spec), **vars(options)}


def registry(given: Mapping[str, str]) -> Mapping[str, Any]:
    return vars(registry_configs({**URL, **given})[0])


def reader(given: Mapping[str, str]) -> Mapping[str, Any]:
    return c.as_properties(c.parse(ConsumerConfig, {"bootstrap.servers": "127.0.0.1:9", **given}))


Case = tuple[Callable[[Mapping[str, str]], Mapping[str, Any]], Settled | Refused]

#: By the options that a row of the page names first.
CASES: Mapping[str, list[Case]] = {
    "kafka.delivery.timeout.ms": [
        (kafka, Settled({"request.timeout.ms": "120000"}, {"delivery.timeout.ms": 120100})),
        (kafka, Settled({"linger.ms": "100000"}, {"delivery.timeout.ms": 130000})),
        (kafka, Settled({"delivery.timeout.ms": "30050"}, {"linger.ms": 50})),
        (kafka, Settled({"delivery.timeout.ms": "30000"}, {"linger.ms": 0})),
        (
            kafka,
            Settled({"delivery.timeout.ms": "60000", "request.timeout.ms": "60000"}, {"linger.ms": 0}),
        ),
        (kafka, Settled({"delivery.timeout.ms": "9000"}, {"linger.ms": 0, "request.timeout.ms": 9000})),
        (kafka, Settled({"delivery.timeout.ms": "9000", "linger.ms": "5"}, {"request.timeout.ms": 8995})),
        (
            kafka,
            Refused(
                {"delivery.timeout.ms": "30000", "linger.ms": "1", "request.timeout.ms": "30000"},
                r"kafka.delivery.timeout.ms \(30000\) is less than kafka.linger.ms \(1\) \+ kafka.request.timeout.ms",
            ),
        ),
        (kafka, Refused({"delivery.timeout.ms": "5", "linger.ms": "9"}, r"kafka.linger.ms \(9\)")),
    ],
    "kafka.reconnect.backoff.ms": [
        (client, Settled({"reconnect.backoff.ms": "5000"}, {"reconnect.backoff.max.ms": 5000})),
        (client, Settled({"reconnect.backoff.ms": "9", "reconnect.backoff.max.ms": "8"}, {"reconnect.backoff.ms": 9})),
    ],
    "kafka.batch.size": [
        (kafka, Settled({"buffer.memory": "262144"}, {"batch.size": 32768})),
        (kafka, Settled({"buffer.memory": "5"}, {"batch.size": 1})),
        (kafka, Settled({"batch.size": "67108864"}, {"buffer.memory": 67108864})),
        (
            kafka,
            Refused({"batch.size": "9", "buffer.memory": "8"}, r"kafka.batch.size \(9\) is more than kafka.buffer"),
        ),
    ],
    "kafka.enable.idempotence kafka.acks": [
        (kafka, Settled({"acks": "1"}, {"enable.idempotence": False})),
        (kafka, Settled({"retries": "0"}, {"enable.idempotence": False})),
        (kafka, Refused({"acks": "1", "enable.idempotence": "true"}, "kafka.enable.idempotence=true needs acks=all")),
        (atomic, Refused({"kafka.acks": "1"}, "option kafka.acks: '1' cannot be used with exactly-once")),
        (atomic, Refused({"kafka.retries": "0"}, "option kafka.retries: '0' cannot be used with exactly-once")),
        (atomic, Refused({"kafka.enable.idempotence": "false"}, "kafka.enable.idempotence: 'false' cannot be used")),
    ],
    "kafka.enable.idempotence kafka.max.in.flight": [
        (kafka, Refused({"max.in.flight.requests.per.connection": "6"}, "or set kafka.enable.idempotence=false")),
        (
            kafka,
            Settled(
                {"max.in.flight.requests.per.connection": "6", "enable.idempotence": "false"},
                {"max.in.flight.requests.per.connection": 6},
            ),
        ),
    ],
    "kafka.transaction.timeout.ms": [
        (atomic, Settled({"kafka.transaction.two.phase.commit.enable": "true"}, {"topic": "t"})),
        (
            atomic,
            Refused(
                {"kafka.transaction.two.phase.commit.enable": "true", "kafka.transaction.timeout.ms": "900000"},
                "contradicts kafka.transaction.two.phase.commit.enable=true",
            ),
        ),
    ],
    "deliveryGuarantee": [
        (stream, Settled({"transactionalIdPrefix": "sink"}, {"delivery_guarantee": "exactly-once"})),
        (stream, Settled({}, {"delivery_guarantee": "at-least-once"})),
        (
            stream,
            Refused(
                {"transactionalIdPrefix": "sink", "deliveryGuarantee": "at-least-once"},
                "transactionalIdPrefix is for exactly-once, and contradicts deliveryGuarantee=at-least-once",
            ),
        ),
    ],
    "onBadRow deadLetterTopic": [
        (stream, Settled({"deadLetterTopic": "d"}, {"on_bad_row": "dead-letter"})),
        (stream, Settled({}, {"on_bad_row": "fail"})),
        (stream, Refused({"deadLetterTopic": "d", "onBadRow": "fail"}, "has no effect with onBadRow=fail")),
    ],
    "onBadRow maxBadRows": [
        (stream, Refused({"maxBadRows": "5"}, "set deadLetterTopic or onBadRow=drop, or remove it")),
        (stream, Settled({"maxBadRows": "5", "onBadRow": "drop"}, {"on_bad_row": "drop"})),
        (stream, Settled({"maxBadRows": "5", "deadLetterTopic": "d"}, {"on_bad_row": "dead-letter"})),
    ],
    "auto.register.schemas": [
        (registry, Settled({"use.latest.version": "true"}, {"auto_register": False})),
        (registry, Settled({}, {"auto_register": True})),
        (
            registry,
            Refused({"use.latest.version": "true", "auto.register.schemas": "true"}, "set auto.register.schemas=false"),
        ),
    ],
    "basic.auth.credentials.source": [
        (registry, Settled({"basic.auth.user.info": "me:s3cr3t"}, {"credentials_source": "USER_INFO"})),
        (registry, Settled({}, {"credentials_source": "URL"})),
        (
            registry,
            Refused({"basic.auth.user.info": "me:s3cr3t", "basic.auth.credentials.source": "URL"}, "belong together"),
        ),
    ],
    "bearer.auth.credentials.source": [
        (
            registry,
            Settled(
                {
                    "bearer.auth.issuer.endpoint.url": "https://idp",
                    "bearer.auth.client.id": "me",
                    "bearer.auth.client.secret": "s3cr3t",
                },
                {"bearer_source": "OAUTHBEARER"},
            ),
        ),
        (registry, Settled({"bearer.auth.token": "s3cr3t"}, {"bearer_source": "STATIC_TOKEN"})),
        (
            registry,
            Refused(
                {"bearer.auth.client.id": "me", "bearer.auth.credentials.source": "STATIC_TOKEN"},
                "are for bearer.auth.credentials.source=OAUTHBEARER",
            ),
        ),
    ],
    "receive.message.max.bytes": [
        (reader, Settled({"receive.message.max.bytes": "1000"}, {"fetch.max.bytes": 488})),
        (reader, Settled({"fetch.max.bytes": "200000000"}, {"receive.message.max.bytes": 200_000_512})),
        (
            reader,
            Refused(
                {"receive.message.max.bytes": "1000", "fetch.max.bytes": "489"},
                r"receive.message.max.bytes \(1000\) is less than fetch.max.bytes \(489\)",
            ),
        ),
    ],
}


def page_rows() -> list[list[str]]:
    """The options that each row of the page names in its first column."""
    section = PAGE.read_text().partition("## Options that depend on each other")[2]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [re.findall(r"`([\w.]+)`", line.split("|")[1]) for line in lines]


def test_every_row_of_the_page_has_its_cases() -> None:
    named = [" ".join(row) for row in page_rows()]
    assert len(named) == len(CASES)
    assert [row for row, first in zip(named, CASES, strict=True) if not row.startswith(first)] == []


@pytest.mark.behaviour(
    "Sink options and commit messages", "A default that the user did not set gives way to what was set"
)
@with_each(
    ("settle", "case"),
    [case for cases in CASES.values() for case in cases],
)
def test_defaults_give_way_and_contradictions_are_refused(
    settle: Callable[[Mapping[str, str]], Mapping[str, Any]], case: Settled | Refused
) -> None:
    if isinstance(case, Refused):
        with pytest.raises(ConfigError, match=case.says):
            settle(case.given)
        return
    settled = settle(case.given)
    assert {name: settled[name] for name in case.becomes} == case.becomes


def test_what_tasks_settled_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """The tasks get the options that the driver has resolved, so that they log no warning."""
    with caplog.at_level(logging.WARNING):
        kafka({"request.timeout.ms": "200000", "acks": "1", "batch.size": "67108864"})
    assert sorted(message.split()[0] for message in caplog.messages) == [
        "kafka.enable.idempotence",
        "raising",
        "raising",
    ]
