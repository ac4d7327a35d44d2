"""``kafkalite ui``: serves pages about any cluster to the browser of this machine.

The main thread only waits for a signal. The packages of the pages are an extra and imported on demand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kafka_sink.cli import options, output
from kafka_sink.cli.serving import StopSignals, metrics_address, served
from kafka_sink.common.errors import RequirementError

if TYPE_CHECKING:
    from kafka_sink.ui.pages import PageServer

DEFAULT_PORT: Final = 8088
#: A page does not wait longer for a schema.
_REGISTRY_MS: Final = 1_000


def page_server(bootstrap_servers: str, port: int, **more: Any) -> PageServer:
    """The server of the pages, not yet started.

    :raises RequirementError: if the packages of the extra are not installed.
    """
    try:
        from kafka_sink.ui.pages import PageServer
    except ModuleNotFoundError as error:
        raise RequirementError(
            f"the pages need the package {error.name}, which pip install 'kafkalite[ui]' installs"
        ) from None
    return PageServer(bootstrap_servers, port, **more)


def decoder_of(registry: dict[str, str]) -> Callable[[bytes], str] | None:
    """The function that converts values with schemas of the registry in these properties to JSON; None without one."""
    client = options.client_of(registry, limit_ms=_REGISTRY_MS, rounds=1)
    if client is None:
        return None
    # The module imports the producer: without a registry kafkalite broker starts without it.
    from kafka_sink.cli.values.typed_values import shown_by_schema

    return shown_by_schema(client)


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="Port; 0 selects a free one."
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Also show the last writes of a stream: its option reportPath, or a folder with such files.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@metrics_address
@options.registry
@options.lasting_connection
def ui(
    port: int,
    report: Path | None,
    opens: bool,
    metrics_port: int | None,
    metrics_host: str,
    registry: dict[str, str],
    connection: options.Connection,
) -> None:
    """Show topics, records, groups, transactions and streams in a browser, until SIGTERM or Ctrl-C.

    The pages are live and read-only. They listen on 127.0.0.1 only, for every user of this machine; from another
    machine use 'ssh -L 8088:127.0.0.1:8088'. Prints one line, ui=…, when they can be opened. Avro and Protobuf are
    decoded with --registry. Prometheus finds metrics of streams, topics, groups and transactions under /metrics, or
    from other machines at the address of --metrics-port.
    """
    more = {"properties": connection.checked(), "timeout_ms": connection.timeout_ms, "decode": decoder_of(registry)}
    server = page_server(connection.bootstrap_servers, port, report=report, **more)
    output.show_progress()
    with StopSignals() as stop, server, served(metrics_host, metrics_port, server.pages.metrics):
        click.echo(f"ui={server.url}")
        if opens:
            click.launch(server.url)
        stop.wait()
