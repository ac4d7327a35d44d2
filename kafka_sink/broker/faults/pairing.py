"""Matches the lists of a response to the lists of its request, based on the declarations of both.

Pure functions; called by the code that builds error responses, on any thread. A list of a response matches a list of
the request if its elements have an error code (or contain lists whose elements do) and share identifying fields with
the request's elements: topic, partition, group, transactional id and the like. Elements that nothing identifies match
those of the request's only list, in its order. This module must not treat any API specially.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kafka_sink.protocol.schema import INT32, STRING, Array, Field, Primitive, Struct

TOPIC: Final = "topic"
TOPIC_ID: Final = "topic_id"
PARTITION: Final = "partition"

#: Fields that identify the elements of a list → their meaning; messages use several names for the same meaning.
_IDENTITIES: Final = {
    "name": TOPIC,
    "topic": TOPIC,
    "topic_name": TOPIC,
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
    """A list of the response and the matching list of the request, in one version.

    *request_element* is None if the request lists plain values, whose meaning is then *plain*.
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
    """The identifying fields of elements: meaning → the field's name in *kind*."""
    return {
        _IDENTITIES[field.name]: field.name
        for field in fields_of(kind, version)
        if field.name in _IDENTITIES and isinstance(field.type, Primitive)
    }


def pairs(response: type[Struct], request: type[Struct], version: int) -> tuple[Pair, ...]:
    """The pairs directly in *response* and *request*; for those inside their elements see :func:`inner_pairs`."""
    partners = (_partner(field, request, version) for field in fields_of(response, version))
    return tuple(pair for pair in partners if pair is not None)


def inner_pairs(pair: Pair, version: int) -> tuple[Pair, ...]:
    """The pairs inside the elements of *pair*."""
    if pair.request_element is None:
        return ()
    return pairs(pair.response_element, pair.request_element, version)


def _partner(field: Field, request: type[Struct], version: int) -> Pair | None:
    element = _element(field)
    if element is None or not _carries_errors(element, version):
        return None
    identity = identities(element, version)
    if not identity:
        return _in_order(field.name, element, request, version)
    best: tuple[int, Pair | None] = (0, None)
    for candidate in fields_of(request, version):
        if not isinstance(candidate.type, Array):
            continue
        inner = _element(candidate)
        plain = "" if inner is not None else _meaning(candidate.type.element, element, version)
        shared = len(identity.keys() & identities(inner, version).keys()) if inner is not None else bool(plain)
        if shared > best[0]:
            best = shared, Pair(field.name, candidate.name, element, inner, plain)
    return best[1]


def _in_order(answer: str, element: type[Struct], request: type[Struct], version: int) -> Pair | None:
    arrays = [
        (candidate.name, inner)
        for candidate in fields_of(request, version)
        if (inner := _element(candidate)) is not None
    ]
    return Pair(answer, arrays[0][0], element, arrays[0][1], "") if len(arrays) == 1 else None


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
    """The meaning of plain values in a request's list: the first identity of their type in the response's elements."""
    if plain is INT32:
        return PARTITION if PARTITION in identities(element, version) else ""
    if plain is not STRING:
        return ""
    types = {field.name: field.type for field in fields_of(element, version)}
    return next((what for what, name in identities(element, version).items() if types[name] is STRING), "")
