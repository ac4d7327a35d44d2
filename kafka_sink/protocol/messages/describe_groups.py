"""DescribeGroups (key 15): the members of groups and what they were assigned."""

from __future__ import annotations

from kafka_sink.protocol.messages.metadata import NO_AUTHORIZED_OPERATIONS
from kafka_sink.protocol.schema import (
    BOOL,
    BYTES,
    INT16,
    INT32,
    STRING,
    RequestBody,
    Struct,
    array,
    field,
    message,
    struct,
)

_VERSIONS = "0-6"
_FLEXIBLE = "5+"


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeGroupsRequest(RequestBody["DescribeGroupsResponse"]):
    """Groups that the broker asked coordinates."""

    groups: list[str] = field(array(STRING), "0+")
    include_authorized_operations: bool = field(BOOL, "3+")


@struct
class DescribedGroupMember(Struct):
    """A member; metadata is that of the chosen protocol, and both byte strings are the clients' own."""

    member_id: str = field(STRING, "0+")
    group_instance_id: str | None = field(STRING, "4+", default=None, nullable="4+", ignorable=True)
    client_id: str = field(STRING, "0+")
    client_host: str = field(STRING, "0+")
    member_metadata: bytes = field(BYTES, "0+")
    member_assignment: bytes = field(BYTES, "0+")


@struct
class DescribedGroup(Struct):
    """A group; an unknown one is said to be Dead, up to version 5 without an error."""

    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "6+", default=None, nullable="6+")
    group_id: str = field(STRING, "0+")
    group_state: str = field(STRING, "0+")
    protocol_type: str = field(STRING, "0+")
    protocol_data: str = field(STRING, "0+")
    members: list[DescribedGroupMember] = field(array(DescribedGroupMember), "0+")
    authorized_operations: int = field(INT32, "3+", default=NO_AUTHORIZED_OPERATIONS)


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeGroupsResponse(Struct):
    """Every group that was asked for."""

    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    groups: list[DescribedGroup] = field(array(DescribedGroup), "0+")
