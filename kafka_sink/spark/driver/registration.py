"""Asks the schema registry for the ids of the schemas of a write, before any task.

Called in Spark's planner process or in the user's. What was answered is kept for the life of the process, because a
stream creates a writer for every micro-batch. Only this process asks: the tasks get the ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from kafka_sink.common.bounded import Latest, known_number
from kafka_sink.common.config import as_properties
from kafka_sink.common.errors import IncompatibleSchemaError, SchemaNotFoundError
from kafka_sink.common.tls_config import ClientSslConfig
from kafka_sink.formats.column_format import PROTOBUF, ColumnFormat, format_of
from kafka_sink.formats.schema_text import Reference, SchemaText
from kafka_sink.registry.config import RegistryConfig
from kafka_sink.registry.references import settled
from kafka_sink.registry.subjects import subject_name
from kafka_sink.spark.producer_spec import digest_of

if TYPE_CHECKING:
    from kafka_sink.registry.client import RegisteredSchema, RegistryClient

#: Where in a schema's JSON a registry found what it refuses.
_POINTER: Final = re.compile(r"path '((?:/[^/']+)+)'")
#: Which message and which number of a field one found what it refuses in.
_FIELD_POINTER: Final = re.compile(r"path '#/([\w.]+)/(\d+)'")


@dataclass
class Registration:
    """The ids of one registry's schemas, for rows of *topic*."""

    client: RegistryClient
    config: RegistryConfig
    _ids: dict[tuple[str, str, str], int] = field(default_factory=dict)
    _chosen: dict[str, RegisteredSchema] = field(default_factory=dict)
    _referred: dict[tuple[str, int], RegisteredSchema] = field(default_factory=dict)
    topic: str | None = None

    def with_references(self, schema: SchemaText, form: str) -> SchemaText:
        """*schema*, of the format *form*, with the texts of what it refers to in the registry.

        :raises RegistryError: if one is not there, or the registry cannot be reached.
        """
        return SchemaText(schema.text, tuple(self._with_text(each, form.upper()) for each in schema.references))

    def _with_text(self, reference: Reference, kind: str) -> Reference:
        if not reference.version:
            return reference
        place = reference.subject, reference.version
        if place not in self._referred:
            self._referred[place] = self.client.version(reference.subject, reference.version, kind)
        registered = self._referred[place]
        return replace(reference, schema=registered.schema, version=registered.version)

    def chosen(self, column: str, form: str) -> RegisteredSchema | None:
        """The schema of the column's subject, of the format *form*, that the options choose: the latest one, or the one
        with an id; None if they choose none.

        :raises RegistryError: if there is none, or the registry cannot be reached.
        """
        option = self.config.chosen(column)
        if option is None:
            return None
        subject = subject_name(self.config.strategy(column), column, self.topic, None)
        if subject not in self._chosen:
            try:
                self._chosen[subject] = self._choose(column, subject, form.upper())
            except SchemaNotFoundError as error:
                raise SchemaNotFoundError(
                    f"column '{column}': subject {subject} has no schema for {option} ({error}); register one, or set "
                    f"auto.register.schemas=true and remove {option.partition('=')[0]}"
                ) from None
        return self._chosen[subject]

    def _choose(self, column: str, subject: str, kind: str) -> RegisteredSchema:
        schema_id = self.config.id_for(column)
        if schema_id is None:
            return self.client.latest(subject, kind)
        from kafka_sink.registry.client import RegisteredSchema

        return RegisteredSchema(schema_id, 0, self.client.version_with(schema_id, subject, kind))

    def id_of(self, form: ColumnFormat) -> int:
        """The id of the column's schema, which is registered if the options allow it.

        :raises RegistryError: if the registry refuses it, does not know it, or cannot be reached; the text names the
            column.
        """
        subject, schema = subject_of(form, self.config, self.topic)
        key = _key(subject, schema)
        if key not in self._ids:
            self._ids[key] = self._ask(form, schema, subject)
        return self._ids[key]

    def registered(self, forms: Sequence[ColumnFormat]) -> tuple[ColumnFormat, int]:
        """The form among those of :meth:`Format.registrable` that a column is written in, and the id of its schema: an
        earlier one where it is a version of the subject, so that a topic gets no new schema; else the first.

        :raises RegistryError: as :meth:`id_of` does.
        """
        named = [(form, *subject_of(form, self.config, self.topic)) for form in forms]
        for form, subject, schema in named:
            if (key := _key(subject, schema)) in self._ids:
                return form, self._ids[key]
        for form, subject, schema in named[1:]:
            schema_id = self.client.find(subject, schema, form.name.upper())
            if schema_id is not None:
                self._ids[_key(subject, schema)] = schema_id
                return form, schema_id
        return forms[0], self.id_of(forms[0])

    def _ask(self, form: ColumnFormat, schema: SchemaText, subject: str) -> int:
        column, kind, is_registered = form.column, form.name.upper(), self.config.auto_register
        try:
            place = self.config.reference_subject
            schema = settled(schema, kind, self.client, place, is_registered=is_registered)
            if is_registered:
                return self.client.register(subject, schema, kind)
            return self.client.id_of(subject, schema, kind)
        except IncompatibleSchemaError as error:
            raise IncompatibleSchemaError(
                f"column '{_column_of(str(error), form)}': the registry refuses the schema of subject "
                f"{subject} ({error}); {_remedy(str(error), column)}"
            ) from None
        except SchemaNotFoundError as error:
            if is_registered:
                raise SchemaNotFoundError(
                    f"column '{column}': the schema of {subject} cannot be registered, because nothing is there "
                    f"({error}); check that schema.registry.url is the address of a schema registry"
                ) from None
            raise SchemaNotFoundError(
                f"column '{column}': its schema is not a version of subject {subject} ({error}); register it, or set "
                f"auto.register.schemas=true. The schema is {schema.text:.500}"
            ) from None


