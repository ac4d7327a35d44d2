"""The option ``--registry``, and the registry's other options among the properties.

Runs while the command line is parsed.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.config import URL, is_of_registry, registry_configs, registry_secrets

C = TypeVar("C", bound=Callable[..., Any])

_log = logging.getLogger(__name__)


def registry(command: C) -> C:
    """Add the option ``--registry``; it stands above :func:`~kafka_sink.cli.options.connection`.

    The properties of the registry are taken from ``properties``. The command gets them as the dict ``registry``.
    """

    @functools.wraps(command)
    def with_registry(*, registry_url: str | None, properties: dict[str, str], **arguments: Any) -> Any:
        own = {name: value for name, value in properties.items() if is_of_registry(name)}
        _warn_of_secrets(own)
        if registry_url is not None:
            own[URL] = registry_url
        others = {name: value for name, value in properties.items() if name not in own}
        return command(registry=own, properties=others, **arguments)

    option = click.option(
        "--registry",
        "registry_url",
        metavar="URL[,…]",
        help="Schema registry. Its other options, such as basic.auth.user.info, are properties too.",
    )
    return option(with_registry)  # type: ignore[return-value]


def client_of(properties: dict[str, str], **limits: Any) -> RegistryClient | None:
    """A client of the registry that *properties* name, with its *limits*; None if they name none.

    :raises ConfigError: if an option of the registry is invalid.
    """
    config, tls = registry_configs(properties)
    return RegistryClient(config, tls, **limits) if config.urls else None


def _warn_of_secrets(properties: dict[str, str]) -> None:
    if secrets := registry_secrets(properties):
        _log.warning(
            "the value of %s is a secret; keep it in a file of --command-config, or set a reference such as "
            "${file:/path:key}",
            ", ".join(secrets),
        )
