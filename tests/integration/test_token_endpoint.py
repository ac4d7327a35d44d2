"""The token endpoint of an identity provider: what it is asked, what it may answer, and who asks it how often."""

from __future__ import annotations

import base64
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.client.login.token_source import token_source
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.config import parse
from kafka_sink.common.errors import AuthenticationError, ConfigError, KafkaError
from kafka_sink.common.tls_config import SslConfig
from kafka_sink.http.oauth.token_endpoint import Assertion, ClientCredentials, TokenEndpoint
from kafka_sink.http.oauth.token_login import LOGINS
from kafka_sink.network.sasl.bearer_token import ES256, EndpointLimits, encoded
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.producer_record import ProducerRecord
from tests.support.certificates import Authority
from tests.support.readback import read_topic
from tests.support.secure_cluster import address, secure_cluster
from tests.support.token_server import CLIENT, SECRET, Issuer, TokenServer, token_server

AUTHORITY = Authority()
TRUST = SslConfig(ssl_truststore_certificates=AUTHORITY.pem)
CREDENTIALS = ClientCredentials(CLIENT, SECRET, "kafka:write all")
LIMITS = EndpointLimits(2_000, 500, 1, 300)
HANDLER = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"


@pytest.fixture
def keystore(tmp_path: Path) -> Path:
    path = tmp_path / "idp.pem"
    path.write_text(AUTHORITY.issue("127.0.0.1").pem())
    return path


@pytest.fixture
def idp(keystore: Path) -> Iterator[TokenServer]:
    with token_server(Issuer(None), keystore) as running:
        yield running
    LOGINS.forget()


def test_endpoints_name_may_end_with_a_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = []
    look_up = socket.getaddrinfo

    def look_up_here(host: str, *arguments: Any, **options: Any) -> Any:
        looked_up.append(host)
        return look_up("127.0.0.1", *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up_here)
    (tmp_path / "idp.pem").write_text(AUTHORITY.issue("idp.test").pem())
    with token_server(Issuer(None), tmp_path / "idp.pem") as idp:
        assert endpoint(idp.url.replace("127.0.0.1", "idp.test.")).fetch(CREDENTIALS).value
    assert looked_up[-1] == "idp.test."


def endpoint(url: str, tls: SslConfig = TRUST, limits: EndpointLimits = LIMITS) -> TokenEndpoint:
    return TokenEndpoint("sasl.oauthbearer.token.endpoint.url", url, tls, limits, SYSTEM_CLOCK)


@pytest.mark.behaviour("SASL", "Client credentials are exchanged for a token over verified TLS (KIP-768)")
def test_secret_goes_into_the_header_scope_into_the_body(idp: TokenServer) -> None:
    token = endpoint(idp.url).fetch(CREDENTIALS)
    assert token.expires_ms > SYSTEM_CLOCK.wall_ms() + 3_500_000
    (asked,) = idp.asked
    assert asked.body == {"grant_type": ["client_credentials"], "scope": ["kafka:write all"]}
    assert base64.b64decode(asked.headers["authorization"].removeprefix("Basic ")).decode() == f"{CLIENT}:{SECRET}"
    assert token.value not in repr(token) and SECRET not in repr(CREDENTIALS)


def test_encoded_header_follows_rfc_6749() -> None:
    headers, _ = ClientCredentials("i:d", "p w%", header_urlencode=True).request(0)
    client_id, _, secret = base64.b64decode(headers["Authorization"][6:]).decode().partition(":")
    assert (client_id, secret) == ("i%3Ad", "p+w%25")
    assert unquote_plus(secret) == "p w%"


@pytest.mark.parametrize(
    ("answer", "problem", "attempts"),
    [
        ((401, {"error": "invalid_client", "error_description": f"not {SECRET}"}), r"HTTP 401: invalid_client", 1),
        ((403, b"<html>"), r"\(HTTP 403\); check the client's id and secret", 1),
        ((404, {}), r"\(HTTP 404\); check sasl\.oauthbearer\.token\.endpoint\.url", 1),
        ((302, {}), "redirects to another address, which is not followed", 1),
        ((200, {"token": 1}), "has no access_token", 1),
        ((200, b"[" * 100_000), "has no access_token", 1),
        ((200, {"access_token": "opaque"}), "not a JWT", 1),
        ((200, {"access_token": "opaque", "expires_in": "soon"}), "not a JWT", 1),
        ((200, {"access_token": "opaque", "expires_in": 0}), "has expired already", 1),
        ((200, {"access_token": f"e30.{encoded({'sub': 'a'})}.", "expires_in": 60}), "without an expiry time", 1),
        ((200, {"access_token": "a\nb", "expires_in": 60}), "characters that a token cannot have", 1),
        ((200, b"x" * (5 << 20)), "larger than 4194304 bytes", None),
        ((503, {"error": "busy\x1b[31m"}), r"cannot be used \(HTTP 503: busy\\x1b\[31m\); check", None),
        ((429, {}), r"cannot be used \(HTTP 429\)", None),
    ],
)
def test_refusal_names_reason_and_todo_not_the_secret(
    answer: tuple[int, Any], problem: str, attempts: int | None, idp: TokenServer, caplog: pytest.LogCaptureFixture
) -> None:
    idp.answers.extend([answer] * 1000)
    with caplog.at_level(logging.DEBUG), pytest.raises(AuthenticationError, match=problem) as error:
        endpoint(idp.url).fetch(CREDENTIALS)
    assert SECRET not in str(error.value) + caplog.text and error.value.__cause__ is None
    if attempts is None:
        # 1, 2, 4 … 128 ms, and the rest of 300 ms.
        assert 2 <= len(idp.asked) <= 11
    else:
        assert len(idp.asked) == attempts


