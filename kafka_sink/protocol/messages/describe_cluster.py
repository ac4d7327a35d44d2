"""DescribeCluster (key 60): the brokers and the id of the cluster (KIP-700)."""

from __future__ import annotations

from kafka_sink.protocol.messages.metadata import NO_AUTHORIZED_OPERATIONS
from kafka_sink.protocol.schema import (
    BOOL,
    INT8,
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

_VERSIONS = "0-2"
_FLEXIBLE = "0+"


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeClusterRequest(RequestBody["DescribeClusterResponse"]):
    """*endpoint_type* 1 asks for brokers, 2 for controllers."""

    include_cluster_authorized_operations: bool = field(BOOL, "0+")
    endpoint_type: int = field(INT8, "1+", default=1)
    include_fenced_brokers: bool = field(BOOL, "2+")


@struct
class DescribeClusterBroker(Struct):
    """A broker and its address on the listener that was asked."""

    broker_id: int = field(INT32, "0+")
    host: str = field(STRING, "0+")
    port: int = field(INT32, "0+")
    rack: str | None = field(STRING, "0+", default=None, nullable="0+")
    is_fenced: bool = field(BOOL, "2+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeClusterResponse(Struct):
    """The cluster as one broker sees it."""

    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")
    endpoint_type: int = field(INT8, "1+", default=1)
    cluster_id: str = field(STRING, "0+")
    controller_id: int = field(INT32, "0+", default=-1)
    brokers: list[DescribeClusterBroker] = field(array(DescribeClusterBroker), "0+")
    cluster_authorized_operations: int = field(INT32, "0+", default=NO_AUTHORIZED_OPERATIONS)
