"""Schemas as the registry stores them: validated, and in the form in which they are compared.

Called on any thread, without a lock. References are resolved with a function, and their schemas are not kept.

Source: https://docs.confluent.io/platform/current/schema-registry/develop/api.html,
https://docs.confluent.io/platform/current/schema-registry/fundamentals/data-contracts.html.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kafka_sink.common.errors import UnusableSchemaError
from kafka_sink.formats.avro.parsing import json_of, parse_schema
from kafka_sink.formats.avro.parsing import linked as linked_avro
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.json.parsing import json_of as json_schema_of
from kafka_sink.formats.json.parsing import parse_schema as parse_json_schema
from kafka_sink.formats.protobuf.descriptors import linked, pool_of
from kafka_sink.formats.protobuf.parsing import file_descriptor
from kafka_sink.formats.schema_text import SchemaText
from kafka_sink.registry.references import AVRO, JSON, KINDS, PROTOBUF, SubjectVersion, references_in, resolved
from kafka_sink.testing.registry.avro_judge import canonical, check_new, compact
from kafka_sink.testing.registry.avro_judge import problems as avro_problems
from kafka_sink.testing.registry.json_judge import problems as json_problems
from kafka_sink.testing.registry.protobuf_judge import problems as protobuf_problems
from kafka_sink.testing.registry.refusals import CannotJudgeError, RefusalError

#: Returns a version of a subject, as in the registry's answers.
Ask = Callable[[SubjectVersion], Mapping[str, Any]]
#: The parts that a schema may have in addition to its text and references.
CONTRACT: Final = ("metadata", "ruleSet")
#: Parts of a request that would change the schema, and are not supported.
_NOT_KEPT: Final = ("schemaTagsToAdd", "schemaTagsToRemove", "propagateSchemaTags")
_READ_OR_WRITTEN: Final = frozenset({"WRITE", "READ", "WRITEREAD"})
_MODES_OF_RULES: Final[Mapping[str, frozenset[str]]] = {
    "migrationRules": frozenset({"UPGRADE", "DOWNGRADE", "UPDOWN"}),
    "domainRules": _READ_OR_WRITTEN,
    "encodingRules": _READ_OR_WRITTEN,
}
_NAME_OF_RULE: Final = re.compile(r"[^\W\d][\w-]{0,63}")


@dataclass(frozen=True)
class KeptSchema:
    """A schema of one of :data:`KINDS`, the names and versions of its references, and its parts in :data:`CONTRACT`, if
    it has any."""

    kind: str
    text: str
    references: tuple[tuple[str, SubjectVersion], ...] = ()
    contract: Mapping[str, Any] = field(default_factory=dict)
    #: Equal for equal schemas; empty before it is parsed.
    guid: str = ""

    @classmethod
    def of(cls, shown: Mapping[str, Any]) -> KeptSchema:
        """The schema in the body of a request, or in the result of :meth:`shown`.

        :raises RefusalError: if it is invalid.
        """
        text, kind = shown.get("schema") or "", shown.get("schemaType") or AVRO
        if kind not in KINDS or not isinstance(text, str):
            raise RefusalError(42201, f"only {', '.join(KINDS)} are kept here")
        unkept = [name for name in _NOT_KEPT if shown.get(name)]
        if unkept:
            raise RefusalError(42201, f"this registry does not change schemas by {', '.join(unkept)}; leave it out")
        contract = {name: _without_nulls(shown[name]) for name in CONTRACT if shown.get(name) is not None}
        if not isinstance(contract.get("metadata", {}), Mapping):
            raise RefusalError(42201, f"metadata is {contract['metadata']!r:.60}, expected an object")
        _check_rules(contract.get("ruleSet", {}))
        try:
            references = references_in(shown.get("references") or (), "the schema")
        except UnusableSchemaError as error:
            raise RefusalError(42201, error) from None
        return cls(kind, text, tuple(references), contract, str(shown.get("guid") or ""))

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties of its metadata."""
        properties = self.contract.get("metadata", {}).get("properties")
        return properties if isinstance(properties, Mapping) else {}

    @property
    def identity(self) -> tuple[str, str]:
        """The key that is equal for equal schemas, once they are parsed."""
        return self.kind, self.guid

    def shown(self) -> dict[str, Any]:
        """The schema as in a registry's answers, without ``schemaType`` for Avro."""
        shown: dict[str, Any] = {} if self.kind == AVRO else {"schemaType": self.kind}
        if self.references:
            shown["references"] = [
                {"name": name, "subject": target.subject, "version": target.version} for name, target in self.references
            ]
        return {**shown, **self.contract, "guid": self.guid, "schema": self.text}

    def parsed(self, ask: Ask, *, is_normal: bool = False) -> KeptSchema:
        """This schema in the form in which it is stored, with its :attr:`guid`; with *is_normal*, in its normal form.

        :raises RefusalError: if it is no schema.
        """
        references = tuple(dict.fromkeys(sorted(self.references))) if is_normal else self.references
        whole = self.whole(ask)
        try:
            if self.kind == PROTOBUF:
                pool_of(linked(whole))
                text, words = self.text, file_descriptor(linked(whole), is_named=False)
            elif self.kind == JSON:
                parse_json_schema(whole)
                text = words = compact(json_schema_of(self.text), is_sorted=is_normal)
            else:
                parse_schema(linked_avro(whole), is_read=True)
                check_new(json_of(linked_avro(whole)))
                text = words = canonical(json_of(self.text), is_normal=is_normal)
        except FormatError as error:
            raise RefusalError(42201, error) from None
        return replace(self, text=text, references=references, guid=_guid(words, references, self.contract))

    def whole(self, ask: Ask) -> SchemaText:
        """This schema with all schemas that it refers to. :raises RefusalError: if one is missing, or invalid."""
        try:
            return resolved("the schema", self.shown(), self.kind, ask)
        except UnusableSchemaError as error:
            raise RefusalError(42201, error) from None

    def is_found_as(self, kept: KeptSchema, ask: Ask) -> bool:
        """Whether a lookup of this schema finds *kept*: they are equal, or this has the references of *kept* inline.

        Both are parsed."""
        if self.identity == kept.identity:
            return True
        is_written_out = self.kind == kept.kind == AVRO and bool(kept.references) and not self.references
        return is_written_out and self.text == canonical(json_of(linked_avro(kept.whole(ask))))

    def serialized(self, ask: Ask) -> str:
        """The descriptor in base64 for Protobuf, for clients that do not parse texts; the text for other formats."""
        return file_descriptor(linked(self.whole(ask))) if self.kind == PROTOBUF else self.text


