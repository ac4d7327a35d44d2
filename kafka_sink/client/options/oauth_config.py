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
from kafka_sink.network.oauth.rules import ES256, RS256, EndpointLimits, RefreshRules

AWS_CLIENT_HANDLER: Final = "IAMClientCallbackHandler"
_REGION: Final = re.compile(r"|[a-z]{2}(-[a-z0-9]+)+-\d+")
_INT_MAX: Final = 2**31 - 1
_MILLISECONDS: Final = c.between(1, _INT_MAX)
FILE_RETRIEVER: Final = "FileJwtRetriever"
BEARER_RETRIEVER: Final = "JwtBearerJwtRetriever"
_RETRIEVERS: Final = ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", FILE_RETRIEVER, BEARER_RETRIEVER)
_RETRIEVER: Final = c.ConfigType("the name of a class of Kafka", lambda text: str(text).strip().rpartition(".")[2])


@dataclass(frozen=True)
class OAuthConfig:
    """The options ``sasl.oauthbearer.*`` of clients, and ``sasl.login.*``."""

    sasl_login_callback_handler_class: str | object | None = c.key(
        "sasl.login.callback.handler.class",
        c.PLUGIN,
        None,
        "for OAUTHBEARER: a function, or the dotted path of one, that returns a JWT, or any token with its expiry "
        "time (seconds since 1970); called again before the token expires. Spark's executors must be able to import "
        "it. Kafka's own …OAuthBearerLoginCallbackHandler stands for sasl.oauthbearer.token.endpoint.url, and Amazon's "
        "…IAMOAuthBearerLoginCallbackHandler for sasl.oauthbearer.aws.region",
    )
    sasl_oauthbearer_token_endpoint_url: str = c.key(
        "sasl.oauthbearer.token.endpoint.url",
        c.STRING,
        "",
        "for OAUTHBEARER: https:// address where the identity provider gives tokens for client credentials, or "
        "file:///path of a token",
    )
    sasl_oauthbearer_client_id: str = c.key(
        "sasl.oauthbearer.client.credentials.client.id",
        c.STRING,
        "",
        "the client's id at the identity provider; also clientId in sasl.jaas.config",
        at_connect=True,
    )
    sasl_oauthbearer_client_secret: str = c.key(
        "sasl.oauthbearer.client.credentials.client.secret",
        c.STRING,
        "",
        "the client's secret at the identity provider; also clientSecret in sasl.jaas.config",
        sensitive=True,
        at_connect=True,
    )
    sasl_oauthbearer_scope: str = c.key(
        "sasl.oauthbearer.scope", c.STRING, "", "what the token is asked for; also scope in sasl.jaas.config"
    )
    sasl_oauthbearer_header_urlencode: bool = c.key(
        "sasl.oauthbearer.header.urlencode",
        c.BOOLEAN,
        False,
        "encode the client's id and secret as RFC 6749 wants it; some identity providers need it",
    )
    sasl_oauthbearer_jwt_retriever_class: str = c.key(
        "sasl.oauthbearer.jwt.retriever.class",
        _RETRIEVER,
        _RETRIEVERS[0],
        "the class of Kafka's that gets tokens: the default one decides by sasl.oauthbearer.token.endpoint.url, and "
        f"{BEARER_RETRIEVER} exchanges an assertion for them, without client credentials",
        validator=c.one_of(*_RETRIEVERS),
    )
    sasl_oauthbearer_assertion_file: str = c.key(
        "sasl.oauthbearer.assertion.file",
        c.STRING,
        "",
        "file with a signed JWT: it proves who the client is, instead of a secret, or is exchanged for tokens with "
        f"{BEARER_RETRIEVER}; read for each token",
    )
    sasl_oauthbearer_assertion_private_key_file: str = c.key(
        "sasl.oauthbearer.assertion.private.key.file",
        c.STRING,
        "",
        "PEM file with the private key that signs such JWTs, if sasl.oauthbearer.assertion.claim.iss is set; needs "
        "kafkalite[keystores]",
    )
    sasl_oauthbearer_assertion_private_key_passphrase: str = c.key(
        "sasl.oauthbearer.assertion.private.key.passphrase",
        c.STRING,
        "",
        "password of that private key, if it is encrypted",
        sensitive=True,
        at_connect=True,
    )
    sasl_oauthbearer_assertion_algorithm: str = c.key(
        "sasl.oauthbearer.assertion.algorithm",
        c.STRING,
        RS256,
        "algorithm that signs assertions",
        validator=c.one_of(RS256, ES256),
    )
    sasl_oauthbearer_assertion_claim_iss: str = c.key(
        "sasl.oauthbearer.assertion.claim.iss", c.STRING, "", "issuer of assertions: the client's id, as a rule"
    )
    sasl_oauthbearer_assertion_claim_sub: str = c.key(
        "sasl.oauthbearer.assertion.claim.sub", c.STRING, "", "subject of assertions: the client's id, as a rule"
    )
    sasl_oauthbearer_assertion_claim_aud: str = c.key(
        "sasl.oauthbearer.assertion.claim.aud", c.STRING, "", "audience of assertions: the identity provider"
    )
    sasl_oauthbearer_assertion_claim_exp_seconds: int = c.key(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        c.INT,
        300,
        "how long an assertion is valid, s",
        validator=c.between(0, 86_400),
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = c.key(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        c.INT,
        60,
        "since how long an assertion is valid already, s",
        validator=c.between(0, 3_600),
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = c.key(
        "sasl.oauthbearer.assertion.claim.jti.include", c.BOOLEAN, False, "give each assertion an id of its own"
    )
    sasl_oauthbearer_aws_region: str = c.key(
        "sasl.oauthbearer.aws.region",
        c.STRING,
        "",
        "for IAM on Amazon MSK, with OAUTHBEARER: the region of the cluster; tokens are made from the AWS credentials "
        "of the process that connects. Needs kafkalite[msk]",
        validator=c.Validator("a region such as eu-west-1", lambda text: bool(_REGION.fullmatch(text))),
    )
    sasl_client_callback_handler_class: str = c.key(
        "sasl.client.callback.handler.class",
        c.STRING,
        "",
        "accepted as Amazon's documentation writes it, with sasl.mechanism=AWS_MSK_IAM",
        validator=c.Validator(
            f"…{AWS_CLIENT_HANDLER}; other Java classes cannot be used: tokens come from a function of yours "
            "(sasl.login.callback.handler.class)",
            lambda name: name.rpartition(".")[2] in ("", AWS_CLIENT_HANDLER),
        ),
    )
    sasl_login_connect_timeout_ms: int = c.key(
        "sasl.login.connect.timeout.ms",
        c.INT,
        EndpointLimits.connect_timeout_ms,
        "how long a connection to the identity provider may take, ms (Kafka: for ever)",
        validator=_MILLISECONDS,
    )
    sasl_login_read_timeout_ms: int = c.key(
        "sasl.login.read.timeout.ms",
        c.INT,
        EndpointLimits.read_timeout_ms,
        "how long its answer may take, ms (Kafka: for ever)",
        validator=_MILLISECONDS,
    )
    sasl_login_retry_backoff_ms: int = c.key(
        "sasl.login.retry.backoff.ms",
        c.INT,
        EndpointLimits.retry_backoff_ms,
        "wait before a request for a token is tried again, ms; doubles each time",
        validator=c.between(0, _INT_MAX),
    )
    sasl_login_retry_backoff_max_ms: int = c.key(
        "sasl.login.retry.backoff.max.ms",
        c.INT,
        EndpointLimits.retry_backoff_max_ms,
        "how long it is tried again, ms; after that nobody asks for 10 s",
        validator=c.between(0, _INT_MAX),
    )
    sasl_login_refresh_window_factor: float = c.key(
        "sasl.login.refresh.window.factor",
        c.DOUBLE,
        RefreshRules.window_factor,
        "share of its lifetime after which a token is renewed",
        validator=c.between(0.5, 1.0),
    )
    sasl_login_refresh_window_jitter: float = c.key(
        "sasl.login.refresh.window.jitter",
        c.DOUBLE,
        RefreshRules.window_jitter,
        "random share of its lifetime that is added, so that clients renew their tokens at different times",
        validator=c.between(0.0, 0.25),
    )
    sasl_login_refresh_min_period_seconds: int = c.key(
        "sasl.login.refresh.min.period.seconds",
        c.INT,
        RefreshRules.min_period_s,
        "shortest time between two renewals, s, if tokens live long enough",
        validator=c.between(0, 900),
    )
    sasl_login_refresh_buffer_seconds: int = c.key(
        "sasl.login.refresh.buffer.seconds",
        c.INT,
        RefreshRules.buffer_s,
        "how long before its expiry a token is renewed at the latest, s, if tokens live long enough",
        validator=c.between(0, 3_600),
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
