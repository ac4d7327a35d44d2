"""Options that several commands share: the connection to a cluster, and the schema registry.

Runs while the command line is parsed.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common import config as configuration
from kafka_sink.common.clock import SYSTEM_CLOCK, moment_ms, within
from kafka_sink.common.properties import load_properties
from kafka_sink.producer.config import inline_secrets
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.config import URL, is_of_registry, registry_configs, registry_secrets

C = TypeVar("C", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP_SERVERS: Final = "127.0.0.1:9092"
BOOTSTRAP_SERVERS_VARIABLE: Final = "KAFKALITE_BOOTSTRAP_SERVERS"

_BOOTSTRAP_SERVERS: Final = "bootstrap.servers"
_COMMAND_CONFIG: Final = "kafkalite.command-config"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Connection:
    """The values of the connection options: the cluster, the longest time to wait, and other client properties."""

    bootstrap_servers: str
    timeout_ms: int
    # They may contain passwords.
    properties: dict[str, str] = field(repr=False)

    @property
    def bounded(self) -> dict[str, Any]:
        """The properties of a client whose calls end in time, without the servers."""
        return {"default.api.timeout.ms": self.timeout_ms, **self.properties}

    def checked(self) -> dict[str, str]:
        """The properties with the servers, for clients that ignore options that they do not know.

        :raises ConfigError: if a property is unknown or invalid.
        """
        properties = {**self.properties, _BOOTSTRAP_SERVERS: self.bootstrap_servers}
        configuration.parse(ClientConfig, properties)
        return properties


def pairs(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """The callback of a repeatable ``NAME=VALUE`` option."""
    values: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            # The text may be a secret without its name, so it is not repeated.
            raise click.BadParameter("expected NAME=VALUE.", context, parameter)
        values[name.strip()] = value
    return values


def _read_config(context: click.Context, parameter: click.Parameter, path: str | None) -> None:
    """Keep the properties of the file for :func:`_client_properties`, which runs later."""
    if path is not None:
        try:
            context.meta[_COMMAND_CONFIG] = load_properties(path)
        except OSError as error:
            raise click.BadParameter(f"{path} cannot be read: {error.strerror}.", context, parameter) from None


def _client_properties(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    properties = pairs(context, parameter, texts)
    if secrets := inline_secrets(properties):
        _log.warning(
            "everybody on this machine can read the value of %s on the command line; put it into a file and use "
            "--command-config FILE, or a reference such as ${file:/path:key}",
            ", ".join(secrets),
        )
    from_file: dict[str, str] = context.meta.get(_COMMAND_CONFIG, {})
    return {name: value for name, value in from_file.items() if name != _BOOTSTRAP_SERVERS} | properties


def _bootstrap_servers(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """The value of the option or of the environment variable, or the value in the file."""
    is_given = context.get_parameter_source(parameter.name or "") is not ParameterSource.DEFAULT
    return value if is_given else context.meta.get(_COMMAND_CONFIG, {}).get(_BOOTSTRAP_SERVERS, value)


def _moment(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else moment_ms(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", context, parameter) from None


def time(name: str, variable: str, text: str) -> Callable[[C], C]:
    """An option for a time, which the command receives in ms since 1970, or as None."""
    return click.option(name, variable, metavar="TIME", callback=_moment, help=text)


def several(name: str, variable: str, text: str, **more: Any) -> Callable[[C], C]:
    """An option that may be repeated; its help says so."""
    return click.option(name, variable, multiple=True, help=f"{text}; may be repeated.", **more)


def connection(command: C) -> C:
    """Add the connection options; the command gets them as ``connection``, a :class:`Connection`. All its waits end
    together within ``--timeout``; each line that it prints, and each question to the user, restarts this limit."""

    @functools.wraps(command)
    def bounded(*, connection: Connection, **arguments: Any) -> Any:
        with within(connection.timeout_ms, SYSTEM_CLOCK):
            return command(connection=connection, **arguments)

    text = "Longest time that the command waits for brokers before each line of output."
    return _with_connection(bounded, text)  # type: ignore[return-value]


def lasting_connection(command: C) -> C:
    """As :func:`connection`, for a command that lasts as long as there is work: ``--timeout`` limits each wait."""
    text = "Longest time to wait for a response, or for the acknowledgement of a record."
    return _with_connection(command, text)


def _with_connection(command: C, timeout_help: str) -> C:
    @functools.wraps(command)
    def connected(*, bootstrap_servers: str, timeout_ms: int, properties: dict[str, str], **arguments: Any) -> Any:
        return command(connection=Connection(bootstrap_servers, timeout_ms, properties), **arguments)

    result: Any = connected
    for option in (
        click.option(
            "-X",
            "--property",
            "properties",
            metavar="NAME=VALUE",
            multiple=True,
            callback=_client_properties,
            help="Set a client property by its Kafka name; may be repeated.",
        ),
        click.option(
            "--command-config",
            metavar="FILE",
            type=click.Path(dir_okay=False),
            is_eager=True,
            expose_value=False,
            callback=_read_config,
            help="Properties file with client properties, such as passwords; -X takes precedence.",
        ),
        click.option(
            "--timeout",
            "timeout_ms",
            metavar="SECONDS",
            type=click.FloatRange(min=0.1, max=86_400),
            default=15.0,
            show_default=True,
            callback=lambda context, option, seconds: int(seconds * 1000),
            help=timeout_help,
        ),
        click.option(
            "--bootstrap-server",
            "bootstrap_servers",
            metavar="HOST:PORT[,…]",
            default=DEFAULT_BOOTSTRAP_SERVERS,
            envvar=BOOTSTRAP_SERVERS_VARIABLE,
            show_default=True,
            show_envvar=True,
            callback=_bootstrap_servers,
            help="One or more brokers of the cluster.",
        ),
    ):
        result = option(result)
    return result  # type: ignore[no-any-return]


def registry(command: C) -> C:
    """Add the option ``--registry``; the decorator precedes :func:`~kafka_sink.cli.options.connection`.

    The properties of the registry are taken from ``properties``. The command gets them as the dict ``registry``.
    """

    @functools.wraps(command)
    def with_registry(*, registry_url: str | None, properties: dict[str, str], **arguments: Any) -> Any:
        own = {name: value for name, value in properties.items() if is_of_registry(name)}
        if secrets := registry_secrets(own):
            _log.warning(
                "the value of %s is a secret; keep it in a file of --command-config, or set a reference such as "
                "${file:/path:key}",
                ", ".join(secrets),
            )
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