def test_passing_trouble_is_tried_again(idp: TokenServer) -> None:
    idp.answers.extend([(500, {}), (503, b"")])
    assert endpoint(idp.url).fetch(CREDENTIALS).value
    assert len(idp.asked) == 3


@pytest.mark.behaviour("SASL", "A token that is no JWT lives as long as its endpoint says, in a number or a text")
@pytest.mark.parametrize("value", ["opaque", "ya29.c.b0Aaek", "a.b.c.d.e", "ab+/~.="])
@pytest.mark.parametrize(("lifetime", "seconds"), [(60, 60), ("60", 60), (60.5, 60.5), (10**9, 365 * 24 * 3600)])
def test_opaque_tokens_live_as_long_as_told(value: str, lifetime: object, seconds: float, idp: TokenServer) -> None:
    idp.answers.append((200, {"access_token": value, "expires_in": lifetime}))
    before_ms = SYSTEM_CLOCK.wall_ms()
    token = endpoint(idp.url).fetch(CREDENTIALS)
    assert token.value == value
    assert before_ms <= token.expires_ms - seconds * 1000 <= SYSTEM_CLOCK.wall_ms()


def test_silent_endpoint_is_not_awaited_for_ever(idp: TokenServer) -> None:
    idp.is_open.clear()
    with pytest.raises(AuthenticationError, match=r"no answer within 2010 ms"):
        endpoint(idp.url, limits=EndpointLimits(2_000, 10, 1, 1)).fetch(CREDENTIALS)


@pytest.mark.behaviour("SASL", "No secret is sent to a token endpoint whose certificate is not valid")
@pytest.mark.parametrize(
    ("tls", "name", "problem"),
    [
        (SslConfig(), "127.0.0.1", "certificate verify failed|CERTIFICATE_VERIFY_FAILED"),
        (TRUST, "localhost", "mismatch|not valid for"),
    ],
)
def test_secret_is_not_sent_to_strangers(tls: SslConfig, name: str, problem: str, tmp_path: Path) -> None:
    keystore = tmp_path / "idp.pem"
    keystore.write_text(AUTHORITY.issue(name).pem())
    with token_server(Issuer(None), keystore) as stranger:
        with pytest.raises(AuthenticationError, match=problem):
            endpoint(stranger.url, tls).fetch(CREDENTIALS)
        assert stranger.asked == []


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://idp.example/token", "would send the client's secret unencrypted; use https://"),
        ("https://alice:s3cr3t@idp/token", "must not contain a user name or a password"),
        ("idp.example/token", "is not an address"),
        ("https://[::1", "is not an address"),
        ("https:///token", "is not an address"),
        ("ftp://idp/token", "is not an address"),
        ("https://idp/to ken", "is not an address"),
        ("https://idp:99999/token", "is not an address"),
    ],
)
def test_address_that_cannot_be_used_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as error:
        endpoint(url)
    assert "s3cr3t" not in str(error.value)


def test_plain_http_is_for_this_machine(tmp_path: Path) -> None:
    with token_server(Issuer(None)) as local:
        assert endpoint(local.url).fetch(CREDENTIALS).value
        assert endpoint(local.url.replace("127.0.0.1", "localhost")).fetch(CREDENTIALS).value
        file = tmp_path / "my token"
        file.write_text(local.issuer.token() + "\n")
    assert endpoint(f"file://{str(file).replace(' ', '%20')}").fetch(CREDENTIALS).value == file.read_text().strip()
    with pytest.raises(ConfigError, match="/nowhere cannot be read: No such file"):
        endpoint("file:///nowhere").fetch(CREDENTIALS)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "localhost."])
