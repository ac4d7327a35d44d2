"""The security options of the broker: ``ssl.*`` and ``sasl.*`` of its listeners, and who may do what.

Read once with the rest of the configuration. This module opens no files; passwords and keys appear in no ``repr`` and
in no error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafka_sink.common import config as c
from kafka_sink.common.sasl_mechanisms import SERVED
from kafka_sink.common.tls_config import SslConfig

_INT_MAX: Final = 2**31 - 1
#: The only value of ``authorizer.class.name``.
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_EXPECTED: Final = f"names among {', '.join(SERVED)}"


def _principals(text: str) -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, text.split(";"))))


@dataclass(frozen=True)
class BrokerSecurityConfig(SslConfig):
    """Options of listeners whose protocol is not PLAINTEXT (apache/kafka ``BrokerSecurityConfigs``)."""

    ssl_client_auth: str = c.STRING(
        "ssl.client.auth",
        "none",
        "whether clients of TLS listeners must present a certificate that the truststore verifies",
        c.one_of("none", "requested", "required"),
    )
    sasl_enabled_mechanisms: tuple[str, ...] = c.LIST(
        "sasl.enabled.mechanisms",
        (),
        "SASL mechanisms that clients of SASL_… listeners may use (Kafka: GSSAPI); OAUTHBEARER accepts unsecured "
        "tokens, as Kafka does by default, so it is for tests only",
        c.Validator(_EXPECTED, lambda names: set(names) <= set(SERVED)),
    )
    sasl_jaas_config: str = c.STRING(
        "sasl.jaas.config",
        "",
        'users and passwords for PLAIN and SCRAM, as in Kafka: …PlainLoginModule required user_alice="…" '
        'user_bob="…"; for SCRAM only salted keys are kept (Kafka: listener.name.NAME.plain.sasl.jaas.config)',
        sensitive=True,
    )
    sasl_scram_credentials: str = c.STRING(
        "sasl.scram.credentials",
        "",
        "further users for SCRAM, without passwords: "
        "SCRAM-SHA-256=[name=…,iterations=…,salt=…,stored_key=…,server_key=…], separated by semicolons (Kafka: "
        "kafka-storage --add-scram)",
        sensitive=True,
    )
    sasl_server_max_receive_size: int = c.INT(
        "sasl.server.max.receive.size",
        524_288,
        "maximum size of a request before the client has authenticated, bytes",
        c.between(1, _INT_MAX),
    )
    connections_max_reauth_ms: int = c.INT(
        "connections.max.reauth.ms",
        0,
        "time after which clients must re-authenticate, or their connection is closed, ms; 0 = never (KIP-368)",
        c.between(0, _INT_MAX),
    )
    connection_failed_authentication_delay_ms: int = c.INT(
        "connection.failed.authentication.delay.ms",
        100,
        "how long the response to a failed authentication is delayed before the connection is closed, ms (KIP-306)",
        c.between(0, 10_000),
    )
    authorizer_class_name: str = c.STRING(
        "authorizer.class.name",
        "",
        f"{AUTHORIZER} enforces ACLs on every listener; by default everybody may do everything",
        c.Validator(f"{AUTHORIZER}, or nothing", lambda name: name in ("", AUTHORIZER)),
    )
    super_users: str = c.STRING(
        "super.users",
        "",
        "principals that may do everything whatever the ACLs say, separated by semicolons: User:admin;User:ANONYMOUS; "
        "only with authorizer.class.name",
        c.Validator(
            "User:name, and semicolons between several", lambda text: all(":" in name for name in _principals(text))
        ),
    )
    allow_everyone_if_no_acl_found: bool = c.BOOLEAN(
        "allow.everyone.if.no.acl.found",
        False,
        "whether everybody may use a resource for which there is no ACL; only with authorizer.class.name",
    )

    @property
    def super_user_names(self) -> frozenset[str]:
        """The principals in ``super.users``."""
        return _principals(self.super_users)
