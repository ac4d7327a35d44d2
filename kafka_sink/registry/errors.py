"""The errors of a schema registry and of the way to it. Addresses appear without user and password."""

from __future__ import annotations

from kafka_sink.common.errors import KafkaError


class RegistryError(KafkaError):
    """The registry refused a request, answered with something else, or could not be reached."""


class RegistryUnavailableError(RegistryError):
    """The registry, or what gives tokens for it, could not be reached, or failed itself: it concerns every request."""


class RegistryDeniedError(RegistryError):
    """The registry refused the credentials, or they do not allow the request."""


class IncompatibleSchemaError(RegistryError):
    """The registry refused a schema because it is not compatible with an earlier one of its subject."""


class SchemaNotFoundError(RegistryError):
    """The registry has no such subject, version or schema."""


class UnusableSchemaError(RegistryError):
    """A schema is of another type than is expected, or what it refers to cannot be used."""
