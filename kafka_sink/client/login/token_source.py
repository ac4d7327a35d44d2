"""The source of a client's tokens: a token endpoint, AWS, a function of the user's, or unsecured tokens.

Called by the constructing thread, which validates the options, and, for each token, by the thread that fetches it,
which reads references to secrets again. Secrets and tokens must never appear in a text.

Amazon's signer library creates tokens for IAM on MSK from the AWS credentials of the process.

Source: https://docs.aws.amazon.com/msk/latest/developerguide/iam-access-control.html; aws/aws-msk-iam-auth
``IAMLoginModule``, ``IAMOAuthBearerLoginCallbackHandler``.
"""

from __future__ import annotations

import logging
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from typing import Any, Final

from kafka_sink.client.login.credentials import is_java_handler, is_of_aws, login_entry
from kafka_sink.client.options.config import BEARER_RETRIEVER, FILE_RETRIEVER, ClientConfig
from kafka_sink.common.clock import Clock
from kafka_sink.common.config import parse, resolved
from kafka_sink.common.errors import AuthenticationError, ConfigError
from kafka_sink.common.log_context import warn
from kafka_sink.common.plugins import load_plugin
from kafka_sink.common.tls_config import ClientSslConfig
from kafka_sink.http.oauth.token_endpoint import Assertion, ClientCredentials, TokenEndpoint
from kafka_sink.http.oauth.token_login import LOGINS, TokenLogin, TokenUser
from kafka_sink.network.sasl.bearer_token import Token, token_of, unsecured_tokens

_log = logging.getLogger(__name__)

