"""The subject of a certificate as Java's X500Principal writes it; tests/compat/test_java_judges.py asks Java itself."""

from __future__ import annotations

from datetime import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from kafka_sink.network.transport.tls_transport import subject_of

PARTS = (
    (("2.5.4.6", "AT"),),
    (("2.5.4.10", ' a,b+c="d" '), ("2.5.4.11", "x#y;\\<>")),
    (("2.5.4.9", "é\0 z"), ("0.9.2342.19200300.100.1.1", "u")),
    (("1.2.840.113549.1.9.1", "a@b.c"), ("2.999.1", "x")),
    (("2.5.4.3", "carol"),),
)
AS_JAVA = (
    "CN=carol",
    "2.999.1=#0c0178+1.2.840.113549.1.9.1=#16056140622e63",
    r"STREET=é\00 z+UID=u",
    r"OU=x\#y\;\\\<\>+O=\ a\,b\+c\=\"d\"\ ",
    "C=AT",
)


def certificate() -> bytes:
    """A certificate in DER whose subject has PARTS."""
    name = x509.Name(
        x509.RelativeDistinguishedName(x509.NameAttribute(x509.ObjectIdentifier(kind), text) for kind, text in part)
        for part in PARTS
    )
    key = ec.generate_private_key(ec.SECP256R1())
    valid = datetime(2026, 1, 1), datetime(2026, 1, 2)
    signed = x509.CertificateBuilder(name, name, key.public_key(), 1, *valid).sign(key, SHA256())
    return signed.public_bytes(Encoding.DER)


@pytest.mark.behaviour("TLS", "A client's principal is its certificate's subject as Java writes it")
def test_subject_is_written_as_java_writes_it() -> None:
    assert subject_of(certificate()) == ",".join(AS_JAVA)
