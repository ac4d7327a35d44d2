"""The options of a schema registry, under Confluent's names.

Read once on the driver. References to secrets are replaced when a connection is made, so no secret is pickled.

Source: https://docs.confluent.io/platform/current/schema-registry/sr-client-configs.html.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Self

from kafka_sink.common import config as c
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.references import PROVIDERS, has_reference
from kafka_sink.common.sasl_mechanisms import OAUTHBEARER
from kafka_sink.common.tls_config import ClientSslConfig

#: The prefix of the options for TLS, which have Kafka's names after it, and of alternative names of login options.
SSL_PREFIX: Final = "schema.registry."

URL: Final = "schema.registry.url"

_USER_INFO: Final = "USER_INFO"
_HIGHEST_ID: Final = 2**31 - 1


_DEFAULT_REFERENCE: Final = "DefaultReferenceSubjectNameStrategy"
_QUALIFIED_REFERENCE: Final = "QualifiedReferenceSubjectNameStrategy"


class SubjectNameStrategy(StrEnum):
    """The strategy that names a subject. The full names of Confluent's classes are accepted, too."""

    TOPIC = "TopicNameStrategy"
    RECORD = "RecordNameStrategy"
    TOPIC_RECORD = "TopicRecordNameStrategy"


_STRATEGY: Final = c.ConfigType("a strategy", lambda text: str(text).strip().rpartition(".")[2])
_ONE_OF_STRATEGIES: Final = c.one_of(*SubjectNameStrategy)