#: Host names of MSK's brokers, including serverless clusters, contain the region.
_BROKER: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?:\d+$")
#: The options of Amazon's login module → fields of :class:`AwsIdentity`.
_OPTIONS: Final = {"awsProfileName": "profile", "awsRoleArn": "role_arn", "awsRoleSessionName": "role_session_name"}
#: Options of Amazon's login module without effect here → the reason.
_NO_EFFECT: Final = {
    "awsDebugCreds": "kafkalite check says whose credentials are used",
    "awsMaxRetries": "AWS_MAX_ATTEMPTS says how often they are asked for",
    "awsMaxBackOffTimeMs": "the library waits between attempts as it likes",
    "awsStsRegion": "roles are assumed in the region of AWS_REGION",
}
_NO_CREDENTIALS: Final = (
    "the AWS credentials cannot be used; give the machine a role (instance profile, ECS task, EKS pod), or set "
    "AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)


@dataclass(frozen=True)
class AwsIdentity:
    """The AWS credentials: the default ones of the process, those of a profile, or of a role."""

    region: str
    profile: str = ""
    role_arn: str = ""
    role_session_name: str = ""


def aws_identity(config: ClientConfig, options: Mapping[str, str]) -> AwsIdentity:
    """The identity in *config* and the *options* of its login module.

    :raises ConfigError: if the region is not known, or an option of Amazon's login module is not supported.
    """
    line = config.option("sasl.jaas.config")
    aws_options = {name: value for name, value in options.items() if name.startswith("aws")}
    ignored = [f"{name} ({_NO_EFFECT[name]})" for name in aws_options.keys() & _NO_EFFECT.keys()]
    if ignored:
        warn(_log, "options of the login module in %s without effect here: %s", line, ", ".join(sorted(ignored)))
    aws_options = {name: value for name, value in aws_options.items() if name not in _NO_EFFECT}
    unknown = sorted(set(aws_options) - set(_OPTIONS))
    if unknown:
        raise ConfigError.of(
            line,
            f": {', '.join(unknown)} is not supported, expected {', '.join(_OPTIONS)}; remove it, or set "
            "AWS_… variables",
        )
    identity = AwsIdentity(_region(config), **{_OPTIONS[name]: value for name, value in aws_options.items()})
    if identity.profile and identity.role_arn:
        raise ConfigError.of(line, ": awsProfileName and awsRoleArn exclude each other; remove one of them")
    return identity


def aws_tokens(identity: AwsIdentity, clock: Clock) -> Callable[[], Token]:
    """The function that fetches a token of *identity*.

    :raises AuthenticationError: if there are no credentials, with the remedy.
    """

    def fetch() -> Token:
        signer = _signer()
        try:
            value, expires_ms = _signed(signer, identity)
        except Exception as error:
            raise AuthenticationError(
                f"no token for MSK in {identity.region} on {platform.node()}: {_cause(error)}; {_NO_CREDENTIALS}"
            ) from None
        return token_of((value, expires_ms / 1000), clock.wall_ms())

    return fetch


def _cause(error: Exception) -> str:
    """A cause without secrets: the texts of botocore's own errors name the missing part; others, and those of Amazon's
    services, may repeat secrets that they were sent."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return f"Amazon's service answers {response.get('Error', {}).get('Code')}"
    is_botocores = type(error).__module__.startswith("botocore.")
    return str(error).rstrip(".") if is_botocores else _NOT_FOUND.get(type(error), type(error).__name__)


#: The errors that the library raises if its chain of credentials finds none.
_NOT_FOUND: Final[dict[type[Exception], str]] = {
    AttributeError: "no AWS credentials are found",
    ValueError: "the AWS credentials are empty",
}


def _signer() -> Any:
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ImportError:
        raise ConfigError("IAM on MSK needs a package of Amazon's; pip install 'kafkalite[msk]'") from None
    return MSKAuthTokenProvider


def _signed(signer: Any, identity: AwsIdentity) -> tuple[str, int]:
    signed: tuple[str, int]
    if identity.role_arn:
        session = (identity.role_session_name,) if identity.role_session_name else ()
        signed = signer.generate_auth_token_from_role_arn(identity.region, identity.role_arn, *session)
    elif identity.profile:
        signed = signer.generate_auth_token_from_profile(identity.region, identity.profile)
    else:
        signed = signer.generate_auth_token(identity.region)
    return signed


def _region(config: ClientConfig) -> str:
    if config.sasl_oauthbearer_aws_region:
        return config.sasl_oauthbearer_aws_region
    regions = {match[1] for match in map(_BROKER.search, config.bootstrap_servers) if match is not None}
    if len(regions) != 1:
        raise ConfigError(
            f"the region of the MSK cluster is not in {config.option('bootstrap.servers')}; set "
            f"{config.option('sasl.oauthbearer.aws.region')}, for example to eu-west-1",
            option=config.option("sasl.oauthbearer.aws.region"),
        )
    return regions.pop()


_UNSECURED_SUBJECT: Final = "unsecuredLoginStringClaim_sub"
_EXTENSION: Final = "extension_"


def token_source(config: ClientConfig, clock: Clock) -> TokenUser:
    """The tokens of *config*. All clients of a process with the same credentials share them.

    :raises ConfigError: if options are missing, contradict each other, or have references that cannot be replaced.
    """
    callback = config.sasl_login_callback_handler_class
    is_users = callback is not None and not is_java_handler(callback)
    if is_of_aws(config):
        return _from_aws(config, clock)
    if config.sasl_oauthbearer_token_endpoint_url:
        if is_users:
            raise ConfigError(
                f"options {config.option('sasl.login.callback.handler.class')} and "
                f"{config.option('sasl.oauthbearer.token.endpoint.url')} are both set; remove one of them",
                option=config.option("sasl.login.callback.handler.class"),
            )
        return _from_endpoint(config, clock)
    if is_users:
        function = load_plugin(config.option("sasl.login.callback.handler.class"), callback, {}, "__call__")
        return TokenLogin(_from_function(function, clock), config.refresh_rules, clock).join()
    entry = login_entry(config)
    subject = entry.options.get(_UNSECURED_SUBJECT, "") if entry is not None and callback is None else ""
    if not subject:
        raise ConfigError(
            f"{config.option('sasl.mechanism')}=OAUTHBEARER needs "
            f"{config.option('sasl.oauthbearer.token.endpoint.url')}, or "
            f"{config.option('sasl.login.callback.handler.class')}: a function that returns a token",
            option=config.option("sasl.mechanism"),
        )
    return TokenLogin(_from_function(unsecured_tokens(subject, clock), clock), config.refresh_rules, clock).join()


def _from_function(function: Callable[[], Any], clock: Clock) -> Callable[[], Token]:
    def fetch() -> Token:
        try:
            return token_of(function(), clock.wall_ms())
        except Exception as error:
            # The text of another error may contain a secret.
            cause = str(error) if isinstance(error, AuthenticationError) else type(error).__name__
            raise AuthenticationError(f"no OAUTHBEARER token: the callback failed: {cause}") from None

    return fetch


def _from_endpoint(config: ClientConfig, clock: Clock) -> TokenUser:
    option = config.option("sasl.oauthbearer.token.endpoint.url")
    url = config.sasl_oauthbearer_token_endpoint_url
    tls = _tls(config)
    endpoint = TokenEndpoint(option, url, tls, config.endpoint_limits, clock)
    if config.sasl_oauthbearer_jwt_retriever_class == FILE_RETRIEVER and not endpoint.is_file:
        raise ConfigError.of(option, f": {url} is not a file, which {FILE_RETRIEVER} needs; expected file:///path")
    if config.sasl_oauthbearer_jwt_retriever_class == BEARER_RETRIEVER and endpoint.is_file:
        raise ConfigError.of(
            option, f": {url} is a file, and {BEARER_RETRIEVER} needs a token endpoint; expected https://host/path"
        )

    def credentials() -> ClientCredentials:
        return ClientCredentials("", "", extensions=_extensions(config)) if endpoint.is_file else _credentials(config)

    def create() -> TokenLogin:
        return TokenLogin(lambda: endpoint.fetch(credentials()), config.refresh_rules, clock)

    identity = (url, astuple(credentials()), tls, config.endpoint_limits, config.refresh_rules, id(clock))
    return LOGINS.join(identity, create, clock.wall_ms())


def _from_aws(config: ClientConfig, clock: Clock) -> TokenUser:
    identity = aws_identity(config, _jaas(config))

    def create() -> TokenLogin:
        return TokenLogin(aws_tokens(identity, clock), config.refresh_rules, clock)

    return LOGINS.join((astuple(identity), config.refresh_rules, id(clock)), create, clock.wall_ms())


def _credentials(config: ClientConfig) -> ClientCredentials:
    present = resolved(config, config.option_prefix)
    jaas = _jaas(config)
    client_id = present.sasl_oauthbearer_client_id or jaas.get("clientId", "")
    secret = present.sasl_oauthbearer_client_secret or jaas.get("clientSecret", "")
    assertion = _assertion(present)
    is_bearer = config.sasl_oauthbearer_jwt_retriever_class == BEARER_RETRIEVER
    if is_bearer and assertion is None:
        raise ConfigError(
            f"{config.option('sasl.oauthbearer.jwt.retriever.class')}={BEARER_RETRIEVER} needs an assertion: set "
            f"{config.option('sasl.oauthbearer.assertion.file')}, or ….private.key.file and ….claim.iss",
            option=config.option("sasl.oauthbearer.jwt.retriever.class"),
        )
    if assertion is None and not (client_id and secret):
        raise ConfigError(
            f"{config.option('sasl.oauthbearer.token.endpoint.url')} needs the client's "
            f"{'secret' if client_id else 'id'}: set {config.option('sasl.oauthbearer.client.credentials.client.id')} "
            "and ….client.secret, or clientId and clientSecret in sasl.jaas.config, or sasl.oauthbearer.assertion.…",
            option=config.option("sasl.oauthbearer.token.endpoint.url"),
        )
    return ClientCredentials(
        client_id,
        secret,
        (present.sasl_oauthbearer_scope or jaas.get("scope", "")).strip(),
        _extensions(config),
        assertion,
        is_bearer,
        present.sasl_oauthbearer_header_urlencode,
    )


def _assertion(config: ClientConfig) -> Assertion | None:
    """The source of assertions; a file takes precedence over a new assertion, as in Kafka."""
    if config.sasl_oauthbearer_assertion_file:
        return Assertion(config.sasl_oauthbearer_assertion_file, prefix=config.option_prefix)
    key_file, issuer = config.sasl_oauthbearer_assertion_private_key_file, config.sasl_oauthbearer_assertion_claim_iss
    if bool(key_file) != bool(issuer):
        raise ConfigError(
            f"{config.option('sasl.oauthbearer.assertion.private.key.file')} and "
            f"{config.option('sasl.oauthbearer.assertion.claim.iss')} belong together; set both, or none",
            option=config.option("sasl.oauthbearer.assertion.private.key.file"),
        )
    if not key_file:
        return None
    return Assertion(
        key_file=key_file,
        key_password=config.sasl_oauthbearer_assertion_private_key_passphrase,
        algorithm=config.sasl_oauthbearer_assertion_algorithm,
        issuer=issuer,
        subject=config.sasl_oauthbearer_assertion_claim_sub,
        audience=config.sasl_oauthbearer_assertion_claim_aud,
        lifetime_s=config.sasl_oauthbearer_assertion_claim_exp_seconds,
        not_before_s=config.sasl_oauthbearer_assertion_claim_nbf_seconds,
        has_id=config.sasl_oauthbearer_assertion_claim_jti_include,
        prefix=config.option_prefix,
    )


def _jaas(config: ClientConfig) -> dict[str, str]:
    entry = login_entry(config)
    return {} if entry is None else dict(entry.options)


def _extensions(config: ClientConfig) -> dict[str, str]:
    """The SASL extensions in the login module's options, such as ``extension_logicalCluster`` (KIP-342)."""
    extensions = {
        name.removeprefix(_EXTENSION): value for name, value in _jaas(config).items() if name.startswith(_EXTENSION)
    }
    for name, value in extensions.items():
        if not (name.isascii() and name.isalpha()) or not value.isascii() or not value.isprintable() or name == "auth":
            raise ConfigError.of(
                config.option("sasl.jaas.config"),
                f": {_EXTENSION}{name} is not a valid SASL extension; expected letters as its name, and printable text",
            )
    return extensions


def _tls(config: ClientConfig) -> ClientSslConfig:
    """The options that verify the endpoint's certificate: ``ssl.*`` of the login module, as in Kafka."""
    properties = {name: value for name, value in _jaas(config).items() if name.startswith("ssl.")}
    return parse(ClientSslConfig, properties, prefix=f"{config.option('sasl.jaas.config')}: ")
