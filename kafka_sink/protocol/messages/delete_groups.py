"""DeleteGroups (key 42): groups that nobody is in any more, and their offsets (KIP-229)."""

from __future__ import annotations

from kafka_sink.protocol.schema import INT16, INT32, STRING, RequestBody, Struct, array, field, message, struct

_VERSIONS = "0-2"
_FLEXIBLE = "2+"


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DeleteGroupsRequest(RequestBody["DeleteGroupsResponse"]):
    """Groups that the broker asked coordinates."""

    groups_names: list[str] = field(array(STRING), "0+")


@struct
class DeletableGroupResult(Struct):
    """The outcome for one group."""

    group_id: str = field(STRING, "0+")
    error_code: int = field(INT16, "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DeleteGroupsResponse(Struct):
    """The outcome for every group."""

    throttle_time_ms: int = field(INT32, "0+")
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult), "0+")
