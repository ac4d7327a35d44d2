"""PEM in all the forms in which users paste it, and private keys as older programs encrypted them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from kafka_sink.common.errors import ConfigError
from kafka_sink.common.tls_config import SslConfig
from kafka_sink.trust.pem import rebuilt
from kafka_sink.trust.tls_context import TlsContexts
from tests.support.cases import with_each
from tests.support.key_stores import MATERIAL

PASSWORD = MATERIAL["password"]
KEY = MATERIAL["key"]
CHAIN = MATERIAL["certificates"]["client"] + MATERIAL["certificates"]["sub"]
SHAPES: dict[str, Callable[[str], str]] = {
    "blanks for line ends": lambda text: " ".join(text.split("\n")),
    "CR": lambda text: text.replace("\n", "\r"),
    "CR LF": lambda text: text.replace("\n", "\r\n"),
    "indented": lambda text: "".join(f"    {line}\n" for line in text.splitlines()),
    "blanks at line ends": lambda text: text.replace("\n", " \n"),
    "escaped once more": lambda text: text.replace("\n", "\\n"),
    "continued lines": lambda text: text.replace("\n", " \\\n"),
    "no line ends": lambda text: "".join(text.split("\n")),
    "attributes before": lambda text: f"Bag Attributes\n    friendlyName: käse\n{text}",
    "text between": lambda text: text.replace("-----BEGIN", "# BEGIN of the next\n-----BEGIN"),
}


def context_of(**options: Any) -> None:
    given = {"ssl_truststore_certificates": MATERIAL["certificates"]["root"], **options}
    TlsContexts(SslConfig(**given), server=False)


@pytest.mark.behaviour("TLS", "PEM is read in every shape in which it is pasted, and all of it")
@with_each("shape", SHAPES)
def test_pem_is_read_in_every_shape(shape: str) -> None:
    assert rebuilt(SHAPES[shape](CHAIN)) == CHAIN
    context_of(
        ssl_truststore_certificates=SHAPES[shape](CHAIN),
        ssl_keystore_key=SHAPES[shape](KEY),
        ssl_keystore_certificate_chain=SHAPES[shape](CHAIN),
    )


def test_headers_of_old_encrypted_keys_stay() -> None:
    headers = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0F\n\n"
    key = f"-----BEGIN EC PRIVATE KEY-----\n{headers}AAAA\n-----END EC PRIVATE KEY-----\n"
    assert rebuilt(" ".join(key.split("\n"))) == key


@with_each("text", ["-----BEGIN C" * 200_000, "-----BEGIN C-----" * 200_000, f"-----BEGIN C{'-' * 2_000_000}"])
def test_blocks_that_do_not_end_cost_no_more_than_their_length(text: str) -> None:
    # Each would take hours if a reader searched for the end of each block.
    with pytest.raises(ValueError, match="does not end as it begins"):
        rebuilt(text)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("-----END CERTIFICATE", "-----EMD CERTIFICATE", "does not end as it begins"),
        ("MII", "M!!", "no readable certificate|cannot be used"),
    ],
)
def test_damaged_block_is_no_block_that_is_passed_over(old: str, new: str, problem: str) -> None:
    damaged = CHAIN.replace(old, new, 1)
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.certificates: it contains no readable certificate"):
        context_of(ssl_truststore_certificates=damaged)
    with pytest.raises(ConfigError, match=problem):
        context_of(ssl_keystore_key=KEY, ssl_keystore_certificate_chain=damaged)


UNREADABLE = {"PBE-MD5-RC2-64", "PBE-SHA1-DES", "PBE-SHA1-RC2-64", "PBE-SHA1-RC4-40", "PBE-SHA1-RC2-128", "des-cbc"}


@pytest.mark.behaviour("TLS", "Keys that Java decrypts are read, or refused by the name of their encryption")
@with_each("name", MATERIAL["encrypted"])
def test_encrypted_key_is_read_or_its_encryption_is_named(name: str) -> None:
    given = {"ssl_keystore_key": MATERIAL["encrypted"][name], "ssl_keystore_certificate_chain": CHAIN}
    if name not in UNREADABLE:
        context_of(**given, ssl_key_password=PASSWORD)
    with pytest.raises(ConfigError) as error:
        context_of(**given, ssl_key_password=PASSWORD if name in UNREADABLE else "wr0ng")
    expected = (
        f"the private key is encrypted with {name.upper().removesuffix('-64')}, which is not supported; write it again"
        if name in UNREADABLE
        else "ssl.key.password is not the password of the private key"
    )
    assert expected in str(error.value)
    with pytest.raises(ConfigError, match=r"ssl\.key\.password is required: the private key is encrypted"):
        context_of(**given)


def test_old_encryption_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(ConfigError, match=r"PBE-MD5-DES, which needs .*pip install 'kafkalite\[keystores\]'"):
        context_of(
            ssl_keystore_key=MATERIAL["encrypted"]["PBE-MD5-DES"],
            ssl_keystore_certificate_chain=CHAIN,
            ssl_key_password=PASSWORD,
        )
