"""SaslAuthenticate (key 36): one step of a SASL exchange (KIP-152); the bytes are the mechanism's."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-2"
_FLEXIBLE = "2+"


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class SaslAuthenticateRequest(s.RequestBody["SaslAuthenticateResponse"]):
    """The client's token."""

    auth_bytes: bytes = s.field(s.BYTES, "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class SaslAuthenticateResponse(s.Struct):
    """The server's token; *session_lifetime_ms* is when to authenticate again, 0 never (KIP-368)."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    auth_bytes: bytes = s.field(s.BYTES, "0+")
    session_lifetime_ms: int = s.field(s.INT64, "1+", default=0, ignorable=True)
