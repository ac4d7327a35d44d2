"""The steps about a schema registry: its addresses with TLS and credentials, and the subjects of a job.

Run from the driver alone, because tasks never ask a registry. Nothing is registered.
"""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from functools import partial
from typing import Final

from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import KafkaError, RegistryError, SchemaNotFoundError
from kafka_sink.formats.schema_text import SchemaText
from kafka_sink.http.exchange import Server
from kafka_sink.preflight.findings import Finding, Status, Step, known, split_advice
from kafka_sink.preflight.target import RegistryTarget, SubjectTarget
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.config import RegistryConfig, registry_configs
from kafka_sink.registry.references import AVRO, settled

_REGISTRY: Final = "schema registry"
_SUBJECT: Final = "subject"
_TIMEOUT_MS: Final = 10_000


class RegistrySteps:
    """The steps, and the registry as far as it was found."""

    def __init__(self, target: RegistryTarget, clock: Clock) -> None:
        self._target = target
        self._clock = clock
        self._config: RegistryConfig | None = None
        self._client: RegistryClient | None = None

    def steps(self) -> list[Step]:
        """One step for the addresses, and one for each subject."""
        url = self._target.properties.get("schema.registry.url", "")
        shown = ", ".join(each.rpartition("@")[2] for each in url.split(","))
        subjects = [
            Step(_SUBJECT, each.name, lambda each=each: [self._subject(each)], (_REGISTRY,))  # type: ignore[misc]
            for each in self._target.subjects
        ]
        return [Step(_REGISTRY, shown, self._addresses), *subjects]

    def _addresses(self) -> list[Finding]:
        config, tls = registry_configs(self._target.properties)
        findings = []
        client = partial(RegistryClient, tls=tls, clock=self._clock, timeout_ms=_TIMEOUT_MS, rounds=1)
        for url in config.urls:
            findings += _address(url, config, client(replace(config, urls=(url,))))
        usable = [each for each in findings if each.status is Status.OK]
        self._config, self._client = config, client(config)
        if not usable:
            return findings
        # One of several addresses is enough for a write.
        return [replace(each, status=Status.WARNING) if each.status is Status.FAILED else each for each in findings]

    def _subject(self, subject: SubjectTarget) -> Finding:
        client, config = known(self._client, _REGISTRY), known(self._config, _REGISTRY)
        kind = subject.kind or AVRO
        try:
            latest = client.latest(subject.name, kind)
        except SchemaNotFoundError:
            return _of_missing_subject(subject.name, config)
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
        client, config = known(self._client, _REGISTRY), known(self._config, _REGISTRY)
        kind = subject.kind or AVRO
        try:
            schema = settled(schema, kind, client, config.reference_subject, is_registered=False)
        except SchemaNotFoundError as error:
            return _of_missing_reference(subject.name, text, str(error), config)
        for each in (schema, *subject.earlier):
            schema_id = client.find(subject.name, each, kind)
            if schema_id is not None:
                return Finding(_SUBJECT, subject.name, Status.OK, f"{text} is compatible: it has the id {schema_id}")
        if not config.auto_register:
            what_to_do = "register it, or set auto.register.schemas=true"
            return Finding(_SUBJECT, subject.name, Status.FAILED, f"{text} is not a version of it", what_to_do)
        if reasons := client.incompatibilities(subject.name, schema, kind):
            changed = f"{subject.column}.schema" if not subject.is_derived else f"the column {subject.column}"
            text = f"{text} is not compatible: {'; '.join(reasons)}"
            what_to_do = f"change {changed}, or the subject's compatibility (docs/changing-a-schema.md)"
            return Finding(_SUBJECT, subject.name, Status.FAILED, text, what_to_do)
        return Finding(_SUBJECT, subject.name, Status.OK, f"{text} is compatible")


def _address(url: str, config: RegistryConfig, client: RegistryClient) -> list[Finding]:
    """The finding at one address, and a warning if a secret is sent to it without encryption."""
    server = Server.parse(url)
    try:
        types = ", ".join(client.types())
    except KafkaError as error:
        return [Finding(_REGISTRY, server.shown, Status.FAILED, *split_advice(str(error)))]
    findings = [Finding(_REGISTRY, server.shown, Status.OK, f"knows {types}")]
    has_secret = bool(config.user_info or config.bearer_token or config.client_secret or server.credentials)
    if has_secret and server.scheme == "http" and not is_loopback(server.host):
        text, what_to_do = "are sent over plain http, where others can read them", "use an address with https://"
        findings.append(Finding("registry's credentials", server.shown, Status.WARNING, text, what_to_do))
    return findings


def is_loopback(host: str) -> bool:
    """Whether *host*, a name or an address, is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _of_missing_reference(name: str, text: str, error: str, config: RegistryConfig) -> Finding:
    if config.auto_register:
        text += " refers to schemas that are not there yet; the write registers them"
        return Finding(_SUBJECT, name, Status.OK, text)
    text += f" refers to a schema that is not there ({error})"
    return Finding(_SUBJECT, name, Status.FAILED, text, "register it, or set auto.register.schemas=true")


def _of_missing_subject(name: str, config: RegistryConfig) -> Finding:
    if config.auto_register:
        return Finding(_SUBJECT, name, Status.OK, "has no schema yet; the write registers the first")
    return Finding(_SUBJECT, name, Status.FAILED, "has no schema", "register one, or set auto.register.schemas=true")
