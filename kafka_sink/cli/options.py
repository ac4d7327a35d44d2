"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

C = TypeVar("C", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP_SERVERS: Final = "127.0.0.1:9092"
BOOTSTRAP_SERVERS_VARIABLE: Final = "KAFKALITE_BOOTSTRAP_SERVERS"


def pairs(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """The callback of a repeatable ``NAME=VALUE`` option."""
    found: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            # The text may be a secret without its name, so it is not repeated.
            raise click.BadParameter("expected NAME=VALUE.", context, parameter)
        found[name.strip()] = value
    return found


def _milliseconds(context: click.Context, parameter: click.Parameter, seconds: float) -> int:
    return int(seconds * 1000)


def connection(command: C) -> C:
    """Add the connection options; the command gets ``bootstrap_servers``, ``timeout_ms`` and the dict
    ``properties``."""
    for option in (
        click.option(
            "-X",
            "--property",
            "properties",
            metavar="NAME=VALUE",
            multiple=True,
            callback=pairs,
            help="Set a client property by its Kafka name; may be repeated.",
        ),
        click.option(
            "--timeout",
            "timeout_ms",
            metavar="SECONDS",
            type=click.FloatRange(min=0.1, max=86_400),
            default=15.0,
            show_default=True,
            callback=_milliseconds,
            help="Longest time to wait for a response, or for the acknowledgement of a record.",
        ),
        click.option(
            "--bootstrap-server",
            "bootstrap_servers",
            metavar="HOST:PORT[,…]",
            default=DEFAULT_BOOTSTRAP_SERVERS,
            envvar=BOOTSTRAP_SERVERS_VARIABLE,
            show_default=True,
            show_envvar=True,
            help="One or more brokers of the cluster.",
        ),
    ):
        command = option(command)
    return command
