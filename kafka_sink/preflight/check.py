"""The check of a target from one place: the list of its steps, with those about a schema registry, and their findings.

Called on the main thread of the command line, on Spark's driver, and in an executor's task, which uses no registry.
It opens connections, closes them at its end, and writes and registers nothing.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import KafkaError, RegistryError, SchemaNotFoundError
from kafka_sink.formats.schema_text import SchemaText
from kafka_sink.http.exchange import Server
from kafka_sink.preflight.cluster_steps import INTERNAL_TOPICS, READ, WRITE, ExactlyOnceSteps, TopicSteps, versions_step
from kafka_sink.preflight.connection_steps import ConnectionSteps
from kafka_sink.preflight.findings import (
    CheckTarget,
    Finding,
    RegistryTarget,
    Status,
    Step,
    SubjectTarget,
    required,
    run_steps,
    split_advice,
)
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.config import RegistryConfig, registry_configs
from kafka_sink.registry.references import AVRO, with_versions

_REGISTRY: Final = "schema registry"
_SUBJECT: Final = "subject"
_TIMEOUT_MS: Final = 10_000
_OR_ALLOW_IT: Final = "or set auto.register.schemas=true"


@dataclass
class RegistrySteps:
    """The steps about a schema registry, and its client once a step has created it."""

    target: RegistryTarget
    clock: Clock
    _config: RegistryConfig | None = field(default=None, init=False)
    _client: RegistryClient | None = field(default=None, init=False)

    def steps(self) -> list[Step]:
        """One step for the addresses, and one for each subject."""
        url = self.target.properties.get("schema.registry.url", "")
        # A password may contain any character, also a comma.
        shown = "schema.registry.url" if "@" in url else url
        subjects = [
            Step(_SUBJECT, subject.name, lambda of=subject: [self._subject(of)], (_REGISTRY,))  # type: ignore[misc]
            for subject in self.target.subjects
        ]
        return [Step(_REGISTRY, shown, self._addresses), *subjects]

    def _addresses(self) -> list[Finding]:
        config, tls = registry_configs(self.target.properties)
        findings = []
        client = partial(RegistryClient, tls=tls, clock=self.clock, timeout_ms=_TIMEOUT_MS, rounds=1)
        for url in config.urls:
            findings += _address(client(replace(config, urls=(url,))), Server.parse(url).shown)
        self._config, self._client = config, client(config)
        if not any(finding.status is Status.OK for finding in findings):
            return findings
        # One of several addresses is enough for a write.
        return [finding.as_warning() for finding in findings]

    def _subject(self, subject: SubjectTarget) -> Finding:
        client, config = required(self._client, _REGISTRY), required(self._config, _REGISTRY)
        kind = subject.kind or AVRO
        try:
            latest = client.latest(subject.name, kind)
        except SchemaNotFoundError:
            if config.auto_register:
                return Finding(_SUBJECT, subject.name, Status.OK, "has no schema yet; the write registers the first")
            return Finding(_SUBJECT, subject.name, Status.FAILED, "has no schema", f"register one, {_OR_ALLOW_IT}")
        except RegistryError as error:
            return Finding(_SUBJECT, subject.name, Status.FAILED, *split_advice(str(error)))
        text = f"{kind}, the latest schema has the id {latest.schema_id}"
        if config.chosen(subject.column) is not None or (subject.schema is None and not subject.is_derived):
            return Finding(_SUBJECT, subject.name, Status.OK, text)
        if subject.schema is None:
            text += "; it was not compared with the schema that is derived from the column"
            what_to_do = "name the columns: kafka_sink.check(spark, options, schema=df.schema)"
            return Finding(_SUBJECT, subject.name, Status.WARNING, text, what_to_do)
        origin = "derived" if subject.is_derived else "given"
        return self._compared(subject, subject.schema, f"{text}; the {origin} schema")

    def _compared(self, subject: SubjectTarget, schema: SchemaText, text: str) -> Finding:
        client, config = required(self._client, _REGISTRY), required(self._config, _REGISTRY)
        kind = subject.kind or AVRO
        try:
            schema = with_versions(schema, kind, client, config.reference_subject, is_registered=False)
        except SchemaNotFoundError as error:
            if config.auto_register:
                text += " refers to schemas that are not there yet; the write registers them"
                return Finding(_SUBJECT, subject.name, Status.OK, text)
            text += f" refers to a schema that is not there ({error})"
            return Finding(_SUBJECT, subject.name, Status.FAILED, text, f"register it, {_OR_ALLOW_IT}")
        for version in (schema, *subject.earlier):
            schema_id = client.find(subject.name, version, kind)
            if schema_id is not None:
                return Finding(_SUBJECT, subject.name, Status.OK, f"{text} is compatible: it has the id {schema_id}")
        if not config.auto_register:
            text += " is not a version of it"
            return Finding(_SUBJECT, subject.name, Status.FAILED, text, f"register it, {_OR_ALLOW_IT}")
        if reasons := client.incompatibilities(subject.name, schema, kind):
            changed = f"{subject.column}.schema" if not subject.is_derived else f"the column {subject.column}"
            text = f"{text} is not compatible: {'; '.join(reasons)}"
            what_to_do = f"change {changed}, or the subject's compatibility (docs/changing-a-schema.md)"
            return Finding(_SUBJECT, subject.name, Status.FAILED, text, what_to_do)
        return Finding(_SUBJECT, subject.name, Status.OK, f"{text} is compatible")


def _address(client: RegistryClient, shown: str) -> list[Finding]:
    """The finding at one address, and a warning if a secret is sent to it without encryption."""
    try:
        types = ", ".join(client.types())
    except KafkaError as error:
        return [Finding(_REGISTRY, shown, Status.FAILED, *split_advice(str(error)))]
    findings = [Finding(_REGISTRY, shown, Status.OK, f"knows {types}")]
    if client.open_servers:
        text, what_to_do = "are sent over plain http, where others can read them", "use an address with https://"
        findings.append(Finding("registry's credentials", shown, Status.WARNING, text, what_to_do))
    return findings


def check_connections(target: CheckTarget, place: str, *, clock: Clock = SYSTEM_CLOCK) -> list[Finding]:
    """The findings that depend on the machine: its files, names, and the brokers' addresses."""
    with closing(ConnectionSteps(target, (), clock)) as connection:
        return list(run_steps(connection.steps(), place))


def check_all(target: CheckTarget, place: str, *, clock: Clock = SYSTEM_CLOCK) -> list[Finding]:
    """The findings of :func:`check_connections`, and those about the cluster, its topics and the schema registry."""
    sink = target.exactly_once
    progress = None if sink is None else sink.progress_topic
    of_sink = [] if sink is None else [sink.progress_topic, *INTERNAL_TOPICS.values()]
    with closing(ConnectionSteps(target, list(dict.fromkeys([*target.topics, *of_sink])), clock)) as connection:
        steps = [*connection.steps(), versions_step(connection, exactly_once=sink is not None)]
        for topic in dict.fromkeys(target.topics):
            operations = (WRITE, READ) if topic == progress else (WRITE,)
            new = next((new for new in target.new_topics if new.name == topic), None)
            steps += TopicSteps(topic, connection, operations, may_be_created=topic != progress, new_topic=new).steps()
        if progress is not None and progress not in target.topics:
            steps += TopicSteps(progress, connection, (READ,), may_be_created=False).steps()
        if sink is not None:
            steps += ExactlyOnceSteps(sink, connection).steps()
        if target.registry is not None:
            steps += RegistrySteps(target.registry, clock).steps()
        return list(run_steps(steps, place))
