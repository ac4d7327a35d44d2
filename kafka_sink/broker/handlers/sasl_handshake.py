"""SaslHandshake (key 17) of a client that cannot use it now: its listener has no SASL, or it is let in already."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 1)


def handle(context: BrokerContext, request: ApiRequest[SaslHandshakeRequest]) -> None:
    """Refuse: what can be answered otherwise never comes here, but to the connection's authenticator."""
    request.respond(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


API: Final = ApiHandler(ApiKey.SASL_HANDSHAKE, VERSIONS, handle)
