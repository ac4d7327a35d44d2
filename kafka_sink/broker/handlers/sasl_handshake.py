"""SaslHandshake (key 17) in a wrong state: the listener has no SASL, or the client is already authenticated."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 1)


def handle(context: BrokerContext, request: ApiRequest[SaslHandshakeRequest]) -> None:
    """Reject the request; the connection's authenticator handles requests in the right state."""
    request.respond(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


API: Final = ApiHandler(ApiKey.SASL_HANDSHAKE, VERSIONS, handle)
