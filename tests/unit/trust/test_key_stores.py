"""Key stores that Java's keytool has written, and invalid key stores."""

from __future__ import annotations

import base64
import shutil
import ssl
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_sink.common.config import parse
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.tls_config import SslConfig
from kafka_sink.trust.key_stores import KeyStoreError, key_and_chain, read_jks, trusted_certificates, unprotect
from kafka_sink.trust.tls_context import TlsContexts
from tests.support.amounts import examples
from tests.support.certificates import Authority
from tests.support.key_stores import MATERIAL, keytool, requires_keytool

PASSWORD = "st0re-s3cret"
KEY_PASSWORD = "k3y-s3cret"
AUTHORITY, OTHER = Authority("first"), Authority("second")
IDENTITY = AUTHORITY.issue("broker.test", common_name="broker")

pytestmark = requires_keytool


def test_hashes_without_end_and_nul_are_refused_at_once() -> None:
    key = pkcs12.serialize_key_and_certificates(
        b"a", ec.generate_private_key(ec.SECP256R1()), None, None, BestAvailableEncryption(b"pw")
    )
    with pytest.raises(KeyStoreError, match="NUL"):
        key_and_chain(key, "p\0w", "")
    assert b"\x02\x02\x4e\x20" in key
    with pytest.raises(KeyStoreError, match="hashed more than 10000000 times"):
        key_and_chain(_with_iterations(key, 2**31 - 1), "pw", "")


@pytest.mark.parametrize("form", ["a string of one piece", "pieces until a mark", "a marked sequence"])
def test_hashes_without_end_are_refused_in_ber(form: str) -> None:
    """A store ends with its checksum, a salt, and the number of hash iterations."""
    store = pkcs12.serialize_key_and_certificates(
        b"a", ec.generate_private_key(ec.SECP256R1()), None, None, BestAvailableEncryption(b"pw")
    )
    mac = next(at for at in range(len(store) - 4, 0, -1) if store[at] == 0x30 and at + 2 + store[at + 1] == len(store))
    digest = store[mac + 2 :][: 2 + store[mac + 3]]
    salt = store[mac + 2 + len(digest) : -4]
    count = b"\x02\x04" + (2**31 - 1).to_bytes(4)
    if form == "a marked sequence":
        end = b"\x30\x80" + digest + salt + count + b"\0\0"
    else:
        pieces = b"\x24\x80" + salt + b"\0\0" if form == "pieces until a mark" else bytes([0x24, len(salt)]) + salt
        tail = digest + pieces + count
        end = bytes([0x30, len(tail)]) + tail
    whole = store[4:mac] + end
    with pytest.raises(KeyStoreError, match="hashed more than 10000000 times"):
        key_and_chain(b"\x30\x82" + len(whole).to_bytes(2) + whole, "pw", "")


def _with_iterations(store: bytes, count: int) -> bytes:
    """*store* with *count* iterations of its checksum's hash: the last number of a store, in two bytes more."""
    tail = store.rindex(b"\x02\x02")
    assert tail == len(store) - 4
    longer = store[:tail] + b"\x02\x04" + count.to_bytes(4)
    data = bytearray(longer)
    # The store is a sequence with a length of two bytes, and the checksum one with a length of one byte at the end.
    assert data[:2] == b"\x30\x82"
    data[2:4] = (len(data) - 4).to_bytes(2)
    mac = next(at for at in range(tail, 0, -1) if data[at] == 0x30 and at + 2 + data[at + 1] == len(store))
    data[mac + 1] += 2
    return bytes(data)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """trust.TYPE with two authorities, and key.TYPE with a key and its chain."""
    folder = tmp_path_factory.mktemp("stores")
    store_password = folder / "password"
    store_password.write_text(PASSWORD)
    for number, authority in enumerate((AUTHORITY, OTHER)):
        (folder / f"{number}.pem").write_text(authority.pem)
    make_pkcs12(folder / "made.p12")
    for kind in ("JKS", "PKCS12"):
        given = ["-storetype", kind, "-storepass:file", store_password]
        trust, key = folder / f"trust.{kind}", folder / f"key.{kind}"
        for number in range(2):
            file = folder / f"{number}.pem"
            keytool("-importcert", "-noprompt", "-alias", number, "-file", file, "-keystore", trust, *given)
        keytool(
            "-importkeystore", "-srckeystore", folder / "made.p12", "-srcstoretype", "PKCS12", "-srcstorepass",
            PASSWORD,
            "-destkeystore", key, "-deststoretype", kind, "-deststorepass:file", store_password
        )  # fmt: skip
    shutil.copy(folder / "key.JKS", folder / "two-passwords.JKS")
    keytool(
        "-keypasswd", "-alias", "me", "-keystore", folder / "two-passwords.JKS", "-storetype", "JKS",
        "-storepass:file", store_password, "-keypass:file", store_password, "-new", KEY_PASSWORD
    )  # fmt: skip
    shutil.copy(folder / "key.JKS", folder / "two-keys.JKS")
    keytool(
        "-genkeypair", "-alias", "another", "-keyalg", "EC", "-dname", "CN=x", "-keystore", folder / "two-keys.JKS",
        "-storetype", "JKS", "-storepass:file", store_password, "-keypass:file", store_password
    )  # fmt: skip
    return folder


