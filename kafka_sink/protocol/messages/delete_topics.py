"""DeleteTopics (key 20): by name, or from version 6 on by id as well."""

from __future__ import annotations

import uuid

from kafka_sink.protocol.schema import INT16, INT32, STRING, UUID, RequestBody, Struct, array, field, message, struct

_VERSIONS = "1-6"
_FLEXIBLE = "4+"


@struct
class DeleteTopicState(Struct):
    """A topic by name, or by id when *name* is null."""

    name: str | None = field(STRING, "6+", nullable="6+", default=None)
    topic_id: uuid.UUID = field(UUID, "6+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DeleteTopicsRequest(RequestBody["DeleteTopicsResponse"]):
    """*topic_names* up to version 5, *topics* from version 6 on."""

    topics: list[DeleteTopicState] = field(array(DeleteTopicState), "6+")
    topic_names: list[str] = field(array(STRING), "0-5", ignorable=True)
    timeout_ms: int = field(INT32, "0+")


@struct
class DeletableTopicResult(Struct):
    """What became of one topic; *name* is null for an id nobody knows."""

    name: str | None = field(STRING, "0+", nullable="6+")
    topic_id: uuid.UUID = field(UUID, "6+", ignorable=True)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DeleteTopicsResponse(Struct):
    """What became of every topic."""

    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    responses: list[DeletableTopicResult] = field(array(DeletableTopicResult), "0+")
