"""``kafkalite files``: lists and prints the files that come with the package.

Runs on the main thread. In a checkout the files are links to ``examples/`` and ``conf/``.
"""

from __future__ import annotations

from importlib.resources import files as resources
from typing import Final

import click

#: File → its purpose.
FILES: Final = {
    "alerts.yml": "alert rules for Prometheus (rule_files), each with a runbook in docs/monitoring.md",
    "grafana-dashboard.json": "a dashboard for Grafana on the metrics of streams and cluster",
    "producer.properties": "the producer's properties with their defaults",
    "broker.properties": "the embedded broker's properties with their defaults",
    "spark-defaults.conf": "settings of Spark that suit the sink, each with its reason",
    "Dockerfile": "an image for Spark on Kubernetes with kafkalite",
    "pod.yaml": "a pod template for spark-submit on Kubernetes: a read-only root, secrets as files",
    "orders.yaml": "a job of Kubernetes' Spark operator",
    "write.ipynb": "a notebook: a million rows of a DataFrame, and how they arrive",
    "exactly_once.ipynb": "a notebook: a stream that is killed and started again",
    "latency.ipynb": "a notebook: the times of tasks, acknowledgements and commits",
    "typed_values.ipynb": "a notebook: columns as Avro with a schema registry",
}


@click.command()
@click.argument("name", type=click.Choice(tuple(FILES)), required=False, metavar="[NAME]")
def files(name: str | None) -> None:
    """Print a file that comes with kafkalite, or list them.

    For example: kafkalite files alerts.yml > /etc/prometheus/kafkalite-alerts.yml
    """
    if name is not None:
        click.echo((resources("kafka_sink.cli") / "shipped" / name).read_text(encoding="utf-8"), nl=False)
        return
    width = max(map(len, FILES))
    for name, meaning in FILES.items():
        click.echo(f"{name:{width}}  {meaning}")
