"""The requests of a batch that follows one of the same driver, in the order in which a run has sent them:
``python -m tests.exactly_once.trace docs/internals/exactly-once.md`` prints them into the page.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest import mock

from kafka_sink import EmbeddedCluster
from kafka_sink.client.blocking.blocking import BlockingClient, RequestSpec
from kafka_sink.common.errors import ApiError
from kafka_sink.common.model import Node
from kafka_sink.protocol.schema import Struct
from scripts.pages import print_into
from tests.exactly_once.world import PARTITIONS, World

_ROWS: Final = "Produce"
#: The number of batches after which the tasks reuse all of their ids.
_BATCHES: Final = 14
_APART: Final = "`writeStream`"
_WAYS: Final = {_APART: "parallel", "`foreach_batch`, `atomic=False`": "parallel", "`foreach_batch`": "atomic"}


class Trace:
    """The rounds of requests that a client sends: those of one round are in flight together. Another thread sends those
    in *ahead*, for the next batch."""

    def __init__(self) -> None:
        self.rounds: list[list[str]] = []
        self.ahead: list[list[str]] = []

    @contextmanager
    def recorded(self) -> Iterator[None]:
        request_all = BlockingClient.request_all

        def recording(
            client: BlockingClient, requests: Sequence[tuple[Node, RequestSpec]], *, timeout_ms: int | None = None
        ) -> list[Struct | ApiError]:
            is_ahead = threading.current_thread() is not threading.main_thread()
            (self.ahead if is_ahead else self.rounds).append([_name(spec) for _, spec in requests])
            return request_all(client, requests, timeout_ms=timeout_ms)

        with mock.patch.object(BlockingClient, "request_all", recording):
            yield


def _name(spec: RequestSpec) -> str:
    name = "".join(part.capitalize() for part in spec.api_key.name.split("_"))
    return f"{name} behind it" if spec.is_behind else name


def batch_trace() -> str:
    """Return a table for each way to write: a batch of two tasks that follows others of the same processes, in
    transaction version 2, on a cluster of one broker."""
    return "\n".join(_table(*way) for way in _WAYS.items())


def _table(way: str, protocol: str) -> str:
    trace = Trace()
    with EmbeddedCluster(nodes=1) as cluster:
        cluster.create_topic("rows", partitions=PARTITIONS)
        world = World(cluster.bootstrap_servers, "rows")

        def write(version: int) -> None:
            world.write_batch(protocol, version, b"a", b"b")
            if protocol == "parallel" and way != _APART:
                world.parallel.look_ahead()

        try:
            for version in range(_BATCHES):
                write(version)
            _await_look(world)
            send = world.send
            with trace.recorded(), mock.patch.object(world, "send") as sending:

                def sent(*arguments: object) -> None:
                    trace.rounds.append([_ROWS])
                    with mock.patch.object(trace, "rounds", []):
                        send(*arguments)  # type: ignore[arg-type]

                sending.side_effect = sent
                write(_BATCHES)
                _await_look(world)
        finally:
            world.client.close()
    rows = [_row(each) for each in trace.rounds]
    # Here the tasks run in turn, and request the end offsets of their rows, which real tasks read from the responses.
    tasks = [place for place, row in enumerate(rows) if row == _ROWS]
    rows[tasks[0] : tasks[-1] + (2 if protocol == "parallel" else 1)] = [f"{_ROWS}, in each task"]
    lines = [f"| {way} | requests in flight together |", "| ---: | --- |"]
    lines += [f"| {number} | {row} |" for number, row in enumerate(rows, 1)]
    lines += [f"| for the next batch | {_row(each)} |" for each in trace.ahead[:1]]
    return "\n".join([*lines, ""])


def _await_look(world: World) -> None:
    if world.steps.remembered.ahead is not None:
        world.steps.remembered.ahead()


def _row(names: Sequence[str]) -> str:
    return " · ".join(f"{n} × {name}" if n > 1 else name for name, n in Counter(names).items())


if __name__ == "__main__":
    print_into(Path(sys.argv[1]), "trace", batch_trace())
