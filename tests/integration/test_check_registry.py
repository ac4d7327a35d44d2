"""The check before a job looks at the schema registry: its addresses, its credentials and the subjects of the job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.cli.main import run
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.formats.schema_text import Reference, SchemaText
from kafka_sink.http.exchange import is_loopback
from kafka_sink.preflight.check import RegistrySteps
from kafka_sink.preflight.findings import CheckReport, Finding, RegistryTarget, Status, SubjectTarget, run_steps
from kafka_sink.registry import client
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.config import registry_configs
from kafka_sink.testing import EmbeddedRegistry
from tests.support.ports import free_ports

SCHEMA = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
OTHER = json.dumps({"type": "record", "name": "R", "fields": [{"name": "b", "type": "int"}]})
VALUE = SubjectTarget("t-value", "value", "AVRO")


@pytest.fixture
def registry() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry() as running:
        yield running


def findings(properties: dict[str, str], *subjects: SubjectTarget) -> list[Finding]:
    steps = RegistrySteps(RegistryTarget(properties, subjects), SYSTEM_CLOCK).steps()
    return list(run_steps(steps, "here"))


@pytest.mark.behaviour("kafkalite check", "A registry that is gone, and a schema that it would refuse, are found")
def test_subjects_and_compatibility_are_looked_up(registry: EmbeddedRegistry) -> None:
    own = {"schema.registry.url": registry.url}
    found = findings(own, VALUE)
    assert [(each.step, each.status) for each in found] == [("schema registry", Status.OK), ("subject", Status.OK)]
    assert "knows AVRO, JSON" in found[0].found
    assert "has no schema yet; the write registers the first" in found[1].found
    (_, missing) = findings({**own, "auto.register.schemas": "false"}, VALUE)
    assert (missing.status, missing.what_to_do) == (Status.FAILED, "register one, or set auto.register.schemas=true")
    RegistryClient(*registry_configs(own)).register("t-value", SCHEMA)
    for schema, status, text in (
        (None, Status.OK, "AVRO, the latest schema has the id 1"),
        (SCHEMA, Status.OK, "the given schema is compatible"),
        (OTHER, Status.FAILED, "READER_FIELD_MISSING_DEFAULT_VALUE: b at path '/fields/0'"),
    ):
        (_, each) = findings(own, replace(VALUE, schema=None if schema is None else SchemaText(schema)))
        assert (each.status, text in each.found) == (status, True), each
    (_, unknown) = findings(own, replace(VALUE, is_derived=True))
    assert (unknown.status, "not compared with the schema that is derived" in unknown.found) == (Status.WARNING, True)
    (_, grown) = findings(own, replace(VALUE, schema=SchemaText(OTHER), is_derived=True))
    assert (grown.status, grown.what_to_do.partition(",")[0]) == (Status.FAILED, "change the column value")
    (_, kept) = findings(own, replace(VALUE, schema=SchemaText(OTHER), is_derived=True, earlier=(SchemaText(SCHEMA),)))
    assert (kept.status, "the derived schema is compatible: it has the id 1" in kept.found) == (Status.OK, True)
    (_, foreign) = findings({**own, "auto.register.schemas": "false"}, replace(VALUE, schema=SchemaText(OTHER)))
    assert (foreign.status, "the given schema is not a version of it" in foreign.found) == (Status.FAILED, True)
    (_, wrong) = findings(own, replace(VALUE, kind="JSON"))
    assert (wrong.status, "is 'AVRO', expected JSON" in wrong.found) == (Status.FAILED, True)


def test_schema_with_references_is_compared(registry: EmbeddedRegistry) -> None:
    own = {"schema.registry.url": registry.url}
    client = RegistryClient(*registry_configs(own))
    client.register("t-value", SCHEMA)
    whole = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "x.Part"}]}'
    part = SchemaText('{"type": "fixed", "name": "x.Part", "size": 2}')
    schema = replace(VALUE, schema=SchemaText(whole, (Reference("x.Part", part),)))
    (_, found) = findings(own, schema)
    assert (found.status, "refers to schemas that are not there yet" in found.found) == (Status.OK, True)
    (_, found) = findings({**own, "auto.register.schemas": "false"}, schema)
    assert (found.status, found.what_to_do) == (Status.FAILED, "register it, or set auto.register.schemas=true")
    client.register("x.Part", part)
    (_, found) = findings(own, schema)
    assert (found.status, "TYPE_MISMATCH: reader type: fixed not compatible" in found.found) == (Status.FAILED, True)


def test_address_that_is_down_fails_only_if_no_other_works(registry: EmbeddedRegistry) -> None:
    gone = f"http://127.0.0.1:{free_ports()}"
    alone = findings({"schema.registry.url": gone}, VALUE)
    assert [each.status for each in alone] == [Status.FAILED, Status.NOT_TRIED]
    both = findings({"schema.registry.url": f"{gone},{registry.url}"}, VALUE)
    assert [each.status for each in both] == [Status.WARNING, Status.OK, Status.OK]
    assert "Connection refused" in both[0].found


@pytest.mark.behaviour("kafkalite check", "A password for a registry over plain http to another machine is warned of")
@pytest.mark.parametrize(("is_own", "warnings"), [(True, 0), (False, 1)])
def test_password_over_plain_http_is_warned_of(
    is_own: bool, warnings: int, registry: EmbeddedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All of 127.0.0.0/8 is loopback; no test sends a password elsewhere.
    monkeypatch.setattr(client, "is_loopback", lambda host: is_own)
    url = registry.url.replace("http://", "http://user:pa55@")
    found = findings({"schema.registry.url": url})
    assert [each.status for each in found].count(Status.WARNING) == warnings
    assert "pa55" not in repr(CheckReport(found)) + repr(RegistryTarget({"schema.registry.url": url}))


def test_hosts_of_this_machine_are_loopback() -> None:
    hosts = {"127.0.0.1": True, "127.3.2.1": True, "::1": True, "localhost": True, "localhost.": True}
    others = {"10.0.0.1": False, "registry": False, "localhost.example": False, "::2": False}
    for host, expected in (hosts | others).items():
        assert is_loopback(host) == expected


def test_command_checks_the_registry_too(registry: EmbeddedRegistry, capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedCluster(nodes=1) as cluster:
        cluster.create_topic("t", partitions=1)
        where = ["--bootstrap-server", cluster.bootstrap_servers, "--json"]
        assert run(["check", "t", "--registry", registry.url, *where]) == 0
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        assert [each["subject"] for each in found if each["step"] == "subject"] == ["t-value"]
        registry.close()
        assert run(["check", "t", "-X", f"schema.registry.url={registry.url}", *where]) == 1
