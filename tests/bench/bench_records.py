"""Records per second, sent one by one: KafkaProducer.send compared with kafka-python, aiokafka and confluent-kafka.

Run by ``scripts/bench.sh records``, which starts a real broker. After a warm-up the clients take turns, so that other
load on the machine affects all of them. Every run sends to a fresh topic whose end offsets are then counted, so that no
client is fast because it loses records. With ``--outcomes each`` every client calls back for each record, otherwise it
waits until all records are sent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka

from kafka_sink import KafkaProducer, ProducerRecord
from tests.bench import results
from tests.bench.topics import fresh_topic, records_in

WAIT_S = 60.0
#: The number of different records, which are sent repeatedly: the measurement excludes their creation.
DISTINCT = 10_000

Pair = tuple[bytes | None, bytes]

#: All settings of each client: larger batches speed up each of them, and each waits for all replicas.
SETTINGS: dict[str, dict[str, Any]] = {
    "kafkalite": {"acks": "all", "linger.ms": 20, "batch.size": 262_144, "buffer.memory": 64 << 20},
    "confluent-kafka": {
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 20,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": 1_000_000,
    },
    "kafka-python": {"acks": "all", "linger_ms": 20, "batch_size": 262_144},
    "aiokafka": {"acks": "all", "enable_idempotence": True, "linger_ms": 20, "max_batch_size": 262_144},
}


class Count:
    """Counts the records whose callback was called."""

    def __init__(self) -> None:
        self.records = 0

    def add(self, *_: object) -> None:
        self.records += 1


def send_with_kafkalite(bootstrap: str, topic: str, pairs: Sequence[Pair], count: int, each: Count | None) -> None:
    settings = {**SETTINGS["kafkalite"], "bootstrap.servers": bootstrap}
    with KafkaProducer(settings) as producer:
        callback = each.add if each else None
        send = producer.send
        for number in range(count):
            key, value = pairs[number % len(pairs)]
            send(ProducerRecord(topic, value, key), on_delivery=callback)
        producer.flush()


def send_with_confluent(bootstrap: str, topic: str, pairs: Sequence[Pair], count: int, each: Count | None) -> None:
    producer = confluent_kafka.Producer({**SETTINGS["confluent-kafka"], "bootstrap.servers": bootstrap, "log_level": 3})
    callback = each.add if each else None
    produce = producer.produce
    for number in range(count):
        key, value = pairs[number % len(pairs)]
        while True:
            try:
                produce(topic, value, key, on_delivery=callback)
                break
            except BufferError:
                producer.poll(0.01)
        if each and not number & 1023:
            producer.poll(0)
    producer.flush(WAIT_S)


def send_with_kafka_python(bootstrap: str, topic: str, pairs: Sequence[Pair], count: int, each: Count | None) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, **SETTINGS["kafka-python"])
    send = producer.send
    for number in range(count):
        key, value = pairs[number % len(pairs)]
        future = send(topic, value, key)
        if each:
            future.add_callback(each.add)
    producer.flush(WAIT_S)
    producer.close()


def send_with_aiokafka(bootstrap: str, topic: str, pairs: Sequence[Pair], count: int, each: Count | None) -> None:
    async def run() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, **SETTINGS["aiokafka"]) as producer:
            for number in range(count):
                key, value = pairs[number % len(pairs)]
                future = await producer.send(topic, value, key)
                if each:
                    future.add_done_callback(each.add)
            await producer.flush()

    asyncio.run(run())


CLIENTS: dict[str, Callable[[str, str, Sequence[Pair], int, Count | None], None]] = {
    "kafkalite": send_with_kafkalite,
    "confluent-kafka": send_with_confluent,
    "kafka-python": send_with_kafka_python,
    "aiokafka": send_with_aiokafka,
}


def make_pairs(key_bytes: int, value_bytes: int) -> list[Pair]:
    rng = random.Random(1)
    return [(rng.randbytes(key_bytes) if key_bytes else None, rng.randbytes(value_bytes)) for _ in range(DISTINCT)]


def measure(
    name: str, bootstrap: str, pairs: Sequence[Pair], count: int, *, partitions: int = 4, each: bool = False
) -> float:
    """Return the records per second of one run; RuntimeError if not every record is in the topic afterwards."""
    told = Count() if each else None
    with fresh_topic(bootstrap, partitions) as topic:
        started = time.perf_counter()
        CLIENTS[name](bootstrap, topic, pairs, count, told)
        seconds = time.perf_counter() - started
        found = records_in(bootstrap, topic, partitions)
    if found != count or (told is not None and told.records != count):
        raise RuntimeError(f"{name} stored {found:,} of {count:,} records, reported {told.records if told else 0:,}")
    return count / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--rows", type=int, default=500_000, help="records per run; slow clients send a tenth")
    parser.add_argument("--runs", type=int, default=3, help="timed runs per client")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--key-bytes", type=int, default=8, help="0 = no key")
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument(
        "--outcomes", choices=("none", "each"), default="none", help="whether clients call back for each record"
    )
    parser.add_argument("--clients", default=",".join(CLIENTS), help="comma-separated")
    parser.add_argument("--results", type=Path, help="folder for a JSON file")
    options = parser.parse_args()

    names = options.clients.split(",")
    pairs = make_pairs(options.key_bytes, options.value_bytes)
    rows = {name: options.rows if name in ("kafkalite", "confluent-kafka") else options.rows // 10 for name in names}
    rates: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        print(f"{name}: {SETTINGS[name]}")
    for run in range(options.runs + 1):
        for name in names:
            rate = measure(
                name,
                options.bootstrap_servers,
                pairs,
                rows[name],
                partitions=options.partitions,
                each=options.outcomes == "each",
            )
            print(f"{'warm-up' if run == 0 else f'run {run}'}  {name:<16} {rate:>12,.0f} records/s", flush=True)
            if run:
                rates[name].append(rate)
    medians = {name: statistics.median(found) for name, found in rates.items()}
    for name, median in medians.items():
        share = medians["kafkalite"] / median if "kafkalite" in medians else float("nan")
        print(f"{name:<16} {median:>12,.0f} records/s   kafkalite is {share:.2f} times as fast")
    result = {
        "records_per_s": {name: round(median) for name, median in medians.items()},
        "runs": {name: [round(rate) for rate in found] for name, found in rates.items()},
        "key_bytes": options.key_bytes,
        "value_bytes": options.value_bytes,
        "outcomes": options.outcomes,
        "partitions": options.partitions,
        "settings": {name: SETTINGS[name] for name in names},
    }
    if options.results is not None:
        results.save("records", result, options.results)
    # One line of JSON for programs that keep the results.
    print(json.dumps(result))


if __name__ == "__main__":
    main()