@dataclass(frozen=True)
class RegistryConfig(c.Options):
    """The addresses of the registry, the credentials, and the schemas to register or to look up."""

    urls: tuple[str, ...] = c.LIST(
        (),
        "http:// or https:// addresses of a schema registry, tried in turn; payloads then have Confluent's wire format",
        c.Validator(
            "addresses that begin with http:// or https://",
            lambda urls: all(url.startswith(("http://", "https://")) for url in urls),
        ),
        name=URL,
        is_address=True,
    )
    credentials_source: str = c.STRING(
        "URL",
        "where user and password for the registry are: in its address, or (by default, where it is set) in "
        "basic.auth.user.info",
        c.one_of("URL", _USER_INFO),
        name="basic.auth.credentials.source",
    )
    user_info: str = c.STRING(
        "", "USER:PASSWORD for the registry, or a reference to it", name="basic.auth.user.info", sensitive=True
    )
    bearer_token: str = c.STRING(
        "", "token for the registry, or a reference to it", name="bearer.auth.token", sensitive=True
    )
    bearer_source: str = c.STRING(
        "STATIC_TOKEN",
        "where the token for the registry is: in bearer.auth.token, or (OAUTHBEARER, by default where "
        "bearer.auth.issuer.endpoint.url is set) at a token endpoint",
        c.one_of("STATIC_TOKEN", OAUTHBEARER),
        name="bearer.auth.credentials.source",
    )
    issuer_url: str = c.STRING(
        "",
        "https:// address of the token endpoint, for OAUTHBEARER",
        name="bearer.auth.issuer.endpoint.url",
        is_address=True,
    )
    client_id: str = c.STRING(
        "", "the client's id at the token endpoint, or a reference to it", name="bearer.auth.client.id"
    )
    client_secret: str = c.STRING(
        "",
        "the client's secret at the token endpoint, or a reference to it",
        name="bearer.auth.client.secret",
        sensitive=True,
    )
    scope: str = c.STRING("", "scope of the token", name="bearer.auth.scope")
    logical_cluster: str = c.STRING(
        "", "the registry's logical cluster in Confluent Cloud", name="bearer.auth.logical.cluster"
    )
    identity_pool: str = c.STRING("", "identity pool in Confluent Cloud", name="bearer.auth.identity.pool.id")
    auto_register: bool = c.BOOLEAN(
        True,
        "register the schema before the tasks begin, if the registry allows it; false: the registry must have the "
        "schema; false "
        "by default with use.latest.version=true and use.schema.id",
        name="auto.register.schemas",
    )
    use_latest: bool = c.BOOLEAN(
        False, "write by the latest schema of the subject, to which the columns must fit", name="use.latest.version"
    )
    schema_id: int | None = c.INT(
        None,
        "write by the schema with this id, a version of the subject, to which the columns must fit; where keys and "
        "values have a format, key.use.schema.id and value.use.schema.id instead",
        c.between(0, _HIGHEST_ID),
        name="use.schema.id",
    )
    key_schema_id: int | None = c.INT(
        None, "write keys by the schema with this id", c.between(0, _HIGHEST_ID), name="key.use.schema.id"
    )
    value_schema_id: int | None = c.INT(
        None, "write values by the schema with this id", c.between(0, _HIGHEST_ID), name="value.use.schema.id"
    )
    latest_strict: bool = c.BOOLEAN(
        True,
        "with use.latest.version=true or use.schema.id, refuse columns that do not fit the JSON Schema; false: write "
        "them all the same; Avro and Protobuf cannot be written by a schema that the columns do not fit",
        name="latest.compatibility.strict",
    )
    normalize: bool = c.BOOLEAN(False, "the registry compares schemas in their normal form", name="normalize.schemas")
    key_strategy: str = _STRATEGY(
        SubjectNameStrategy.TOPIC.value,
        "name of the subject of keys",
        _ONE_OF_STRATEGIES,
        name="key.subject.name.strategy",
    )
    value_strategy: str = _STRATEGY(
        SubjectNameStrategy.TOPIC.value,
        "name of the subject of values",
        _ONE_OF_STRATEGIES,
        name="value.subject.name.strategy",
    )

    reference_strategy: str = _STRATEGY(
        _DEFAULT_REFERENCE,
        "name of the subject of a schema that another one refers to: the name of the reference, or (Qualified…) an "
        "import of Protobuf with dots for slashes and without .proto",
        c.one_of(_DEFAULT_REFERENCE, _QUALIFIED_REFERENCE),
        name="reference.subject.name.strategy",
    )

    def reference_subject(self, name: str) -> str:
        """The subject of a schema to which others refer as *name*."""
        is_qualified = self.reference_strategy == _QUALIFIED_REFERENCE and name.endswith(".proto")
        return name.removesuffix(".proto").replace("/", ".") if is_qualified else name

    def strategy(self, column: str) -> str:
        """The strategy that names the subject of *column* (``key`` or ``value``)."""
        return self.key_strategy if column == "key" else self.value_strategy

    def settle(self, explicit: Collection[str]) -> Self:
        """Derive the registration of schemas and the sources of credentials from other options, unless they are set."""
        changes: dict[str, Any] = {}
        if any(map(self.chosen, ("key", "value"))) and "auto.register.schemas" not in explicit:
            changes["auto_register"] = False
        if self.user_info and "basic.auth.credentials.source" not in explicit:
            changes["credentials_source"] = _USER_INFO
        if self.is_of_endpoint and "bearer.auth.credentials.source" not in explicit:
            changes["bearer_source"] = OAUTHBEARER
        return replace(self, **changes)

    def check(self) -> None:
        """:raises ConfigError: if options contradict each other."""
        if not self.urls:
            if self != RegistryConfig():
                raise ConfigError(
                    "options of a schema registry are set without schema.registry.url; set it too",
                    option="schema.registry.url",
                )
            return
        if (self.credentials_source == _USER_INFO) != bool(self.user_info):
            raise ConfigError(
                f"basic.auth.credentials.source={_USER_INFO} and basic.auth.user.info belong together: set both, or "
                "none",
                option="basic.auth.credentials.source",
            )
        if self.user_info and self.bearer_token:
            raise ConfigError(
                "basic.auth.user.info and bearer.auth.token exclude each other; remove one of them",
                option="basic.auth.user.info",
            )
        self._check_token_endpoint()
        own = next((name for name in self._ids if name != "use.schema.id"), None)
        if self._ids and (self.use_latest or (own is not None and self.schema_id is not None)):
            other = "use.latest.version" if self.use_latest else "use.schema.id"
            raise ConfigError(
                f"{other} and {own or 'use.schema.id'} exclude each other; remove one of them", option=other
            )
        for column in ("key", "value"):
            chosen = self.chosen(column)
            if chosen is not None and self.auto_register and own is None:
                raise ConfigError(
                    f"{chosen} has no effect while schemas are registered; set auto.register.schemas=false",
                    option=chosen.partition("=")[0],
                )
            if chosen is not None and self.strategy(column) != SubjectNameStrategy.TOPIC:
                raise ConfigError(
                    f"{chosen} needs {SubjectNameStrategy.TOPIC}: the name of the record is in the schema that is "
                    f"looked for; remove {column}.subject.name.strategy",
                    option=chosen.partition("=")[0],
                )

    @property
    def _ids(self) -> dict[str, int]:
        ids = {"": self.schema_id, "key.": self.key_schema_id, "value.": self.value_schema_id}
        return {f"{prefix}use.schema.id": schema_id for prefix, schema_id in ids.items() if schema_id is not None}

    def id_for(self, column: str) -> int | None:
        """The id of the schema by which *column* (``key`` or ``value``) is written; None if none is set."""
        return self._ids.get(f"{column}.use.schema.id", self.schema_id)

    def chosen(self, column: str) -> str | None:
        """The option, as ``name=value``, that selects a registered schema for *column*; None if there is none."""
        for name in (f"{column}.use.schema.id", "use.schema.id"):
            if name in self._ids:
                return f"{name}={self._ids[name]}"
        return "use.latest.version=true" if self.use_latest else None

    @property
    def is_of_endpoint(self) -> bool:
        """Whether an option is set that only a token endpoint needs."""
        return any((self.issuer_url, self.client_id, self.client_secret, self.scope))

    def _check_token_endpoint(self) -> None:
        if self.bearer_source != OAUTHBEARER:
            if self.is_of_endpoint:
                raise ConfigError(
                    "bearer.auth.issuer.endpoint.url, ….client.id, ….client.secret and ….scope are for "
                    f"bearer.auth.credentials.source={OAUTHBEARER}; set it, or remove them",
                    option="bearer.auth.credentials.source",
                )
        elif not all((self.issuer_url, self.client_id, self.client_secret)):
            raise ConfigError(
                f"bearer.auth.credentials.source={OAUTHBEARER} needs bearer.auth.issuer.endpoint.url, "
                "bearer.auth.client.id and bearer.auth.client.secret; set all of them",
                option="bearer.auth.credentials.source",
            )
        elif self.bearer_token or self.user_info:
            raise ConfigError(
                f"bearer.auth.credentials.source={OAUTHBEARER} excludes bearer.auth.token and basic.auth.user.info; "
                "remove them",
                option="bearer.auth.credentials.source",
            )


