"""Which lists of a response answer which lists of its request, found out from the declarations of both.

Pure; asked by whoever builds error answers, on any thread. A list of a response belongs to a list of the request when
its elements carry an error code (or hold lists whose elements do) and share with the request's what tells them apart:
topic, partition, group, transactional id and the like. Must never be told about an API by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kafka_sink.protocol.schema import INT32, STRING, Array, Field, Primitive, Struct

TOPIC: Final = "topic"
TOPIC_ID: Final = "topic_id"
PARTITION: Final = "partition"

#: Fields that tell elements of a list apart, by what they mean; the messages call the same thing by several names.
_IDENTITIES: Final = {
    "name": TOPIC,
    "topic": TOPIC,
    "topic_id": TOPIC_ID,
    "index": PARTITION,
    "partition": PARTITION,
    "partition_index": PARTITION,
    "partition_id": PARTITION,
    "group_id": "group",
    "key": "key",
    "member_id": "member",
    "group_instance_id": "instance",
    "transactional_id": "transactional_id",
    "producer_id": "producer_id",
    "resource_type": "resource_type",
    "resource_name": "resource",
}


@dataclass(frozen=True, slots=True)
class Pair:
    """A list of the response and the list of the request it answers, in one version.

    *request_element* is None where the request lists plain values, whose meaning is then *plain*.
    """

    answer: str
    question: str
    response_element: type[Struct]
    request_element: type[Struct] | None
    plain: str


def is_error_code(field: Field) -> bool:
    return field.name.endswith("error_code")


def fields_of(kind: type[Struct], version: int) -> Iterator[Field]:
    return (field for field in kind.SCHEMA.fields if version in field.versions)


def identities(kind: type[Struct], version: int) -> dict[str, str]:
    """What tells elements apart: meaning → the field's name in *kind*."""
    return {
        _IDENTITIES[field.name]: field.name
        for field in fields_of(kind, version)
        if field.name in _IDENTITIES and isinstance(field.type, Primitive)
    }


def pairs(response: type[Struct], request: type[Struct], version: int) -> tuple[Pair, ...]:
    """The pairs directly in *response* and *request*; those inside their elements are asked for with the elements."""
    found = (_partner(field, request, version) for field in fields_of(response, version))
    return tuple(pair for pair in found if pair is not None)


def inner_pairs(pair: Pair, version: int) -> tuple[Pair, ...]:
    """The pairs inside the elements of *pair*."""
    if pair.request_element is None:
        return ()
    return pairs(pair.response_element, pair.request_element, version)


def _partner(field: Field, request: type[Struct], version: int) -> Pair | None:
    element = _element(field)
    if element is None or not _carries_errors(element, version):
        return None
    asked = identities(element, version)
    best: tuple[int, Pair | None] = (0, None)
    for candidate in fields_of(request, version):
        if not isinstance(candidate.type, Array):
            continue
        inner = _element(candidate)
        plain = "" if inner is not None else _meaning(candidate.type.element, element, version)
        shared = len(asked.keys() & identities(inner, version).keys()) if inner is not None else bool(plain)
        if shared > best[0]:
            best = shared, Pair(field.name, candidate.name, element, inner, plain)
    return best[1]


def _element(field: Field) -> type[Struct] | None:
    if isinstance(field.type, Array) and not isinstance(field.type.element, Primitive):
        return field.type.element
    return None


def _carries_errors(kind: type[Struct], version: int) -> bool:
    return any(
        is_error_code(field) or ((inner := _element(field)) is not None and _carries_errors(inner, version))
        for field in fields_of(kind, version)
    )


def _meaning(plain: Any, element: type[Struct], version: int) -> str:
    """What plain values of a request's list are: the first identity of their type in what answers them."""
    if plain is INT32:
        return PARTITION if PARTITION in identities(element, version) else ""
    if plain is not STRING:
        return ""
    types = {field.name: field.type for field in fields_of(element, version)}
    return next((what for what, name in identities(element, version).items() if types[name] is STRING), "")
