"""Authentication with SASL (KIP-43, KIP-152)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s


@s.message(versions="0-1", flexible="none")
class SaslHandshakeRequest(s.RequestBody["SaslHandshakeResponse"]):
    """SaslHandshake (key 17): choose the SASL mechanism.

    After version 0 bare SASL tokens follow, after version 1 SaslAuthenticate requests (KIP-152).

    The mechanism the client would like.
    """

    mechanism: str = s.field(s.STRING, "0+")


@s.message(versions="0-1", flexible="none")
class SaslHandshakeResponse(s.Struct):
    """The mechanisms there are."""

    error_code: int = s.field(s.INT16, "0+")
    mechanisms: list[str] = s.field(s.array(s.STRING), "0+")


@s.message(versions="0-2", flexible="2+")
class SaslAuthenticateRequest(s.RequestBody["SaslAuthenticateResponse"]):
    """SaslAuthenticate (key 36): one step of a SASL exchange (KIP-152); the bytes are the mechanism's. The client's
    token.
    """

    auth_bytes: bytes = s.field(s.BYTES, "0+")


@s.message(versions="0-2", flexible="2+")
class SaslAuthenticateResponse(s.Struct):
    """The server's token; *session_lifetime_ms* is when to authenticate again, 0 never (KIP-368)."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    auth_bytes: bytes = s.field(s.BYTES, "0+")
    session_lifetime_ms: int = s.field(s.INT64, "1+", default=0, ignorable=True)