_NO_RULES: Final = "the rules of data contracts are not run"
_IN_HEADER: Final = "the id of a schema stands before the payload"
#: Options of Confluent's serializers that change the payloads → the value that corresponds to this package's payloads
#: (empty if there is none), and the alternative or the reason.
_OF_ONE_VALUE: Final[Mapping[str, tuple[str, str]]] = {
    "use.latest.with.metadata": ("", "set use.schema.id to the id of the version that has this metadata"),
    "context.name.strategy": ("", "name the context in schema.registry.url (…/contexts/NAME)"),
    "subject.name.strategy": ("", "set key.subject.name.strategy or value.subject.name.strategy"),
    "subject.name.strategy.type": ("", "set key.subject.name.strategy or value.subject.name.strategy"),
    "subject.name.strategy.conf": ("", "set key.subject.name.strategy or value.subject.name.strategy"),
    "rule.executors": ("", _NO_RULES),
    "rule.actions": ("", _NO_RULES),
    "validation.rules.execution": ("disabled", _NO_RULES),
    "validation.rules.executor": ("", _NO_RULES),
    "schema.id.serializer": ("prefixschemaidserializer", _IN_HEADER),
    "key.schema.id.serializer": ("prefixschemaidserializer", _IN_HEADER),
    "value.schema.id.serializer": ("prefixschemaidserializer", _IN_HEADER),
    "json.default.property.inclusion": ("non_null", "null fields are left out where the schema does not require them"),
    "json.write.dates.iso8601": ("true", "dates and timestamps are texts of ISO 8601"),
    "json.schema.spec.version": ("draft_7", "schemas that are derived are of draft 7; give another one"),
    "json.oneof.for.nullables": ("true", "schemas that are derived have oneOf with null; give another one"),
    "skip.known.types": ("true", "the types of google.protobuf are not registered"),
    "use.deprecated.format": ("false", "the position of a message is written as Confluent's Java serializer does"),
    "reference.lookup.only": ("false", "set auto.register.schemas=false, which looks up schemas and references"),
    "propagate.schema.tags": ("false", "schemas are registered as they are given"),
}


