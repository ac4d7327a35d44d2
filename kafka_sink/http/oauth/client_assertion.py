"""Assertions: signed JWTs by which a client proves who it is to a token endpoint, instead of sending a secret.

Called by the thread that fetches a token. Reads the file with the assertion, or the private key that signs a new one,
again for each token. Keys and assertions never appear in a text.

Source: RFC 7523, KIP-1139, KIP-1258; apache/kafka ``DefaultAssertionCreator``, ``DynamicAssertionJwtTemplate``.
"""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kafka_sink.common.errors import ConfigError
from kafka_sink.http.oauth.rules import ES256, RS256
from kafka_sink.network.sasl.bearer_token import encoded
from kafka_sink.trust.pem import rebuilt

#: The bytes of each of the two numbers of a signature with ES256 (RFC 7518, 3.4).
_ES256_BYTES: Final = 32


@dataclass(frozen=True)
class Assertion:
    """Where assertions come from: *file* has a whole one, or *key_file* the private key (PEM) of new ones.

    *prefix* is what users write before the names of options.
    """

    file: str = ""
    key_file: str = ""
    key_password: str = field(default="", repr=False)
    algorithm: str = RS256
    issuer: str = ""
    subject: str = ""
    audience: str = ""
    lifetime_s: int = 300
    not_before_s: int = 60
    has_id: bool = False
    prefix: str = ""

    def text(self, now_ms: int) -> str:
        """An assertion that is valid now.

        :raises ConfigError: if a file cannot be read or is not what was expected; the text names the option.
        """
        if self.file:
            return self._read(self.file, "file").strip()
        now_s = now_ms // 1000
        claims: dict[str, Any] = {"iss": self.issuer, "sub": self.subject, "aud": self.audience, "iat": now_s}
        claims |= {"exp": now_s + self.lifetime_s, "nbf": now_s - self.not_before_s}
        if self.has_id:
            claims["jti"] = str(uuid.uuid4())
        content = f"{encoded({'alg': self.algorithm, 'typ': 'JWT'})}.{encoded(claims)}"
        return f"{content}.{base64.urlsafe_b64encode(self._signature(content.encode())).rstrip(b'=').decode()}"

    def _read(self, path: str, name: str) -> str:
        try:
            return Path(path).read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ConfigError(
                f"option {self.prefix}sasl.oauthbearer.assertion.{name}: {path} cannot be read: {why}; put it on every "
                "machine that connects"
            ) from None

    def _signature(self, content: bytes) -> bytes:
        option = f"{self.prefix}sasl.oauthbearer.assertion.private.key"
        try:
            from cryptography.hazmat.primitives import hashes
            from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        except ImportError:
            raise ConfigError(
                f"option {option}.file: signing needs the package cryptography; pip install 'kafkalite[keystores]'"
            ) from None
        pem = self._read(self.key_file, "private.key.file")
        try:
            key = load_pem_private_key(rebuilt(pem).encode(), self.key_password.encode() or None)
        except (ValueError, TypeError):
            raise ConfigError(
                f"option {option}.file: {self.key_file} is not a private key in PEM, or {option}.passphrase is not its "
                "password; check both"
            ) from None
        if self.algorithm == RS256 and isinstance(key, rsa.RSAPrivateKey):
            return key.sign(content, padding.PKCS1v15(), hashes.SHA256())
        if self.algorithm == ES256 and isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp256r1":
            numbers = utils.decode_dss_signature(key.sign(content, ec.ECDSA(hashes.SHA256())))
            return b"".join(number.to_bytes(_ES256_BYTES, "big") for number in numbers)
        raise ConfigError(
            f"option {option}.file: the key in {self.key_file} is not for "
            f"{self.prefix}sasl.oauthbearer.assertion.algorithm={self.algorithm}; RS256 takes RSA, ES256 takes P-256"
        )
