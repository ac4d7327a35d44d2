"""The plan of a seed: the cluster, the producer's options, the workload and the possible faults.

Every seed enables only some faults (swarm testing): with all of them at once most runs would fail in the same way, and
failures that need a long time without faults before one rare fault would never occur.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any


@dataclass(slots=True)
class Faults:
    """Probabilities are per frame unless the name says otherwise; 0 = this fault is off."""

    latency_ms: tuple[int, int] = (0, 2)
    slow_share: float = 0.0
    slow_ms: int = 0
    request_lost: float = 0.0
    answer_lost: float = 0.0
    stalled: float = 0.0
    #: Brokers handle frames of lost connections all the same, even after those of the next connection.
    zombies: bool = False
    partial_writes: float = 0.0
    write_pause_ms: int = 0
    #: The transport accepts a frame and keeps its end, or own bytes after it; the slot stays taken.
    transport_keeps: float = 0.0
    connect_refused: float = 0.0
    connect_hangs: float = 0.0
    reset_every_ms: int = 0
    move_leaders_every_ms: int = 0
    restart_every_ms: int = 0
    crash_every_ms: int = 0
    refused_before: float = 0.0
    failed_after: float = 0.0
    refused_for_good: float = 0.0
    pause_share: float = 0.0
    pause_ms: int = 0
    #: The probability per request of a transaction, and per participant of a transaction to end.
    coordinator_refuses: float = 0.0
    markers_wait: float = 0.0


@dataclass(slots=True)
class TopicPlan:
    name: str
    assignment: list[list[int]]
    max_message_bytes: int


@dataclass(slots=True)
class Plan:
    nodes: int
    topics: list[TopicPlan]
    properties: dict[str, Any]
    faults: Faults
    actions: int
    burst: int
    record_bytes: int
    think_ms: int
    #: The application's thread may block in the producer; otherwise it acts while the sender polls, with time-out 0.
    blocking: bool
    columns_share: float
    flush_share: float
    #: quiet (after all records have an outcome), graceful (at once), hasty (with a short time-out) or forced.
    ending: str
    first_epoch: int
    #: Options of the brokers that differ from the defaults.
    broker: dict[str, object] = field(default_factory=dict)
    #: Bytes per second that each producer may send before it is throttled; 0 for no limit.
    produce_quota: int = 0

    @property
    def idempotent(self) -> bool:
        return bool(self.properties["enable.idempotence"])

    @property
    def acks(self) -> str:
        return str(self.properties["acks"])

    @property
    def recovery_ms(self) -> int:
        """How long a fault may have effects: slow frames, silent connections and restarted brokers."""
        return 3000 + self.faults.slow_ms + self.faults.write_pause_ms + 4 * int(self.properties["request.timeout.ms"])

    @property
    def max_in_flight(self) -> int:
        return int(self.properties["max.in.flight.requests.per.connection"])


def make_plan(seed: int) -> Plan:
    rng = Random(f"plan {seed}")
    nodes = rng.choice([1, 2, 2, 3])
    blocking = rng.random() < 0.5
    idempotent = rng.random() < 0.65
    acks = "all" if idempotent else rng.choice(["all", "all", "1", "0"])
    linger_ms = rng.choice([0, 0, 2, 10, 60])
    request_timeout_ms = rng.choice([60, 200, 1000])
    patience = rng.choice([0, 20, 100, 500, 3000, 20_000])
    batch_size = rng.choice([150, 300, 700, 700, 2000])
    properties: dict[str, Any] = {
        "bootstrap.servers": ",".join(f"127.0.0.1:{9001 + node}" for node in range(nodes)),
        "client.id": "simulated",
        "enable.idempotence": idempotent,
        "acks": acks,
        "max.in.flight.requests.per.connection": rng.choice([1, 1, 2, 5, 5, 5]),
        "batch.size": batch_size,
        "buffer.memory": batch_size * rng.choice([2, 5, 20, 100]) + rng.choice([0, 77]),
        "linger.ms": linger_ms,
        "compression.type": rng.choice(["none", "none", "none", "gzip", "snappy", "lz4", "zstd"]),
        "request.timeout.ms": request_timeout_ms,
        "delivery.timeout.ms": linger_ms + request_timeout_ms + patience,
        "max.block.ms": rng.choice([20, 300, 3000]) if blocking else 0,
        "max.request.size": rng.choice([400, 1500, 1_000_000]),
        "retry.backoff.ms": rng.choice([0, 5, 20, 100]),
        "retry.backoff.max.ms": 200,
        "reconnect.backoff.ms": rng.choice([0, 5, 30]),
        "reconnect.backoff.max.ms": 100,
        "socket.connection.setup.timeout.ms": 50,
        "socket.connection.setup.timeout.max.ms": 200,
        "metadata.max.age.ms": rng.choice([50, 1000, 100_000]),
    }
    if rng.random() < 0.2:
        properties["retries"] = rng.choice([1, 2, 4] if idempotent else [0, 1, 3])
    return Plan(
        nodes=nodes,
        topics=_topics(rng, nodes),
        properties=properties,
        faults=_faults(rng, seed),
        actions=rng.choice([4, 10, 20, 30]),
        burst=rng.choice([1, 6, 12, 25]),
        record_bytes=rng.choice([5, 40, 120]),
        think_ms=rng.choice([0, 2, 8, 60]),
        blocking=blocking,
        columns_share=rng.choice([0.0, 0.2, 0.5]),
        flush_share=rng.choice([0.0, 0.05, 0.2]),
        ending=rng.choice(["quiet", "quiet", "quiet", "graceful", "graceful", "hasty", "forced"]),
        first_epoch=rng.choice([0, 0, 0, 0, 2**15 - 2]),
        produce_quota=rng.choice([3000, 20_000]) if rng.random() < 0.05 else 0,
    )


def _topics(rng: Random, nodes: int) -> list[TopicPlan]:
    ids = list(range(1, nodes + 1))
    topics = []
    for number in range(rng.choice([1, 1, 2, 3])):
        replicas = rng.randint(1, nodes)
        assignment = [rng.sample(ids, replicas) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
        topics.append(TopicPlan(f"topic{number}", assignment, rng.choice([1_000_000] * 6 + [250])))
    return topics


def _faults(rng: Random, seed: int) -> Faults:
    calm = rng.random() < 0.05

    def some(share_of_seeds: float, *values: float) -> float:
        struck = rng.random() < share_of_seeds
        value = rng.choice(values)
        return value if struck and not calm else 0

    low = rng.choice([0, 1, 5])
    faults = Faults(latency_ms=(low, low + rng.choice([0, 3, 20])))
    faults.slow_share = some(0.4, 0.02, 0.2)
    faults.slow_ms = rng.choice([30, 150, 1500])
    faults.request_lost = some(0.3, 0.01, 0.05, 0.2)
    faults.answer_lost = some(0.4, 0.01, 0.05, 0.2)
    faults.stalled = some(0.25, 0.01, 0.05)
    faults.zombies = rng.random() < 0.4
    faults.partial_writes = some(0.4, 0.1, 0.7)
    faults.write_pause_ms = rng.choice([1, 10, 100, 800])
    faults.connect_refused = some(0.2, 0.1, 0.4)
    faults.connect_hangs = some(0.2, 0.1, 0.3)
    faults.reset_every_ms = int(some(0.3, 20, 100, 400))
    faults.move_leaders_every_ms = int(some(0.35, 20, 100, 400))
    faults.restart_every_ms = int(some(0.25, 60, 300))
    faults.crash_every_ms = int(some(0.1, 100, 400))
    faults.refused_before = some(0.35, 0.03, 0.15, 0.4)
    faults.failed_after = some(0.25, 0.03, 0.15)
    faults.refused_for_good = some(0.15, 0.02, 0.1)
    faults.pause_share = some(0.15, 0.01, 0.05)
    faults.pause_ms = rng.choice([20, 300, 3000])
    # A generator of its own, so that later draws stay the same for every seed.
    keeping = Random(f"transport {seed}")
    faults.transport_keeps = keeping.choice([0.1, 0.7]) if keeping.random() < 0.3 and not calm else 0.0
    return faults
