"""Options and columns are validated on the driver, by the names that the user gave."""

from __future__ import annotations

import enum
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, MapType, StringType, StructType

from kafka_sink import KafkaProducer, check, foreach_batch, peek, write
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.client.blocking.group_admin import GroupAdmin
from kafka_sink.common.errors import ConfigError, SchemaError
from kafka_sink.consumer.log_reader import LogReader
from kafka_sink.spark.data_source import KafkaliteDataSource
from kafka_sink.spark.driver.before_write import check_schema
from kafka_sink.spark.options import as_texts, parse_arguments, parse_options
from kafka_sink.spark.task.task_rows import topic_chunks
from kafka_sink.spark.write_spec import SINK_DEFAULTS
from scripts.option_table import option_tables
from scripts.pages import printed
from tests.support.cases import with_each

REQUIRED = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t"}


def test_the_sinks_defaults_give_way_to_the_user() -> None:
    properties = parse_options(REQUIRED).spec.producer.properties
    assert {name: properties[name] for name in SINK_DEFAULTS} == dict(SINK_DEFAULTS)
    assert parse_options({**REQUIRED, "kafka.linger.ms": "1"}).spec.producer.config.linger_ms == 1


def test_names_are_case_insensitive_as_spark_delivers_them() -> None:
    parsed = parse_options({**REQUIRED, "reportpath": "/r", "KAFKA.Linger.MS": "3"})
    assert parsed.spec.report_path == "/r"
    assert parsed.spec.producer.config.linger_ms == 3


@with_each(
    ("name", "hint"),
    [
        ("topick", "did you mean topic?"),
        ("kafka.compresion.type", "did you mean kafka.compression.type?"),
        ("bootstrap.servers", "did you mean kafka.bootstrap.servers?"),
        ("acks", "did you mean kafka.acks?"),
        ("metadata.broker.list", "metadata.broker.list: set kafka.bootstrap.servers"),
        ("kafka.bootstrap_servers", "kafka.bootstrap_servers: set kafka.bootstrap.servers"),
        ("kafka.value_serializer", "kafka.value_serializer: remove it; value.serializer is for producers"),
        ("kafka.ssl.ca.location", "name the file of certificates with kafka.ssl.truststore.location (PEM)"),
        ("outputMode", "remove it: the options are topic, maxRecordsPerSecond, "),
        ("auto_register_schemas", "did you mean auto.register.schemas?"),
        ("kafka.schema_registry_url", "it is an option of the sink; set schema.registry.url"),
        ("url", "did you mean schema.registry.url?"),
        ("avroSchema", "did you mean value.schema?"),
        ("subject_name_strategy", "did you mean value.subject.name.strategy or key.subject.name.strategy?"),
        ("schema.registry.ssl.ca.location", "set schema.registry.ssl.truststore.location (PEM)"),
    ],
)
def test_unknown_names_get_the_nearest_known_one(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options({**REQUIRED, name: "x"})
    assert f"unknown option {name}" in str(caught.value)
    assert hint in str(caught.value)


@with_each("name", ["key.serializer", "value.serializer", "interceptor.classes", "transactional.id"])
def test_options_useless_to_a_sink_are_refused_and_not_listed(name: str) -> None:
    with pytest.raises(ConfigError, match=f"option kafka.{name} is not supported: .*; remove it"):
        parse_options({**REQUIRED, f"kafka.{name}": "x"})
    assert f"kafka.{name}" not in option_tables()


def test_javas_options_without_effect_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    options = parse_options({**REQUIRED, "kafka.ssl.protocol": "TLSv1.3"})
    assert "options without effect here: kafka.ssl.protocol (" in caplog.text
    assert "ssl.protocol" not in options.spec.producer.properties
    assert "kafka.ssl.protocol" in option_tables()


def test_options_of_a_partitioner_travel_to_the_tasks() -> None:
    own = {"kafka.partitioner.class": "my.module.Router", "kafka.routing.table": "x"}
    assert parse_options({**REQUIRED, **own}).spec.producer.plugin_options["routing.table"] == "x"
    with pytest.raises(ConfigError, match=r"unknown option kafka\.routing\.table"):
        parse_options({**REQUIRED, "kafka.routing.table": "x"})


ASYNC_PROGRESS = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "500",
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}


