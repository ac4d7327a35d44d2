"""Parses ``sasl.jaas.config``, in the format of Kafka's and Spark's users.

Called while a configuration is read. Errors never contain any part of the text, because it contains passwords.

Source: Kafka documentation, "Security: JAAS configuration"; javax.security.auth.login.Configuration for the grammar.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kafka_sink.common.errors import ConfigError
from kafka_sink.common.sasl_mechanisms import AWS_MSK_IAM, GSSAPI, OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512

#: The simple name of a login module's class → its mechanisms. The package name is ignored, because it depends on how
#: Kafka's classes are shaded.
_MODULES: Final[Mapping[str, frozenset[str]]] = {
    "PlainLoginModule": frozenset({PLAIN}),
    "ScramLoginModule": frozenset({SCRAM_SHA_256, SCRAM_SHA_512}),
    "OAuthBearerLoginModule": frozenset({OAUTHBEARER}),
    "IAMLoginModule": frozenset({AWS_MSK_IAM}),
    "Krb5LoginModule": frozenset({GSSAPI}),
}
_ENTRY: Final = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(?P<options>.*);\s*", re.S
)
_QUOTED: Final = r'"(?P<quoted>(?:[^"\\]|\\.)*)"'
_OPTION: Final = re.compile(rf"\s*(?P<name>[\w.\-@]+)\s*=\s*(?:{_QUOTED}|(?P<bare>[^\s\";]+))(?=\s|$)", re.S)
_EXAMPLE: Final = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="…" password="…";'


@dataclass(frozen=True)
class JaasEntry:
    """A login module and its options."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def mechanisms(self) -> frozenset[str]:
        """The mechanisms of the module."""
        return _MODULES[self.module]


def parse_jaas(option: str, text: str) -> JaasEntry:
    """Parse the only entry of *text*, the value of *option*.

    :raises ConfigError: if it is malformed, or its module is not one of the supported modules of Kafka.
    """
    entry = _ENTRY.fullmatch(text)
    if entry is None:
        raise ConfigError(f"option {option}: malformed, expected {_EXAMPLE}")
    module = entry["module"].rpartition(".")[2]
    if module not in _MODULES:
        raise ConfigError(
            f"option {option}: login module {entry['module']} is not supported, expected one of {', '.join(_MODULES)}"
        )
    return JaasEntry(module, _options(option, entry["options"]))


def _options(option: str, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _OPTION.match(text, at)
        if match is None:
            raise ConfigError(
                f'option {option}: malformed after {len(found)} options, expected name="value" with \\" for quotes; '
                "the line ends with one ;"
            )
        quoted = match["quoted"]
        found[match["name"]] = match["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.S)
        at = match.end()
    return found