def test_address_on_this_machine_may_have_an_at_sign(host: str) -> None:
    assert endpoint(f"http://{host}:8080/tenant@idp/token?for=a@b")


def claims_of(assertion: str) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    header, claims, signature = assertion.split(".")
    decoded = [base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in (header, claims, signature)]
    return json.loads(decoded[0]), json.loads(decoded[1]), decoded[2], f"{header}.{claims}".encode()


@pytest.mark.behaviour("SASL", "An assertion may replace the client's secret (KIP-1139, KIP-1258)")
@pytest.mark.parametrize("algorithm", ["RS256", ES256])
def test_assertion_replaces_the_secret(algorithm: str, idp: TokenServer, tmp_path: Path) -> None:
    rsa_key, ec_key = rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())
    key = rsa_key if algorithm == "RS256" else ec_key
    encryption = serialization.BestAvailableEncryption(b"p4ss")
    file = tmp_path / "key.pem"
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    # As a secret that was copied into one line.
    file.write_bytes(pem.replace(b"\n", b" "))
    assertion = Assertion(
        key_file=str(file), key_password="p4ss", algorithm=algorithm, issuer="me", subject="me", audience="idp"
    )
    endpoint(idp.url).fetch(ClientCredentials("me", "", assertion=assertion))
    (asked,) = idp.asked
    assert "authorization" not in asked.headers and asked.body["client_id"] == ["me"]
    assert asked.body["client_assertion_type"] == ["urn:ietf:params:oauth:client-assertion-type:jwt-bearer"]
    header, claims, signature, signed = claims_of(asked.body["client_assertion"][0])
    assert header == {"alg": algorithm, "typ": "JWT"}
    assert (claims["iss"], claims["aud"], claims["exp"] - claims["iat"]) == ("me", "idp", 300)
    if algorithm == "RS256":
        rsa_key.public_key().verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
    else:
        halves = [int.from_bytes(signature[at : at + 32], "big") for at in (0, 32)]
        ec_key.public_key().verify(utils.encode_dss_signature(*halves), signed, ec.ECDSA(hashes.SHA256()))
    wrong = Assertion(key_file=str(file), key_password="wrong", issuer="me")
    with pytest.raises(ConfigError, match=r"is not a private key in PEM, or .*passphrase is not its password"):
        wrong.text(0)


@pytest.mark.behaviour("SASL", "An assertion is exchanged for tokens: the grant jwt-bearer (RFC 7523, KIP-1139)")
def test_assertion_is_exchanged_for_a_token(idp: TokenServer, tmp_path: Path) -> None:
    file = tmp_path / "assertion"
    file.write_text("a.b+c.d\n")
    given = {
        "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever",
        "sasl.oauthbearer.assertion.file": str(file),
    }
    token_source(parse(ProducerConfig, {**properties(idp), **given}), SYSTEM_CLOCK).token()
    (asked,) = idp.asked
    assert asked.body == {
        "grant_type": ["urn:ietf:params:oauth:grant-type:jwt-bearer"],
        "assertion": ["a.b+c.d"],
        "scope": ["a b"],
    }
    assert "authorization" not in asked.headers
    idp.answers.append((400, {"error": "invalid_grant"}))
    with pytest.raises(AuthenticationError, match=r"invalid_grant.*; check sasl\.oauthbearer\.assertion\.…"):
        token_source(
            parse(ProducerConfig, {**properties(idp), **given, "sasl.oauthbearer.scope": "x"}), SYSTEM_CLOCK
        ).token()