def test_asynchronous_progress_goes_with_at_least_once_alone() -> None:
    assert parse_options({**REQUIRED, **ASYNC_PROGRESS}, is_stream=True) == parse_options(REQUIRED, is_stream=True)
    exactly_once = {"topic": "t", "deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "sink"}
    with pytest.raises(
        ConfigError, match="asyncProgressTrackingEnabled cannot be used with deliveryGuarantee=exactly-on"
    ):
        parse_options({**REQUIRED, **exactly_once, **ASYNC_PROGRESS}, is_stream=True)
    parse_options({**REQUIRED, **exactly_once, "asyncProgressTrackingEnabled": "false"}, is_stream=True)


OF_OTHERS = {
    "kafka.group.id": "for consumers",
    "kafka.key.deserializer": "for consumers",
    "kafka.application.id": "for Kafka Streams",
    "kafka.ssl.protocol": "Python's ssl module",
    "session.timeout.ms": "for consumers",
    "subscribe": "for reading",
    "startingOffsets": "for reading",
    "maxoffsetspertrigger": "for reading",
    "checkpointLocation": "for streams",
    "queryname": "for streams",
    "asyncProgressTrackingEnabled": "for streams",
}


@pytest.mark.behaviour(
    "Sink options and commit messages",
    "Options of sources, streams, consumers and other clients in the same mapping are taken, and named in one warning",
)
def test_options_for_others_are_named_in_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert parse_options({**REQUIRED, **dict.fromkeys(OF_OTHERS, "s3cret")}) == parse_options(REQUIRED)
    (warning,) = caplog.messages
    assert warning.startswith("options without effect here: ")
    assert all(f"{name} ({reader}" in warning for name, reader in OF_OTHERS.items())
    assert "s3cret" not in warning


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("sasl.login.class", "kafka.sasl.login.callback.handler.class"),
        ("security.providers", "Java classes cannot be used"),
    ],
)
def test_missing_java_options_say_what_to_use_instead(name: str, instead: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options({**REQUIRED, f"kafka.{name}": "x"})
    assert f"option kafka.{name} is not supported: " in str(caught.value)
    assert instead in str(caught.value)
    assert "did you mean" not in str(caught.value)


def test_unknown_option_like_no_other_explains_kafka_options() -> None:
    with pytest.raises(ConfigError, match=r"unknown option kafka\.zzz: .* options of Kafka's producer.*remove it"):
        parse_options({**REQUIRED, "kafka.zzz": "x"})


SASL = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}


