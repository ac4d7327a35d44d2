"""The SASL mechanisms: one row each, for clients, brokers, the check before a job and the documentation.

Any thread may read it. A row says what differs between mechanisms outside of their tokens, which ``network/sasl`` has.

Source: the registry of SASL mechanisms; apache/kafka ``ScramMechanism`` (numbers), ``SaslConfigs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Mechanism:
    """A mechanism of SASL.

    :param name: of ``sasl.mechanism``.
    :param login_module: the class that ``sasl.jaas.config`` names; in any package, because Kafka's may be shaded.
    :param exposed: the secret that the connection carries as it is, so that it needs TLS; empty if none.
    :param digest: SCRAM's hash function, as Python names it; empty for others.
    :param is_served: whether the embedded broker has it too.
    :param sent_as: the mechanism that the broker is told instead; empty for *name*.
    :param advice: what to check if a broker refuses the credentials; ``{prefix}`` is that of the user's options.
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
#: Amazon's name of a mechanism of its own, for which its brokers also take tokens.
AWS_MSK_IAM: Final = "AWS_MSK_IAM"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"

#: By name. Those of SCRAM are in the order of their numbers in Kafka's messages, which begin with 1.
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
#: Those of the embedded broker.
SERVED: Final = tuple(name for name, mechanism in MECHANISMS.items() if mechanism.is_served)
