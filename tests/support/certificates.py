"""Certificates for tests: authorities and their certificates, valid and invalid, generated with `cryptography`."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from functools import cached_property

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)
SERVER = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH


def _name(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Tests, Ltd"),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@dataclass(frozen=True)
class Identity:
    """A private key and its certificates."""

    key: ec.EllipticCurvePrivateKey
    chain: tuple[x509.Certificate, ...]

    @cached_property
    def certificate_pem(self) -> str:
        return "".join(item.public_bytes(serialization.Encoding.PEM).decode() for item in self.chain)

    def key_pem(self, password: str = "") -> str:
        """Return the key in PKCS #8, encrypted if there is a *password*."""
        encryption = (
            serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        )
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        ).decode()

    def pem(self, password: str = "") -> str:
        """Return the contents of a PEM keystore."""
        return self.key_pem(password) + self.certificate_pem


_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """Issues certificates."""

    def __init__(self, name: str = "test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._sign(_name(name), self._key.public_key(), is_authority=True)

    @cached_property
    def pem(self) -> str:
        """The contents of a PEM truststore."""
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(
        self,
        *names: str,
        common_name: str = "broker",
        purposes: tuple[x509.ObjectIdentifier, ...] = (SERVER, CLIENT),
        not_before: datetime.timedelta = -DAY,
        not_after: datetime.timedelta = DAY,
        self_signed: bool = False,
    ) -> Identity:
        """Issue a certificate for *names* (host names, with or without ``*``, and addresses); by default valid now."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(
            _name(common_name),
            key.public_key(),
            names=names,
            purposes=purposes,
            not_before=not_before,
            not_after=not_after,
            signer=key if self_signed else None,
        )
        return Identity(key, (certificate,))

    def _sign(
        self,
        subject: x509.Name,
        public_key: ec.EllipticCurvePublicKey,
        *,
        names: tuple[str, ...] = (),
        purposes: tuple[x509.ObjectIdentifier, ...] = (),
        not_before: datetime.timedelta = -DAY,
        not_after: datetime.timedelta = DAY,
        is_authority: bool = False,
        signer: ec.EllipticCurvePrivateKey | None = None,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        issuer = subject if is_authority or signer is not None else self._certificate.subject
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + not_before)
            .not_valid_after(now + not_after)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        )
        # Clients on Python 3.13 and later are strict (RFC 5280, 4.2.1), and require these.
        if is_authority:
            builder = builder.add_extension(_SIGNS_CERTIFICATES, critical=True)
        else:
            key = (signer or self._key).public_key()
            builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key), critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), False)
        if purposes:
            builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), False)
        return builder.sign(signer or self._key, hashes.SHA256())
