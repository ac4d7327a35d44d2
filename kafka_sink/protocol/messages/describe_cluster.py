"""DescribeCluster (key 60): the brokers and the id of the cluster (KIP-700)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s
from kafka_sink.protocol.messages.metadata import NO_AUTHORIZED_OPERATIONS

_VERSIONS = "0-2"
_FLEXIBLE = "0+"


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeClusterRequest(s.RequestBody["DescribeClusterResponse"]):
    """*endpoint_type* 1 asks for brokers, 2 for controllers."""

    include_cluster_authorized_operations: bool = s.field(s.BOOL, "0+")
    endpoint_type: int = s.field(s.INT8, "1+", default=1)
    include_fenced_brokers: bool = s.field(s.BOOL, "2+")


@s.struct
class DescribeClusterBroker(s.Struct):
    """A broker and its address on the listener that was asked."""

    broker_id: int = s.field(s.INT32, "0+")
    host: str = s.field(s.STRING, "0+")
    port: int = s.field(s.INT32, "0+")
    rack: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    is_fenced: bool = s.field(s.BOOL, "2+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeClusterResponse(s.Struct):
    """The cluster as one broker sees it."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    endpoint_type: int = s.field(s.INT8, "1+", default=1)
    cluster_id: str = s.field(s.STRING, "0+")
    controller_id: int = s.field(s.INT32, "0+", default=-1)
    brokers: list[DescribeClusterBroker] = s.field(s.array(DescribeClusterBroker), "0+")
    cluster_authorized_operations: int = s.field(s.INT32, "0+", default=NO_AUTHORIZED_OPERATIONS)
