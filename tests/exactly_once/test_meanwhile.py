"""Changes that other clients make to the cluster while a batch is written: the batch is committed once as a whole, or
an error says what to do, and following it loses and repeats no row."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.client.metadata.cluster import PartitionInfo
from kafka_sink.common.acl import AclBinding, AclOperation, PatternType, ResourceType
from kafka_sink.common.errors import KafkaError
from kafka_sink.exactly_once import coordinator_client, planning
from kafka_sink.exactly_once.model import BatchNumbering, ProgressError, UndecidedError
from kafka_sink.exactly_once.sink_driver import SinkDriver
from tests.exactly_once.conftest import LaterClock
from tests.exactly_once.world import PARTITIONS, World
from tests.support.secure_cluster import guarded_cluster

PROTOCOLS = ("atomic", "parallel")
MOMENTS = ("half written", "written", "decided")


def found(world: World) -> list[bytes]:
    return sorted(map(bytes, world.committed()))  # type: ignore[arg-type]


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=MOMENTS)
def moment(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def tried(world: World, protocol: str, version: int, moment: str, act: Callable[[], object]) -> str:
    """Write a batch during which *act* is called; return the text of its error, empty if it was written."""
    try:
        world.write_while(protocol, version, moment, act)
    except KafkaError as error:
        return str(error)
    return ""


def written_again(world: World, protocol: str, *versions: int) -> None:
    """Restart Spark, repeat the first of *versions*, write the others, and check that every row is committed once."""
    world.restart()
    for version in versions:
        world.write_while(protocol, version, "", lambda: None)
    expected = [b"%d-%s" % (version, row) for version in range(versions[-1] + 1) for row in (b"a", b"b")]
    assert found(world) == expected


# --- between two batches ----------------------------------------------------------------------------------------------


def three_batches(world: World, protocol: str) -> None:
    """Write three batches, after which the driver's requests for the next one found no changes."""
    for version in range(3):
        world.write_while(protocol, version, "", lambda: None)
    assert world.steps.remembered.ahead is not None
    assert world.steps.remembered.ahead() is not None


@pytest.mark.behaviour("Exactly once: plan", "What was seen ahead begins only the batch that it fits")
@pytest.mark.parametrize("meanwhile", ["nothing", "a while", "other options", "another protocol"])
def test_what_was_seen_ahead_begins_only_what_it_fits(
    world: World, protocol: str, meanwhile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_batches(world, protocol)
    looks: list[str] = []
    partitions = world.client.partitions

    async def noted(topic: str) -> tuple[PartitionInfo, ...]:
        looks.append(topic)
        return await partitions(topic)

    monkeypatch.setattr(world.client, "partitions", noted)
    monkeypatch.setattr(world.client, "in_background", lambda look: None)
    if meanwhile == "a while":
        monkeypatch.setattr(planning, "AHEAD_VALID_MS", -1)
    elif meanwhile == "other options":
        world.use(SinkDriver(world.client, world.topic, world.topic, timeout_ms=30_000))
    elif meanwhile == "another protocol":
        protocol = next(each for each in PROTOCOLS if each != protocol)
    world.write_while(protocol, 3, "", lambda: None)
    assert bool(looks) == (meanwhile != "nothing")
    written_again(world, protocol, 4)


@pytest.mark.behaviour("Exactly once: plan", "What was seen ahead begins only the batch that it fits")
def test_batches_are_written_where_no_thread_begins(
    world: World, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(coordinator_client, "start_thread", refuse)
    for version in range(3):
        world.write_while(protocol, version, "", lambda: None)
    assert len(found(world)) == 6


@pytest.mark.behaviour("Exactly once: plan", "A driver that fences behind a look ahead stops the one that has looked")
@pytest.mark.parametrize("writes", [False, True])
def test_fence_behind_a_look_ahead_stops_its_driver(world: World, protocol: str, writes: bool) -> None:
    three_batches(world, protocol)
    newer = World(world.bootstrap, world.topic)
    if writes:
        newer.write_while(protocol, 3, "", lambda: None)
    else:
        newer.client.run(newer.steps.fence())
    newer.client.close()
    assert tried(world, protocol, 3, "", lambda: None)
    written_again(world, protocol, 3, 4)


# --- permissions ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedCluster]:
    with guarded_cluster(job="job-s3cret") as running:
        yield running


_NUMBERS = itertools.count()
#: The permissions on resources with the sink's name that a test revokes.
ACLS = {
    f"{kind.name} {operation.name}": (kind, operation)
    for kind, operation in (
        (ResourceType.TOPIC, AclOperation.WRITE),
        (ResourceType.TOPIC, AclOperation.READ),
        (ResourceType.GROUP, AclOperation.READ),
        (ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE),
    )
}


@pytest.mark.behaviour(
    "Exactly once: neighbours", "A permission that is revoked within a batch is named, and granting it is enough"
)
@pytest.mark.parametrize("revoked", ACLS)
def test_revoked_permission_is_named_and_granting_it_is_enough(
    guarded: EmbeddedCluster, protocol: str, moment: str, revoked: str
) -> None:
    topic = f"orders{next(_NUMBERS)}"
    guarded.create_topic(topic, PARTITIONS)
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": 'PlainLoginModule required username="job" password="job-s3cret";',
    }
    acls = {
        name: AclBinding(
            principal="User:job",
            operation=operation,
            resource_type=kind,
            resource_name=topic,
            pattern_type=PatternType.PREFIXED,
        )
        for name, (kind, operation) in ACLS.items()
    }
    guarded.create_acls(list(acls.values()))
    world = World(guarded.nodes[1]["SASL_PLAINTEXT"].address, topic, properties=login)
    with AdminClient(guarded.bootstrap_servers) as admin:
        world.write_while(protocol, 0, "", lambda: None)
        for _ in range(2):
            # The second run, as Spark's retry, continues after the first one or finds its decision.
            said = tried(world, protocol, 1, moment, lambda: admin.delete_acls([acls[revoked]]))
            assert not said or revoked.split()[1] in said.partition("grant ")[2], said
        world.bootstrap = guarded.bootstrap_servers
        assert found(world) in ([b"0-a", b"0-b"], [b"0-a", b"0-b", b"1-a", b"1-b"])
        admin.create_acls([acls[revoked]])
        written_again(world, protocol, 1, 2)
    world.client.close()


# --- topics -----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(
    "Exactly once: neighbours", "Partitions that are added between batches or within one lose and repeat nothing"
)
def test_added_partitions_lose_and_repeat_nothing(world: World, protocol: str, moment: str) -> None:
    with AdminClient(world.bootstrap) as admin:
        world.write_while(protocol, 0, "", lambda: None)
        assert not tried(world, protocol, 1, moment, lambda: admin.add_partitions(world.topic, PARTITIONS + 2))
    written_again(world, protocol, 1, 2)


