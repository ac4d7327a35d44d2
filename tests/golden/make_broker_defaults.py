"""Write the options of Kafka's broker with their defaults, as its own class declares them.

    python -m tests.golden.make_broker_defaults --jars DIRECTORY

DIRECTORY holds the jars of Apache Kafka 4.3.0, which are driven through py4j; the list is written to
``tests/golden/kafka_broker_defaults.txt``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

FILE = Path(__file__).with_name("kafka_broker_defaults.txt")


def defaults() -> dict[str, str]:
    """The defaults in the file, as text; an empty string for an option without a default."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def main() -> None:
    from py4j.java_gateway import GatewayParameters, JavaGateway, get_field, launch_gateway

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jars", type=Path, required=True, help="the folder with the jars of Apache Kafka 4.3.0")
    jars = sorted(parser.parse_args().jars.glob("*.jar"))
    port = launch_gateway(classpath=":".join(map(str, jars)), die_on_exit=True)
    jvm = JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm
    definition = jvm.org.apache.kafka.common.config.ConfigDef
    keys = jvm.org.apache.kafka.server.config.AbstractKafkaConfig.CONFIG_DEF.configKeys()
    lines = ["# Options of Apache Kafka 4.3.0's broker with their defaults (make_broker_defaults.py)."]
    for name in sorted(keys.keySet().toArray()):
        key = keys.get(name)
        value = get_field(key, "defaultValue") if key.hasDefault() else None
        text = definition.convertToString(value, get_field(key, "type"))
        lines.append(f"{name}={text or ''}")
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
