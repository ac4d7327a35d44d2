"""A server that rejects a login may repeat the secret in its error, in any form: no error of ours shows it."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, quote_plus

import pytest

from kafka_sink.client.login.sasl_authenticator import SaslClientAuthenticator
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.config import REDACTED, parse
from kafka_sink.common.errors import AuthenticationError, KafkaError
from kafka_sink.common.repeated_secrets import RepeatedSecrets
from kafka_sink.common.tls_config import SslConfig
from kafka_sink.http.oauth.token_endpoint import ClientCredentials, TokenEndpoint
from kafka_sink.network.frames import READ_AHEAD_BYTES, UNLIMITED, UNLIMITED_MEMORY_POOL, FrameReader
from kafka_sink.network.sasl.bearer_token import EndpointLimits, OAuthBearerClient, Token
from kafka_sink.network.sasl.mechanism import NO_EXPIRY, PlainClient, SaslClient
from kafka_sink.network.sasl.scram import ScramClient
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import encode_response
from kafka_sink.protocol.messages.connection import ApiVersionsResponse, SaslAuthenticateResponse, SaslHandshakeResponse
from kafka_sink.protocol.schema import Struct
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.config import registry_configs
from tests.fakes.clock import FakeClock
from tests.hostile.servers import EvilHttp
from tests.support.cases import with_each
from tests.unit.broker.test_sasl_authenticators import VERSIONS, End

pytestmark = pytest.mark.behaviour("SASL", "Refusals that repeat a secret are shown without it, whatever its form")

PASSWORD: Final = 'S3cr3t/pass "word"+é~77'
TOKEN: Final = "eyJhbGciOiAibm9uZSJ9.eyJzdWIiOiAiYWxpY2UiLCAiZXhwIjogMTc5NTg3NzE5OX0.c2lnbmF0dXJlLW9mLWEtdG9rZW4"


def escaped(secret: str, form: str) -> str:
    return "".join(form.format(code=ord(each)) for each in secret)


FORMS: Final[dict[str, Callable[[str], str]]] = {
    "as it is": str,
    "its first two thirds": lambda secret: secret[: len(secret) * 2 // 3] if len(secret) > 40 else secret,
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "base64 for URLs": lambda secret: base64.urlsafe_b64encode(secret.encode()).decode().rstrip("="),
    "base64 with a name": lambda secret: base64.b64encode(f"alice:{secret}".encode()).decode(),
    "base64 between others": lambda secret: base64.b64encode(f"\0alice\0{secret}\1\1".encode()).decode(),
    "base64 in an address": lambda secret: quote(base64.b64encode(f"al:{secret}".encode()), safe=""),
    "hexadecimal": lambda secret: secret.encode().hex(),
    "HEXADECIMAL": lambda secret: secret.encode().hex().upper(),
    "in an address": lambda secret: quote(secret, safe=""),
    "in a path": quote,
    "in a form": quote_plus,
    "percent-encoded twice": lambda secret: quote(quote(secret, safe=""), safe=""),
    "all percent-encoded": lambda secret: "".join(f"%{each:02x}" for each in secret.encode()),
    "JSON": json.dumps,
    "JSON within JSON": lambda secret: json.dumps(json.dumps({"password": secret})),
    "JSON of escapes": lambda secret: escaped(secret, "\\u{code:04X}"),
    "Python": lambda secret: escaped(secret, "\\x{code:02x}"),
    "HTML": lambda secret: escaped(secret, "&#{code};"),
    "HTML, hexadecimal": lambda secret: escaped(secret, "&#x{code:x};"),
    "with slashes escaped": lambda secret: json.dumps(secret).replace("/", "\\/"),
}


def sasl_refusal(client: SaslClient, *answers: SaslAuthenticateResponse) -> str:
    """Return the error of an authenticator whose broker responds to its tokens with *answers*, in this order."""
    ours = End()
    ours.other = End()
    reader = FrameReader("c", UNLIMITED, UNLIMITED_MEMORY_POOL, memoryview(bytearray(READ_AHEAD_BYTES)))
    login = SaslClientAuthenticator("X", lambda: client, ours, reader, clock=FakeClock(), client_id="me")
    bodies: list[tuple[ApiKey, int, Struct]] = [
        (ApiKey.API_VERSIONS, 0, ApiVersionsResponse(api_keys=VERSIONS)),
        (ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeResponse(mechanisms=["X"])),
        *((ApiKey.SASL_AUTHENTICATE, 2, each) for each in answers),
    ]
    with pytest.raises(AuthenticationError) as refused:
        for at, (key, version, body) in enumerate(bodies):
            login.authenticate()
            frame = b"".join(map(bytes, encode_response(key, version, 2**31 - 8 + at, body)))
            ours.incoming += len(frame).to_bytes(4, "big") + frame
        login.authenticate()
    return str(refused.value)


def refused(text: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=58, error_message=text)


def scram_error(text: str) -> str:
    """Return the client's error for an error of SCRAM itself, whose text cannot have commas."""
    client = ScramClient("SCRAM-SHA-256", "alice", PASSWORD, nonce=lambda: "n")
    client.respond(b"r=nonce,s=c2FsdHNhbHQ=,i=4096")
    with pytest.raises(AuthenticationError) as error:
        client.respond(f"e={text}".encode())
    return str(error.value)


