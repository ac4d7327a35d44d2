"""The SASL mechanisms: one row each, for clients, brokers, the check before a job and the documentation.

Any thread may read it. A row has the differences between mechanisms except their tokens, which ``network/sasl`` has.
The module also has the values that a broker stores for a SCRAM password, and their form as text.

Source: the registry of SASL mechanisms; RFC 5802; apache/kafka ``ScramMechanism`` (numbers), ``SaslConfigs``,
``ScramCredentialUtils``, ``kafka-storage --add-scram`` (the text).
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


@dataclass(frozen=True)
class Mechanism:
    """A mechanism of SASL.

    :param name: the value of ``sasl.mechanism``.
    :param login_module: the class that ``sasl.jaas.config`` names; in any package, because Kafka's may be shaded.
    :param exposed: the secret that is sent unencrypted without TLS; empty if none.
    :param digest: SCRAM's hash function, as Python names it; empty for others.
    :param is_served: whether the embedded broker supports it, too.
    :param sent_as: the name of the mechanism in requests, if it is not *name*; empty otherwise.
    :param advice: the checks after a broker refused the credentials; ``{prefix}`` is the prefix of the user's options.
    """

    name: str
    login_module: str
    exposed: str = ""
    digest: str = ""
    is_served: bool = False
    sent_as: str = ""
    advice: str = (
        "check {prefix}sasl.mechanism, the user name and the password ({prefix}sasl.jaas.config, or "
        "{prefix}sasl.username and {prefix}sasl.password), and that the brokers know this user"
    )

    @property
    def module(self) -> str:
        """The login module without its package."""
        return self.login_module.rpartition(".")[2]


_KAFKAS: Final = "org.apache.kafka.common.security"
_SCRAM_MODULE: Final = f"{_KAFKAS}.scram.ScramLoginModule"

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
#: Kerberos.
GSSAPI: Final = "GSSAPI"
#: The name of Amazon's own mechanism; its brokers also accept tokens instead.
AWS_MSK_IAM: Final = "AWS_MSK_IAM"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"

#: Name → mechanism. Those of SCRAM are in the order of their numbers in Kafka's messages, which begin with 1.
MECHANISMS: Final[Mapping[str, Mechanism]] = {
    mechanism.name: mechanism
    for mechanism in (
        Mechanism(PLAIN, f"{_KAFKAS}.plain.PlainLoginModule", exposed="password", is_served=True),
        Mechanism("SCRAM-SHA-256", _SCRAM_MODULE, digest="sha256", is_served=True),
        Mechanism(SCRAM_SHA_512, _SCRAM_MODULE, digest="sha512", is_served=True),
        Mechanism(
            OAUTHBEARER,
            f"{_KAFKAS}.oauthbearer.OAuthBearerLoginModule",
            exposed="token",
            is_served=True,
            advice="check the client's credentials at the identity provider, and that issuer, audience, signature and "
            "expiry of its tokens are what the brokers expect (their logs say what they miss)",
        ),
        Mechanism(
            GSSAPI,
            "com.sun.security.auth.module.Krb5LoginModule",
            advice="check {prefix}sasl.jaas.config and {prefix}sasl.kerberos.service.name, krb5.conf (KRB5_CONFIG) and "
            "the clock of this machine, and what the brokers' logs say",
        ),
        Mechanism(
            AWS_MSK_IAM,
            "software.amazon.msk.auth.iam.IAMLoginModule",
            exposed="token",
            sent_as=OAUTHBEARER,
            advice="check that the IAM policy of the AWS credentials allows kafka-cluster:Connect on this cluster, the "
            "region ({prefix}sasl.oauthbearer.aws.region), the clock of this machine, and that the port is that of IAM "
            "(9098; 9198 from the internet)",
        ),
    )
}
SCRAM_MECHANISMS: Final = tuple(name for name, mechanism in MECHANISMS.items() if mechanism.digest)
#: The mechanisms of the embedded broker.
SERVED: Final = tuple(name for name, mechanism in MECHANISMS.items() if mechanism.is_served)


MIN_ITERATIONS: Final = 4096
#: About a second of computation; a peer that requires more may attempt a denial of service (Kafka stores 16,384).
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
        """Derive the credential of the password that a client has salted with *salt*; the password stays unknown."""
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
    """The text that :func:`parse_credential` reads."""
    keys = {"salt": credential.salt, "stored_key": credential.stored_key, "server_key": credential.server_key}
    fields = {"name": escape_name(name), "iterations": credential.iterations}
    fields |= {key: base64.b64encode(value).decode() for key, value in keys.items()}
    return f"{mechanism}=[{','.join(f'{key}={value}' for key, value in fields.items())}]"
