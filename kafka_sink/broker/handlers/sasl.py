"""SASL requests in a wrong state: the listener has no SASL, or the client is already authenticated.

They are rejected; the connection's authenticator handles requests in the right state.
"""

from __future__ import annotations

from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext, api_handler
from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import sasl as m


@api_handler(ApiKey.SASL_HANDSHAKE, "0-1")
def sasl_handshake(context: BrokerContext, request: ApiRequest[m.SaslHandshakeRequest]) -> None:
    """SaslHandshake (key 17) in a wrong state."""
    request.respond(m.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


@api_handler(ApiKey.SASL_AUTHENTICATE, "0-2")
def sasl_authenticate(context: BrokerContext, request: ApiRequest[m.SaslAuthenticateRequest]) -> None:
    """SaslAuthenticate (key 36) in a wrong state."""
    message = "SaslAuthenticate request received after successful authentication"
    request.respond(m.SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message))
