"""Options of Kafka's Java clients that are not options here: each name with the reason, and what to do instead.

Data only; read when a configuration is parsed. A configuration that was written for a Java client works here, unless an
option in it would change what the client promises: then it is refused.

Source: apache/kafka ``ProducerConfig``, ``CommonClientConfigs``, ``SslConfigs``, ``SaslConfigs``; a test compares the
names with those of Kafka's own jar.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafka_sink.common.tls_config import ClientSslConfig

_TOKENS_ARE_CHECKED_BY_BROKERS: Final = "the brokers validate tokens, and clients pass them on"
_BUILT_IN: Final = "the providers env, file and dir are built in"
_TICKETS: Final = (
    "tickets from a keytab are renewed by the Kerberos library, and a ticket cache by whoever has filled it"
)
_FIGURES: Final = "metrics are available from the producer's metrics() and prometheus()"

#: Options that are accepted with a warning, because nothing that was promised changes without them.
NO_EFFECT: Final[Mapping[str, str]] = {
    "config.providers.env.class": _BUILT_IN,
    "config.providers.file.class": _BUILT_IN,
    "config.providers.dir.class": _BUILT_IN,
    **ClientSslConfig.NO_EFFECT,
    "sasl.kerberos.kinit.cmd": _TICKETS,
    "sasl.kerberos.min.time.before.relogin": _TICKETS,
    "sasl.kerberos.ticket.renew.jitter": _TICKETS,
    "sasl.kerberos.ticket.renew.window.factor": _TICKETS,
    "sasl.oauthbearer.clock.skew.seconds": _TOKENS_ARE_CHECKED_BY_BROKERS,
    "sasl.oauthbearer.expected.audience": _TOKENS_ARE_CHECKED_BY_BROKERS,
    "sasl.oauthbearer.expected.issuer": _TOKENS_ARE_CHECKED_BY_BROKERS,
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": _TOKENS_ARE_CHECKED_BY_BROKERS,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _TOKENS_ARE_CHECKED_BY_BROKERS,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _TOKENS_ARE_CHECKED_BY_BROKERS,
    "sasl.oauthbearer.jwks.endpoint.url": _TOKENS_ARE_CHECKED_BY_BROKERS,
    "sasl.oauthbearer.jwt.validator.class": _TOKENS_ARE_CHECKED_BY_BROKERS,
    "sasl.oauthbearer.scope.claim.name": _TOKENS_ARE_CHECKED_BY_BROKERS,
    "sasl.oauthbearer.sub.claim.name": _TOKENS_ARE_CHECKED_BY_BROKERS,
    "metric.reporters": _FIGURES,
    "auto.include.jmx.reporter": _FIGURES,
    "metrics.recording.level": "all metrics are always recorded",
    "enable.metrics.push": "no metrics are sent to the brokers (KIP-714)",
}

_YOUR_TOKENS: Final = "tokens come from your function, named by {prefix}sasl.login.callback.handler.class"
_READ_AS_USER: Final = (
    "what references may read is limited by the permissions of the process's user only; {prefix}config.providers turns "
    "providers off"
)

#: Options that are refused, because the client would not do what they ask for; ``{prefix}`` is that of the user.
NOT_SUPPORTED: Final[Mapping[str, str]] = {
    "config.providers.file.param.allowed.paths": _READ_AS_USER,
    "config.providers.dir.param.allowed.paths": _READ_AS_USER,
    "config.providers.env.param.allowlist.pattern": _READ_AS_USER,
    **ClientSslConfig.NOT_SUPPORTED,
    "sasl.login.class": f"Java classes cannot be used; {_YOUR_TOKENS}",
    "sasl.oauthbearer.assertion.template.file": "set {prefix}sasl.oauthbearer.assertion.claim.…",
}
