"""DeleteGroups (key 42): groups that nobody is in any more, and their offsets (KIP-229)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-2"
_FLEXIBLE = "2+"


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DeleteGroupsRequest(s.RequestBody["DeleteGroupsResponse"]):
    """Groups that the broker asked coordinates."""

    groups_names: list[str] = s.field(s.array(s.STRING), "0+")


@s.struct
class DeletableGroupResult(s.Struct):
    """The outcome for one group."""

    group_id: str = s.field(s.STRING, "0+")
    error_code: int = s.field(s.INT16, "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DeleteGroupsResponse(s.Struct):
    """The outcome for every group."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    results: list[DeletableGroupResult] = s.field(s.array(DeletableGroupResult), "0+")
