"""Creates the channel builder of a client from its configuration.

Called once by the constructing thread: contradictory options and unusable files raise an error there and not at the
first connection. Passwords must never appear in a text.

The options of Java's ``Krb5LoginModule`` select the Kerberos tickets, as in Kafka. This module does not open their
files: the Kerberos library does.

Source: com.sun.security.auth.module ``Krb5LoginModule``; apache/kafka ``KerberosLogin``, ``JaasUtils``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from kafka_sink.client.login.credentials import PasswordCredentials, login_entry
from kafka_sink.client.login.sasl_authenticator import SaslClientAuthenticator
from kafka_sink.client.options.config import SASL_PLAINTEXT, SASL_SSL, SSL, ClientConfig
from kafka_sink.common.clock import Clock
from kafka_sink.common.config import keys
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.log_context import warn
from kafka_sink.common.sasl_mechanisms import AWS_MSK_IAM, GSSAPI, MECHANISMS, OAUTHBEARER, PLAIN
from kafka_sink.common.text import words
from kafka_sink.network.channel.authenticator import Authenticator
from kafka_sink.network.channel.channel import AuthenticatorFactory, ChannelBuilder
from kafka_sink.network.frames import FrameReader
from kafka_sink.network.sasl.gssapi import KerberosLogin
from kafka_sink.network.sasl.mechanism import PlainClient, SaslClient
from kafka_sink.network.sasl.scram import ScramClient
from kafka_sink.network.transport.transport import TransportLayer
from kafka_sink.trust.tls_context import TlsContexts

#: Options without effect: tickets and keys stay in the memory of the library, and there are no prompts.
_NO_EFFECT: Final = frozenset(
    words("""
        storeKey doNotPrompt debug refreshKrb5Config renewTGT isInitiator tryFirstPass useFirstPass storePass clearPass
    """)
)
_FLAGS: Final = frozenset({"useKeyTab", "useTicketCache"})
_TEXTS: Final = frozenset({"keyTab", "ticketCache", "principal", "serviceName"})


def kerberos_login(config: ClientConfig) -> KerberosLogin:
    """The login of *config*; without ``sasl.jaas.config`` the ticket cache of the process.

    :raises ConfigError: if the name of the service is missing, or options are unknown or contradict each other.
    """
    line = config.option("sasl.jaas.config")
    entry = login_entry(config)
    options: Mapping[str, str] = {} if entry is None else entry.options
    unknown = sorted(set(options) - _NO_EFFECT - _FLAGS - _TEXTS)
    if unknown:
        raise ConfigError.of(
            line,
            f": Krb5LoginModule has no option {', '.join(unknown)} here; expected {', '.join(sorted(_FLAGS | _TEXTS))}",
        )
    for name in _FLAGS & set(options):
        if options[name].lower() not in ("true", "false"):
            raise ConfigError.of(line, f": {name} must be true or false")
    has_keytab = options.get("useKeyTab", "").lower() == "true"
    if has_keytab and not (options.get("keyTab") and options.get("principal")):
        raise ConfigError.of(line, ": useKeyTab=true needs keyTab and principal; set both")
    if options.get("keyTab") and not has_keytab:
        raise ConfigError.of(line, ": keyTab is only read with useKeyTab=true; set it, or remove keyTab")
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
        raise ConfigError.of(
            option,
            f" is {name}, and serviceName in {config.option('sasl.jaas.config')} is {in_line}; remove one of them",
        )
    if not (name or in_line):
        raise ConfigError(
            f"{config.option('sasl.mechanism')}=GSSAPI, Kafka's default, needs {option}: the first part of the "
            "brokers' principal, which is kafka as a rule; set it, or another mechanism",
            option=config.option("sasl.mechanism"),
        )
    return name or in_line


_log = logging.getLogger(__name__)


def create_channel_builder(config: ClientConfig, clock: Clock, client_id: str) -> ChannelBuilder:
    """The channel builder for *config*.

    :raises ConfigError: if options contradict each other or are missing, or if a file cannot be used.
    """
    protocol = config.security_protocol
    _warn_of_unused(config)
    contexts = None
    if protocol in (SSL, SASL_SSL):
        contexts = TlsContexts(config, server=False, prefix=config.option_prefix)
    authenticators = None
    if protocol in (SASL_PLAINTEXT, SASL_SSL):
        authenticators = _authenticators(config, _exchange(config, clock), clock, client_id)
    return ChannelBuilder(contexts=contexts, authenticators=authenticators)


def _warn_of_unused(config: ClientConfig) -> None:
    """Warn about options without effect: a user who sets a certificate or a password may assume that it is used."""
    protocol = config.security_protocol
    families = [
        name
        for name, used in (("ssl.", (SSL, SASL_SSL)), ("sasl.", (SASL_PLAINTEXT, SASL_SSL)))
        if protocol not in used
    ]
    unused = [
        name
        for name, (_, item) in keys(type(config)).items()
        if name.startswith(tuple(families)) and getattr(config, item.name) != item.default
    ]
    if unused:
        option = config.option("security.protocol")
        warn(_log, "with %s=%s, these options have no effect: %s", option, protocol, ", ".join(unused))


def _authenticators(
    config: ClientConfig, exchange: Callable[[str], SaslClient], clock: Clock, client_id: str
) -> AuthenticatorFactory:
    mechanism = MECHANISMS[config.sasl_mechanism].sent_as or config.sasl_mechanism

    def create(connection_id: str, transport: TransportLayer, reader: FrameReader, peer_host: str) -> Authenticator:
        return SaslClientAuthenticator(
            mechanism, lambda: exchange(peer_host), transport, reader, clock=clock, client_id=client_id
        )

    return create


def _exchange(config: ClientConfig, clock: Clock) -> Callable[[str], SaslClient]:
    """A function that begins an exchange of the configured mechanism with the configured credentials and a host."""
    mechanism = MECHANISMS[config.sasl_mechanism]
    if mechanism.name == AWS_MSK_IAM:
        warn(
            _log,
            "%s=AWS_MSK_IAM is translated into OAUTHBEARER, which MSK's brokers accept on the same port; set "
            "OAUTHBEARER and %s to say so yourself",
            config.option("sasl.mechanism"),
            config.option("sasl.oauthbearer.aws.region"),
        )
    begin = _EXCHANGES.get(mechanism.sent_as or mechanism.name, _scram)(config, clock)
    if mechanism.exposed and config.security_protocol == SASL_PLAINTEXT:
        name = mechanism.sent_as or mechanism.name
        warn(
            _log, "%s over SASL_PLAINTEXT sends the %s unencrypted; use SASL_SSL to encrypt it", name, mechanism.exposed
        )
    return begin


def _bearer(config: ClientConfig, clock: Clock) -> Callable[[str], SaslClient]:
    # Imported on use: the import costs a task more than those of all other mechanisms together.
    from kafka_sink.client.login.token_source import token_source
    from kafka_sink.network.sasl.bearer_token import OAuthBearerClient

    tokens = token_source(config, clock)
    return lambda host: OAuthBearerClient(tokens.token)


def _kerberos(config: ClientConfig, clock: Clock) -> Callable[[str], SaslClient]:
    from kafka_sink.network.sasl.gssapi import GssApiClient

    kerberos_login(config)
    return lambda host: GssApiClient(kerberos_login(config), host, config.option("sasl.kerberos.service.name"))


def _plain(config: ClientConfig, clock: Clock) -> Callable[[str], SaslClient]:
    credentials = PasswordCredentials(config)
    return lambda host: PlainClient(*credentials())


def _scram(config: ClientConfig, clock: Clock) -> Callable[[str], SaslClient]:
    credentials = PasswordCredentials(config)
    return lambda host: ScramClient(config.sasl_mechanism, *credentials())


#: Mechanism → the function that prepares its exchanges; the SCRAM mechanisms share another one.
_EXCHANGES: Final = {OAUTHBEARER: _bearer, GSSAPI: _kerberos, PLAIN: _plain}
