"""ListGroups (key 16): the groups that a broker coordinates (KIP-518, KIP-848)."""

from __future__ import annotations

from kafka_sink.protocol.schema import INT16, INT32, STRING, RequestBody, Struct, array, field, message, struct

_VERSIONS = "0-5"
_FLEXIBLE = "3+"


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListGroupsRequest(RequestBody["ListGroupsResponse"]):
    """Empty filters let everything pass."""

    states_filter: list[str] = field(array(STRING), "4+")
    types_filter: list[str] = field(array(STRING), "5+")


@struct
class ListedGroup(Struct):
    """A group and what it does."""

    group_id: str = field(STRING, "0+")
    protocol_type: str = field(STRING, "0+")
    group_state: str = field(STRING, "4+", ignorable=True)
    group_type: str = field(STRING, "5+", ignorable=True)


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListGroupsResponse(Struct):
    """What passed."""

    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    error_code: int = field(INT16, "0+")
    groups: list[ListedGroup] = field(array(ListedGroup), "0+")
