"""What a broker stores of a password for SCRAM, and its form as text.

Source: RFC 5802; apache/kafka ``ScramCredentialUtils``, ``kafka-storage --add-scram`` for the text.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kafka_sink.common.bounded import whole_number
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.sasl_mechanisms import MECHANISMS, SCRAM_MECHANISMS

MIN_ITERATIONS: Final = 4096
#: About a second of computation; who asks for more may want to exhaust the one who computes (Kafka stores 16,384).
MAX_ITERATIONS: Final = 1_000_000
_SALT_BYTES: Final = 24


def escape_name(name: str) -> str:
    """*name* with the characters escaped that are special in a message."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape_name(name: str) -> str:
    """The reverse of :func:`escape_name`."""
    return name.replace("=2C", ",").replace("=3D", "=")


def digest_of(mechanism: str) -> str:
    """The name of the hash function of *mechanism*."""
    return MECHANISMS[mechanism].digest


def salted_password(digest: str, password: str, salt: bytes, iterations: int) -> bytes:
    """PBKDF2 of *password*, which is RFC 5802's Hi()."""
    return hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)


def keyed(digest: str, key: bytes, text: bytes) -> bytes:
    """HMAC of *text*."""
    return hmac.digest(key, text, digest)


@dataclass(frozen=True)
class ScramCredential:
    """The values that a broker stores for a password; they cannot be used to authenticate."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of(
        cls, mechanism: str, password: str, iterations: int = MIN_ITERATIONS, salt: bytes | None = None
    ) -> ScramCredential:
        """Derive the credential of *password*, with a new salt unless one is given."""
        salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
        salted = salted_password(digest_of(mechanism), password, salt, iterations)
        return cls.of_salted(mechanism, salted, iterations, salt)

    @classmethod
    def of_salted(cls, mechanism: str, salted: bytes, iterations: int, salt: bytes) -> ScramCredential:
        """Derive the credential of a password to which *salt* was applied by whoever knows it."""
        digest = digest_of(mechanism)
        stored_key = hashlib.new(digest, keyed(digest, salted, b"Client Key")).digest()
        return cls(salt, stored_key, keyed(digest, salted, b"Server Key"), iterations)


#: Mechanism and name of a user → credential.
ScramUsers: TypeAlias = Mapping[tuple[str, str], ScramCredential]


def parse_credential(text: str) -> tuple[str, str, ScramCredential]:
    """Parse ``SCRAM-SHA-256=[name=…,iterations=…,salt=…,stored_key=…,server_key=…]``: mechanism, user, credential.

    :raises ConfigError: if the text has another form; the error does not contain the text.
    """
    mechanism, _, rest = text.partition("=")
    if mechanism not in SCRAM_MECHANISMS or not (rest.startswith("[") and rest.endswith("]")):
        raise ConfigError(f"expected {' or '.join(f'{name}=[…]' for name in SCRAM_MECHANISMS)}")
    fields = dict(entry.partition("=")[::2] for entry in rest[1:-1].split(","))
    try:
        salt, stored_key, server_key = (
            base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        iterations = whole_number(fields["iterations"], MIN_ITERATIONS, MAX_ITERATIONS)
        credential = ScramCredential(salt, stored_key, server_key, iterations)
        return mechanism, unescape_name(fields["name"]), credential
    except (KeyError, ValueError):
        raise ConfigError(
            f"a credential of {mechanism} needs name, iterations ({MIN_ITERATIONS} to {MAX_ITERATIONS}), salt, "
            "stored_key and server_key, the last three in base64"
        ) from None


def credential_text(mechanism: str, name: str, credential: ScramCredential) -> str:
    """What :func:`parse_credential` reads."""
    keys = {"salt": credential.salt, "stored_key": credential.stored_key, "server_key": credential.server_key}
    fields = {"name": escape_name(name), "iterations": credential.iterations}
    fields |= {key: base64.b64encode(value).decode() for key, value in keys.items()}
    return f"{mechanism}=[{','.join(f'{key}={value}' for key, value in fields.items())}]"