def make_pkcs12(path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
    from cryptography.x509 import load_pem_x509_certificate

    authority = load_pem_x509_certificate(AUTHORITY.pem.encode())
    encryption = BestAvailableEncryption(PASSWORD.encode())
    data = pkcs12.serialize_key_and_certificates(b"me", IDENTITY.key, IDENTITY.chain[0], [authority], encryption)
    path.write_bytes(data)


def config(folder: Path, **options: str) -> SslConfig:
    given = {f"ssl.{name.replace('_', '.')}": value for name, value in options.items()}
    return parse(SslConfig, {name: value.replace("DIR", str(folder)) for name, value in given.items()})


@pytest.mark.behaviour("TLS", "Key stores of Java are read: JKS and PKCS12, with passwords, made by keytool")
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
@pytest.mark.parametrize("said", ["JKS", "pkcs12", ""])
def test_stores_of_keytool_are_read(stores: Path, kind: str, said: str) -> None:
    trust = (stores / f"trust.{kind}").read_bytes()
    expected = {ssl.PEM_cert_to_DER_cert(each.pem) for each in (AUTHORITY, OTHER)}
    found = trusted_certificates(trust, PASSWORD)
    parts = [f"{part}-----END CERTIFICATE-----\n" for part in found.split("-----END CERTIFICATE-----\n") if part]
    assert {ssl.PEM_cert_to_DER_cert(part) for part in parts} == expected and len(parts) == 2
    pem = key_and_chain((stores / f"key.{kind}").read_bytes(), PASSWORD, "")
    assert pem == IDENTITY.key_pem() + IDENTITY.certificate_pem + AUTHORITY.pem
    # Both types accept both formats, as in Java.
    reference = f"${{dir:{stores}:password}}"
    options = {
        "truststore_location": f"DIR/trust.{kind}", "truststore_type": said, "truststore_password": reference,
        "keystore_location": f"DIR/key.{kind}", "keystore_type": said, "keystore_password": PASSWORD,
    }  # fmt: skip
    context = TlsContexts(config(stores, **options), server=True, client_auth="required").current()
    assert set(context.get_ca_certs(binary_form=True)) == expected


def test_a_jks_truststore_needs_no_password_as_in_java(stores: Path) -> None:
    assert trusted_certificates((stores / "trust.JKS").read_bytes(), "").count("BEGIN CERTIFICATE") == 2


def test_a_key_may_have_a_password_of_its_own(stores: Path) -> None:
    data = (stores / "two-passwords.JKS").read_bytes()
    assert key_and_chain(data, PASSWORD, KEY_PASSWORD).startswith(IDENTITY.key_pem())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"truststore_location": "DIR/trust.JKS", "truststore_password": "wr0ng"},
            "password of the store is wrong, or",
        ),
        ({"truststore_location": "DIR/trust.PKCS12", "truststore_password": "wr0ng"}, "check ssl.truststore.password"),
        ({"truststore_location": "DIR/trust.PKCS12"}, "the password of the store is required"),
        ({"truststore_location": "DIR/password"}, "it is neither JKS nor PKCS12"),
        ({"truststore_location": "DIR/none"}, "cannot read DIR/none, which option ssl.truststore.location names"),
        ({"keystore_location": "DIR/key.JKS"}, "the password of the store is required; check ssl.keystore.password"),
        (
            {"keystore_location": "DIR/two-passwords.JKS", "keystore_password": PASSWORD},
            "the password of the private key is wrong; check ssl.keystore.password and ssl.key.password",
        ),
        ({"keystore_location": "DIR/two-keys.JKS", "keystore_password": PASSWORD}, "it contains 2 private keys"),
        ({"keystore_location": "DIR/trust.JKS", "keystore_password": PASSWORD}, "it contains 0 private keys"),
        ({"keystore_location": "DIR/trust.PKCS12", "keystore_password": PASSWORD}, "it contains 0 private keys"),
    ],
)
def test_stores_that_cannot_be_used_are_explained(stores: Path, options: dict[str, str], problem: str) -> None:
    given = {**options, "truststore_type": "PKCS12", "keystore_type": "JKS"}
    with pytest.raises(ConfigError, match=problem.replace("DIR", str(stores))) as error:
        TlsContexts(config(stores, **given), server=False)
    assert not any(secret in str(error.value) for secret in ("wr0ng", PASSWORD, KEY_PASSWORD))
    assert "option ssl." in str(error.value)


