"""TLS over a pair of sockets in one thread: the transport's contract, and options that cannot be used."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.common.config import parse
from kafka_sink.common.errors import ConfigError, SslAuthenticationError
from kafka_sink.common.tls_config import SslConfig
from kafka_sink.network.transport.tls_transport import TlsTransport
from kafka_sink.network.transport.transport import READ, WRITE
from kafka_sink.trust.tls_context import TlsContexts, openssl_name
from tests.support.cases import with_each
from tests.support.certificates import Authority, Identity

AUTHORITY = Authority()
BROKER = AUTHORITY.issue("broker.test")
CLIENT = AUTHORITY.issue(common_name="carol")


def config(identity: Identity | None = None, **options: object) -> SslConfig:
    shown = (
        {"ssl.keystore.key": identity.key_pem(), "ssl.keystore.certificate.chain": identity.certificate_pem}
        if identity
        else {}
    )
    given = {name.replace("_", "."): value for name, value in options.items()}
    merged = {"ssl.truststore.certificates": AUTHORITY.pem, **shown, **given}
    return parse(SslConfig, {name: value for name, value in merged.items() if value != ""})


class Narrow:
    """A socket that accepts *room* bytes (None = as many as the system accepts)."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.room: int | None = None

    def send(self, data: memoryview) -> int:
        if self.room == 0:
            raise BlockingIOError
        sent = self._socket.send(data[: self.room])
        if self.room is not None:
            self.room -= sent
        return sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


class Pair:
    """Both ends of a connection."""

    def __init__(self, ours: SslConfig, theirs: SslConfig, client_auth: str = "none") -> None:
        left, right = socket.socketpair()
        for end in (left, right):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.sockets = Narrow(left), Narrow(right)
        self.client = self._end(self.sockets[0], ours, "broker.test", "none")
        self.broker = self._end(self.sockets[1], theirs, "", client_auth)

    def _end(self, sock: Any, ssl_config: SslConfig, peer_host: str, client_auth: str) -> TlsTransport:
        contexts = TlsContexts(ssl_config, server=not peer_host, client_auth=client_auth)
        return TlsTransport(
            sock, connected=True, context=contexts.current(), server_side=contexts.server, peer_host=peer_host
        )

    def handshake(self) -> None:
        for _ in range(10):
            for end in (self.client, self.broker):
                if not end.ready:
                    end.handshake()

    def close(self) -> None:
        self.client.close()
        self.broker.close()


