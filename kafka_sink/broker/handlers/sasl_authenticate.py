"""SaslAuthenticate (key 36) in a wrong state: the listener has no SASL, or the client is already authenticated."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 2)


def handle(context: BrokerContext, request: ApiRequest[SaslAuthenticateRequest]) -> None:
    """Reject the request; the connection's authenticator handles requests in the right state."""
    request.respond(
        SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    )


API: Final = ApiHandler(ApiKey.SASL_AUTHENTICATE, VERSIONS, handle)
