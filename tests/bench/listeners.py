"""The listeners of a benchmark's Kafka: the arguments that start it, and the properties of clients for each listener.

python -m tests.bench.listeners FOLDER              before the start: keys; prints arguments of scripts/kafka.sh start
python -m tests.bench.listeners FOLDER BOOTSTRAP    after it: the user for SCRAM, and FOLDER/listeners.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.ports import free_ports
from tests.support.securities import (
    PLAINTEXT,
    SASL_SSL,
    SSL,
    Keys,
    SecureServer,
    create_scram_user,
    kafka_arguments,
    kafka_server,
    make_keys,
)

SECURITIES = (SSL, SASL_SSL)
LISTENERS = "listeners.json"
_PORTS = "ports.json"


def write_listeners(server: SecureServer, path: Path) -> None:
    """Write the properties of clients for each listener to *path*."""
    found: Mapping[str, Mapping[str, str]] = {
        security.name: server.client_properties(security) for security in server.addresses
    }
    path.write_text(json.dumps(found))


def read_listeners(bootstrap_servers: str, path: Path | None) -> dict[str, dict[str, str]]:
    """Return the properties of clients for PLAINTEXT and for each listener in *path*."""
    found = {PLAINTEXT.name: {"bootstrap.servers": bootstrap_servers}}
    if path is not None:
        found |= json.loads(path.read_text())
    return found


def main() -> None:
    folder, *rest = Path(sys.argv[1]), *sys.argv[2:]
    if not rest:
        ports = {security.name: free_ports(1) for security in SECURITIES}
        (folder / _PORTS).write_text(json.dumps(ports))
        arguments = kafka_arguments(make_keys(folder), {each: ports[each.name] for each in SECURITIES})
        print("\n".join(arguments))
        return
    ports = json.loads((folder / _PORTS).read_text())
    server = kafka_server(Keys(folder), rest[0], {each: ports[each.name] for each in SECURITIES})
    create_scram_user(rest[0], server.client_properties(SASL_SSL))
    write_listeners(server, folder / LISTENERS)


if __name__ == "__main__":
    main()