def test_key_of_the_wrong_kind_is_named(keystore: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not for sasl\.oauthbearer\.assertion\.algorithm=RS256"):
        Assertion(key_file=str(keystore), issuer="me").text(0)
    with pytest.raises(ConfigError, match=r"option sasl\.oauthbearer\.assertion\.file: /nowhere cannot be read"):
        Assertion("/nowhere").text(0)


# -- the options


def properties(idp: TokenServer, **given: str) -> dict[str, Any]:
    trusted = " ".join(AUTHORITY.pem.split("\n"))
    line = (
        f'OAuthBearerLoginModule required clientId="{CLIENT}" clientSecret="{SECRET}" scope="a b" '
        f'extension_logicalCluster="lkc-1" ssl.truststore.certificates="{trusted}";'
    )
    return {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": HANDLER,
        "sasl.oauthbearer.token.endpoint.url": idp.url,
        "sasl.jaas.config": line,
        "sasl.login.retry.backoff.max.ms": "0",
        **{name.replace("_", "."): value for name, value in given.items()},
    }


def test_options_of_java_are_understood(idp: TokenServer) -> None:
    config = parse(ProducerConfig, properties(idp))
    user = token_source(config, SYSTEM_CLOCK)
    assert user.token().extensions == {"logicalCluster": "lkc-1"}
    assert idp.asked[0].body["scope"] == ["a b"]
    # The newer names win, as in Kafka; and another secret is another login.
    given = {"sasl.oauthbearer.client.credentials.client.secret": "wr0ng", "sasl.oauthbearer.scope": "c"}
    with pytest.raises(
        AuthenticationError, match=r"HTTP 401: invalid_client: wrong secret in kafka-job:.hidden"
    ) as error:
        token_source(parse(ProducerConfig, {**properties(idp), **given}), SYSTEM_CLOCK).token()
    assert idp.asked[1].body["scope"] == ["c"]
    assert "wr0ng" not in str(error.value) and SECRET not in repr(config)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"sasl_jaas_config": ""}, "needs the client's id: set sasl.oauthbearer.client.credentials.client.id"),
        ({"sasl_jaas_config": 'OAuthBearerLoginModule required clientId="x";'}, "needs the client's secret"),
        ({"sasl_login_callback_handler_class": "my.tokens"}, "are both set; remove one of them"),
        ({"sasl_oauthbearer_token_endpoint_url": ""}, r"needs sasl\.oauthbearer\.token\.endpoint\.url, or"),
        ({"sasl_oauthbearer_jwt_retriever_class": "x.FileJwtRetriever"}, "is not a file, which FileJwtRetriever"),
        ({"sasl_oauthbearer_jwt_retriever_class": "x.JwtBearerJwtRetriever"}, "needs an assertion: set sasl.oauth"),
        (
            {
                "sasl_oauthbearer_jwt_retriever_class": "x.JwtBearerJwtRetriever",
                "sasl_oauthbearer_token_endpoint_url": "file:///token",
            },
            "is a file, and JwtBearerJwtRetriever needs a token endpoint",
        ),
        ({"sasl_oauthbearer_assertion_claim_iss": "me"}, "belong together; set both, or none"),
        (
            {"sasl_jaas_config": 'OAuthBearerLoginModule required clientId="x" clientSecret="y" extension_a1="b";'},
            "extension_a1 is not a valid SASL extension",
        ),
        ({"sasl_jaas_config": 'OAuthBearerLoginModule required ssl.x="1";'}, "unknown option sasl.jaas.config: ssl.x"),
    ],
)
def test_options_that_lack_or_contradict_are_named(given: dict[str, str], problem: str, idp: TokenServer) -> None:
    with pytest.raises(ConfigError, match=problem):
        token_source(parse(ProducerConfig, properties(idp, **given)), SYSTEM_CLOCK)
    assert idp.asked == []


# -- with a broker


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with secure_cluster(AUTHORITY.issue("127.0.0.1").pem()) as running:
        yield running


def producer_properties(cluster: EmbeddedCluster, idp: TokenServer, **given: str) -> dict[str, Any]:
    trust = {"ssl.truststore.certificates": AUTHORITY.pem, "max.block.ms": 20_000}
    return {**properties(idp, **given), **trust, "bootstrap.servers": address(cluster, "SASL_SSL")}


@pytest.mark.behaviour("SASL", "Clients of a process with the same credentials share one token and its renewal")
def test_producers_share_one_token(cluster: EmbeddedCluster, idp: TokenServer) -> None:
    cluster.create_topic("shared", 1)

    def write() -> None:
        with KafkaProducer(producer_properties(cluster, idp)) as producer:
            producer.send(ProducerRecord("shared", b"x")).result(60)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    write()
    assert len(read_topic(cluster.bootstrap_servers, "shared")) == 5
    assert len(idp.asked) == 1


@pytest.mark.behaviour("SASL", "A wrong secret makes one request in ten seconds, however many clients there are")
def test_wrong_secret_makes_no_storm(
    cluster: EmbeddedCluster, idp: TokenServer, caplog: pytest.LogCaptureFixture, figure: Callable[[str, object], None]
) -> None:
    line = properties(idp)["sasl.jaas.config"].replace(SECRET, "Wr0ng")
    begin = SYSTEM_CLOCK.monotonic_ms()
    with caplog.at_level(logging.DEBUG):
        for _ in range(20):
            with (
                KafkaProducer(producer_properties(cluster, idp, sasl_jaas_config=line)) as producer,
                pytest.raises(KafkaError) as error,
            ):
                producer.send(ProducerRecord("t", b"x")).result(60)
            assert "HTTP 401: invalid_client" in str(error.value)
            assert "Wr0ng" not in str(error.value)
    figure(f"requests of 20 clients with a wrong secret in {SYSTEM_CLOCK.monotonic_ms() - begin} ms", len(idp.asked))
    assert len(idp.asked) == 1
    assert "Wr0ng" not in caplog.text
