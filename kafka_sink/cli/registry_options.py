"""The option ``--registry``, and the registry's other options among the properties.

Runs while the command line is parsed. The command gets a client as ``registry``, or None.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.config import is_of_registry, registry_configs, registry_secrets

C = TypeVar("C", bound=Callable[..., Any])

_URL: Final = "schema.registry.url"

_log = logging.getLogger(__name__)


def registry(command: C) -> C:
    """Add the option ``--registry``, below the options of the connection.

    The properties of the registry are taken from ``properties``.
    """

    @functools.wraps(command)
    def with_registry(*, registry_url: str | None, properties: dict[str, str], **arguments: Any) -> Any:
        own = {name: value for name, value in properties.items() if is_of_registry(name)}
        if registry_url is not None:
            own[_URL] = registry_url
        others = {name: value for name, value in properties.items() if name not in own}
        return command(registry=_client(own), properties=others, **arguments)

    option = click.option(
        "--registry",
        "registry_url",
        metavar="URL[,…]",
        help="Schema registry. Its other options, such as basic.auth.user.info, are properties too.",
    )
    return option(with_registry)  # type: ignore[return-value]


def _client(properties: dict[str, str]) -> RegistryClient | None:
    """:raises ConfigError: if an option of the registry is invalid."""
    if secrets := registry_secrets(properties):
        _log.warning(
            "the value of %s is a secret; keep it in a file of --command-config, or set a reference such as "
            "${file:/path:key}",
            ", ".join(secrets),
        )
    config, tls = registry_configs(properties)
    return RegistryClient(config, tls) if config.urls else None
