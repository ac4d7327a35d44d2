"""DescribeGroups (key 15): the members of groups and what they were assigned."""

from __future__ import annotations

from kafka_sink.protocol import schema as s
from kafka_sink.protocol.messages.metadata import NO_AUTHORIZED_OPERATIONS

_VERSIONS = "0-6"
_FLEXIBLE = "5+"


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeGroupsRequest(s.RequestBody["DescribeGroupsResponse"]):
    """Groups that the broker asked coordinates."""

    groups: list[str] = s.field(s.array(s.STRING), "0+")
    include_authorized_operations: bool = s.field(s.BOOL, "3+")


@s.struct
class DescribedGroupMember(s.Struct):
    """A member; metadata is that of the chosen protocol, and both byte strings are the clients' own."""

    member_id: str = s.field(s.STRING, "0+")
    group_instance_id: str | None = s.field(s.STRING, "4+", default=None, nullable="4+", ignorable=True)
    client_id: str = s.field(s.STRING, "0+")
    client_host: str = s.field(s.STRING, "0+")
    member_metadata: bytes = s.field(s.BYTES, "0+")
    member_assignment: bytes = s.field(s.BYTES, "0+")


@s.struct
class DescribedGroup(s.Struct):
    """A group; an unknown one is said to be Dead, up to version 5 without an error."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "6+", default=None, nullable="6+")
    group_id: str = s.field(s.STRING, "0+")
    group_state: str = s.field(s.STRING, "0+")
    protocol_type: str = s.field(s.STRING, "0+")
    protocol_data: str = s.field(s.STRING, "0+")
    members: list[DescribedGroupMember] = s.field(s.array(DescribedGroupMember), "0+")
    authorized_operations: int = s.field(s.INT32, "3+", default=NO_AUTHORIZED_OPERATIONS)


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeGroupsResponse(s.Struct):
    """Every group that was asked for."""

    throttle_time_ms: int = s.field(s.INT32, "1+", ignorable=True)
    groups: list[DescribedGroup] = s.field(s.array(DescribedGroup), "0+")
