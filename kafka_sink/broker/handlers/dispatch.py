"""Dispatches a request to the handler of its API key.

Handler threads call it for every request. If a request cannot be decoded, or its API or version is not supported, the
connection is closed, because the client could not read any answer. ApiVersions is the exception (KIP-511).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.handlers import features, transactions
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.broker.handlers.fault_injection import handle_with_faults
from kafka_sink.broker.network.request_channel import CloseConnectionResponse, Request, RequestChannel, RequestHandler
from kafka_sink.common.errors import ProtocolError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.text import words
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import decode_request_body
from kafka_sink.protocol.messages.connection import ApiVersionsRequest
from kafka_sink.protocol.schema import VersionRange

#: The modules with handlers.
_MODULES: Final = words("""
    configs features fetch group_admin group_members group_offsets log_offsets metadata produce replicas topics
    transaction_admin transactions users
""")
HANDLERS: Final[Mapping[ApiKey, ApiHandler]] = MappingProxyType(
    {
        handler.key: handler
        for name in _MODULES
        for handler in vars(import_module(f"kafka_sink.broker.handlers.{name}")).values()
        if isinstance(handler, ApiHandler)
    }
)


def served_versions(config: BrokerConfig) -> dict[ApiKey, VersionRange]:
    """The versions of each API that brokers with *config* serve."""
    versions = {key: handler.versions for key, handler in HANDLERS.items()}
    if not config.unstable_api_versions_enable:
        versions[ApiKey.INIT_PRODUCER_ID] = transactions.STABLE_VERSIONS
    return versions


def dispatcher(context: BrokerContext, channel: RequestChannel) -> RequestHandler:
    """The function that the handler threads of *channel* call with each request."""
    log = ContextLogger(__name__, f"broker {context.node_id}")

    def handle(request: Request) -> None:
        header = request.context.header
        handler = HANDLERS.get(header.api_key)
        if handler is None or header.api_version not in context.versions[header.api_key]:
            if header.api_key is ApiKey.API_VERSIONS:
                features.api_versions.handle(ApiRequest(context, request, channel, ApiVersionsRequest()))
                return
            log.info(
                "closing %s: it sent %s version %d, which is not supported",
                request.context.connection_id,
                header.api_key.name,
                header.api_version,
            )
            channel.send_response(CloseConnectionResponse(request))
            return
        try:
            body = decode_request_body(header, request.payload, request.body_offset)
        except ProtocolError as error:
            log.info("closing %s: %s", request.context.connection_id, error)
            channel.send_response(CloseConnectionResponse(request))
            return
        decoded = ApiRequest(context, request, channel, body)
        if context.faults.of_requests:
            handle_with_faults(decoded, handler.handle, log)
        else:
            handler.handle(decoded)

    return handle
