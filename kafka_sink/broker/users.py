"""Who may authenticate with a password: users of the configuration, and those that clients made on the cluster.

Read by network threads for each login, and by handlers. Passwords of SCRAM users are not kept, only salted keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafka_sink.common.scram_credential import ScramCredential, ScramUsers


@dataclass(frozen=True, slots=True)
class Users:
    """*passwords* are those of PLAIN; *configured* are SCRAM's users of the configuration, *stored* those of the
    cluster, which come first."""

    passwords: Mapping[str, str] = field(repr=False)
    configured: ScramUsers = field(repr=False)
    stored: Callable[[], ScramUsers] = field(repr=False)

    def scram(self, mechanism: str, name: str) -> ScramCredential | None:
        """The credential of a user, or None."""
        key = mechanism, name
        return self.stored().get(key) or self.configured.get(key)

    def all_scram(self) -> ScramUsers:
        """All credentials, by mechanism and name."""
        return {**self.configured, **self.stored()}
