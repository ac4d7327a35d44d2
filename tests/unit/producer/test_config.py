"""The producer's options: Kafka's defaults, and the resolution of options that depend on each other."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.common.errors import ConfigError
from kafka_sink.producer.config import ProducerConfig, names_for_plugins, read
from tests.support.cases import with_each


def settle(properties: dict[str, Any], prefix: str = "") -> ProducerConfig:
    return read({"bootstrap.servers": "a:1", **properties}, prefix=prefix, explicit=properties)


def refusal(properties: dict[str, Any], prefix: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        settle(properties, prefix)
    return str(caught.value)


def test_defaults_are_those_of_kafkas_newest_producer() -> None:
    config = settle({})
    assert (config.acks_code, config.retries, config.enable_idempotence) == (-1, 2**31 - 1, True)
    assert (config.batch_size_bytes, config.linger_ms, config.buffer_memory_bytes) == (16384, 5, 33554432)
    assert (config.max_request_size_bytes, config.max_block_ms, config.delivery_timeout_ms) == (1048576, 60000, 120000)
    assert (config.compression_type, config.max_in_flight_requests_per_connection) == ("none", 5)


@with_each(("acks", "code"), [("all", -1), ("-1", -1), ("1", 1), ("0", 0)])
def test_acks_as_the_protocol_writes_them(acks: str, code: int) -> None:
    assert settle({"acks": acks}).acks_code == code


@with_each(
    ("properties", "level"),
    [
        ({"compression.type": "none"}, None),
        ({"compression.type": "snappy"}, None),
        ({"compression.type": "gzip"}, None),
        ({"compression.type": "gzip", "compression.gzip.level": "9"}, 9),
        ({"compression.type": "lz4"}, None),
        ({"compression.type": "lz4", "compression.lz4.level": "9"}, None),
        ({"compression.type": "lz4", "compression.lz4.level": "3"}, 3),
        ({"compression.type": "lz4", "compression.lz4.level": "17"}, 16),
        ({"compression.type": "zstd"}, 3),
        ({"compression.type": "zstd", "compression.zstd.level": "-1"}, -1),
    ],
)
def test_the_level_is_that_of_the_chosen_codec(properties: dict[str, str], level: int | None) -> None:
    assert settle(properties).compression_level == level


# --- delivery.timeout.ms ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour("KafkaProducer", "Options that contradict each other are refused")
def test_a_delivery_time_out_that_was_set_too_low_is_refused() -> None:
    text = refusal({"delivery.timeout.ms": 30_004, "linger.ms": 5, "request.timeout.ms": 30_000}, prefix="kafka.")
    assert "kafka.delivery.timeout.ms (30004)" in text
    assert "raise it to at least 30005" in text
    assert "kafka.linger.ms (5)" in text
    assert "kafka.request.timeout.ms (30000)" in text


def test_delivery_timeout_equal_to_the_sum_is_accepted() -> None:
    assert settle({"delivery.timeout.ms": 30_005}).delivery_timeout_ms == 30_005


def test_too_low_default_delivery_timeout_is_raised_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert settle({"request.timeout.ms": 200_000}, prefix="kafka.").delivery_timeout_ms == 200_005
    assert (
        "raising kafka.delivery.timeout.ms to 200005, because it must not be less than kafka.linger.ms" in caplog.text
    )


def test_raised_delivery_timeout_does_not_exceed_the_maximum() -> None:
    assert settle({"linger.ms": 2**31 - 1}).delivery_timeout_ms == 2**31 - 1


# --- idempotence -----------------------------------------------------------------------------------------------------

_GIVES_WAY = [("acks", "1"), ("acks", "0"), ("retries", 0)]
_IN_FLIGHT = ("max.in.flight.requests.per.connection", 6)


@with_each(("name", "value"), [*_GIVES_WAY, _IN_FLIGHT])
def test_explicit_idempotence_refuses_contradicting_options(name: str, value: Any) -> None:
    text = refusal({"enable.idempotence": True, name: value}, prefix="kafka.")
    assert "kafka.enable.idempotence=true needs" in text
    assert f"contradicts kafka.{name}={value}; change kafka.{name}, or set kafka.enable.idempotence=false" in text


@pytest.mark.parametrize(("name", "value"), _GIVES_WAY)
def test_idempotence_by_default_gives_way_and_says_so(name: str, value: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING"):
        assert not settle({name: value}, prefix="kafka.").enable_idempotence
    (warning,) = caplog.messages
    assert "kafka.enable.idempotence is disabled" in warning
    assert f"because of kafka.{name}={value}" in warning


@pytest.mark.behaviour("KafkaProducer", "Options that contradict each other are refused")
@with_each("other", [{}, *({name: value} for name, value in _GIVES_WAY)])
def test_over_five_in_flight_needs_explicit_idempotence_off(other: dict[str, Any]) -> None:
    text = refusal({**other, _IN_FLIGHT[0]: _IN_FLIGHT[1]}, prefix="kafka.")
    assert "contradicts kafka.max.in.flight.requests.per.connection=6" in text


@with_each(("name", "value"), [*_GIVES_WAY, _IN_FLIGHT])
def test_disabled_idempotence_allows_every_setting(name: str, value: Any) -> None:
    assert not settle({"enable.idempotence": False, name: value}).enable_idempotence


def test_idempotence_allows_five_requests_in_flight() -> None:
    assert settle({"enable.idempotence": True, "max.in.flight.requests.per.connection": 5}).enable_idempotence


# --- transactions ----------------------------------------------------------------------------------------------------


def test_transactions_are_off_by_default_and_may_take_a_minute() -> None:
    config = settle({})
    assert config.transactional_id is None
    assert config.transaction_timeout_ms == 60_000


@with_each(("name", "value"), [*_GIVES_WAY, _IN_FLIGHT])
def test_a_transactional_id_refuses_what_contradicts_it(name: str, value: Any) -> None:
    text = refusal({"transactional.id": "a", name: value})
    assert "transactional.id needs" in text
    assert f"contradicts {name}={value}; change {name}, or remove transactional.id" in text


def test_a_transactional_id_needs_idempotence() -> None:
    assert "transactional.id needs enable.idempotence=true" in refusal(
        {"transactional.id": "a", "enable.idempotence": False}
    )


@with_each(
    ("name", "value"),
    [
        ("transactional.id", ""),
        ("transaction.timeout.ms", 0),
        ("compression.gzip.level", 0),
        ("compression.lz4.level", 0),
        ("compression.lz4.level", 18),
    ],
)
def test_impossible_option_values_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        settle({name: value})


def test_two_phase_commit_is_checked_without_idempotence_too() -> None:
    two_phase = {"transaction.two.phase.commit.enable": "true", "enable.idempotence": "false"}
    assert "transaction.timeout.ms=5 contradicts" in refusal({**two_phase, "transaction.timeout.ms": "5"})
    assert "needs transactional.id" in refusal(two_phase)


# --- memory ----------------------------------------------------------------------------------------------------------


def test_a_batch_must_fit_into_the_memory() -> None:
    text = refusal({"batch.size": 2000, "buffer.memory": 1999}, prefix="kafka.")
    assert "kafka.batch.size (2000) is more than kafka.buffer.memory (1999)" in text
    assert settle({"batch.size": 2000, "buffer.memory": 2000}).batch_size_bytes == 2000


# --- names that are not options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["ssl.protocol", "sasl.oauthbearer.sub.claim.name", "metric.reporters", "enable.metrics.push", "ssl.provider"],
)
def test_option_only_javas_client_has_is_warned_of_and_ignored(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert settle({name: "anything"}) == settle({})
    assert f"options without effect here: {name} (" in caplog.text


def test_unknown_java_options_are_errors_without_bad_guesses() -> None:
    assert "unknown option ssl.engine" in refusal({"ssl.engine": "a.B"})
    assert "did you mean ssl.protocol" not in refusal({"ssl.protocoll": "TLSv1.3"})


@with_each(
    ("plugin", "handed_over"),
    [
        ({}, False),
        ({"partitioner.class": "round-robin", "value.serializer": "json"}, False),
        ({"partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"}, False),
        ({"partitioner.class": "my.module.Router"}, True),
        ({"interceptor.classes": "my.module.First,my.module.Second"}, True),
        ({"value.serializer": object()}, True),
    ],
)
def test_options_unknown_to_kafka_are_handed_to_custom_plugins(plugin: dict[str, Any], handed_over: bool) -> None:
    properties = {**plugin, "schema.registry.url": "http://registry", "linger.mss": 5, "acks": "all"}
    assert names_for_plugins(properties) == ({"schema.registry.url"} if handed_over else set())
    assert names_for_plugins({"my.table": 1}, are_given=True) == {"my.table"}