def problems(reader: KeptSchema, writer: KeptSchema, ask: Ask) -> list[str]:
    """The reasons why data of *writer* cannot be read by *reader*; empty if it can. Both are parsed.

    :raises RefusalError: if no judge can compare them.
    """
    if reader.kind != writer.kind:
        return [f"Incompatible because of different schema type: it is {reader.kind}, and was {writer.kind}"]
    if reader.guid == writer.guid:
        return []
    judge = {AVRO: avro_problems, JSON: json_problems, PROTOBUF: protobuf_problems}[reader.kind]
    try:
        return judge(reader.whole(ask), writer.whole(ask))
    except (CannotJudgeError, FormatError) as error:
        raise RefusalError(42205, error) from None
    except RecursionError:
        raise RefusalError(42205, CannotJudgeError("schemas of so many levels")) from None


def _guid(words: str, references: tuple[tuple[str, SubjectVersion], ...], contract: Mapping[str, Any]) -> str:
    """The GUID, the same as in Confluent's registry for Avro and JSON schemas without metadata and rules."""
    md5 = hashlib.md5(words.encode(), usedforsecurity=False)
    for name, reference in references:
        md5.update(f"{name}{reference.subject}".encode() + reference.version.to_bytes(4, "big", signed=True))
    for name in sorted(contract):
        md5.update(b"\1" + compact(contract[name], is_sorted=True).encode())
    return str(uuid.UUID(bytes=md5.digest()))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _check_rules(rules: Any) -> None:
    """:raises RefusalError: if *rules* is no set of rules that Confluent's registry accepts."""
    names: set[str] = set()
    listed = rules.items() if isinstance(rules, Mapping) else [("ruleSet", None)]
    for name, entries in listed:
        modes = _MODES_OF_RULES.get(name)
        if name == "enableAt":
            continue
        if modes is None or not isinstance(entries, list):
            raise RefusalError(42210, f"expected lists of {', '.join(_MODES_OF_RULES)}")
        for rule in entries:
            problem = _problem_of(rule, modes, names)
            if problem is not None:
                raise RefusalError(42210, problem)
            names.add(rule["name"])


def _problem_of(rule: Any, modes: frozenset[str], names: set[str]) -> str | None:
    name = rule.get("name") if isinstance(rule, Mapping) else None
    if not isinstance(name, str) or not _NAME_OF_RULE.fullmatch(name):
        return f"a rule has the name {name!r:.80}, expected letters, digits, _ and -"
    if name in names:
        return f"Found rule with duplicate name '{name}'"
    if rule.get("type") is None:
        return f"rule {name} has no type"
    if rule.get("mode") not in modes:
        return f"rule {name} has the mode {rule.get('mode')!r:.40}, expected one of {', '.join(sorted(modes))}"
    return None
