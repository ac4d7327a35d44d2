"""DeleteTopics (key 20): by name, or from version 6 on by id as well."""

from __future__ import annotations

import uuid

from kafka_sink.protocol import schema as s

_VERSIONS = "1-6"
_FLEXIBLE = "4+"


@s.struct
class DeleteTopicState(s.Struct):
    """A topic by name, or by id when *name* is null."""

    name: str | None = s.field(s.STRING, "6+", nullable="6+", default=None)
    topic_id: uuid.UUID = s.field(s.UUID, "6+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DeleteTopicsRequest(s.RequestBody["DeleteTopicsResponse"]):
    """*topic_names* up to version 5, *topics* from version 6 on."""

    topics: list[DeleteTopicState] = s.field(s.array(DeleteTopicState), "6+")
    topic_names: list[str] = s.field(s.array(s.STRING), "0-5", ignorable=True)
    timeout_ms: int = s.field(s.INT32, "0+")


@s.struct
class DeletableTopicResult(s.Struct):
    """What became of one topic; *name* is null for an id nobody knows."""

    name: str | None = s.field(s.STRING, "0+", nullable="6+")
    topic_id: uuid.UUID = s.field(s.UUID, "6+", ignorable=True)
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "5+", nullable="5+", default=None, ignorable=True)


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DeleteTopicsResponse(s.Struct):
    """What became of every topic."""

    throttle_time_ms: int = s.field(s.INT32, "1+", ignorable=True)
    responses: list[DeletableTopicResult] = s.field(s.array(DeletableTopicResult), "0+")
