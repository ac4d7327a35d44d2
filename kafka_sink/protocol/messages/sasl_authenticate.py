"""SaslAuthenticate (key 36): one step of a SASL exchange (KIP-152); the bytes are the mechanism's."""

from __future__ import annotations

from kafka_sink.protocol.schema import BYTES, INT16, INT64, STRING, RequestBody, Struct, field, message

_VERSIONS = "0-2"
_FLEXIBLE = "2+"


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class SaslAuthenticateRequest(RequestBody["SaslAuthenticateResponse"]):
    """The client's token."""

    auth_bytes: bytes = field(BYTES, "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class SaslAuthenticateResponse(Struct):
    """The server's token; *session_lifetime_ms* is when to authenticate again, 0 never (KIP-368)."""

    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    auth_bytes: bytes = field(BYTES, "0+")
    session_lifetime_ms: int = field(INT64, "1+", default=0, ignorable=True)