@pytest.fixture(params=["TLSv1.2", "TLSv1.3"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = Pair(config(CLIENT, ssl_enabled_protocols=request.param), config(BROKER), "required")
    made.handshake()
    yield made
    made.close()


def test_tls_is_ready_after_handshake_and_knows_its_peer() -> None:
    pair = Pair(config(CLIENT), config(BROKER), "required")
    assert (pair.client.ready, pair.client.handshake_events, pair.client.peer_subject) == (False, READ, None)
    pair.handshake()
    assert (pair.client.ready, pair.broker.ready) == (True, True)
    # The name in Java's form, with escapes.
    assert pair.broker.peer_subject == "CN=carol,O=Tests\\, Ltd"
    assert pair.client.peer_subject == "CN=broker,O=Tests\\, Ltd"
    pair.close()


@pytest.mark.behaviour("TLS", "Bytes that the socket did not take leave when it has room again")
def test_pending_tls_bytes_leave_when_the_socket_has_room(pair: Pair) -> None:
    frame = [memoryview(b"head"), memoryview(bytes(range(256)) * 8192), memoryview(b""), memoryview(b"tail")]
    whole = b"".join(frame)
    rest = [memoryview(whole)]
    taken = pair.client.write(frame)
    assert 0 < taken < len(whole)
    assert pair.client.has_pending_writes()
    assert pair.client.write(rest) == 0
    received = bytearray()
    target = memoryview(bytearray(50_000))
    while len(received) < len(whole):
        received += target[: pair.broker.read_into(target)]
        if taken < len(whole):
            taken += pair.client.write([memoryview(whole)[taken:]])
        elif pair.client.has_pending_writes():
            pair.client.write(())
    assert (received == whole, pair.client.has_pending_writes()) == (True, False)


@pytest.mark.behaviour("Slow transports", "A handshake is over when its last bytes have left")
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_handshake_is_over_when_its_last_bytes_have_left(version: str) -> None:
    pair = Pair(config(CLIENT, ssl_enabled_protocols=version), config(BROKER), "required")
    # The version decides which side sends last; both have to wait for room.
    for sock in pair.sockets:
        sock.room = 0
    for _ in range(1000):
        for end, sock in zip((pair.client, pair.broker), pair.sockets, strict=True):
            if not end.ready:
                end.handshake()
            else:
                # The messages after a handshake of TLS 1.3 have to wait for room, too.
                assert end.read_into(memoryview(bytearray(1))) == 0
            if end.has_pending_writes():
                assert (end.ready, end.handshake_events) == (False, WRITE)
                sock.room = 100
    assert (pair.client.ready, pair.broker.ready) == (True, True)
    pair.close()


def test_a_read_leaves_pending_bytes_to_the_next_write(pair: Pair) -> None:
    pair.sockets[0].room = 0
    pair.client.write([memoryview(b"request")])
    pair.broker.write([memoryview(b"answer")])
    pair.sockets[0].room = None
    target = memoryview(bytearray(100))
    assert (pair.client.read_into(target), pair.client.has_pending_writes()) == (6, True)
    assert pair.broker.read_into(target) == 0
    pair.client.write(())
    assert (pair.broker.read_into(target), pair.client.has_pending_writes()) == (7, False)


def test_what_is_pending_leaves_before_the_goodbye(pair: Pair) -> None:
    pair.sockets[0].room = 0
    pair.client.write([memoryview(b"last words")])
    pair.sockets[0].room = None
    pair.client.close()
    target = memoryview(bytearray(100))
    assert pair.broker.read_into(target) == len(b"last words")
    with pytest.raises(EOFError, match="closed by the other side"):
        pair.broker.read_into(target)


@pytest.mark.behaviour("TLS", "Decrypted bytes that no socket event announces are read")
def test_decrypted_bytes_left_over_count_as_buffered(pair: Pair) -> None:
    pair.client.write([memoryview(b"abcdef")])
    target = memoryview(bytearray(4))
    assert pair.broker.read_into(target) == 4
    assert pair.broker.has_bytes_buffered()
    assert (pair.broker.read_into(target), bytes(target[:2])) == (2, b"ef")
    assert not pair.broker.has_bytes_buffered()
    assert pair.broker.read_into(target) == 0


def test_a_goodbye_is_an_end_after_all_that_was_sent(pair: Pair) -> None:
    pair.client.write([memoryview(b"last words")])
    pair.client.close()
    target = memoryview(bytearray(100))
    assert pair.broker.read_into(target) == len(b"last words")
    with pytest.raises(EOFError, match="closed by the other side"):
        pair.broker.read_into(target)


def test_a_broken_stream_is_an_error_and_no_plaintext(pair: Pair) -> None:
    pair.client.write([memoryview(b"x")])
    pair.broker.read_into(memoryview(bytearray(10)))
    left = pair.client.fileno()
    with socket.socket(fileno=left) as raw:
        raw.send(b"\x17\x03\x03\x00\x20" + b"\0" * 32)
        with pytest.raises(ConnectionError, match="TLS failed: decryption failed or bad record mac"):
            pair.broker.read_into(memoryview(bytearray(10)))
        raw.detach()


def test_client_learns_why_its_certificate_was_refused() -> None:
    pair = Pair(config(Authority("other").issue()), config(BROKER, ssl_enabled_protocols="TLSv1.3"), "required")
    with pytest.raises(SslAuthenticationError, match="the client's certificate was refused"):
        pair.handshake()
    assert pair.client.ready
    with pytest.raises(SslAuthenticationError, match="does not trust the authority of our certificate"):
        pair.client.read_into(memoryview(bytearray(10)))
    pair.close()


# -- options


@with_each(
    ("iana", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_cipher_suites_have_two_names(iana: str, openssl: str) -> None:
    assert openssl_name(iana) == openssl


def test_cipher_suites_are_kept_to() -> None:
    only = config(ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")
    context = TlsContexts(only, server=False).current()
    assert "ECDHE-ECDSA-AES256-GCM-SHA384" in [item["name"] for item in context.get_ciphers()]
    assert context.maximum_version.name == "TLSv1_2"
    other = config(BROKER, ssl_cipher_suites="ECDHE-ECDSA-CHACHA20-POLY1305")
    with pytest.raises(SslAuthenticationError, match=r"no cipher suite in common|finds nothing in common"):
        Pair(only, other).handshake()
    for suites, protocols in (("NONSENSE", "TLSv1.2"), ("TLS_AES_256_GCM_SHA384", "TLSv1.3")):
        with pytest.raises(ConfigError, match=r"option kafka.ssl.cipher.suites: "):
            TlsContexts(
                config(ssl_cipher_suites=suites, ssl_enabled_protocols=protocols), server=False, prefix="kafka."
            )


def test_versions_without_one_in_common_are_refused() -> None:
    with pytest.raises(SslAuthenticationError, match=r"check ssl\.enabled\.protocols"):
        Pair(config(ssl_enabled_protocols="TLSv1.2"), config(BROKER, ssl_enabled_protocols="TLSv1.3")).handshake()
    with pytest.raises(ConfigError, match=r"TLSv1.2, TLSv1.3 or both"):
        config(ssl_enabled_protocols="TLSv1.1")


@pytest.mark.parametrize(
    ("options", "content", "problem"),
    [
        ({"ssl_truststore_certificates": "", "ssl_truststore_location": "FILE"}, None, "cannot read FILE"),
        (
            {"ssl_truststore_certificates": "", "ssl_truststore_location": "FILE", "ssl_truststore_type": "PEM"},
            b"\xfe\xed\xfe\xed\0\0",
            "FILE is JKS, expected PEM; set kafka.ssl.truststore.type=JKS",
        ),
        (
            {"ssl_keystore_location": "FILE", "ssl_keystore_type": "PEM"},
            b"\x30\x82\x01",
            "FILE is PKCS12, expected PEM; set kafka.ssl.keystore.type=PKCS12",
        ),
        ({"ssl_keystore_location": "FILE"}, b"hello", "is not a PEM file"),
        ({"ssl_keystore_location": "FILE"}, AUTHORITY.pem.encode(), "it must contain a private key"),
        ({"ssl_truststore_certificates": "hello"}, None, "it contains no readable certificate"),
        ({"ssl_truststore_location": "FILE"}, b"x", "are both set"),
        ({"ssl_keystore_location": "FILE", "ssl_keystore_key": "x"}, b"x", "are both set"),
        ({"ssl_keystore_key": "x"}, None, "belong together; set both"),
    ],
)
def test_files_and_text_that_cannot_be_used_are_named(
    options: dict[str, str], content: bytes | None, problem: str, tmp_path: Path
) -> None:
    file = tmp_path / "store"
    if content is not None:
        file.write_bytes(content)
    given: dict[str, Any] = {name: value.replace("FILE", str(file)) for name, value in options.items()}
    with pytest.raises(ConfigError, match=problem.replace("FILE", str(file))) as error:
        TlsContexts(config(**given), server=False, prefix="kafka.")
    assert "kafka.ssl." in str(error.value)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"ssl.truststore.type": "BKS"}, "ssl.truststore.type: 'BKS' is not allowed, expected one of PEM, JKS, PKCS12"),
        ({"ssl.keystore.type": "JKS", "ssl.keystore.key": "x"}, "ssl.keystore.type=JKS is for files; remove it"),
        ({"ssl.truststore.certificates": " "}, "expected a value; remove the option to trust the authorities"),
        ({"ssl.truststore.location": ""}, "expected a value; remove the option to trust the authorities"),
        (
            {"ssl.truststore.location": "FILE", "ssl.truststore.password": "s3cr3t"},
            "ssl.truststore.password is for JKS and PKCS12, and FILE is PEM; remove the password$",
        ),
        (
            {"ssl.keystore.location": "FILE", "ssl.keystore.password": "s3cr3t"},
            "FILE is PEM; remove the password .that of the private key is ssl.key.password",
        ),
    ],
)
def test_types_that_do_not_fit_are_explained(options: dict[str, str], problem: str, tmp_path: Path) -> None:
    file = tmp_path / "store"
    file.write_text(AUTHORITY.pem)
    given = {name: value.replace("FILE", str(file)) for name, value in options.items()}
    with pytest.raises(ConfigError, match=problem.replace("FILE", str(file))) as error:
        TlsContexts(parse(SslConfig, given), server=False)
    assert "s3cr3t" not in str(error.value)


def test_pem_that_is_said_to_be_a_key_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").write_text(AUTHORITY.pem)
    given = {"ssl.truststore.location": str(tmp_path / "store"), "ssl.truststore.type": "JKS"}
    with pytest.raises(ConfigError, match="cannot be used: it is PEM; set its type to PEM"):
        TlsContexts(parse(SslConfig, given), server=False)


def test_a_server_needs_a_keystore_and_a_truststore_for_clients() -> None:
    with pytest.raises(ConfigError, match=r"needs ssl.keystore.location"):
        TlsContexts(config(), server=True)
    with pytest.raises(ConfigError, match=r"ssl.client.auth=required needs ssl.truststore.location"):
        TlsContexts(config(BROKER, ssl_truststore_certificates=""), server=True, client_auth="required")


def test_a_file_that_every_user_can_write_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "truststore.pem"
    file.write_text(AUTHORITY.pem)
    options = config(ssl_truststore_certificates="", ssl_truststore_location=str(file))
    file.chmod(0o664)
    TlsContexts(options, server=False)
    assert caplog.text == ""
    file.chmod(0o666)
    TlsContexts(options, server=False)
    assert f"option ssl.truststore.location: every user of this machine can write to {file}" in caplog.text


def test_keys_behind_references_are_used_once_they_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def put(identity: Identity, password: str) -> None:
        (tmp_path / "key").write_text(identity.key_pem(password))
        (tmp_path / "chain").write_text(identity.certificate_pem)
        (tmp_path / "pw").write_text(password)

    put(BROKER, "s3cr3t")
    names = {"ssl_keystore_key": "key", "ssl_keystore_certificate_chain": "chain", "ssl_key_password": "pw"}
    references: dict[str, Any] = {option: f"${{dir:{tmp_path}:{name}}}" for option, name in names.items()}
    given = config(**references)
    contexts = TlsContexts(given, server=True)
    before = contexts.current()
    assert contexts.current() is before
    put(AUTHORITY.issue("broker.test", common_name="renewed"), "n3w")
    after = contexts.current()
    assert after is not before
    (tmp_path / "pw").write_text("s3cr3t")
    assert contexts.current() is after
    assert "ssl.key.password is not the password of the private key" in caplog.text
    (tmp_path / "pw").unlink()
    assert contexts.current() is after
    assert "pw} cannot be resolved on" in caplog.text
    assert "s3cr3t" not in caplog.text and "n3w" not in caplog.text


def test_a_file_that_vanishes_while_it_is_read_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(AUTHORITY.pem)
    read_bytes = Path.read_bytes

    def read_and_remove(path: Path) -> bytes:
        data = read_bytes(path)
        path.unlink()
        return data

    monkeypatch.setattr(Path, "read_bytes", read_and_remove)
    contexts = TlsContexts(parse(SslConfig, {"ssl.truststore.location": str(file)}), server=False)
    assert contexts.current() is contexts.current()
