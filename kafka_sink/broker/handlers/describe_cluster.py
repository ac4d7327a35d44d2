"""DescribeCluster (key 60): the brokers and their addresses on the client's listener (KIP-700)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import cluster_operations
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kafka_sink.protocol.messages.metadata import NO_AUTHORIZED_OPERATIONS
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 2)
_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(context: BrokerContext, request: ApiRequest[DescribeClusterRequest]) -> None:
    """Answer with the brokers that run."""
    asked = request.body.endpoint_type
    if asked != _BROKERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if asked == _CONTROLLERS else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"a broker cannot describe endpoints of type {asked}"
        request.respond(DescribeClusterResponse(error_code=code, error_message=message, cluster_id=""))
        return
    image = context.cluster.image
    request.respond(
        DescribeClusterResponse(
            cluster_id=image.cluster_id,
            controller_id=min(image.nodes, default=-1),
            brokers=[
                DescribeClusterBroker(node_id, endpoint.host, endpoint.port)
                for node_id, endpoints in sorted(image.nodes.items())
                if (endpoint := endpoints.get(request.listener_name)) is not None
            ],
            cluster_authorized_operations=(
                cluster_operations(context, request)
                if request.body.include_cluster_authorized_operations
                else NO_AUTHORIZED_OPERATIONS
            ),
        )
    )


API: Final = ApiHandler(ApiKey.DESCRIBE_CLUSTER, VERSIONS, handle)
