"""SaslHandshake (key 17): choose the SASL mechanism.

After version 0 bare SASL tokens follow, after version 1 SaslAuthenticate requests (KIP-152).
"""

from __future__ import annotations

from kafka_sink.protocol.schema import INT16, STRING, RequestBody, Struct, array, field, message

_VERSIONS = "0-1"
_FLEXIBLE = "none"


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class SaslHandshakeRequest(RequestBody["SaslHandshakeResponse"]):
    """The mechanism the client would like."""

    mechanism: str = field(STRING, "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class SaslHandshakeResponse(Struct):
    """The mechanisms there are."""

    error_code: int = field(INT16, "0+")
    mechanisms: list[str] = field(array(STRING), "0+")
