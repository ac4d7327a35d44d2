"""The options of OAUTHBEARER: where tokens come from, and when they are renewed.

Read once with the rest of the configuration, on the constructing thread; references in secrets are replaced for each
request for a token. Secrets appear in no ``repr`` and in no error.

Source: KIP-255, KIP-768, KIP-1139, KIP-1258; apache/kafka ``SaslConfigs``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kafka_sink.common import config as c
from kafka_sink.network.sasl.bearer_token import ES256, RS256, EndpointLimits, RefreshRules

AWS_CLIENT_HANDLER: Final = "IAMClientCallbackHandler"
_REGION: Final = re.compile(r"|[a-z]{2}(-[a-z0-9]+)+-\d+")
_INT_MAX: Final = 2**31 - 1
_MILLISECONDS: Final = c.between(1, _INT_MAX)
FILE_RETRIEVER: Final = "FileJwtRetriever"
BEARER_RETRIEVER: Final = "JwtBearerJwtRetriever"
_RETRIEVERS: Final = ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", FILE_RETRIEVER, BEARER_RETRIEVER)
_RETRIEVER: Final = c.ConfigType("the name of a class of Kafka", lambda text: str(text).strip().rpartition(".")[2])


@dataclass(frozen=True)
class OAuthConfig(c.Options):
    """The options ``sasl.oauthbearer.*`` of clients, and ``sasl.login.*``."""

    sasl_login_callback_handler_class: str | object | None = c.PLUGIN(
        "sasl.login.callback.handler.class",
        None,
        "for OAUTHBEARER: a function, or the dotted path of one, that returns a JWT, or any token with its expiry "
        "time (seconds since 1970); called again before the token expires. Spark's executors must be able to import "
        "it. Kafka's own …OAuthBearerLoginCallbackHandler stands for sasl.oauthbearer.token.endpoint.url, and Amazon's "
        "…IAMOAuthBearerLoginCallbackHandler for sasl.oauthbearer.aws.region",
    )
    sasl_oauthbearer_token_endpoint_url: str = c.STRING(
        "sasl.oauthbearer.token.endpoint.url",
        "",
        "for OAUTHBEARER: https:// address where the identity provider gives tokens for client credentials, or "
        "file:///path of a token",
        is_address=True,
    )
    sasl_oauthbearer_client_id: str = c.STRING(
        "sasl.oauthbearer.client.credentials.client.id",
        "",
        "the client's id at the identity provider; also clientId in sasl.jaas.config",
        at_connect=True,
    )
    sasl_oauthbearer_client_secret: str = c.STRING(
        "sasl.oauthbearer.client.credentials.client.secret",
        "",
        "the client's secret at the identity provider; also clientSecret in sasl.jaas.config",
        sensitive=True,
        at_connect=True,
    )
    sasl_oauthbearer_scope: str = c.STRING(
        "sasl.oauthbearer.scope", "", "what the token is asked for; also scope in sasl.jaas.config"
    )
    sasl_oauthbearer_header_urlencode: bool = c.BOOLEAN(
        "sasl.oauthbearer.header.urlencode",
        False,
        "encode the client's id and secret as RFC 6749 wants it; some identity providers need it",
    )
    sasl_oauthbearer_jwt_retriever_class: str = _RETRIEVER(
        "sasl.oauthbearer.jwt.retriever.class",
        _RETRIEVERS[0],
        "the class of Kafka's that gets tokens: the default one decides by sasl.oauthbearer.token.endpoint.url, and "
        f"{BEARER_RETRIEVER} exchanges an assertion for them, without client credentials",
        c.one_of(*_RETRIEVERS),
    )
    sasl_oauthbearer_assertion_file: str = c.STRING(
        "sasl.oauthbearer.assertion.file",
        "",
        "file with a signed JWT: it proves who the client is, instead of a secret, or is exchanged for tokens with "
        f"{BEARER_RETRIEVER}; read for each token",
    )
    sasl_oauthbearer_assertion_private_key_file: str = c.STRING(
        "sasl.oauthbearer.assertion.private.key.file",
        "",
        "PEM file with the private key that signs such JWTs, if sasl.oauthbearer.assertion.claim.iss is set; needs "
        "kafkalite[keystores]",
    )
    sasl_oauthbearer_assertion_private_key_passphrase: str = c.STRING(
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "",
        "password of that private key, if it is encrypted",
        sensitive=True,
        at_connect=True,
    )
    sasl_oauthbearer_assertion_algorithm: str = c.STRING(
        "sasl.oauthbearer.assertion.algorithm", RS256, "algorithm that signs assertions", c.one_of(RS256, ES256)
    )
    sasl_oauthbearer_assertion_claim_iss: str = c.STRING(
        "sasl.oauthbearer.assertion.claim.iss", "", "issuer of assertions: the client's id, as a rule"
    )
    sasl_oauthbearer_assertion_claim_sub: str = c.STRING(
        "sasl.oauthbearer.assertion.claim.sub", "", "subject of assertions: the client's id, as a rule"
    )
    sasl_oauthbearer_assertion_claim_aud: str = c.STRING(
        "sasl.oauthbearer.assertion.claim.aud", "", "audience of assertions: the identity provider"
    )
    sasl_oauthbearer_assertion_claim_exp_seconds: int = c.INT(
        "sasl.oauthbearer.assertion.claim.exp.seconds", 300, "how long an assertion is valid, s", c.between(0, 86_400)
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = c.INT(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        60,
        "since how long an assertion is valid already, s",
        c.between(0, 3_600),
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = c.BOOLEAN(
        "sasl.oauthbearer.assertion.claim.jti.include", False, "give each assertion an id of its own"
    )
    sasl_oauthbearer_aws_region: str = c.STRING(
        "sasl.oauthbearer.aws.region",
        "",
        "for IAM on Amazon MSK, with OAUTHBEARER: the region of the cluster; tokens are made from the AWS credentials "
        "of the process that connects. Needs kafkalite[msk]",
        c.Validator("a region such as eu-west-1", lambda text: bool(_REGION.fullmatch(text))),
    )
    sasl_client_callback_handler_class: str = c.STRING(
        "sasl.client.callback.handler.class",
        "",
        "accepted as Amazon's documentation writes it, with sasl.mechanism=AWS_MSK_IAM",
        c.Validator(
            f"…{AWS_CLIENT_HANDLER}; other Java classes cannot be used: tokens come from a function of yours "
            "(sasl.login.callback.handler.class)",
            lambda name: name.rpartition(".")[2] in ("", AWS_CLIENT_HANDLER),
        ),
    )
    sasl_login_connect_timeout_ms: int = c.INT(
        "sasl.login.connect.timeout.ms",
        EndpointLimits.connect_timeout_ms,
        "how long a connection to the identity provider may take, ms (Kafka: for ever)",
        _MILLISECONDS,
    )
    sasl_login_read_timeout_ms: int = c.INT(
        "sasl.login.read.timeout.ms",
        EndpointLimits.read_timeout_ms,
        "how long its answer may take, ms (Kafka: for ever)",
        _MILLISECONDS,
    )
    sasl_login_retry_backoff_ms: int = c.INT(
        "sasl.login.retry.backoff.ms",
        EndpointLimits.retry_backoff_ms,
        "wait before a request for a token is tried again, ms; doubles each time",
        c.between(0, _INT_MAX),
    )
    sasl_login_retry_backoff_max_ms: int = c.INT(
        "sasl.login.retry.backoff.max.ms",
        EndpointLimits.retry_backoff_max_ms,
        "how long it is tried again, ms; after that nobody asks for 10 s",
        c.between(0, _INT_MAX),
    )
    sasl_login_refresh_window_factor: float = c.DOUBLE(
        "sasl.login.refresh.window.factor",
        RefreshRules.window_factor,
        "share of its lifetime after which a token is renewed",
        c.between(0.5, 1.0),
    )
    sasl_login_refresh_window_jitter: float = c.DOUBLE(
        "sasl.login.refresh.window.jitter",
        RefreshRules.window_jitter,
        "random share of its lifetime that is added, so that clients renew their tokens at different times",
        c.between(0.0, 0.25),
    )
    sasl_login_refresh_min_period_seconds: int = c.INT(
        "sasl.login.refresh.min.period.seconds",
        RefreshRules.min_period_s,
        "shortest time between two renewals, s, if tokens live long enough",
        c.between(0, 900),
    )
    sasl_login_refresh_buffer_seconds: int = c.INT(
        "sasl.login.refresh.buffer.seconds",
        RefreshRules.buffer_s,
        "how long before its expiry a token is renewed at the latest, s, if tokens live long enough",
        c.between(0, 3_600),
    )

    @property
    def refresh_rules(self) -> RefreshRules:
        """When tokens are renewed."""
        return RefreshRules(
            self.sasl_login_refresh_window_factor,
            self.sasl_login_refresh_window_jitter,
            self.sasl_login_refresh_min_period_seconds,
            self.sasl_login_refresh_buffer_seconds,
        )

    @property
    def endpoint_limits(self) -> EndpointLimits:
        """How long the token endpoint is waited for."""
        return EndpointLimits(
            self.sasl_login_connect_timeout_ms,
            self.sasl_login_read_timeout_ms,
            self.sasl_login_retry_backoff_ms,
            self.sasl_login_retry_backoff_max_ms,
        )
