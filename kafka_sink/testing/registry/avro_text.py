"""The text of an Avro schema as Avro's own library writes it, so that the same schema in other words is the same text.

The registry keeps and compares schemas by it; its judges read them spelled out. The JSON is one that
:mod:`kafka_sink.formats.avro.parsing` has accepted.

Source: Schema.toString of https://github.com/apache/avro/tree/release-1.12.1/lang/java/avro, which Confluent's registry
uses, and https://avro.apache.org/docs/1.12.0/specification/#names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kafka_sink.formats.avro.schema import PRIMITIVES
from kafka_sink.formats.errors import FormatError

NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
#: What may be nested, and where the inner type stands.
PART: Final = {"array": "items", "map": "values"}
#: The names that have a meaning in a type, in an enum as well, and in a field; all others are properties, and are kept.
_OF_TYPES: Final = frozenset(
    ["doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"]
)
_OF_FIELDS: Final = frozenset(["aliases", "default", "doc", "name", "order", "type"])
#: The namespace of types that have none, once they are spelled out: within others they would get theirs. Not shown.
NO_NAMESPACE: Final = "kafkalite_no_namespace"
_WORDS: Final = PRIMITIVES | NAMED | PART.keys() | {"union"}


def canonical(declared: Any, *, is_normal: bool = False) -> str:
    """The text of the schema *declared*; with *is_normal*, the same for properties in any order, too."""
    return compact(_Writer(is_normal).type(declared, ""))


def compact(value: Any, *, is_sorted: bool = False) -> str:
    """*value* as JSON without white space."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=is_sorted)


def full_name(name: str, namespace: str) -> str:
    """*name*, which may stand within *namespace*, in full."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


class _Writer:
    def __init__(self, is_normal: bool) -> None:
        self._is_normal = is_normal
        self._declared: set[str] = set()

    def type(self, declared: Any, outer: str) -> Any:
        if isinstance(declared, str):
            return declared if declared in PRIMITIVES else self._name(declared, outer)
        if isinstance(declared, list):
            return [self.type(each, outer) for each in declared]
        kind = declared["type"]
        if not isinstance(kind, str):
            return self.type(kind, outer)
        if kind in NAMED:
            return self._named(kind, declared, outer)
        more = self._properties(declared, _OF_TYPES)
        if kind in PART:
            return {"type": kind, PART[kind]: self.type(declared[PART[kind]], outer), **more}
        if kind in PRIMITIVES:
            return {"type": kind, **more} if more else kind
        return self._name(kind, outer)

    def _name(self, name: str, outer: str) -> str:
        """A declared type that is used within *outer*; of one in another schema, only what is written is known."""
        full = full_name(name, outer)
        if full not in self._declared and name in self._declared:
            full = name
        space, _, last = full.rpartition(".")
        return last if space == outer and last not in _WORDS else full

    def _named(self, kind: str, declared: Mapping[str, Any], outer: str) -> dict[str, Any]:
        full = full_name(declared["name"], declared.get("namespace", outer) or "")
        self._declared.add(full)
        space, _, last = full.rpartition(".")
        named: dict[str, Any] = {"type": kind, "name": last, **({"namespace": space} if space != outer else {})}
        named |= {name: declared[name] for name in ("doc",) if isinstance(declared.get(name), str)}
        if "fields" in declared:
            named["fields"] = [self._field(each, space) for each in declared["fields"]]
        for name in ("symbols", "size"):
            if name in declared:
                named[name] = declared[name]
        is_enum = kind == "enum"
        if is_enum and isinstance(declared.get("default"), str):
            named["default"] = declared["default"]
        named |= self._properties(declared, _OF_TYPES | {"default"} if is_enum else _OF_TYPES)
        if aliases := declared.get("aliases"):
            whole = [full_name(each, space) for each in aliases]
            named["aliases"] = [each.rpartition(".")[2] if each.rpartition(".")[0] == space else each for each in whole]
        return named

    def _field(self, declared: Mapping[str, Any], outer: str) -> dict[str, Any]:
        field: dict[str, Any] = {"name": declared["name"], "type": self.type(declared["type"], outer)}
        if isinstance(declared.get("doc"), str):
            field["doc"] = declared["doc"]
        if "default" in declared:
            field["default"] = declared["default"]
        if str(declared.get("order", "ascending")).lower() != "ascending":
            field["order"] = declared["order"]
        if aliases := declared.get("aliases"):
            field["aliases"] = aliases
        return {**field, **self._properties(declared, _OF_FIELDS)}

    def _properties(self, declared: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
        properties = {name: value for name, value in declared.items() if name not in known}
        return dict(sorted(properties.items())) if self._is_normal else properties


def spelled_out(declared: Any) -> Any:
    """The JSON of the schema *declared* with all names in full, and without what nobody reads or writes by.

    :raises FormatError: if aliases are not names.
    """
    return _Speller().type(declared, "")


def records_of(part: Any) -> Iterator[Mapping[str, Any]]:
    """The records in *part* of a schema that is :func:`spelled_out`."""
    if isinstance(part, Mapping):
        if "fields" in part:
            yield part
            part = [each["type"] for each in part["fields"]]
        else:
            part = [each for name, each in part.items() if name in ("items", "values")]
    for each in part if isinstance(part, list) else ():
        yield from records_of(each)


class _Speller:
    def __init__(self) -> None:
        self._declared: set[str] = set()

    def type(self, declared: Any, outer: str) -> Any:
        if isinstance(declared, str):
            return self._used(declared, outer)
        if isinstance(declared, list):
            return [self.type(each, outer) for each in declared]
        kind = declared["type"]
        if isinstance(kind, str) and kind in NAMED:
            return self._named(kind, declared, outer)
        if isinstance(kind, str) and kind in PART:
            return {"type": kind, PART[kind]: self.type(declared[PART[kind]], outer)}
        return self.type(kind, outer)

    def _used(self, name: str, outer: str) -> str:
        if name in PRIMITIVES:
            return name
        full = full_name(name, outer)
        return _whole(full if full in self._declared else name)

    def _named(self, kind: str, declared: Mapping[str, Any], outer: str) -> dict[str, Any]:
        full = full_name(declared["name"], declared.get("namespace", outer) or "")
        self._declared.add(full)
        inside = full.rpartition(".")[0]
        named: dict[str, Any] = {"type": "record" if kind == "error" else kind, "name": _whole(full)}
        named["aliases"] = [_whole(full_name(each, inside)) for each in _aliases(declared)]
        named |= {name: declared[name] for name in ("symbols", "size") if name in declared}
        if isinstance(declared.get("default"), str):
            named["default"] = declared["default"]
        if "fields" in declared:
            named["fields"] = [self._field(each, inside) for each in declared["fields"]]
        return named

    def _field(self, declared: Mapping[str, Any], inside: str) -> dict[str, Any]:
        kept = {name: declared[name] for name in ("name", "default", "order") if name in declared}
        return {**kept, "aliases": _aliases(declared), "type": self.type(declared["type"], inside)}


def _whole(full: str) -> str:
    return full if "." in full else f"{NO_NAMESPACE}.{full}"


def _aliases(declared: Mapping[str, Any]) -> list[str]:
    aliases = declared.get("aliases")
    if aliases is not None and not (isinstance(aliases, list) and all(isinstance(each, str) for each in aliases)):
        raise FormatError(f"{declared['name']} has the aliases {aliases!r:.60}, expected a list of names")
    return aliases or []
