"""A program with a producer that ends in one way or another while records are under way: run by a test as a process.

``python -m tests.support.exiting_producer <bootstrap.servers> <topic> <how> <file>``: what it was told of each record
goes to *file*, a line each: ``sent`` or ``unsent`` or ``maybe``, and the record's value. The first line on stdout says
that records flow.
"""

from __future__ import annotations

import atexit
import itertools
import sys
from functools import partial
from pathlib import Path
from typing import Any

#: Outcome and value of each record.
told: list[tuple[str, bytes]] = []


def note(value: bytes, delivery: Any) -> None:
    outcome = "sent" if delivery.error is None else "maybe" if "may be stored" in str(delivery.error) else "unsent"
    told.append((outcome, value))


def main() -> None:
    bootstrap_servers, topic, how, path = sys.argv[1:]

    @atexit.register
    def write_down() -> None:
        Path(path).write_text("".join(f"{outcome} {value.decode()}\n" for outcome, value in told))

    # Only now: what is registered first runs last at the exit, and the producer's part of it is to be noted too.
    from kafka_sink import KafkaProducer, ProducerRecord

    def send(producer: KafkaProducer, count: int | None) -> None:
        for number in itertools.count() if count is None else range(count):
            value = b"%d" % number
            producer.send(ProducerRecord(topic, value, partition=number % 3), on_delivery=partial(note, value))
            if number == 200:
                print("records flow", flush=True)

    is_endless = how.endswith("forever")
    properties = {
        "bootstrap.servers": bootstrap_servers,
        "linger.ms": 5 if is_endless else 60_000,
        "batch.size": 2_000 if is_endless else 1_000_000,
        "request.timeout.ms": 1_000,
    }
    if how.startswith("with"):
        with KafkaProducer(properties) as producer:
            send(producer, None if is_endless else 1_000)
            if how == "with-error":
                raise ValueError("something else went wrong")
    else:
        send(KafkaProducer(properties), None if is_endless else 1_000)
        if how == "exits":
            sys.exit(3)


if __name__ == "__main__":
    main()