def bearer() -> OAuthBearerClient:
    return OAuthBearerClient(lambda: Token(TOKEN, NO_EXPIRY))


def registry_refusal(text: str, options: dict[str, str], status: int = 401) -> str:
    """Return a registry client's error for a response with *text*, or its reasons for an incompatible schema."""
    body = json.dumps({"message": text, "is_compatible": False, "messages": [text]}).encode()
    with EvilHttp(_answering(status, body)) as server:
        options = {"schema.registry.url": f"http://127.0.0.1:{server.port}", **options}
        client = RegistryClient(*registry_configs(options), timeout_ms=60_000, rounds=1)
        try:
            return str(client.incompatibilities("s", '"int"'))
        except KafkaError as error:
            return str(error)


def endpoint_refusal(text: str, credentials: ClientCredentials) -> str:
    body = json.dumps({"error": "invalid_client", "error_description": text}).encode()
    limits = replace(EndpointLimits(), retry_backoff_ms=1, retry_backoff_max_ms=1)
    with EvilHttp(_answering(401, body)) as server, pytest.raises(AuthenticationError) as error:
        url = f"http://127.0.0.1:{server.port}/token"
        TokenEndpoint("opt", url, parse(SslConfig, {}), limits, SYSTEM_CLOCK).fetch(credentials)
    return str(error.value)


def _answering(status: int, body: bytes) -> Callable[[socket.socket, bytes], None]:
    head = b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    return lambda connection, _: connection.sendall(head + body)


class Proof:
    """A source of assertions whose assertion is the token."""

    def text(self, now_ms: int) -> str:
        return TOKEN


ASSERTED: Final[Any] = Proof()
BASIC: Final = {"basic.auth.user.info": f"alice:{PASSWORD}", "basic.auth.credentials.source": "USER_INFO"}
#: By login: the secret that the client sends, and a function from the text of a rejection to the client's error.
LOGINS: Final[dict[str, tuple[str, Callable[[str], str]]]] = {
    "PLAIN": (PASSWORD, lambda text: sasl_refusal(PlainClient("alice", PASSWORD), refused(text))),
    "SCRAM": (
        PASSWORD, lambda text: sasl_refusal(ScramClient("SCRAM-SHA-256", "alice", PASSWORD), refused(text)),
    ),
    "SCRAM, within": (PASSWORD, scram_error),
    "OAUTHBEARER": (TOKEN, lambda text: sasl_refusal(bearer(), refused(text))),
    "OAUTHBEARER, within": (
        TOKEN, lambda text: sasl_refusal(bearer(), SaslAuthenticateResponse(auth_bytes=text.encode()),
                                         SaslAuthenticateResponse(auth_bytes=b"x")),
    ),
    "registry, basic": (PASSWORD, lambda text: registry_refusal(text, BASIC)),
    "registry, its reasons": (PASSWORD, lambda text: registry_refusal(text, BASIC, 200)),
    "registry, bearer": (TOKEN, lambda text: registry_refusal(text, {"bearer.auth.token": TOKEN})),
    "token endpoint, secret": (
        PASSWORD, lambda text: endpoint_refusal(text, ClientCredentials("cid", PASSWORD)),
    ),
    "token endpoint, encoded": (
        PASSWORD, lambda text: endpoint_refusal(text, ClientCredentials("cid", PASSWORD, header_urlencode=True)),
    ),
    "token endpoint, assertion": (
        TOKEN, lambda text: endpoint_refusal(text, ClientCredentials("", "", assertion=ASSERTED)),
    ),
    "token endpoint, grant": (
        TOKEN, lambda text: endpoint_refusal(text, ClientCredentials("", "", assertion=ASSERTED, is_bearer=True)),
    ),
}  # fmt: skip


@with_each("login", LOGINS)
@with_each("form", FORMS)
def test_a_refusal_is_shown_without_the_secret(login: str, form: str) -> None:
    secret, said_of = LOGINS[login]
    repeated = FORMS[form](secret)
    if login == "SCRAM, within":
        repeated = repeated.replace(",", "")
    said = said_of(f"no entry for {repeated} in the list of users")
    assert REDACTED in said and "no entry for" in said and "in the list of users" in said, said
    assert not any(shown in said for shown in (secret, repeated, secret[:8], secret[-8:])), said
    assert not RepeatedSecrets([secret]).are_in(said), said


def test_a_refusal_without_the_secret_is_shown_as_it_is() -> None:
    text = "User 50% of a\\b &amp; c: denied by %41CL"
    assert text in sasl_refusal(PlainClient("alice", PASSWORD), refused(text)).replace("\\\\", "\\")
