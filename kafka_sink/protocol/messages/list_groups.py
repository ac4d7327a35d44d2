"""ListGroups (key 16): the groups that a broker coordinates (KIP-518, KIP-848)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-5"
_FLEXIBLE = "3+"


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListGroupsRequest(s.RequestBody["ListGroupsResponse"]):
    """Empty filters let everything pass."""

    states_filter: list[str] = s.field(s.array(s.STRING), "4+")
    types_filter: list[str] = s.field(s.array(s.STRING), "5+")


@s.struct
class ListedGroup(s.Struct):
    """A group and what it does."""

    group_id: str = s.field(s.STRING, "0+")
    protocol_type: str = s.field(s.STRING, "0+")
    group_state: str = s.field(s.STRING, "4+", ignorable=True)
    group_type: str = s.field(s.STRING, "5+", ignorable=True)


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListGroupsResponse(s.Struct):
    """What passed."""

    throttle_time_ms: int = s.field(s.INT32, "1+", ignorable=True)
    error_code: int = s.field(s.INT16, "0+")
    groups: list[ListedGroup] = s.field(s.array(ListedGroup), "0+")
