"""The sources of identities: SASL messages, JAAS lines, PEM, tokens, key stores, responses of token endpoints."""

from __future__ import annotations

import hashlib
import json
import ssl
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

from kafka_sink.client.login.channel_security import kerberos_login
from kafka_sink.client.login.token_source import token_source
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.config import parse
from kafka_sink.common.errors import AuthenticationError, ConfigError
from kafka_sink.common.sasl_mechanisms import ScramCredential
from kafka_sink.common.tls_config import SslConfig
from kafka_sink.http.exchange import Exchange, HttpAnswer
from kafka_sink.http.oauth.token_endpoint import ClientCredentials, TokenEndpoint
from kafka_sink.network.sasl.bearer_token import EndpointLimits, OAuthBearerClient, encoded, token_of, unsecured_tokens
from kafka_sink.network.sasl.jaas import parse_jaas
from kafka_sink.network.sasl.scram import ScramClient, ScramServer
from kafka_sink.trust.key_stores import KeyStoreError, key_and_chain, trusted_certificates
from kafka_sink.trust.tls_context import TlsContexts
from tests.support.certificates import Authority

AUTHORITY = Authority()
IDENTITY = AUTHORITY.issue("127.0.0.1")
PASSWORD = "st0re"
SCRAM = "SCRAM-SHA-256"
CREDENTIAL = ScramCredential.of(SCRAM, "pencil", salt=b"0123456789abcdef")
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
TOKEN = unsecured_tokens("dora", SYSTEM_CLOCK)()


def text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode()


def jks(body: bytes) -> bytes:
    """Return a key store with a valid checksum, so that a reader parses its contents."""
    return body + hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def jks_body() -> bytes:
    certificate = ssl.PEM_cert_to_DER_cert(AUTHORITY.pem)
    trusted = struct.pack(">IH", 2, 2) + b"ca" + bytes(8) + struct.pack(">H", 5) + b"X.509"
    trusted += struct.pack(">I", len(certificate)) + certificate
    algorithm = bytes.fromhex("300e060a2b060104012a021101010500")
    sealed = b"\4\x3c" + bytes(60)
    protected = b"\x30" + bytes([len(algorithm) + len(sealed)]) + algorithm + sealed
    key = struct.pack(">IH", 1, 2) + b"me" + bytes(8) + struct.pack(">I", len(protected)) + protected
    key += struct.pack(">I", 0)
    return struct.pack(">III", 0xFEEDFEED, 2, 2) + trusted + key


def pkcs12_stores() -> Iterator[bytes]:
    few_rounds = PrivateFormat.PKCS12.encryption_builder().kdf_rounds(2).hmac_hash(SHA256()).build(PASSWORD.encode())
    for encryption in (NoEncryption(), few_rounds):
        yield pkcs12.serialize_key_and_certificates(b"me", IDENTITY.key, IDENTITY.chain[0], None, encryption)


def certificates() -> Iterator[bytes]:
    yield ssl.PEM_cert_to_DER_cert(AUTHORITY.pem)
    yield IDENTITY.chain[0].public_bytes(Encoding.DER)


def odd_tokens() -> Iterator[bytes]:
    for claims in ({"sub": None, "exp": 1e300}, {"sub": 5, "exp": "1790000000"}, {"sub": "a", "exp": -(10**18)}):
        yield f"{encoded({'alg': 'none'})}.{encoded(claims)}.".encode()


def scram_client(data: bytes) -> None:
    client = ScramClient(SCRAM, "user", "pencil", nonce=lambda: "rOprNGfwEbeRWgbNEkqO")
    client.initial_response()
    first, _, final = data.partition(b"|")
    if client.respond(first.replace(b"i=1000000", b"i=4096")) is not None:
        client.respond(final)


def scram_server(data: bytes) -> None:
    server = ScramServer(SCRAM, {"user": CREDENTIAL}.get, nonce=lambda: "srv")
    first, _, final = data.partition(b"|")
    server.evaluate(first)
    server.evaluate(final)


def oauth_client(data: bytes) -> None:
    client = OAuthBearerClient(lambda: token_of(TOKEN, SYSTEM_CLOCK.wall_ms()))
    client.initial_response()
    client.respond(data)
    client.respond(data)


def token(data: bytes) -> None:
    with suppress(AuthenticationError):
        token_of(text(data), 0)
    token_of((text(data[:20]), text(data[20:])), 0)


def endpoint_answer(data: bytes) -> None:
    status, _, body = data.partition(b" ")
    answer = HttpAnswer({b"200": 200, b"401": 401, b"503": 503}.get(status, 400), body)
    endpoint = TokenEndpoint("url", "https://idp/token", SslConfig(), EndpointLimits(1, 1, 0, 0), SYSTEM_CLOCK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Exchange, "run", lambda *_: answer)
        patch.setattr("kafka_sink.http.oauth.token_endpoint.TlsContexts", lambda *_, **__: None)
        endpoint.fetch(ClientCredentials("me", "s3cr3t"))


def jaas(data: bytes) -> None:
    parse_jaas("sasl.jaas.config", text(data))


def login_options(data: bytes) -> None:
    """Read the options of login modules, after the JAAS grammar."""
    for mechanism, read in (("GSSAPI", kerberos_login), ("OAUTHBEARER", lambda c: token_source(c, SYSTEM_CLOCK))):
        url = "https://idp/t" if mechanism == "OAUTHBEARER" else ""
        properties = {"bootstrap.servers": "h:1", "sasl.mechanism": mechanism, "sasl.kerberos.service.name": "kafka"}
        properties |= {"sasl.jaas.config": text(data), "sasl.oauthbearer.token.endpoint.url": url}
        with suppress(ConfigError):
            read(parse(ClientConfig, properties))


def endpoint_address(data: bytes) -> None:
    TokenEndpoint("url", text(data), SslConfig(), EndpointLimits(), SYSTEM_CLOCK)


def pem(data: bytes) -> None:
    found = text(data)
    config = SslConfig(ssl_truststore_certificates=found)
    with suppress(ConfigError):
        TlsContexts(config, server=False)
    key, _, chain = found.partition("-----BEGIN CERTIFICATE-----")
    chain = f"-----BEGIN CERTIFICATE-----{chain}"
    TlsContexts(replace(config, ssl_keystore_key=key, ssl_keystore_certificate_chain=chain), server=False)


def key_store(data: bytes) -> None:
    with suppress(KeyStoreError):
        trusted_certificates(data, PASSWORD)
    key_and_chain(data, PASSWORD, "")


SCRAM_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvY,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SCRAM_LINE = (
    b"SCRAM-SHA-256=[name=a,iterations=4096,salt=MDEy,stored_key="
    b"Zm9vZm9vZm9vZm9vZm9vZm9vZm9vZm9vZm9vZm9vZm8=,server_key=Zm9v]"
)
JAAS_LINES = (
    b'a.PlainLoginModule required username="a\\"b" password="x";',
    b'OAuthBearerLoginModule required clientId="a" clientSecret="b" scope="c" extension_x="y" '
    b'ssl.truststore.type="PEM";',
    b'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/a" principal="a@B";',
)
ENDPOINT_ANSWERS = (
    b"200 " + json.dumps({"access_token": TOKEN[0], "expires_in": 60}).encode(),
    b'200 {"access_token":"x","expires_in":60}',
    b'200 {"access_token":"x","expires_in":-1e999}',
    b'401 {"error":"invalid_client","error_description":["s3cr3t"]}',
    b"503 <html>",
)
PEMS = (AUTHORITY.pem.encode(), IDENTITY.pem().encode(), IDENTITY.pem("p4ss").encode())
