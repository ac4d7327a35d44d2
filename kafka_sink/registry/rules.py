"""The rules of a schema's data contract that Confluent's serializers run for each record that they write: encryption of
fields, conditions and transformations. They are not run here, so a schema that has some cannot be written by.

Called by the client. Rules of reading and of migration concern deserializers, and those that are disabled nobody.

Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/data-contracts.html; confluent-kafka's
``BaseSerde._execute_rules_with_phase``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kafka_sink.common.errors import UnusableSchemaError
from kafka_sink.common.text import printable

_OF_WRITING: Final = ("domainRules", "encodingRules")
_MODES: Final = ("WRITE", "WRITEREAD")
#: Where rules are run, if nothing is said or by these words, it is in clients.
_IN_CLIENTS: Final = (None, "ALL", "CLIENT")
_MOST_SHOWN: Final = 5
_SHOWN: Final = 300


def check_rules(subject: str, answer: Mapping[str, Any]) -> None:
    """Check the schema in *answer*, a version of *subject*, which is to be written by.

    :raises UnusableSchemaError: if it has rules of writing; the text names them and their types.
    """
    rules = answer.get("ruleSet")
    if not isinstance(rules, Mapping) or rules.get("enableAt") not in _IN_CLIENTS:
        return
    lists = [rules[name] for name in _OF_WRITING if isinstance(rules.get(name), list)]
    found = [
        f"{rule.get('name')} ({rule.get('type')})"
        for rule in (each for entries in lists for each in entries if isinstance(each, Mapping))
        if rule.get("mode") in _MODES and not rule.get("disabled")
    ]
    if found:
        shown = ", ".join(found[:_MOST_SHOWN]) + (", …" if len(found) > _MOST_SHOWN else "")
        raise UnusableSchemaError(
            f"the schema of subject {subject} has rules that Confluent's serializers run for each record, and that are "
            f"not run here: {printable(shown)[:_SHOWN]}; write by a version without them (use.schema.id), or with a "
            "serializer of Confluent's"
        )
