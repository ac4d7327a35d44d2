"""Waits until a Kafka cluster is whole: every given address answers and knows as many brokers as there are addresses.

Run by ``scripts/kafka.sh start`` in a process of its own. It speaks two requests by hand and must never use kafka_sink:
what judges the project must not depend on it.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import sys
import time

METADATA_ALL_TOPICS = struct.pack(">hhih", 3, 0, 1, -1) + struct.pack(">i", 0)
MAX_RESPONSE_BYTES = 16 * 1024 * 1024


def read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionError("closed by the broker")
        data += chunk
    return data


def known_brokers(address: str, timeout_s: float) -> int:
    """Number of brokers in the answer of *address* to Metadata version 0."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(METADATA_ALL_TOPICS)) + METADATA_ALL_TOPICS)
        (size,) = struct.unpack(">i", read_exactly(connection, 4))
        if not 8 <= size <= MAX_RESPONSE_BYTES:
            raise ConnectionError(f"an answer of {size} bytes is none of Kafka's")
        _correlation_id, brokers = struct.unpack(">ii", read_exactly(connection, size)[:8])
        return int(brokers)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds")
    parser.add_argument("--pids", type=int, nargs="+", required=True, help="processes that must stay alive meanwhile")
    parser.add_argument("addresses", nargs="+", metavar="host:port")
    options = parser.parse_args()
    deadline = time.monotonic() + options.timeout
    state = "not asked yet"
    while time.monotonic() < deadline:
        dead = [pid for pid in options.pids if not is_running(pid)]
        if dead:
            print(f"process {dead[0]} ended before the cluster was ready", file=sys.stderr)
            return 1
        try:
            counts = [known_brokers(address, 2.0) for address in options.addresses]
        except OSError as failure:
            state = str(failure)
        else:
            if counts == [len(options.addresses)] * len(options.addresses):
                return 0
            state = f"the nodes know {counts} brokers"
        time.sleep(0.1)
    print(f"not ready after {options.timeout:g} s: {state}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