@with_each(
    ("options", "problem"),
    [
        (SASL, "kafka.sasl.mechanism=PLAIN needs a user name: set kafka.sasl.jaas.config, or"),
        ({**SASL, "kafka.sasl.jaas.config": "s3cr3t"}, "option kafka.sasl.jaas.config: malformed, expected"),
        ({**SASL, "kafka.sasl.mechanism": "MAGIC"}, "option kafka.sasl.mechanism: 'MAGIC' is not allowed, expected"),
        (
            {"kafka.security.protocol": "SASL_SSL"},
            "kafka.sasl.mechanism=GSSAPI, Kafka's default, needs",
        ),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": __file__},
            "is not a PEM file, expected PEM",
        ),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.keystore.key": "s3cr3t"}, "belong together; set both"),
    ],
)
def test_mistakes_with_tls_and_sasl_are_refused_before_any_task(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        parse_options({**REQUIRED, **options})
    assert "s3cr3t" not in str(caught.value)
    assert "construct" not in str(caught.value)


def test_files_and_callbacks_only_executors_have_are_not_checked() -> None:
    files = {"kafka.ssl.truststore.location": "/only/there.pem", "kafka.ssl.keystore.location": "/only/own.pem"}
    tokens = {"kafka.sasl.mechanism": "OAUTHBEARER", "kafka.sasl.login.callback.handler.class": "only.there"}
    given = {**files, **tokens, "kafka.security.protocol": "SASL_SSL"}
    assert parse_options({**REQUIRED, **given}).spec.producer.config.ssl_keystore_location == "/only/own.pem"


def test_a_broken_address_is_refused_before_any_task() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers.*localhost"):
        parse_options({**REQUIRED, "kafka.bootstrap.servers": "localhost"})


def test_what_travels_to_the_tasks_is_plain_and_small() -> None:
    assert len(pickle.dumps(parse_options(REQUIRED).spec)) < 700


@pytest.mark.behaviour("Schema registry", "Tasks do not get the registry's options, which may have secrets")
def test_options_of_the_registry_do_not_travel_to_tasks() -> None:
    registry = {"schema.registry.url": "https://who:hidden@registry", "value.format": "avro"}
    options = parse_options({**REQUIRED, "topic": "t", **registry})
    assert options.registry_properties
    assert b"hidden" not in pickle.dumps(options.spec)


def test_extra_columns_are_errors() -> None:
    schema = StructType().add("value", "string").add("keys", "string")
    with pytest.raises(SchemaError, match=r"'keys' would not be written \(did you mean key\?\)"):
        check_schema(schema, parse_options(REQUIRED))


def test_two_columns_of_one_name_are_an_error() -> None:
    schema = StructType().add("key", "string").add("value", "string").add("key", "binary")
    with pytest.raises(
        SchemaError, match=r"two columns are named 'key' among \(key: string, value: string, key: binary"
    ):
        check_schema(schema, parse_options(REQUIRED))


@pytest.mark.parametrize("name", ["Value", "KEY", "Topic"])
def test_columns_whose_names_differ_in_case_are_to_be_renamed(name: str) -> None:
    schema = StructType().add(name, "string")
    if name != "Value":
        schema.add("value", "string")
    with pytest.raises(SchemaError) as caught:
        check_schema(schema, parse_options(REQUIRED))
    assert f"column '{name}' must be named '{name.lower()}'" in str(caught.value)
    assert f"withColumnRenamed('{name}', '{name.lower()}')" in str(caught.value)


@with_each("name", ["topic", "deadLetterTopic", "kafka.client.id"])
def test_texts_of_options_are_utf8(name: str) -> None:
    with pytest.raises(ConfigError, match=f"option {name} is not valid UTF-8"):
        parse_options({**REQUIRED, name: "a\ud800"})


def test_headers_in_a_map_are_told_how_to_become_an_array() -> None:
    schema = StructType().add("value", "string").add("headers", MapType(StringType(), BinaryType()))
    with pytest.raises(SchemaError, match=r"map_entries\(col\('headers'\)\)"):
        check_schema(schema, parse_options(REQUIRED))


def test_topic_option_wins_over_the_topic_column() -> None:
    schema = StructType().add("value", "string").add("topic", "string")
    without = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
    rows = pa.record_batch({"value": ["a", "b"], "topic": ["one", "two"]})
    for options, topics in ((REQUIRED, [REQUIRED["topic"]]), (without, ["one", "two"])):
        parsed = parse_options(options)
        check_schema(schema, parsed)
        assert [part.topic for part in topic_chunks(rows, parsed.spec.topic)] == topics


@pytest.mark.behaviour("Documentation", "Options are in groups with an example each, which has options of its group")
def test_each_group_has_an_example_with_its_options() -> None:
    for section in option_tables().split("\n## ")[1:]:
        _, example, table = section.split("```")
        named = set(re.findall(r"^\| <a .*?`([^`]+)`", table, re.MULTILINE))
        assert named & set(re.findall(r"[\w.]+", example)), section[:80]
    words = set(re.findall(r'"((?:kafka|key|value|schema|basic)\.[\w.]+)"', option_tables()))
    assert len(words) > 10
    assert words <= set(re.findall(r"^\| <a .*?`([^`]+)`", option_tables(), re.MULTILINE))


def test_the_page_of_options_shows_the_tables_as_they_are() -> None:
    shown = printed(Path(__file__).parents[3] / "docs" / "options.md", "options")
    assert shown.strip() == option_tables().strip(), "run: python -m scripts.option_table docs/options.md"


def test_the_page_offers_only_acks_that_are_accepted() -> None:
    (row,) = (line for line in option_tables().splitlines() if line.startswith('| <a id="kafka.acks"></a>`kafka.acks`'))
    offered = row.rpartition("(one of ")[2].partition(")")[0].split(", ")
    assert offered == ["all", "-1", "1"]
    for acks in offered:
        parse_options({**REQUIRED, "kafka.acks": acks})
    with pytest.raises(ConfigError, match="expected all or 1"):
        parse_options({**REQUIRED, "kafka.acks": "0"})


@with_each(
    ("given", "text"),
    [
        ({"topicPartitions": "3"}, "option topicPartitions needs option topic"),
        ({"topic": "t", "topicReplicationFactor": "3"}, "has no effect without topicPartitions"),
        ({"topic": "t", "topicPartitions": "0"}, "topicPartitions"),
        ({"topic": "t", "maxRecordsPerSecond": "0"}, "maxRecordsPerSecond"),
    ],
)
def test_options_of_new_topics_and_of_the_limit_are_checked(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_options({"kafka.bootstrap.servers": "127.0.0.1:9092", **given})


# -- references to secrets

SCRAM = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512"}
LINE = 'ScramLoginModule required username="a" password="{}";'


@with_each(
    "given",
    [
        {"kafka.sasl.jaas.config": LINE.format("${file:/only/there.properties:key}")},
        {"kafka.sasl.jaas.config": "ScramLoginModule required username=${env:ONLY_THERE} password=${env:THERE};"},
        {"kafka.sasl.jaas.config": "${dir:/only:there}"},
        {"kafka.sasl.username": "${env:ONLY_THERE}", "kafka.sasl.password": "${env:ONLY_THERE_TOO}"},
        {"kafka.sasl.mechanism": "${env:ONLY_THERE}", "kafka.sasl.jaas.config": LINE.format("${env:ONLY_THERE}")},
        {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.keystore.key": "${dir:/only:key.pem}",
            "kafka.ssl.keystore.certificate.chain": "inline",
            "kafka.ssl.truststore.certificates": "${dir:/only:ca.pem}",
        },
        {"kafka.bootstrap.servers": "${env:ONLY_THERE}", "kafka.linger.ms": "${env:ONLY_THERE}"},
    ],
)
def test_references_only_executors_can_follow_travel_as_they_are(given: dict[str, str]) -> None:
    options = parse_options({**REQUIRED, **({} if "kafka.linger.ms" in given else SCRAM), **given})
    kept = {f"kafka.{name}": value for name, value in options.spec.producer.properties.items()}
    assert {name: kept[name] for name in given} == given


def test_references_are_not_followed_where_nothing_connects(tmp_path: Path) -> None:
    # Its content would be refused if it were read.
    (tmp_path / "line").write_text("s3cr3t")
    options = parse_options({**REQUIRED, **SCRAM, "kafka.sasl.jaas.config": f"${{dir:{tmp_path}:line}}"})
    assert b"s3cr3t" not in pickle.dumps(options)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"kafka.sasl.jaas.config": "PlainLoginModule required username=a password=${env:X};"}, "is for PLAIN, but"),
        ({"kafka.sasl.jaas.config": LINE.format("${env:X}")[:-1]}, "malformed after 2 options, expected"),
        ({"kafka.sasl.username": "${env:X}"}, "needs a password"),
        ({"kafka.linger.ms": "${env:LINGER_HERE}"}, r"kafka\.linger\.ms: \[hidden\] is not a whole number"),
        ({"kafka.config.providers": "vault"}, "any of env, file, dir"),
        ({"kafka.config.providers.file.param.allowed.paths": "/a"}, "permissions of the process's user only"),
    ],
)
def test_mistakes_around_references_are_found_on_the_driver(
    given: dict[str, str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINGER_HERE", "s3cr3t")
    with pytest.raises(ConfigError, match=problem) as caught:
        parse_options({**REQUIRED, **SCRAM, "kafka.sasl.username": "", **given})
    assert "s3cr3t" not in str(caught.value)


def test_referenced_time_outs_are_read_where_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    numbered = {**REQUIRED, "txnAppId": "job", "txnVersion": "1"}
    producer = parse_options({**numbered, "kafka.transaction.timeout.ms": "${env:LONGEST_MS}"}).spec.producer
    monkeypatch.setenv("LONGEST_MS", "60000")
    assert producer.transaction_timeout_ms == 60_000


def test_defaults_give_way_to_what_a_reference_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = parse_options({**REQUIRED, "kafka.buffer.memory": "${env:MEMORY}", "kafka.acks": "1"}).spec.producer
    monkeypatch.setenv("MEMORY", "262144")
    here = pickle.loads(pickle.dumps(producer)).here()
    assert (here.buffer_memory_bytes, here.batch_size_bytes, here.linger_ms, here.acks) == (262144, 32768, 100, "1")
    assert not here.enable_idempotence
    monkeypatch.setenv("MEMORY", "524288")
    assert producer.here().batch_size_bytes == 524288


def test_options_of_an_application_take_another_number() -> None:
    numbered = {**REQUIRED, "txnAppId": "job", "txnVersion": "0"}
    assert parse_options(numbered).numbered(7) == parse_options({**numbered, "txnVersion": "7"})


@pytest.mark.behaviour("Faults: security", "A secret in an option is warned of once, with what to do instead")
def test_secrets_in_options_are_warned_of_once() -> None:
    inline = {**REQUIRED, **SCRAM, "kafka.sasl.jaas.config": LINE.format("s3cr3t")}
    by_reference = {**inline, "kafka.sasl.jaas.config": LINE.format("${env:X}")}
    token = 'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="a";'
    without = {**inline, "kafka.sasl.mechanism": "OAUTHBEARER", "kafka.sasl.jaas.config": token}
    # Runs in a separate process: another test may have logged the warning in this one.
    program = "import json, sys; from kafka_sink.spark.options import parse_options\n"
    program += "for given in json.loads(sys.argv[1]): print('next', file=sys.stderr, flush=True); parse_options(given)"
    given = json.dumps([by_reference, without, inline, inline])
    done = subprocess.run(
        [sys.executable, "-c", program, given], capture_output=True, text=True, timeout=60, check=True
    )
    nothing, of_reference, of_token, said, again = done.stderr.split("next\n")
    assert (nothing, of_reference, of_token, again) == ("", "", "", "")
    assert said.startswith("the value of kafka.sasl.jaas.config is a secret. It travels with Spark's options")
    assert "${file:/path/of/secrets.properties:key}" in said
    assert "s3cr3t" not in said


@pytest.mark.behaviour("Dead letters", "Options of bad rows that contradict each other are refused with what to do")
@with_each(
    ("given", "expected"),
    [
        ({"onBadRow": "dead-letter"}, "needs the topic of the bad rows: set option deadLetterTopic"),
        ({"onBadRow": "drop", "deadLetterTopic": "d"}, "deadLetterTopic has no effect with onBadRow=drop; remove one"),
        ({"onBadRow": "fail", "deadLetterTopic": "d"}, "deadLetterTopic has no effect with onBadRow=fail; remove one"),
        ({"onBadRow": "skip"}, "option onBadRow: 'skip' is not allowed, expected one of fail, drop, dead-letter"),
        ({"deadLetterTopic": "t"}, "option deadLetterTopic: 't' is the topic of the rows themselves"),
        ({"maxBadRows": "5"}, "option maxBadRows has no effect, because the write fails at the first bad row"),
        *(
            ({"deadLetterTopic": "d", "maxBadRows": wrong}, f"option maxBadRows: '{wrong}' is not a number of rows")
            for wrong in ("many", "-1", "1.5", "101%", "-1%", "%", "1/3%", "")
        ),
    ],
)
def test_contradicting_options_of_bad_rows_are_refused(given: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options({**REQUIRED, **given})
    assert expected in str(caught.value)


def test_a_dead_letter_topic_is_enough() -> None:
    assert parse_options({**REQUIRED, "deadLetterTopic": "d", "maxBadRows": "1%"}).spec.on_bad_row == "dead-letter"
    assert parse_options(REQUIRED).spec.on_bad_row == "fail"


SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9"}
ROWS = StructType().add("value", "string")
NO_SPARK: Any = None
FRAME: Any = SimpleNamespace(schema=ROWS, sparkSession=SimpleNamespace())


class Topic(enum.StrEnum):
    """A topic name as an enumeration of strings, as in users' programs."""

    ORDERS = "orders"


@pytest.mark.behaviour("Sink options and commit messages", "An option that is None is not set, in every way to write")
def test_an_option_that_is_none_is_left_out() -> None:
    nothing = dict.fromkeys(["deadLetterTopic", "reportPath", "txnAppId", "txnVersion", "kafka.client.id"])
    parsed = parse_arguments({**SERVERS, "topic": "t", **nothing}, {"txnAppId": None})
    assert parsed == parse_arguments({**SERVERS, "topic": "t"}, {})
    with pytest.raises(SchemaError, match="no topic: set option"):
        write(FRAME, {**SERVERS, "topic": None}, progress=False)
    with pytest.raises(ConfigError, match="peek needs a topic"):
        peek(NO_SPARK, {**SERVERS, "topic": None})
    assert callable(foreach_batch({**SERVERS, "topic": "t", "reportPath": None}, app_id="a"))
    with pytest.raises(ConfigError, match=r"option kafka\.bootstrap\.servers is required"):
        foreach_batch({"kafka.bootstrap.servers": None, "topic": "t"}, app_id="a")
    assert "kafka.bootstrap.servers is required" in repr(check(NO_SPARK, {"kafka.bootstrap.servers": None}))


def test_an_argument_takes_the_place_of_an_option_that_is_none() -> None:
    assert parse_arguments({**SERVERS, "topic": None}, {"topic": "t"}).spec.topic == "t"


@pytest.mark.behaviour("KafkaProducer", "A property that is None is not set, for every client")
def test_a_property_that_is_none_is_not_set() -> None:
    properties = {"bootstrap.servers": "127.0.0.1:9", "client.id": None, "request.timeout.ms": None}
    with KafkaProducer({**properties, "acks": None, "interceptor.classes": None}) as producer:
        assert producer.client_id.startswith("producer-")
    LogReader({**properties, "fetch.max.bytes": None}).close()
    for client in (AdminClient, GroupAdmin):
        client("127.0.0.1:9", properties).close()


@with_each(
    ("value", "text"),
    [
        (5, "5"),
        (0.5, "0.5"),
        (Decimal("1.50"), "1.50"),
        (np.int64(7), "7"),
        (True, "true"),
        (False, "false"),
        (Path("/tmp/report"), "/tmp/report"),
        (Topic.ORDERS, "orders"),
        ("", ""),
    ],
)
def test_values_become_texts_as_sparks_writer_makes_them(value: Any, text: str) -> None:
    assert as_texts({"a": value}) == {"a": text}
    assert type(as_texts({"a": value})["a"]) is str


def test_numbers_and_booleans_are_taken() -> None:
    parsed = parse_arguments({**SERVERS, "topic": "t", "topicPartitions": 2, "kafka.enable.idempotence": True}, {})
    assert parsed.topic_partitions == 2
    assert parsed.spec.producer.config.enable_idempotence is True


ENTRANCES: Mapping[str, Callable[[Any], object]] = {
    "write": lambda options: write(FRAME, options),
    "foreach_batch": lambda options: foreach_batch(options, app_id="a"),
    "peek": lambda options: peek(NO_SPARK, options),
    "format": lambda options: KafkaliteDataSource(options).writer(ROWS, False),
}


@pytest.mark.behaviour(
    "Sink options and commit messages", "Other types of values, and keys that are no text, are refused by name"
)
@with_each("entrance", ENTRANCES.values())
def test_other_types_are_refused_by_name(entrance: Callable[[Any], object]) -> None:
    for wrong, text in (
        (
            {"topic": ["s3cr3t"]},
            "option topic: a value of the type list is not accepted, .*; join its parts with commas",
        ),
        (
            {"topic": b"s3cr3t"},
            "option topic: a value of the type bytes is not accepted, expected text, a number, True",
        ),
        ({5: "s3cr3t"}, r"the name of an option must be str, got int \(5\)"),
    ):
        with pytest.raises(ConfigError, match=text) as caught:
            entrance({**SERVERS, **wrong})
        assert "s3cr3t" not in str(caught.value)
    with pytest.raises(ConfigError, match="the options must be a mapping of names to values, got NoneType"):
        entrance(None)


def test_a_check_finds_other_types() -> None:
    (found,) = check(NO_SPARK, {"topic": ["t"]}).findings  # type: ignore[dict-item]
    assert (found.step, "option topic: a value of the type list is not accepted" in found.found) == ("options", True)
