"""A process that writes many columns and measures its own memory.

    python -m tests.matrix.soaking PROPERTIES TOPIC MEGABYTES

PROPERTIES is a JSON file with a producer's properties. Prints one JSON object: rows sent and acknowledged, seconds, and
resident memory in MiB, first (when a tenth is written), last and at its peak.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from kafka_sink import KafkaProducer
from kafka_sink.producer.futures import Delivery
from tests.bench.resources import resident_bytes

CHUNK_ROWS = 10_000
VALUE_BYTES = 1_000


def chunk() -> pa.RecordBatch:
    random = np.random.default_rng(5)
    data = pa.py_buffer(random.bytes(CHUNK_ROWS * VALUE_BYTES))
    values = pa.Array.from_buffers(pa.binary(VALUE_BYTES), CHUNK_ROWS, [None, data]).cast(pa.binary())
    return pa.RecordBatch.from_pydict({"value": values})


def main() -> None:
    properties, topic, megabytes = sys.argv[1:]
    rows = chunk()
    chunks = max(int(megabytes) * 1_000_000 // (CHUNK_ROWS * VALUE_BYTES), 1)
    acknowledged = 0

    def told(delivery: Delivery) -> None:
        nonlocal acknowledged
        if delivery.error is not None:
            raise delivery.error
        acknowledged += delivery.count

    samples = []
    began = time.monotonic()
    with KafkaProducer(json.loads(Path(properties).read_text())) as producer:
        for number in range(chunks):
            producer.send_columns(topic, rows, on_delivery=told)
            if number >= chunks // 10:
                samples.append(resident_bytes(os.getpid()) / 2**20)
        producer.flush()
    seconds = time.monotonic() - began
    memory = {"first": samples[0], "last": samples[-1], "peak": max(samples)}
    print(json.dumps({"sent": chunks * CHUNK_ROWS, "acknowledged": acknowledged, "seconds": seconds, "mib": memory}))


if __name__ == "__main__":
    main()
