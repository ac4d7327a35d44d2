"""``kafkalite broker``: runs an embedded cluster in a separate process until a stop signal arrives.

Runs on the main thread, which only waits for a signal; the cluster starts its own threads. Exactly one line is printed
to stdout, when the listeners are open and clients can connect.
"""

from __future__ import annotations

import logging
import resource
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from kafka_sink.broker.config import AUTHORIZER, BrokerConfig
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.broker.faults.faults import set_fault
from kafka_sink.cli import options, output
from kafka_sink.cli.commands.ui import DEFAULT_PORT as DEFAULT_UI_PORT
from kafka_sink.cli.commands.ui import decoder_of, page_server
from kafka_sink.cli.serving import StopSignals, metrics_address, served, write_metrics_until
from kafka_sink.common import config as configuration
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.properties import load_properties
from kafka_sink.common.version import VERSION
from kafka_sink.registry.config import URL
from kafka_sink.testing.registry.embedded_registry import EmbeddedRegistry

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 9092
#: The limit if the system reports none; macOS allows no more than this without further settings.
_ENOUGH_DESCRIPTORS: Final = 10_240

_log = logging.getLogger(__name__)


@click.command()
@click.option("--host", help=f"Address to listen on and to advertise.  [default: {DEFAULT_HOST}]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port of the first broker; the other brokers use the ports after it, and 0 selects free ports.  [default: "
    f"{DEFAULT_PORT}]",
)
@click.option("--nodes", type=click.IntRange(1, 32), help="Number of brokers in this process.  [default: 1]")
@click.option(
    "--node-id", hidden=True, expose_value=False, callback=lambda context, option, value: _refuse_node_id(value)
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the data; without it, the data is deleted when the process ends.",
)
@click.option(
    "--authorizer",
    is_flag=True,
    help="Enforce ACLs, as authorizer.class.name does; super.users and users of SASL come from --config.",
)
@click.option(
    "--registry-port",
    type=click.IntRange(0, 65535),
    help="Also run a schema registry, on this port of 127.0.0.1; 0 selects a free one. Its schemas are stored in "
    "--data-dir.",
)
@click.option(
    "--ui",
    "ui_port",
    type=click.IntRange(0, 65535),
    is_flag=False,
    flag_value=DEFAULT_UI_PORT,
    metavar="[PORT]",
    help=f"Also serve the pages of 'kafkalite ui', on this port of 127.0.0.1; 0 selects a free one. Without "
    f"a value it is {DEFAULT_UI_PORT}.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False),
    help="A .properties file with broker options.",
)
@click.option(
    "--metrics-file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write metrics in Prometheus text format to this file: every 10 seconds, and at the end.",
)
@metrics_address
@options.several(
    "--fault",
    "faults",
    "Inject a fault, such as produce:every=10,close=half or disk.write:topic=orders",
    metavar="WHAT:HOW",
)
def broker(
    host: str | None,
    port: int | None,
    nodes: int | None,
    data_dir: Path | None,
    authorizer: bool,
    registry_port: int | None,
    ui_port: int | None,
    config_file: str | None,
    metrics_file: Path | None,
    metrics_port: int | None,
    metrics_host: str,
    faults: tuple[str, ...],
) -> None:
    """Start a Kafka cluster in this process, and run it until SIGTERM or Ctrl-C.

    Prints one line, bootstrap.servers=…, as soon as clients can connect. A second signal ends the process immediately.
    """
    output.show_progress()
    raise_descriptor_limit()
    config = _config(config_file)
    if authorizer:
        config = replace(config, authorizer_class_name=AUTHORIZER)
    if config.listeners and not (host is None and port is None):
        raise click.UsageError(f"--host and --port contradict the listeners in {config_file}: remove one or the other.")
    cluster = EmbeddedCluster(
        nodes or 1,
        host=DEFAULT_HOST if host is None else host,
        port=DEFAULT_PORT if port is None else port,
        data_dir=data_dir,
        config=config,
    )
    for text in faults:
        set_fault(cluster.faults, text)
    with StopSignals() as stop, cluster, ExitStack() as servers:
        where = "a temporary directory" if data_dir is None else data_dir
        _log.info("kafkalite %s; data in %s; SIGTERM or Ctrl-C stops it", VERSION, where)
        for node_id, listeners in sorted(cluster.nodes.items()):
            _log.info("broker %d listens on %s", node_id, ", ".join(map(str, listeners.values())))
        _warn_if_locked(cluster, config)
        schemas: dict[str, str] = {}
        if registry_port is not None:
            schemas[URL] = servers.enter_context(_registry(registry_port, data_dir)).url
            _log.info("schema.registry.url=%s", schemas[URL])
        if ui_port is not None:
            pages = page_server(cluster.bootstrap_servers, ui_port, decode=decoder_of(schemas))
            _log.info("ui=%s", servers.enter_context(pages).url)
        servers.enter_context(served(metrics_host, metrics_port, cluster.metrics))
        click.echo(f"bootstrap.servers={cluster.bootstrap_servers}")
        if metrics_file is None:
            stop.wait()
        else:
            # A broker that shows no metrics starts without it.
            from kafka_sink.common.exposition import TEXT, rendered

            write_metrics_until(stop.wait, metrics_file, lambda: rendered(cluster.metrics(), TEXT)[0])
        _log.info("stopping")


def _registry(port: int, data_dir: Path | None) -> EmbeddedRegistry:
    """A schema registry that keeps its schemas in *data_dir*. :raises ConfigError: if that or the port is in use."""
    try:
        return EmbeddedRegistry(port=port, data_dir=data_dir)
    except OSError as error:
        raise ConfigError(f"--registry-port {port}: {error.strerror or error}; choose another port, or 0") from None


def _warn_if_locked(cluster: EmbeddedCluster, config: BrokerConfig) -> None:
    is_open = config.super_users or config.allow_everyone_if_no_acl_found or cluster.describe_acls()
    if config.authorizer_class_name and not is_open:
        _log.warning(
            "the broker enforces ACLs, but has no ACL and no super user who could add one, so it refuses everything; "
            "set super.users in the file of --config, such as super.users=User:admin"
        )


def _refuse_node_id(value: str | None) -> None:
    if value is not None:
        raise click.UsageError(
            "--node-id no longer exists: one process is the whole cluster; use --nodes for several brokers, of which "
            "EmbeddedCluster.stop_node and start_node stop and start one."
        )


def raise_descriptor_limit() -> None:
    """Raise the limit of open files and connections of this process to the maximum that the system allows; the default
    is usually lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    except (OSError, ValueError) as error:
        # macOS has a lower limit than the one that it reports.
        _log.warning("cannot raise the limit of %d open files and connections: %s", soft, error)


def _config(path: str | None) -> BrokerConfig:
    if path is None:
        return BrokerConfig()
    properties = load_properties(path)
    try:
        return configuration.parse(BrokerConfig, properties)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
