"""Whose Kerberos tickets a client uses: the options of Java's ``Krb5LoginModule``, as Kafka's users write them.

Called by the constructing thread, and by the selector's thread for each authentication, which reads references again.
It opens no file: the Kerberos library does.

Source: com.sun.security.auth.module ``Krb5LoginModule``; apache/kafka ``KerberosLogin``, ``JaasUtils``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafka_sink.client.login.credentials import login_entry
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.text import words
from kafka_sink.network.sasl.gssapi import KerberosLogin

#: Options that change nothing here: tickets and keys stay in the memory of the library, and nobody is asked.
_NO_EFFECT: Final = frozenset(
    words("""
        storeKey doNotPrompt debug refreshKrb5Config renewTGT isInitiator tryFirstPass useFirstPass storePass clearPass
    """)
)
_FLAGS: Final = frozenset({"useKeyTab", "useTicketCache"})
_TEXTS: Final = frozenset({"keyTab", "ticketCache", "principal", "serviceName"})


def kerberos_login(config: ClientConfig) -> KerberosLogin:
    """The login of *config*; without ``sasl.jaas.config`` the ticket cache of the process.

    :raises ConfigError: if there is no name of the service, or options are unknown or contradict each other.
    """
    line = config.option("sasl.jaas.config")
    entry = login_entry(config)
    options: Mapping[str, str] = {} if entry is None else entry.options
    unknown = sorted(set(options) - _NO_EFFECT - _FLAGS - _TEXTS)
    if unknown:
        raise ConfigError(
            f"option {line}: Krb5LoginModule has no option {', '.join(unknown)} here; expected "
            f"{', '.join(sorted(_FLAGS | _TEXTS))}"
        )
    for name in _FLAGS & set(options):
        if options[name].lower() not in ("true", "false"):
            raise ConfigError(f"option {line}: {name} must be true or false")
    has_keytab = options.get("useKeyTab", "").lower() == "true"
    if has_keytab and not (options.get("keyTab") and options.get("principal")):
        raise ConfigError(f"option {line}: useKeyTab=true needs keyTab and principal; set both")
    if options.get("keyTab") and not has_keytab:
        raise ConfigError(f"option {line}: keyTab is only read with useKeyTab=true; set it, or remove keyTab")
    return KerberosLogin(
        _service(config, options.get("serviceName", "")),
        options.get("principal", ""),
        options["keyTab"].removeprefix("FILE:") if has_keytab else "",
        options.get("ticketCache", ""),
    )


def _service(config: ClientConfig, in_line: str) -> str:
    option = config.option("sasl.kerberos.service.name")
    name = config.sasl_kerberos_service_name
    if name and in_line and name != in_line:
        raise ConfigError(
            f"option {option} is {name}, and serviceName in {config.option('sasl.jaas.config')} is {in_line}; remove "
            "one of them"
        )
    if not (name or in_line):
        raise ConfigError(
            f"{config.option('sasl.mechanism')}=GSSAPI, Kafka's default, needs {option}: the first part of the "
            "brokers' principal, which is kafka as a rule; set it, or another mechanism"
        )
    return name or in_line
