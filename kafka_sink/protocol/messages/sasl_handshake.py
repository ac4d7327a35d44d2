"""SaslHandshake (key 17): choose the SASL mechanism.

After version 0 bare SASL tokens follow, after version 1 SaslAuthenticate requests (KIP-152).
"""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-1"
_FLEXIBLE = "none"


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class SaslHandshakeRequest(s.RequestBody["SaslHandshakeResponse"]):
    """The mechanism the client would like."""

    mechanism: str = s.field(s.STRING, "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class SaslHandshakeResponse(s.Struct):
    """The mechanisms there are."""

    error_code: int = s.field(s.INT16, "0+")
    mechanisms: list[str] = s.field(s.array(s.STRING), "0+")