@pytest.mark.behaviour(
    "Exactly once: neighbours", "A stream whose topic was deleted and made again stops, and says how it goes on"
)
def test_topic_made_again_stops_the_stream_with_what_to_do(world: World, protocol: str) -> None:
    for version in range(2):
        world.write_while(protocol, version, "", lambda: None)
    with AdminClient(world.bootstrap) as admin:
        admin.delete_topics([world.topic])
        admin.create_topic(world.topic, PARTITIONS)
    for _ in range(2):
        with pytest.raises((ProgressError, UndecidedError), match=r"deleted") as caught:
            world.write_while(protocol, 2, "", lambda: None)
        world.restart()
    assert isinstance(caught.value, ProgressError)
    assert found(world) == []
    world.write_batch(protocol, 2, b"2-a", b"2-b", numbers=BatchNumbering.OF_A_QUERY_UNDER_WAY)
    world.write_while(protocol, 3, "", lambda: None)
    assert found(world) == [b"2-a", b"2-b", b"3-a", b"3-b"]


# --- clocks -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def jumping(brokers_clock: LaterClock) -> Iterator[World]:
    with EmbeddedCluster(nodes=1, clock=brokers_clock) as cluster:
        cluster.create_topic("rows", PARTITIONS)
        made = World(cluster.bootstrap_servers, "rows")
        yield made
        made.client.close()


@pytest.mark.behaviour(
    "Exactly once: neighbours", "Clocks of driver and brokers that are days apart lose and repeat nothing"
)
@pytest.mark.parametrize("days", [3, -3])
def test_clocks_that_jump_lose_and_repeat_nothing(
    jumping: World, brokers_clock: LaterClock, protocol: str, days: int
) -> None:
    jumping.write_while(protocol, 0, "", lambda: None)

    def jump() -> None:
        brokers_clock.later_by_ms = days * 86_400_000

    # Brokers refuse rows with timestamps three days ahead of their clock, until the wrong clock is corrected.
    said = tried(jumping, protocol, 1, "half written", jump)
    assert ("clock" in said) == (days < 0), said
    brokers_clock.later_by_ms = max(0, brokers_clock.later_by_ms)
    written_again(jumping, protocol, 1, 2)
    brokers_clock.later_by_ms = 0
    assert not tried(jumping, protocol, 3, "written", jump)
    brokers_clock.later_by_ms = 0
    written_again(jumping, protocol, 3, 4)
