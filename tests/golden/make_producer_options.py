"""Write the options of Kafka's Java producer, from the page that its ``ProducerConfig`` prints.

``scripts/kafka.sh run org.apache.kafka.clients.producer.ProducerConfig | python -m tests.golden.make_producer_options``
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

FILE = Path(__file__).with_name("kafka_producer_options.txt")
_NAME = re.compile(r'<h4><a id="([^"]+)"')


def names_in(page: str) -> list[str]:
    """The names of the options on *page*, sorted."""
    return sorted(set(_NAME.findall(page)))


def names() -> list[str]:
    """The names in the file."""
    return [line for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


if __name__ == "__main__":
    head = [line for line in FILE.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    FILE.write_text("\n".join([*head, *names_in(sys.stdin.read())]) + "\n", encoding="utf-8")
