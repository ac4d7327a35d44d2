"""TLS and SASL between our producer and our broker over real sockets: accepted and rejected clients, and the errors."""

from __future__ import annotations

import contextlib
import datetime
import logging
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common.config import parse
from kafka_sink.common.errors import AuthenticationError, ConfigError, KafkaError, SslAuthenticationError
from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.producer_record import ProducerRecord
from tests.support.certificates import CLIENT, DAY, SERVER, Authority, Identity
from tests.support.readback import read_topic
from tests.support.secure_cluster import (
    MAX_BLOCK_MS,
    PASSWORD,
    SECRETS,
    address,
    client_properties,
    produce,
    secure_cluster,
)
from tests.support.sessions import outlasting, renew_early

Figure = Callable[[str, object], None]
AUTHORITY = Authority()
BROKER = AUTHORITY.issue("127.0.0.1", "localhost")
HOST = "broker.cluster.test"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SCRAM_OF_ALICE = f'{SCRAM} username="alice" password="S3cr3t,\\"x\\\\y=ü";'


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with secure_cluster(BROKER.pem()) as running:
        yield running


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolves every name ending in .test to this machine; fails for reverse look-ups of addresses."""
    look_up = socket.getaddrinfo

    def look_up_here(host: str, *arguments: Any, **options: Any) -> Any:
        return look_up("127.0.0.1" if host.endswith((".test", ".test.")) else host, *arguments, **options)

    def refuse(*arguments: Any) -> Any:
        raise AssertionError("a name was looked up by its address")

    monkeypatch.setattr(socket, "getaddrinfo", look_up_here)
    for function in ("gethostbyaddr", "getnameinfo", "getfqdn"):
        monkeypatch.setattr(socket, function, refuse)


def stored(cluster: EmbeddedCluster) -> int:
    with AdminClient(cluster.bootstrap_servers) as admin:
        return admin.offsets([TopicPartition("t", 0)])[TopicPartition("t", 0)]


# -- whose certificate is accepted


@pytest.mark.behaviour("TLS", "A certificate is accepted for the names it lists")
@pytest.mark.parametrize("protocols", ["TLSv1.2", "TLSv1.3", "TLSv1.2,TLSv1.3"])
@pytest.mark.parametrize(
    ("listed", "host"), [("broker.cluster.test", HOST), ("*.cluster.test", HOST), ("127.0.0.1", "127.0.0.1")]
)
@pytest.mark.usefixtures("names")
def test_a_certificate_that_lists_the_name_is_accepted(listed: str, host: str, protocols: str) -> None:
    with secure_cluster(AUTHORITY.issue(listed).pem(), host) as cluster:
        properties = client_properties(
            cluster, "SSL", ssl_truststore_certificates=AUTHORITY.pem, ssl_enabled_protocols=protocols
        )
        assert produce(properties) == 10
        assert stored(cluster) == 10


@pytest.mark.behaviour("TLS", "A dot at the end of a host name is for DNS, and no part of the name in a certificate")
@pytest.mark.usefixtures("names")
def test_advertised_name_with_a_dot_at_its_end_is_accepted() -> None:
    with secure_cluster(AUTHORITY.issue(HOST).pem(), f"{HOST}.") as cluster:
        assert produce(client_properties(cluster, "SSL", ssl_truststore_certificates=AUTHORITY.pem)) == 10


BAD: dict[str, tuple[Identity, str]] = {
    "common name only": (AUTHORITY.issue(common_name=HOST), "subject alternative names contain broker.cluster.test"),
    "other name": (AUTHORITY.issue("other.cluster.test"), "subject alternative names contain broker.cluster.test"),
    "wildcard of another level": (
        AUTHORITY.issue("*.broker.cluster.test"),
        "subject alternative names contain broker.cluster.test",
    ),
    "address instead of the name": (
        AUTHORITY.issue("127.0.0.1"),
        "subject alternative names contain broker.cluster.test",
    ),
    "expired": (AUTHORITY.issue(HOST, not_before=-2 * DAY, not_after=-DAY), "expired.*it has expired: renew it"),
    "not yet valid": (AUTHORITY.issue(HOST, not_before=DAY, not_after=2 * DAY), "not yet valid.*check the clocks"),
    "self-signed": (AUTHORITY.issue(HOST, self_signed=True), "add this one to ssl.truststore.location"),
    "unknown authority": (Authority("other").issue(HOST), "its authority is not trusted.*ssl.truststore.location"),
    "for clients": (AUTHORITY.issue(HOST, purposes=(CLIENT,)), "extended key usage.*serverAuth"),
}


@pytest.mark.behaviour("Faults: security", "Every other certificate is refused with what to do, and nothing is stored")
@pytest.mark.parametrize("kind", BAD)
@pytest.mark.usefixtures("names")
def test_every_bad_certificate_is_refused_and_nothing_is_stored(kind: str) -> None:
    identity, todo = BAD[kind]
    with secure_cluster(identity.pem(), HOST) as cluster:
        began = time.monotonic()
        with pytest.raises(SslAuthenticationError, match=todo):
            produce(client_properties(cluster, "SSL", ssl_truststore_certificates=AUTHORITY.pem))
        assert time.monotonic() - began < MAX_BLOCK_MS / 1000
        assert stored(cluster) == 0


@pytest.mark.usefixtures("names")
def test_empty_option_skips_name_check_but_never_trust_check() -> None:
    with secure_cluster(AUTHORITY.issue("other.cluster.test").pem(), HOST) as cluster:
        unchecked = {"ssl_endpoint_identification_algorithm": ""}
        assert produce(client_properties(cluster, "SSL", ssl_truststore_certificates=AUTHORITY.pem, **unchecked)) == 10
        with pytest.raises(SslAuthenticationError, match="not trusted"):
            produce(client_properties(cluster, "SSL", ssl_truststore_certificates=Authority("other").pem, **unchecked))
        with pytest.raises(SslAuthenticationError, match=r"certificate of broker\.cluster\.test was refused"):
            # The certificate authorities of the system do not include ours.
            produce(client_properties(cluster, "SSL", **unchecked))
        with pytest.raises(ConfigError, match="https, or an empty value"):
            produce(client_properties(cluster, "SSL", ssl_endpoint_identification_algorithm="none"))


# -- who we are


def as_text(identity: Identity) -> dict[str, str]:
    return {"ssl_keystore_key": identity.key_pem(), "ssl_keystore_certificate_chain": identity.certificate_pem}


@pytest.mark.behaviour("TLS", "Clients show certificates where the broker requires them")
@pytest.mark.parametrize("protocols", ["TLSv1.2", "TLSv1.3"])
def test_clients_show_certificates_where_the_broker_asks(protocols: str) -> None:
    trust = {"ssl_truststore_certificates": AUTHORITY.pem, "ssl_enabled_protocols": protocols}
    known, unknown = AUTHORITY.issue(common_name="carol"), Authority("other").issue(common_name="carol")
    for_servers = AUTHORITY.issue(common_name="carol", purposes=(SERVER,))
    for asks, identity, error in (
        ("required", known, None),
        ("required", None, "requires a client certificate|refused the handshake"),
        ("required", unknown, "does not trust the authority of our certificate"),
        ("required", for_servers, "not for this use"),
        ("requested", None, None),
        ("requested", unknown, "does not trust the authority of our certificate"),
        ("none", unknown, None),
    ):
        with secure_cluster(BROKER.pem(), ssl_client_auth=asks, ssl_truststore_certificates=AUTHORITY.pem) as cluster:
            properties = client_properties(cluster, "SSL", **trust, **(as_text(identity) if identity else {}))
            if error is None:
                assert produce(properties) == 10
            else:
                with pytest.raises(SslAuthenticationError, match=error):
                    produce(properties)
            assert stored(cluster) == (10 if error is None else 0)


def test_encrypted_keys_files_and_text(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    identity = AUTHORITY.issue(common_name="carol")
    truststore, keystore = tmp_path / "trust.pem", tmp_path / "key.pem"
    truststore.write_text(f"# a comment: ü\n{AUTHORITY.pem}")
    keystore.write_text(identity.pem("k3y-p4ss"))
    files = {"ssl_truststore_location": str(truststore), "ssl_keystore_location": str(keystore)}
    assert produce(client_properties(cluster, "SSL", **files, ssl_key_password="k3y-p4ss")) == 10
    text = {
        "ssl_truststore_certificates": AUTHORITY.pem,
        "ssl_keystore_key": identity.key_pem("k3y-p4ss"),
        "ssl_keystore_certificate_chain": identity.certificate_pem,
    }
    assert produce(client_properties(cluster, "SSL", **text, ssl_key_password="k3y-p4ss")) == 10
    for given, problem in (("", "is required: the private key is encrypted"), ("wrong", "is not the password of the")):
        with pytest.raises(ConfigError, match=f"ssl.key.password {problem}"):
            produce(client_properties(cluster, "SSL", **files, ssl_key_password=given))


@pytest.mark.behaviour("TLS", "Renewed certificates are used without a restart")
def test_renewed_certificates_are_used_without_a_restart(tmp_path: Path) -> None:
    keystore, truststore = tmp_path / "broker.pem", tmp_path / "trust.pem"
    keystore.write_text(BROKER.pem())
    truststore.write_text(AUTHORITY.pem)

    def replace(file: Path, text: str) -> None:
        fresh = file.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(file)

    with secure_cluster(
        "", ssl_keystore_key="", ssl_keystore_certificate_chain="", ssl_keystore_location=str(keystore)
    ) as cluster:
        properties = client_properties(
            cluster,
            "SSL",
            ssl_truststore_location=str(truststore),
            connections_max_idle_ms=200,
            metadata_max_age_ms=100,
        )
        with KafkaProducer(properties) as producer:
            producer.send(ProducerRecord("t", b"before")).result(60)
            other = Authority("next")
            replace(keystore, other.issue("127.0.0.1").pem())
            replace(truststore, other.pem)
            with pytest.raises(SslAuthenticationError):
                produce(client_properties(cluster, "SSL", ssl_truststore_certificates=AUTHORITY.pem))
            time.sleep(0.5)
            producer.send(ProducerRecord("t", b"after")).result(60)
            replace(keystore, "half a file")
            assert produce(client_properties(cluster, "SSL", ssl_truststore_certificates=other.pem)) == 10
        assert stored(cluster) == 12


@pytest.mark.behaviour("Faults: security", "Plaintext and TLS that meet each other say so")
def test_plaintext_and_tls_that_meet_each_other_say_so(cluster: EmbeddedCluster) -> None:
    tls = {"ssl_truststore_certificates": AUTHORITY.pem, "max_block_ms": 6000}
    with pytest.raises(KafkaError, match=r"TLS handshake; check that the port.*as security.protocol says"):
        produce({**client_properties(cluster, "PLAINTEXT", **tls), "security.protocol": "SSL"})
    with pytest.raises(KafkaError, match=r"security.protocol(=PLAINTEXT| has to be that of the listener)"):
        produce({**client_properties(cluster, "SSL", max_block_ms=6000), "security.protocol": "PLAINTEXT"})


# -- names and passwords


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_right_password_is_let_in_and_the_wrong_one_waits(
    cluster: EmbeddedCluster, listener: str, mechanism: str
) -> None:
    common = {"ssl_truststore_certificates": AUTHORITY.pem, "sasl_mechanism": mechanism, "sasl_username": "alice"}
    assert produce(client_properties(cluster, listener, **common, sasl_password=PASSWORD)) == 10
    for name, password in (("alice", "wrong"), ("nobody", PASSWORD), ("alice", "b")):
        began = time.monotonic()
        with pytest.raises(
            AuthenticationError, match=rf"the broker refused the authentication \({mechanism}\): .*"
        ) as refusal:
            produce(client_properties(cluster, listener, **{**common, "sasl_username": name}, sasl_password=password))
        assert 0.1 <= time.monotonic() - began < MAX_BLOCK_MS / 1000
        assert not any(secret in str(refusal.value) for secret in SECRETS)


@pytest.mark.behaviour("Faults: security", "A wrong password makes no storm of attempts")
def test_a_wrong_password_makes_no_storm(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture, figure: Figure
) -> None:
    caplog.set_level(logging.INFO, "kafka_sink.broker.network.processor")
    properties = client_properties(
        cluster, "SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="alice", sasl_password="wrong"
    )
    began = time.monotonic()
    with KafkaProducer(properties) as producer:
        while time.monotonic() - began < 2:
            with pytest.raises(AuthenticationError):
                producer.send(ProducerRecord("t", b"x")).result(60)
    attempts = len([record for record in caplog.records if "Invalid username or password" in record.getMessage()])
    figure("attempts with a wrong password in 2 s of sending", attempts)
    # A delay of 100 ms each, and the client's backoff, which grows to 1 s.
    assert 1 <= attempts <= 10


def test_the_line_that_users_paste_is_understood(cluster: EmbeddedCluster) -> None:
    for package in (
        "",
        "org.apache.kafka.common.security.scram.",
        "kafkashaded.org.apache.kafka.common.security.scram.",
    ):
        line = SCRAM_OF_ALICE.replace("org.apache.kafka.common.security.scram.", package)
        common = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": line}
        assert produce(client_properties(cluster, "SASL_PLAINTEXT", **common)) == 10


def test_token_comes_from_callback_and_bad_token_is_refused(cluster: EmbeddedCluster) -> None:
    unsecured = 'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="dora";'
    common = {"ssl_truststore_certificates": AUTHORITY.pem, "sasl_mechanism": "OAUTHBEARER"}
    assert produce(client_properties(cluster, "SASL_SSL", **common, sasl_jaas_config=unsecured)) == 10
    in_an_hour = datetime.datetime.now().timestamp() + 3600
    callback: dict[str, Any] = {"sasl_login_callback_handler_class": lambda: ("S3cr3t-token", in_an_hour)}
    with pytest.raises(AuthenticationError, match="invalid_token") as refusal:
        produce(client_properties(cluster, "SASL_SSL", **common, **callback))
    assert "S3cr3t" not in str(refusal.value)
    callback = {"sasl_login_callback_handler_class": "tests.support.secure_cluster.no_such_function"}
    with pytest.raises(ConfigError, match="no_such_function"):
        produce(client_properties(cluster, "SASL_SSL", **common, **callback))


def test_mechanisms_and_listeners_that_do_not_match_are_named(cluster: EmbeddedCluster) -> None:
    with secure_cluster(BROKER.pem(), sasl_enabled_mechanisms="SCRAM-SHA-512") as strict:
        plain = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": PASSWORD}
        with pytest.raises(
            AuthenticationError, match=r"listener does not support PLAIN; set sasl.mechanism to one of SCRAM-SHA-512"
        ):
            produce(client_properties(strict, "SASL_PLAINTEXT", **plain))
    with pytest.raises(AuthenticationError, match=r"does not use SASL; set security.protocol to PLAINTEXT or SSL"):
        produce({**client_properties(cluster, "PLAINTEXT", **plain), "security.protocol": "SASL_PLAINTEXT"})
    for name, advice in (("GSSAPI", "service.name"), ("AWS_MSK_IAM", "the region of the MSK cluster")):
        with pytest.raises(ConfigError, match=advice):
            produce(client_properties(cluster, "SASL_PLAINTEXT", sasl_mechanism=name))


# -- what a stranger may do


@pytest.mark.behaviour("SASL", "Clients that have not authenticated get nowhere")
@pytest.mark.behaviour(
    "Faults: hostile clients", "Clients before authentication are closed, and are told almost nothing"
)
def test_unauthenticated_clients_are_closed_and_told_little(cluster: EmbeddedCluster) -> None:
    host, _, port = address(cluster, "SASL_PLAINTEXT").rpartition(":")
    metadata = bytes.fromhex("0003 0000 00000001 ffff 00000000".replace(" ", ""))
    too_large = (524_289).to_bytes(4, "big")
    handshake = bytes.fromhex("0011 0001 00000001 ffff 0005".replace(" ", "")) + b"PLAIN"
    for data in (
        len(metadata).to_bytes(4, "big") + metadata,
        too_large + b"\0" * 1000,
        b"GET / HTTP/1.1\r\n\r\n",
        (len(handshake).to_bytes(4, "big") + handshake) * 2,
    ):
        with socket.create_connection((host, int(port)), timeout=20) as sock:
            sock.sendall(data)
            answered = b""
            try:
                while more := sock.recv(4096):
                    answered += more
            except ConnectionResetError:
                pass
            # At most the list of mechanisms, which is no secret.
            assert len(answered) < 100


# -- sessions


@pytest.mark.behaviour("Faults: security", "A client that authenticates again while it produces loses nothing")
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_reauthentication_while_producing_loses_nothing(
    listener: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, figure: Figure
) -> None:
    sessions = renew_early(monkeypatch)
    caplog.set_level(logging.DEBUG, "kafka_sink.broker.network.processor")
    with secure_cluster(BROKER.pem(), connections_max_reauth_ms=3000) as cluster:
        properties = client_properties(
            cluster, listener, ssl_truststore_certificates=AUTHORITY.pem, sasl_mechanism="SCRAM-SHA-512",
            sasl_jaas_config=SCRAM_OF_ALICE, linger_ms=1
        )  # fmt: skip
        count = 0
        with KafkaProducer(properties) as producer:
            for _ in outlasting(3.0, sessions, 4):
                for _ in range(20):
                    producer.send(ProducerRecord("t", b"%d" % count))
                    count += 1
                time.sleep(0.001)
        messages = [record.getMessage() for record in caplog.records]
        again = len([text for text in messages if "re-authenticates" in text])
        lost = len([text for text in messages if "expired" in text])
        values = [int(message.value or b"") for message in read_topic(cluster.bootstrap_servers, "t")]
        figure(f"records while authenticating {again} times again over {listener}", count)
        # A busy machine may stall for as long as one session lasts.
        assert (again >= 2, lost <= 1, values == list(range(count))) == (True, True, True)


# -- secrets


@pytest.mark.behaviour("Faults: security", "No secret is in a log, a repr or an error")
def test_no_secret_is_in_a_log_a_repr_or_an_error(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    identity = AUTHORITY.issue(common_name="carol")
    said: list[str] = []
    common = {
        "ssl_truststore_certificates": AUTHORITY.pem, "ssl_key_password": "k3y-p4ss",
        "ssl_keystore_key": identity.key_pem("k3y-p4ss"), "ssl_keystore_certificate_chain": identity.certificate_pem,
    }  # fmt: skip
    for changes in (
        {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": PASSWORD},
        {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "S3cr3t-wrong"},
        {"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": SCRAM_OF_ALICE},
        {"sasl_mechanism": "PLAIN", "sasl_jaas_config": SCRAM_OF_ALICE},
        {"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": SCRAM_OF_ALICE[:-1]},
        {"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": f"{SCRAM} username=a password=S3cr3t,' x=;"},
        {"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": "S3cr3t"},
        {"ssl_truststore_password": "S3cr3t"},
        {"ssl_keystore_password": "S3cr3t"},
        {"ssl_keystore_key": "-----BEGIN PRIVATE KEY-----\nS3cr3t\n-----END PRIVATE KEY-----"},
    ):
        properties = client_properties(cluster, "SASL_SSL", **{**common, **changes})
        try:
            said.append(
                repr(
                    parse(ClientConfig, {k: v for k, v in properties.items() if "deliv" not in k and "block" not in k})
                )
            )
            with KafkaProducer(properties) as producer:
                said.append(repr(producer))
                producer.send(ProducerRecord("t", b"x")).result(60)
        except KafkaError as error:
            cause: BaseException | None = error
            while cause is not None:
                said.append(f"{cause!r} {cause}")
                cause = cause.__cause__
    said += [record.getMessage() + str(record.exc_text) for record in caplog.records]
    assert len(said) > 50
    assert [text for text in said if any(secret in text for secret in SECRETS)] == []


@pytest.mark.behaviour("Faults: security", "A changed password is used for the next authentication and connection")
def test_a_password_that_changed_is_used_when_sessions_renew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sessions = renew_early(monkeypatch)
    caplog.set_level(logging.DEBUG)
    secret = tmp_path / "alice"
    secret.write_text(PASSWORD)
    with secure_cluster(BROKER.pem(), connections_max_reauth_ms=3000) as cluster:
        properties = client_properties(
            cluster, "SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", sasl_username="alice",
            sasl_password=f"${{dir:{tmp_path}:alice}}"
        )  # fmt: skip
        refused = "invalid credentials with SASL mechanism SCRAM"
        with KafkaProducer(properties) as producer:
            producer.send(ProducerRecord("t", b"0")).result(60)
            secret.write_text("S3cr3t-wrong")
            # The session ends within 3 s.
            futures, began = [], time.monotonic()
            while not any(refused in text for text in caplog.messages):
                assert time.monotonic() - began < 30, "the old password was used again"
                with contextlib.suppress(AuthenticationError):
                    futures.append(producer.send(ProducerRecord("t", b"0")))
                time.sleep(0.01)
            secret.write_text(PASSWORD)
            assert all(future.result(30) for future in futures)
    assert len(sessions) >= 2
    assert "S3cr3t" not in caplog.text
