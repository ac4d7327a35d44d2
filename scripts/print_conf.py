"""Prints conf/producer.properties or conf/broker.properties from the program's own option tables.

Run manually after an option has changed: ``python scripts/print_conf.py broker > conf/broker.properties``. A test
compares its output with the shipped files.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from dataclasses import MISSING
from typing import Any

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.common.config import keys
from kafka_sink.producer.config import ProducerConfig

TITLES: dict[str, tuple[type[Any], str]] = {
    "producer": (ProducerConfig, "The producer's properties with their defaults: KafkaProducer(load_properties(…))."),
    "broker": (BrokerConfig, "The embedded broker's properties with their defaults: kafkalite broker --config …."),
}
WIDTH = 120


def property_line(name: str, default: Any) -> str:
    """``name=default``; commented out where there is no default to write down."""
    if default is MISSING or default is None or default in ("", ()):
        return f"#{name}="
    if isinstance(default, bool):
        return f"{name}={str(default).lower()}"
    return f"{name}={','.join(default) if isinstance(default, tuple) else default}"


def render(component: str) -> str:
    """The whole text of ``conf/<component>.properties``."""
    config, title = TITLES[component]
    parts = [f"# {title}\n# Options without a default are commented out.\n"]
    for name, (entry, item) in keys(config).items():
        rule = f" ({entry.validator.expected})" if entry.validator else ""
        comment = textwrap.fill(entry.doc + rule, WIDTH, initial_indent="# ", subsequent_indent="# ")
        parts.append(f"{comment}\n{property_line(name, item.default)}\n")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Print a shipped properties file from its table.")
    parser.add_argument("component", choices=sorted(TITLES))
    sys.stdout.write(render(parser.parse_args().component))


if __name__ == "__main__":
    main()
