"""Tokens for IAM on Amazon MSK, which its signer library makes from the AWS credentials of the process.

Called by the constructing thread, which finds mistakes in the options, and, for each token, by the thread that fetches
it. Keys and tokens must never appear in a text.

Source: https://docs.aws.amazon.com/msk/latest/developerguide/iam-access-control.html; aws/aws-msk-iam-auth
``IAMLoginModule``, ``IAMOAuthBearerLoginCallbackHandler``.
"""

from __future__ import annotations

import logging
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import AuthenticationError, ConfigError
from kafka_sink.common.log_context import warn
from kafka_sink.network.sasl.bearer_token import Token, token_of

_log = logging.getLogger(__name__)

#: The host names of MSK's brokers, also of its serverless clusters, have their region before the last part.
_BROKER: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?:\d+$")
#: The options of Amazon's login module → fields of :class:`AwsIdentity`.
_OPTIONS: Final = {"awsProfileName": "profile", "awsRoleArn": "role_arn", "awsRoleSessionName": "role_session_name"}
#: Options of Amazon's login module that change nothing here → why.
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
    """Whose tokens: those of the default credentials of the process, of a profile, or of a role."""

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
        raise ConfigError(
            f"option {line}: {', '.join(unknown)} is not supported, expected {', '.join(_OPTIONS)}; remove it, or set "
            "AWS_… variables"
        )
    identity = AwsIdentity(_region(config), **{_OPTIONS[name]: value for name, value in aws_options.items()})
    if identity.profile and identity.role_arn:
        raise ConfigError(f"option {line}: awsProfileName and awsRoleArn exclude each other; remove one of them")
    return identity


def aws_tokens(identity: AwsIdentity, clock: Clock) -> Callable[[], Token]:
    """What fetches a token of *identity*; :raises AuthenticationError: if there are no credentials, with what to do."""

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
    """Texts of botocore's own errors name what is missing; those of others, and of Amazon's services, may repeat what
    they were sent."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return f"Amazon's service answers {response.get('Error', {}).get('Code')}"
    is_botocores = type(error).__module__.startswith("botocore.")
    return str(error).rstrip(".") if is_botocores else _NOT_FOUND.get(type(error), type(error).__name__)


#: What the library raises if its chain of credentials finds none.
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
            f"{config.option('sasl.oauthbearer.aws.region')}, for example to eu-west-1"
        )
    return regions.pop()