def _key(subject: str, schema: SchemaText) -> tuple[str, str, str]:
    """What *schema* of *subject* is known by: texts, and where the registry has them."""
    places = [(each.name, each.subject, each.version) for each in schema.references]
    return subject, schema.text, repr((places, schema.others()))


def subject_of(form: ColumnFormat, config: RegistryConfig, topic: str | None) -> tuple[str, SchemaText]:
    """The subject of the column's schema, and the schema as a registry gets it.

    :raises ConfigError: if the subject has no name; the text names the option.
    """
    written = format_of(form.name)
    subject = subject_name(config.strategy(form.column), form.column, topic, written.record_name(form))
    return subject, written.registered_schema(form)


def _remedy(refusal: str, column: str) -> str:
    """The remedy for a registry's *refusal* of the schema of *column*."""
    if "NAME_MISMATCH" in refusal:
        own = f"records of several types in one topic need {column}.subject.name.strategy=TopicRecordNameStrategy"
    elif "READER_FIELD_MISSING_DEFAULT_VALUE" in refusal:
        own = (
            "a new column has to be nullable, which nullif(column, lit(None)) makes it, or needs a schema with a "
            f"default for it (option {column}.schema)"
        )
    elif "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL" in refusal:
        own = "keep the column, with nulls in it: lit(None).cast(…)"
    elif "REQUIRED_ATTRIBUTE_ADDED" in refusal or "REQUIRED_PROPERTY_ADDED_TO_UNOPEN" in refusal:
        own = "the column has to be nullable, which nullif(column, lit(None)) makes it"
    else:
        own = "change the column"
    return f"{own}; or change the subject's compatibility, or write to another topic (docs/changing-a-schema.md)"


#: Each holds a client with its credentials, so those that were not used for long are forgotten.
_MOST: Final = 50
#: By the digest of the registry's options, and the topic.
_registrations: Final[Latest[tuple[bytes, str | None], Registration]] = Latest(_MOST)


def registration_of(config: RegistryConfig, tls: ClientSslConfig, topic: str | None) -> Registration | None:
    """The registry of these options, for rows of *topic*; None if they name none."""
    if not config.urls:
        return None
    key = digest_of(as_properties(config) | as_properties(tls)), topic
    registration = _registrations.get(key)
    if registration is None:
        # Only writes with a registry load its client.
        from kafka_sink.registry.client import RegistryClient

        registration = _registrations.put(key, Registration(RegistryClient(config, tls), config, topic=topic))
    return registration


def _column_of(refusal: str, form: ColumnFormat) -> str:
    """The path of the column that a registry's refusal points to, as far as it can be followed."""
    if form.name == PROTOBUF:
        from kafka_sink.formats.protobuf.column import messages_of

        match = _FIELD_POINTER.search(refusal)
        declared = messages_of(form)
        message = declared.messages[declared.root]
        # Of a message within another one the registry does not say where it is used.
        is_root = match is not None and message.name in (match[1], f"{message.name.rpartition('.')[0]}.{match[1]}")
        names = [each.name for each in message.fields if match and is_root and each.number == known_number(match[2])]
        return ".".join([form.column, *names])
    match = _POINTER.search(refusal)
    place: Any = json.loads(form.schema) if match else None
    path, before = form.column, ""
    for step in match[1].split("/")[1:] if match else ():
        place = place.get(step) if isinstance(place, Mapping) else _item(place, step)
        if before == "fields" and isinstance(place, Mapping):
            path += f".{place.get('name')}"
        elif before == "properties":
            path += f".{step}"
        before = step
    return path


def _item(place: Any, step: str) -> Any:
    number = known_number(step, 0, len(place) - 1) if isinstance(place, list) else None
    return None if number is None else place[number]
