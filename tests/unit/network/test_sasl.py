"""The SASL mechanisms without a connection: the test vectors of their RFCs, and all messages to refuse."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kafka_sink.common.errors import AuthenticationError, ConfigError
from kafka_sink.common.sasl_mechanisms import MAX_ITERATIONS, ScramCredential, parse_credential
from kafka_sink.network.sasl.bearer_token import (
    OAuthBearerClient,
    OAuthBearerServer,
    Token,
    encoded,
    token_of,
    unsecured_tokens,
)
from kafka_sink.network.sasl.jaas import parse_jaas
from kafka_sink.network.sasl.mechanism import NO_EXPIRY, PlainClient, PlainServer
from kafka_sink.network.sasl.scram import ScramClient, ScramServer
from tests.fakes.clock import FakeClock
from tests.support.cases import with_each

SHA_256 = "SCRAM-SHA-256"

# RFC 7677, 3.
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
SERVER_FIRST = f"r={CLIENT_NONCE}{SERVER_NONCE},s={SALT},i=4096".encode()
CLIENT_FINAL = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def rfc_client() -> ScramClient:
    return ScramClient(SHA_256, "user", "pencil", nonce=lambda: CLIENT_NONCE)


def rfc_server() -> ScramServer:
    credential = ScramCredential.of(SHA_256, "pencil", 4096, base64.b64decode(SALT))
    return ScramServer(SHA_256, {"user": credential}.get, nonce=lambda: SERVER_NONCE)


def exchange(client: Any, server: Any) -> str:
    """Run the exchange, and return the name that the server authenticated."""
    token = client.initial_response()
    while token is not None:
        token = client.respond(server.evaluate(token))
    assert client.complete
    assert server.complete
    return str(server.user_name)


@pytest.mark.behaviour("SASL", "SCRAM has the exchange of the RFC, byte for byte")
def test_the_exchange_of_the_rfc_byte_for_byte() -> None:
    client, server = rfc_client(), rfc_server()
    assert client.initial_response() == f"n,,n=user,r={CLIENT_NONCE}".encode()
    assert server.evaluate(client.initial_response()) == SERVER_FIRST
    assert client.respond(SERVER_FIRST) == CLIENT_FINAL
    assert server.evaluate(CLIENT_FINAL) == SERVER_FINAL
    assert client.respond(SERVER_FINAL) is None
    assert (client.complete, server.complete, server.user_name, server.expires_ms) == (True, True, "user", NO_EXPIRY)


@with_each("mechanism", [SHA_256, "SCRAM-SHA-512"])
@with_each("name", ["alice", "a,b=c", "=2C", "ünï", "CN=x,O=y"])
def test_names_and_passwords_of_any_kind(mechanism: str, name: str) -> None:
    password = 'ª,"=–\u00ad'
    server = ScramServer(mechanism, {name: ScramCredential.of(mechanism, password)}.get)
    assert exchange(ScramClient(mechanism, name, password), server) == name


@with_each(
    ("answer", "problem"),
    [
        (
            SERVER_FIRST.replace(b"rOprNGfwEbeRWgbNEkqO", b"rOprNGfwEbeRWgbNEkqX"),
            "does not begin with the client's nonce",
        ),
        (SERVER_FIRST.replace(SERVER_NONCE.encode(), b""), "does not begin with the client's nonce"),
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), "asks for 4095 SCRAM iterations, expected 4096 to"),
        (SERVER_FIRST.replace(b"i=4096", b"i=%d" % (MAX_ITERATIONS + 1)), "more keep the client's CPU busy"),
        (b"m=ext," + SERVER_FIRST, "malformed"),
        (b"", "malformed"),
        (b"\xff", "UTF-8"),
    ],
)
def test_a_client_trusts_no_first_message_that_it_should_not(answer: bytes, problem: str) -> None:
    with pytest.raises(AuthenticationError, match=problem):
        rfc_client().respond(answer)


@with_each(
    ("answer", "problem"),
    [
        (SERVER_FINAL.replace(b"6rri", b"6rrx"), "could not prove that it knows the password"),
        (b"e=invalid-proof", "refused the authentication: invalid-proof"),
        (b"", "malformed"),
        (b"v=", "malformed"),
    ],
)
def test_a_client_wants_the_brokers_own_proof(answer: bytes, problem: str) -> None:
    client = rfc_client()
    client.respond(SERVER_FIRST)
    with pytest.raises(AuthenticationError, match=problem):
        client.respond(answer)
    assert not client.complete


@pytest.mark.behaviour("SASL", "A server does not accept a final message that it should not get")
@with_each(
    ("final", "problem"),
    [
        # From another exchange: the nonce is not that of this server.
        (CLIENT_FINAL.replace(SERVER_NONCE.encode(), b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k1"), "Invalid client nonce"),
        (CLIENT_FINAL.replace(b"c=biws", b"c=eSws"), "Invalid client nonce"),
        (CLIENT_FINAL.replace(b"p=dHzb", b"p=dHzc"), "invalid credentials"),
        (CLIENT_FINAL[: CLIENT_FINAL.index(b"p=")] + b"p=dHzb", "invalid credentials"),
        (CLIENT_FINAL + b",x=1", "format"),
        (b"", "format"),
    ],
)
def test_a_server_takes_no_final_message_that_it_should_not(final: bytes, problem: str) -> None:
    server = rfc_server()
    server.evaluate(rfc_client().initial_response())
    with pytest.raises(AuthenticationError, match=problem):
        server.evaluate(final)
    assert (server.complete, server.user_name) == (False, "")


@with_each("first", [b"", b"y,,n=user,r=x", b"p=tls-unique,,n=user,r=x", b"n,,n=user", b"n,,n=a=b,r=x"])
def test_a_server_takes_no_first_message_that_it_should_not(first: bytes) -> None:
    with pytest.raises(AuthenticationError, match="first message format"):
        rfc_server().evaluate(first)


def test_other_authorization_id_or_unknown_user_is_refused() -> None:
    with pytest.raises(AuthenticationError, match="authorization id"):
        rfc_server().evaluate(b"n,a=root,n=user,r=x")
    with pytest.raises(AuthenticationError, match="invalid credentials"):
        rfc_server().evaluate(b"n,,n=nobody,r=x")
    with pytest.raises(AuthenticationError, match="authorization id"):
        PlainServer({"a": "b"}).evaluate(b"root\0a\0b")


def test_stored_credentials_round_trip_and_never_show_secrets() -> None:
    credential = ScramCredential.of(SHA_256, "pencil", 8192)
    keys = ",".join(
        f"{name}={base64.b64encode(key).decode()}"
        for name, key in (
            ("salt", credential.salt),
            ("stored_key", credential.stored_key),
            ("server_key", credential.server_key),
        )
    )
    text = f"{SHA_256}=[name=a=2Cb=3Dc,iterations=8192,{keys}]"
    assert parse_credential(text) == (SHA_256, "a,b=c", credential)
    assert "pencil" not in text
    assert repr(credential) == "ScramCredential(iterations=8192)"
    for malformed in ("", "MD5=[name=a]", f"{SHA_256}=[name=a]", text.replace("salt=", "salt=!"), text[:-1]):
        with pytest.raises(ConfigError, match=r"expected SCRAM-SHA-256=|needs name, iterations") as error:
            parse_credential(malformed)
        assert malformed == "" or malformed not in str(error.value)


@with_each(
    ("response", "problem"),
    [
        (b"\0alice\0wrong", "Invalid username or password"),
        (b"\0nobody\0secret", "Invalid username or password"),
        (b"\0nobody\0", "password not specified"),
        (b"\0\0secret", "username not specified"),
        (b"alice\0secret", "expected 3 tokens, got 2"),
        (b"\0alice\0secret\0", "expected 3 tokens, got 4"),
        (b"\xff\0a\0b", "UTF-8"),
    ],
)
def test_plain_server_refuses_wrong_or_malformed_credentials(response: bytes, problem: str) -> None:
    server = PlainServer({"alice": "secret"})
    with pytest.raises(AuthenticationError, match=problem) as error:
        server.evaluate(response)
    assert not server.complete
    assert "secret" not in str(error.value)


def test_plain_server_accepts_right_credentials() -> None:
    assert exchange(PlainClient("älice", "sécret"), PlainServer({"älice": "sécret"})) == "älice"


# -- tokens


def test_unsecured_tokens_are_let_in_until_they_expire() -> None:
    clock = FakeClock()
    held = token_of(unsecured_tokens("dora", clock)(), clock.wall_ms())
    server = OAuthBearerServer(clock)
    assert exchange(OAuthBearerClient(lambda: held), server) == "dora"
    assert server.expires_ms == held.expires_ms
    clock.advance(3_600_001)
    client, server = OAuthBearerClient(lambda: held), OAuthBearerServer(clock)
    answer = server.evaluate(client.initial_response())
    assert answer == b'{"status":"invalid_token"}'
    confirmation = client.respond(answer)
    assert confirmation == b"\1"
    with pytest.raises(AuthenticationError, match="invalid_token"):
        server.evaluate(confirmation)
    assert (client.complete, server.complete) == (False, False)


@with_each(
    "claims",
    [
        {"exp": 2e9},
        {"sub": None, "exp": 2e9},
        {"sub": "", "exp": 2e9},
        {"sub": 7, "exp": 2e9},
        {"sub": ["dora"], "exp": 2e9},
        {"sub": "dora"},
        {"sub": "dora", "exp": None},
        {"sub": "dora", "exp": True},
        {"sub": "dora", "exp": "2000000000"},
        {"sub": "dora", "exp": []},
        {"sub": "dora", "exp": 1e999},
        {"sub": "dora", "exp": -1e999},
        {"sub": "dora", "exp": float("nan")},
        {"sub": "dora", "exp": 1e17},
        {"sub": "dora", "exp": 10**400},
    ],
)
def test_a_token_with_odd_claims_is_refused(claims: dict[str, Any]) -> None:
    server = OAuthBearerServer(FakeClock())
    odd = Token(f"{encoded({'alg': 'none'})}.{encoded(claims)}.", 0)
    assert server.evaluate(OAuthBearerClient(lambda: odd).initial_response()) == b'{"status":"invalid_token"}'
    assert not server.complete


def test_extensions_follow_the_token() -> None:
    client = OAuthBearerClient(lambda: Token("abc", 10**13, {"logicalCluster": "lkc-1"}))
    assert client.initial_response() == b"n,,\1auth=Bearer abc\1logicalCluster=lkc-1\1\1"


# -- login modules in pasted configurations


@pytest.mark.parametrize("package", ["", "org.apache.kafka.common.security.plain.", "kafkashaded.org.apache.kafka.x."])
def test_a_login_module_under_any_package(package: str) -> None:
    text = f'  {package}PlainLoginModule required\n username="a\\"b\\\\c"  password=\'x\'\n  plain=word ;  '
    entry = parse_jaas("sasl.jaas.config", text)
    assert entry.options == {"username": 'a"b\\c', "password": "x", "plain": "word"}
    assert entry.mechanisms == {"PLAIN"}
    assert "a" not in repr(entry).replace("JaasEntry", "").replace("PlainLoginModule", "")


@with_each(
    "text",
    [
        "secret",
        'PlainLoginModule required username="secret" password="x"',
        'PlainLoginModule username="secret";',
        'PlainLoginModule required username="secret;',
        'PlainLoginModule required username=secret" x;',
        'PlainLoginModule required username="secret" password=/y;',
        'PlainLoginModule required username="secret" password=7;',
        'PlainLoginModule required username="secret";;',
        'PlainLoginModule required username="secret"; PlainLoginModule required;',
        '"secret" required;',
        'com.sun.security.auth.module.JndiLoginModule required keyTab="secret";',
    ],
)
def test_a_malformed_line_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ConfigError, match=r"option kafka\.sasl\.jaas\.config: ") as error:
        parse_jaas("kafka.sasl.jaas.config", text)
    assert "secret" not in str(error.value)
