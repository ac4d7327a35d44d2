"""Error responses to any request, derived from the message declarations, and requests that fail only in part.

Pure functions; handler threads call them for requests to which a fault applies. A request is split by topics and
partitions into a part that fails and a part that is handled, and the two responses are merged. This module must not
access the records in a request.

A list of a response matches a list of the request if its elements have an error code (or contain lists whose elements
do) and share identifying fields with the request's elements: topic, partition, group, transactional id and the like.
Elements that nothing identifies match those of the request's only list, in its order.

Source: apache/kafka ``AbstractRequest.getErrorResponse``: an error code per partition if the response has partitions.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.metadata import MetadataResponse
from kafka_sink.protocol.messages.users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kafka_sink.protocol.registry import api
from kafka_sink.protocol.schema import INT32, INT64, RECORDS, STRING, Array, Primitive, Struct, StructField

TOPIC: Final = "topic"
TOPIC_ID: Final = "topic_id"
PARTITION: Final = "partition"

#: Fields that identify the elements of a list → their meaning; messages use several names for the same meaning.
_IDENTITIES: Final = {
    **dict.fromkeys(("name", "topic", "topic_name"), TOPIC),
    "topic_id": TOPIC_ID,
    **dict.fromkeys(("index", "partition", "partition_index", "partition_id"), PARTITION),
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


def is_error_code(field: StructField) -> bool:
    return field.name.endswith("error_code")


def fields_of(kind: type[Struct], version: int) -> Iterator[StructField]:
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
    if pair.request_element is None:
        return ()
    return pairs(pair.response_element, pair.request_element, version)


def _partner(field: StructField, request: type[Struct], version: int) -> Pair | None:
    element = _element(field)
    if element is None or not _carries_errors(element, version):
        return None
    identity = identities(element, version)
    if not identity:
        arrays = [
            (candidate.name, inner)
            for candidate in fields_of(request, version)
            if (inner := _element(candidate)) is not None
        ]
        return Pair(field.name, arrays[0][0], element, arrays[0][1], "") if len(arrays) == 1 else None
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


def _element(field: StructField) -> type[Struct] | None:
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


#: Whether a fault applies to a partition of a topic; the partition is None if a request names only topics.
Wanted: TypeAlias = Callable[[str | None, int | None], bool]
#: The name of the topic with an id.
TopicName: TypeAlias = Callable[[uuid.UUID], str | None]

MESSAGE: Final = "an injected fault"

#: APIs whose clients check the error code of the whole group, or request, where Kafka sets it.
_WHOLE: Final = frozenset(
    {ApiKey.OFFSET_FETCH, ApiKey.LEAVE_GROUP, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.DESCRIBE_QUORUM}
)
#: APIs whose responses have the error code for the whole request and for each partition.
_BOTH: Final = frozenset({ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS})


def names_topics(key: ApiKey) -> bool:
    """Whether requests of this API name topics (in their newest version)."""
    return key is ApiKey.METADATA or _names(key, api(key).versions.max)


def _names(key: ApiKey, version: int) -> bool:
    def within(level: tuple[Pair, ...]) -> bool:
        return any(
            pair.plain == TOPIC
            or bool({TOPIC, TOPIC_ID} & identities(pair.response_element, version).keys())
            or within(inner_pairs(pair, version))
            for pair in level
        )

    return within(pairs(api(key).response, api(key).request, version))


def error_response(key: ApiKey, version: int, body: Struct, code: ErrorCode, message: str = MESSAGE) -> Struct:
    """The response that rejects all of *body* with *code*, and with *message* where it has room for one."""
    if isinstance(body, AlterUserScramCredentialsRequest):
        # Two lists of the request are answered in one.
        users = dict.fromkeys([*(item.name for item in body.deletions), *(item.name for item in body.upsertions)])
        return AlterUserScramCredentialsResponse(
            results=[AlterUserScramCredentialsResult(name, code, message) for name in users]
        )
    answer = _Refusal(version, code, message, whole=key in _WHOLE).answer(api(key).response, body)
    if key in _BOTH:
        for field in fields_of(type(answer), version):
            if is_error_code(field):
                setattr(answer, field.name, code)
    return answer


class _Refusal:
    def __init__(self, version: int, code: ErrorCode, message: str, *, whole: bool) -> None:
        self._version = version
        self._code = code
        self._message = message
        self._whole = whole

    def answer(self, response: type[Struct], body: Struct) -> Struct:
        """The response that rejects a request, or one of its nested structs."""
        values = self._blank(response)
        own = [field.name for field in fields_of(response, self._version) if is_error_code(field)]
        if not (self._whole and own):
            for pair in pairs(response, type(body), self._version):
                values[pair.answer] = [self._element(pair, item) for item in getattr(body, pair.question) or ()]
        if not any(values.get(pair.answer) for pair in pairs(response, type(body), self._version)):
            values |= dict.fromkeys(own, self._code)
        return response(**values)

    def _element(self, pair: Pair, item: Any) -> Struct:
        if pair.request_element is None:
            built = pair.response_element(**self._blank(pair.response_element))
            own = [field.name for field in fields_of(pair.response_element, self._version) if is_error_code(field)]
            for name in own:
                setattr(built, name, self._code)
            setattr(built, identities(pair.response_element, self._version)[pair.plain], item)
            return built
        built = self.answer(pair.response_element, item)
        theirs = identities(pair.request_element, self._version)
        for what, name in identities(pair.response_element, self._version).items():
            if what in theirs:
                setattr(built, name, getattr(item, theirs[what]))
        return built

    def _blank(self, kind: type[Struct]) -> dict[str, Any]:
        """Values that mean "none", for fields whose default is a valid value: offset 0, node 0."""
        values: dict[str, Any] = {}
        for field in fields_of(kind, self._version):
            is_place = field.type is INT64 and ("offset" in field.name or "watermark" in field.name)
            if is_place or (field.type is INT32 and field.name == "node_id"):
                values[field.name] = -1
            elif field.type is RECORDS:
                values[field.name] = b""
            elif field.name == "error_message":
                values[field.name] = self._message
        return values


def metadata_with_errors(answer: Struct, wanted: Wanted, code: ErrorCode) -> MetadataResponse:
    """*answer* with *code* for the selected topics. Brokers are kept, because clients need one to retry."""
    assert isinstance(answer, MetadataResponse)
    topics = [
        dataclasses.replace(topic, error_code=code, partitions=[]) if wanted(topic.name, None) else topic
        for topic in answer.topics
    ]
    return dataclasses.replace(answer, topics=topics)


def split(
    key: ApiKey, version: int, body: Struct, wanted: Wanted, topic_name: TopicName
) -> tuple[Struct | None, Struct | None]:
    """*body* as two requests, with the selected part and with the rest; None for a part that is empty."""
    return _Cut(version, wanted, topic_name).struct(body, pairs(api(key).response, api(key).request, version), None)


class _Cut:
    def __init__(self, version: int, wanted: Wanted, topic_name: TopicName) -> None:
        self._version = version
        self._wanted = wanted
        self._topic_name = topic_name

    def struct(self, body: Struct, level: tuple[Pair, ...], topic: str | None) -> tuple[Struct | None, Struct | None]:
        hit: dict[str, list[Any]] = {}
        rest: dict[str, list[Any]] = {}
        for pair in level:
            items = getattr(body, pair.question) or ()
            for item in items:
                one, other = self._item(pair, item, topic)
                for half, side in ((one, hit), (other, rest)):
                    if half is not None:
                        side.setdefault(pair.question, []).append(half)
        if not hit and not rest:
            # The request names nothing, or everything: no part can be selected.
            return None, body
        questions = {pair.question for pair in level}
        return self._half(body, questions, hit), self._half(body, questions, rest)

    def _half(self, body: Struct, questions: set[str], side: dict[str, list[Any]]) -> Struct | None:
        if not side:
            return None
        changed: Any = {name: side.get(name, []) for name in questions}
        replaced: Struct = dataclasses.replace(body, **changed)
        return replaced

    def _item(self, pair: Pair, item: Any, topic: str | None) -> tuple[Any, Any]:
        if pair.request_element is None:
            named = (item, None) if pair.plain == TOPIC else (topic, item if pair.plain == PARTITION else None)
            return (item, None) if self._wanted(*named) else (None, item)
        fields = identities(pair.request_element, self._version)
        name = getattr(item, fields[TOPIC]) if TOPIC in fields else None
        if not name and TOPIC_ID in fields:
            name = self._topic_name(getattr(item, fields[TOPIC_ID]))
        topic = name or topic
        inner = inner_pairs(pair, self._version)
        if inner:
            return self.struct(item, inner, topic)
        partition = getattr(item, fields[PARTITION]) if PARTITION in fields else None
        return (item, None) if self._wanted(topic, partition) else (None, item)


def joined(key: ApiKey, version: int, handled: Struct, refused: Struct) -> Struct:
    """Merge the response to the handled part of a request with the response to the failed part."""
    answer: Struct = _join(version, handled, refused, pairs(api(key).response, api(key).request, version))
    return answer


def _join(version: int, handled: Any, refused: Any, level: tuple[Pair, ...]) -> Any:
    changed: dict[str, list[Any]] = {}
    for pair in level:
        inner = inner_pairs(pair, version)
        names = identities(pair.response_element, version).values()
        items = {tuple(getattr(item, name) for name in names): item for item in getattr(handled, pair.answer)}
        for item in getattr(refused, pair.answer):
            identity = tuple(getattr(item, name) for name in names)
            there = items.get(identity)
            items[identity] = item if there is None else _join(version, there, item, inner)
        changed[pair.answer] = list(items.values())
    return dataclasses.replace(handled, **changed)
