"""Waits until a Kafka cluster is complete: every given address answers with its cluster id and all of its brokers.

Run by ``scripts/kafka.sh start`` in a separate process. It encodes its only request by hand and must never use
kafka_sink: tests of the project must not depend on the project's own code.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import sys
import time

# api key 3 (Metadata), version 2, correlation id 0, no client id; no topics
METADATA_REQUEST = struct.pack(">hhih", 3, 2, 0, -1) + struct.pack(">i", 0)
MAX_RESPONSE_BYTES = 16 * 1024 * 1024


class Reader:
    """Takes big-endian fields off the front of a response."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def int32(self) -> int:
        (value,) = struct.unpack_from(">i", self.data)
        self.data = self.data[4:]
        return int(value)

    def string(self) -> str:
        (length,) = struct.unpack_from(">h", self.data)
        end = 2 + max(length, 0)
        text, self.data = self.data[2:end], self.data[end:]
        return text.decode()


def read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionError("closed by the broker")
        data += chunk
    return data


def describe_cluster(address: str, timeout_s: float) -> tuple[str, int]:
    """Cluster id and number of brokers according to *address*; OSError if it does not answer."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(METADATA_REQUEST)) + METADATA_REQUEST)
        size = Reader(read_exactly(connection, 4)).int32()
        if not 8 <= size <= MAX_RESPONSE_BYTES:
            raise ConnectionError(f"a response of {size} bytes is not a valid Kafka response")
        response = Reader(read_exactly(connection, size))
    response.int32()  # correlation id
    brokers = response.int32()
    for _ in range(brokers):
        response.int32(), response.string(), response.int32(), response.string()  # node id, host, port, rack
    return response.string(), brokers


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description="Wait until a Kafka cluster is complete.")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds")
    parser.add_argument("--cluster-id", required=True)
    parser.add_argument("--pids", type=int, nargs="+", required=True, help="processes that must stay alive until then")
    parser.add_argument("addresses", nargs="+", metavar="host:port")
    options = parser.parse_args()
    whole = (options.cluster_id, len(options.addresses))
    deadline = time.monotonic() + options.timeout
    state = "no request was sent yet"
    while time.monotonic() < deadline:
        dead = [pid for pid in options.pids if not is_running(pid)]
        if dead:
            print(f"process {dead[0]} ended before the cluster was ready", file=sys.stderr)
            return 1
        try:
            answers = [describe_cluster(address, 2.0) for address in options.addresses]
        except (OSError, struct.error) as failure:
            state = str(failure)
        else:
            if all(answer == whole for answer in answers):
                return 0
            state = f"the nodes answered with (cluster id, brokers) {answers}, expected {whole}"
        time.sleep(0.1)
    print(f"not ready after {options.timeout:g} s: {state}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