def test_pkcs12_without_its_package_says_what_to_install(stores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(KeyStoreError, match=r"pip install 'kafkalite\[keystores\]'"):
        trusted_certificates((stores / "trust.PKCS12").read_bytes(), PASSWORD)
    assert trusted_certificates((stores / "trust.JKS").read_bytes(), PASSWORD)


@pytest.mark.behaviour("TLS", "A damaged key store is refused with an error of ours, whichever bytes it has")
def test_damaged_stores_are_refused(stores: Path) -> None:
    originals = [(stores / name).read_bytes() for name in ("key.JKS", "trust.JKS", "key.PKCS12", "trust.PKCS12")]

    @settings(max_examples=examples(2000))
    @given(st.sampled_from(originals), st.integers(0, 4000), st.binary(max_size=9), st.integers(0, 9))
    def damage(data: bytes, at: int, new: bytes, removed: int) -> None:
        at %= len(data)
        changed = data[:at] + new + data[at + removed :]
        # Without the integrity check, so that the data reaches the reader itself.
        for read in (
            lambda: trusted_certificates(changed, ""),
            lambda: trusted_certificates(changed, PASSWORD),
            lambda: key_and_chain(changed, PASSWORD, ""),
            lambda: [unprotect(key.protected, PASSWORD) for key in read_jks(changed, "")[0]],
        ):
            try:
                read()
            except KeyStoreError as error:
                assert PASSWORD not in str(error)

    damage()


@pytest.mark.parametrize("kind", ["pkcs12", "jks"])
@pytest.mark.behaviour("TLS", "Of several private keys in a key store none is chosen in silence")
def test_several_keys_in_a_store_are_refused(kind: str) -> None:
    two = base64.b64decode(MATERIAL["stores"][f"two.{kind}"])
    with pytest.raises(KeyStoreError, match="it contains 2 private keys, expected one; export one alias"):
        key_and_chain(two, MATERIAL["password"], "")
    assert "PRIVATE KEY" in key_and_chain(base64.b64decode(MATERIAL["stores"][f"one.{kind}"]), MATERIAL["password"], "")


def test_a_changed_store_is_read_again(stores: Path, tmp_path: Path) -> None:
    shutil.copy(stores / "trust.JKS", tmp_path / "trust")
    given = config(tmp_path, truststore_location="DIR/trust", truststore_type="JKS", truststore_password=PASSWORD)
    contexts = TlsContexts(given, server=False)
    before = contexts.current()
    shutil.copy(stores / "key.JKS", tmp_path / "trust")
    assert len(contexts.current().get_ca_certs()) != len(before.get_ca_certs())
    assert repr(replace(given)).count(PASSWORD) == 0
