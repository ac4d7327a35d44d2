"""User name and password of a client, read from its options for each authentication, and the kind of its tokens.

Created by the constructing thread, which validates the options, and called by the selector's thread for every new
connection and reauthentication, so that the password behind a reference may change while connections are open.
Passwords must never appear in a text.
"""

from __future__ import annotations

import logging
from typing import Final

from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common.config import resolved
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.sasl_mechanisms import AWS_MSK_IAM, GSSAPI
from kafka_sink.network.sasl.jaas import JaasEntry, parse_jaas

_log = logging.getLogger(__name__)

_OF_ENDPOINT: Final = "OAuthBearerLoginCallbackHandler"
_OF_AWS: Final = "IAMOAuthBearerLoginCallbackHandler"


class PasswordCredentials:
    """User name and password for the next authentication.

    :raises ConfigError: if the options contradict each other, are incomplete, or have a reference that cannot be
        replaced.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._last = _name_and_password(config)

    def __call__(self) -> tuple[str, str]:
        """The current user name and password; the last valid ones while a file with them is being replaced."""
        try:
            self._last = _name_and_password(self._config)
        except ConfigError as error:
            _log.warning("the credentials cannot be read again; the previous ones stay in use: %s", error)
        return self._last


def login_entry(config: ClientConfig) -> JaasEntry | None:
    """The login module of ``sasl.jaas.config``, without references; None if the option is not set.

    :raises ConfigError: if it is malformed, or its module does not belong to the mechanism.
    """
    present = resolved(config, config.option_prefix)
    if not present.sasl_jaas_config:
        return None
    option = config.option("sasl.jaas.config")
    entry = parse_jaas(option, present.sasl_jaas_config)
    if config.sasl_mechanism not in entry.mechanisms:
        default = ", which is Kafka's default; set it" if config.sasl_mechanism == GSSAPI else ""
        raise ConfigError.of(
            option,
            f": {entry.module} is for {' and '.join(sorted(entry.mechanisms))}, but "
            f"{config.option('sasl.mechanism')} is {config.sasl_mechanism}{default}",
        )
    return entry


def is_java_handler(callback: object) -> bool:
    """Whether *callback* is the name of Kafka's class for client credentials, or of Amazon's, in any package."""
    return isinstance(callback, str) and callback.rpartition(".")[2] in (_OF_ENDPOINT, _OF_AWS)


def is_of_aws(config: ClientConfig) -> bool:
    """Whether the tokens of *config* are for IAM on Amazon MSK.

    :raises ConfigError: if another option contradicts that.
    """
    is_mechanism = config.sasl_mechanism == AWS_MSK_IAM
    if config.sasl_client_callback_handler_class and not is_mechanism:
        raise ConfigError.of(
            config.option("sasl.client.callback.handler.class"),
            f" is for {config.option('sasl.mechanism')}=AWS_MSK_IAM; remove it",
        )
    handler = str(config.sasl_login_callback_handler_class or "").rpartition(".")[2]
    if not (is_mechanism or config.sasl_oauthbearer_aws_region or handler == _OF_AWS):
        return False
    if config.sasl_oauthbearer_token_endpoint_url or handler not in ("", _OF_AWS):
        raise ConfigError(
            f"{config.option('sasl.oauthbearer.aws.region')} (or AWS_MSK_IAM) excludes "
            f"{config.option('sasl.oauthbearer.token.endpoint.url')} and a handler of your own; remove one of them",
            option=config.option("sasl.oauthbearer.aws.region"),
        )
    return True


def _name_and_password(config: ClientConfig) -> tuple[str, str]:
    entry = login_entry(config)
    if entry is None:
        present = resolved(config, config.option_prefix)
        name, password = present.sasl_username, present.sasl_password
    elif entry.options.get("tokenauth", "").lower() == "true":
        raise ConfigError.of(
            config.option("sasl.jaas.config"),
            ": tokenauth=true is for delegation tokens, which are not supported; use a user and a password",
        )
    elif config.sasl_username or config.sasl_password:
        raise ConfigError(
            f"options {config.option('sasl.jaas.config')} and "
            f"{config.option('sasl.username')}/{config.option('sasl.password')} are both set; remove one of them",
            option=config.option("sasl.jaas.config"),
        )
    else:
        name, password = entry.options.get("username", ""), entry.options.get("password", "")
    if not name or not password:
        missing = "password" if name else "user name"
        raise ConfigError(
            f"{config.option('sasl.mechanism')}={config.sasl_mechanism} needs a {missing}: set "
            f"{config.option('sasl.jaas.config')}, or {config.option('sasl.username')} and "
            f"{config.option('sasl.password')}",
            option=config.option("sasl.mechanism"),
        )
    if "\0" in name or "\0" in password:
        raise ConfigError(
            "a SASL user name or password must not contain the character NUL", option=config.option("sasl.jaas.config")
        )
    return name, password
