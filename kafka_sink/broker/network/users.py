"""Who may authenticate with a password: users of the configuration, and those that clients made on the cluster.

Read by network threads for each login, and by handlers. Passwords of SCRAM users are not kept, only salted keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kafka_sink.broker.cluster.cluster_image import ScramUsers
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.sasl_mechanisms import PLAIN, SCRAM_MECHANISMS
from kafka_sink.network.sasl.jaas import parse_jaas
from kafka_sink.network.sasl.scram import ScramCredential, parse_credential

_USER_PREFIX: Final = "user_"


@dataclass(frozen=True, slots=True)
class Users:
    """*passwords* are those of PLAIN; *configured* are SCRAM's users of the configuration, *stored* those of the
    cluster, which come first."""

    passwords: Mapping[str, str] = field(repr=False)
    configured: ScramUsers = field(repr=False)
    stored: Callable[[], ScramUsers] = field(repr=False)

    @classmethod
    def of(cls, config: BrokerConfig, stored: Callable[[], ScramUsers]) -> Users:
        """The users in *config*, and those of the cluster.

        :raises ConfigError: if an option is malformed; the error does not contain its value.
        """
        passwords: dict[str, str] = {}
        if config.sasl_jaas_config:
            options = parse_jaas("sasl.jaas.config", config.sasl_jaas_config).options
            passwords = {
                name.removeprefix(_USER_PREFIX): value
                for name, value in options.items()
                if name.startswith(_USER_PREFIX)
            }
        enabled = config.sasl_enabled_mechanisms
        configured: dict[tuple[str, str], ScramCredential] = {
            (mechanism, name): ScramCredential.of(mechanism, password)
            for mechanism in SCRAM_MECHANISMS
            if mechanism in enabled
            for name, password in passwords.items()
        }
        for number, text in enumerate(filter(None, map(str.strip, config.sasl_scram_credentials.split(";"))), 1):
            try:
                mechanism, name, credential = parse_credential(text)
            except ConfigError as error:
                raise ConfigError(f"option sasl.scram.credentials, entry {number}: {error}") from None
            configured[mechanism, name] = credential
        return cls(passwords if PLAIN in enabled else {}, configured, stored)

    def scram(self, mechanism: str, name: str) -> ScramCredential | None:
        """The credential of a user, or None."""
        key = mechanism, name
        return self.stored().get(key) or self.configured.get(key)

    def all_scram(self) -> ScramUsers:
        """All credentials, by mechanism and name."""
        return {**self.configured, **self.stored()}
