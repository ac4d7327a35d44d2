"""The faults of a chaos run: each one lasts while its context is entered."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final

from tests.chaos.nodes import Channel
from tests.chaos.servers import Servers
from tests.chaos.spark import Program, frozen, killed, some_of
from tests.compat.kafka_cluster import NODES
from tests.support.four_ways import BATCH, PARALLEL, STREAM, WAYS
from tests.support.killed_spark import kill_session

#: Shorter than the outage that follows, for the ways whose transactions time out.
_SHORT_MS: Final = 6000
_OUTAGE_S: Final = _SHORT_MS / 1000 + 3
_START_S: Final = 120.0
#: How long two drivers run at the same time.
_BOTH_S: Final = 5.0


@dataclass
class World:
    """The servers and the program that faults affect; *chance* chooses among nodes and processes."""

    servers: Servers
    program: Program
    chance: random.Random
    scratch: Path
    moves: int = 0

    def node(self) -> int:
        return self.chance.choice(self.servers.whole)

    @property
    def topics(self) -> list[str]:
        return [f"{self.program.name}-{way}" for way in WAYS]

    def await_replicas(self) -> None:
        """Wait until every node serves."""
        for topic in self.topics:
            self.servers.cluster.await_replicas(topic)


class Target(Enum):
    """The system that a fault affects. Two faults of Spark at the same time would often be one."""

    SPARK = auto()
    KAFKA = auto()
    NETWORK = auto()


@dataclass(frozen=True)
class Fault:
    name: str
    target: Target
    happens: Callable[[World], AbstractContextManager[None]]


# --- Kafka -----------------------------------------------------------------------------------------------------------


def _broker_killed(world: World) -> AbstractContextManager[None]:
    return world.servers.killed(world.node())


def _broker_frozen(world: World) -> AbstractContextManager[None]:
    return world.servers.frozen(world.node())


@contextlib.contextmanager
def _brokers_restarted(world: World) -> Iterator[None]:
    cluster = world.servers.cluster
    for node in world.servers.whole:
        cluster.stop(node)
        cluster.start(node)
        if world.servers.whole == list(NODES):
            world.await_replicas()
    yield


@contextlib.contextmanager
def _leaders_moved(world: World) -> Iterator[None]:
    world.moves += 1
    world.servers.cluster.move_leaders(world.chance.choice(world.topics), world.moves, world.scratch)
    yield


@contextlib.contextmanager
def _all_brokers_frozen(world: World) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for node in world.servers.whole:
            stack.enter_context(world.servers.frozen(node))
        yield


def _apart(channel: Channel, *, one_way: bool) -> Callable[[World], AbstractContextManager[None]]:
    return lambda world: world.servers.apart(world.node(), channel, one_way=one_way)


# --- Spark -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _driver_restarted(world: World) -> Iterator[None]:
    world.program.stop()
    yield
    world.program.start()


@contextlib.contextmanager
def _driver_killed(world: World) -> Iterator[None]:
    world.program.kill()
    yield
    world.program.start()


def _driver_frozen(world: World) -> AbstractContextManager[None]:
    return frozen(world.program.all_processes())


@contextlib.contextmanager
def _driver_replaced(world: World) -> Iterator[None]:
    with frozen(world.program.all_processes()):
        before = world.program.replace()
        yield
        world.program.await_each(_START_S)
    time.sleep(_BOTH_S)
    kill_session(before)


def _jvm_frozen(world: World) -> AbstractContextManager[None]:
    return frozen(world.program.jvm())


@contextlib.contextmanager
def _jvm_killed(world: World) -> Iterator[None]:
    killed(world.program.jvm())
    yield
    world.program.kill()
    world.program.start()


@contextlib.contextmanager
def _worker_killed(world: World) -> Iterator[None]:
    killed(some_of(world.program.python_workers(), world.chance, 2))
    yield


def _worker_frozen(world: World) -> AbstractContextManager[None]:
    return frozen(some_of(world.program.python_workers(), world.chance, 2))


@contextlib.contextmanager
def _executor_killed(world: World) -> Iterator[None]:
    killed(some_of(world.program.executors(), world.chance))
    yield


def _executor_frozen(world: World) -> AbstractContextManager[None]:
    return frozen(some_of(world.program.executors(), world.chance))


@contextlib.contextmanager
def _away_for_longer_than_time_outs(world: World) -> Iterator[None]:
    program = world.program
    program.stop()
    program.start(_short_time_outs(world))
    program.await_each(_START_S)
    program.kill()
    time.sleep(_OUTAGE_S)
    yield
    program.start(_short_time_outs(world))


def _short_time_outs(world: World) -> list[str]:
    """Transactions time out within the outage; those of tasks only where the brokers do not offer two-phase commit."""
    timeout = f"kafka.transaction.timeout.ms={_SHORT_MS}"
    tasks = "kafka.transaction.two.phase.commit.enable=true" if world.servers.has_two_phase else timeout
    return [f"{way}:{tasks if way in (STREAM, PARALLEL, BATCH) else timeout}" for way in WAYS]


# --- network ---------------------------------------------------------------------------------------------------------

_NETWORK: Final = (
    Fault("network cut", Target.NETWORK, lambda world: world.servers.network.cut()),
    Fault("network slow", Target.NETWORK, lambda world: world.servers.network.slow()),
    Fault("answers lost", Target.NETWORK, lambda world: world.servers.network.losing_answers()),
)

#: The baseline that other faults are compared with.
PLAIN: Final = Fault("driver restarted", Target.SPARK, _driver_restarted)

MOVE: Final = Fault("leaders moved", Target.KAFKA, _leaders_moved)

_KAFKA: Final = (
    Fault("broker killed", Target.KAFKA, _broker_killed),
    Fault("broker frozen", Target.KAFKA, _broker_frozen),
    Fault("broker cut off from controllers", Target.KAFKA, _apart(Channel.CONTROLLERS, one_way=False)),
    Fault("broker unheard by controllers", Target.KAFKA, _apart(Channel.CONTROLLERS, one_way=True)),
    Fault("broker cut off from brokers", Target.KAFKA, _apart(Channel.BROKERS, one_way=False)),
    Fault("broker unheard by brokers", Target.KAFKA, _apart(Channel.BROKERS, one_way=True)),
    Fault("all brokers frozen", Target.KAFKA, _all_brokers_frozen),
    Fault("brokers restarted in turn", Target.KAFKA, _brokers_restarted),
    MOVE,
)

FAULTS: Final = (
    PLAIN,
    Fault("driver killed", Target.SPARK, _driver_killed),
    Fault("driver frozen", Target.SPARK, _driver_frozen),
    Fault("driver frozen and replaced", Target.SPARK, _driver_replaced),
    Fault("driver away longer than time-outs", Target.SPARK, _away_for_longer_than_time_outs),
    Fault("JVM killed", Target.SPARK, _jvm_killed),
    Fault("JVM frozen", Target.SPARK, _jvm_frozen),
    Fault("Python workers killed", Target.SPARK, _worker_killed),
    Fault("Python workers frozen", Target.SPARK, _worker_frozen),
    *_KAFKA,
    *_NETWORK,
)

#: On a standalone cluster of Spark, whose executors and their Python workers run the tasks.
CLUSTER_FAULTS: Final = (
    PLAIN,
    Fault("driver killed", Target.SPARK, _driver_killed),
    Fault("executor killed", Target.SPARK, _executor_killed),
    Fault("executor frozen", Target.SPARK, _executor_frozen),
    Fault("Python workers killed", Target.SPARK, _worker_killed),
    Fault("Python workers frozen", Target.SPARK, _worker_frozen),
    *_KAFKA,
    *_NETWORK,
)


def pairs(faults: tuple[Fault, ...]) -> list[tuple[Fault, Fault]]:
    """Faults that may happen at the same time: of different targets, or different ones of Kafka or of the network.
    Leaders are moved only while every node serves."""
    return [
        (first, second)
        for position, first in enumerate(faults)
        for second in faults[position + 1 :]
        if not (first.target is second.target and (first.target is Target.SPARK or MOVE in (first, second)))
    ]