#: Option of Confluent's client for Python → the option here.
_TLS_OF_PYTHON: Final[Mapping[str, str]] = {
    "ssl.ca.location": "ssl.truststore.location (PEM)",
    "ssl.certificate.location": "ssl.keystore.location, a PEM file with the private key and the certificates",
    "ssl.key.location": "ssl.keystore.location, a PEM file with the private key and the certificates",
}


def check_of_serializers(name: str, value: str) -> None:
    """Check the *value* of an option of Confluent's serializers that this package lacks (*name*, in lower case).

    :raises ConfigError: if the value would change the payloads.
    """
    option = next((option for option in ("rule.executors", "rule.actions") if name.startswith(f"{option}.")), name)
    taken, reason = _OF_ONE_VALUE[option]
    if not taken or value.strip().lower().rpartition(".")[2] != taken:
        shown, only = repr(value) if name == option else c.REDACTED, f", expected {taken}" if taken else ""
        raise ConfigError.of(name, f": {shown} would change the payloads{only}: {reason}; remove it")


def is_of_serializers(name: str) -> bool:
    """Whether the option *name*, in lower case, is one that :func:`check_of_serializers` checks."""
    return name in _OF_ONE_VALUE or name.startswith(("rule.executors.", "rule.actions."))


def is_of_registry(name: str) -> bool:
    """Whether the option *name*, in lower case, is one of the registry's."""
    return _own_name(name) in c.keys(RegistryConfig) or name.startswith(f"{SSL_PREFIX}ssl.")


def _own_name(name: str) -> str:
    """The option *name* without a prefix: Confluent's clients also accept login options with the prefix for TLS."""
    login = name.removeprefix(SSL_PREFIX)
    return login if login.startswith(("basic.auth.", "bearer.auth.")) else name


def _by_own_names(properties: Mapping[str, str]) -> dict[str, str]:
    """:raises ConfigError: if an option is set under both of its names, to different values."""
    own: dict[str, str] = {}
    for name, value in properties.items():
        if own.setdefault(_own_name(name), value) != value:
            raise ConfigError(
                f"{_own_name(name)} is set twice, also as {SSL_PREFIX}{_own_name(name)}; remove one",
                option=_own_name(name),
            )
    return own


def registry_configs(properties: Mapping[str, str]) -> tuple[RegistryConfig, ClientSslConfig]:
    """The options of the registry, and the options of TLS connections to it.

    :raises ConfigError: if an option is unknown or invalid, or options contradict each other.
    """
    properties = _by_own_names(properties)
    of_registry = c.known_to(RegistryConfig, properties)
    of_tls = {name.removeprefix(SSL_PREFIX): value for name, value in properties.items() if name not in of_registry}
    config = c.parse(RegistryConfig, of_registry)
    config.check()
    for name in of_tls.keys() & _TLS_OF_PYTHON.keys():
        raise ConfigError(
            f"unknown option {SSL_PREFIX}{name}: set {SSL_PREFIX}{_TLS_OF_PYTHON[name]}", option=f"{SSL_PREFIX}{name}"
        )
    if of_tls and not config.urls:
        raise ConfigError(
            f"options {SSL_PREFIX}ssl.… are set without schema.registry.url; set it too", option="schema.registry.url"
        )
    return config, c.parse(ClientSslConfig, of_tls, prefix=SSL_PREFIX)


def registry_secrets(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the options with a secret instead of a reference to one."""
    sensitive = {name for name, (entry, _) in c.keys(RegistryConfig).items() if entry.sensitive}
    sensitive |= {f"{SSL_PREFIX}{name}" for name, (entry, _) in c.keys(ClientSslConfig).items() if entry.sensitive}
    sensitive |= {name for name, value in properties.items() if name == URL and "@" in value}
    return tuple(
        name
        for name, value in properties.items()
        if _own_name(name) in sensitive and value and not has_reference(value, PROVIDERS)
    )
