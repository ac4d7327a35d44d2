"""Draws a progress bar on stderr while scripts/demo.sh writes a topic, until it is ended.

It counts the records in the topic's partitions, including those of open transactions.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kafka_sink.client.blocking.admin import LATEST, AdminClient
from kafka_sink.common.errors import KafkaError

EVERY_S = 0.3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rows", required=True, type=int, help="records that the topic will have")
    parser.add_argument("--title", required=True)
    options = parser.parse_args()
    # The bar is erased when the script ends it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("rows"))
    console = Console(stderr=True)
    with (
        # The job reports a broker that does not answer.
        contextlib.suppress(KeyboardInterrupt, KafkaError),
        Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress,
        AdminClient(options.bootstrap_servers) as admin,
    ):
        bar = progress.add_task(options.title, total=options.rows)
        described = admin.describe_topics([options.topic])[options.topic]
        partitions = [info.topic_partition for info in described.partitions]
        while True:
            ends = admin.offsets(partitions, LATEST)
            # Markers of transactions have offsets too.
            progress.update(bar, completed=min(sum(ends.values()), options.rows))
            time.sleep(EVERY_S)


if __name__ == "__main__":
    main()
