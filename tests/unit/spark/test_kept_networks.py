"""Which connections go from one task of a worker to the next, and which do not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_sink.client.factory import ClientNetwork, SelectorMetrics, create_client
from kafka_sink.common import config as common_config
from kafka_sink.common.errors import AuthenticationError
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.spark.task import kept_networks
from kafka_sink.spark.task.kept_networks import MOST_AGE_MS, MOST_IDLE_MS, KeptNetworks
from kafka_sink.spark.task.property_digest import digest_with_files as key_of
from tests.fakes.brokers import FakeBrokers
from tests.fakes.clock import FakeClock
from tests.fakes.selectable import FakeSelectable

HERE = {"bootstrap.servers": "127.0.0.1:9092", "linger.ms": "5"}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def closing(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What the threads that close idle connections run; the tests call it."""
    started: list[Callable[[], None]] = []
    monkeypatch.setattr(kept_networks, "start_thread", lambda name, run: started.append(run) or run)
    return started


@pytest.fixture
def kept(clock: FakeClock, closing: list[Callable[[], None]]) -> KeptNetworks:
    return KeptNetworks(clock)


def connected(clock: FakeClock, selectable: FakeSelectable | None = None) -> ClientNetwork:
    """A network with one connection to a broker, which has told of the cluster."""
    selectable = selectable or FakeBrokers().attach(clock)
    config = common_config.parse(ProducerConfig, HERE)
    client, metadata = create_client(config, client_id="me", clock=clock, selectable=selectable)
    for _ in range(10):
        client.poll(10, clock.now_ms)
    assert not metadata.fetch().is_bootstrap
    return ClientNetwork(client, metadata, SelectorMetrics())


@pytest.mark.behaviour("Tasks", "A task goes on with the metadata and the connections of the task before it")
def test_a_task_gets_the_connections_of_the_one_before(clock: FakeClock, kept: KeptNetworks) -> None:
    network = connected(clock)
    kept.keep(key_of(HERE), network)
    assert kept.take(key_of(dict(reversed(HERE.items())))) is network
    assert not network.client.is_closed
    assert kept.take(key_of(HERE)) is None, "they are the task's now"


@pytest.mark.behaviour("Tasks", "Tasks with other properties have connections of their own")
def test_other_properties_have_connections_of_their_own(clock: FakeClock, kept: KeptNetworks) -> None:
    kept.keep(key_of(HERE), connected(clock))
    assert kept.take(key_of({**HERE, "sasl.jaas.config": "another password"})) is None
    assert kept.take(key_of(HERE)) is not None


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("ssl.keystore.location", "DIR/secret"),
        ("sasl.password", "${dir:DIR:secret}"),
        ("sasl.jaas.config", 'X required password="${file:DIR/secret:key}";'),
    ],
)
def test_a_renewed_secret_gets_new_connections(
    option: str, value: str, clock: FakeClock, kept: KeptNetworks, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("old")
    properties = {**HERE, option: value.replace("DIR", str(tmp_path))}
    begun = key_of(properties)
    assert key_of(properties) == begun
    # While a task runs: its connections were made with the old one.
    secret.write_text("renewed")
    kept.keep(begun, connected(clock))
    assert kept.take(key_of(properties)) is None


@pytest.mark.behaviour("Tasks", "Lost and idle connections are not handed on")
def test_lost_connections_are_not_handed_on(clock: FakeClock, kept: KeptNetworks) -> None:
    selectable = FakeBrokers().attach(clock)
    network = connected(clock, selectable)
    kept.keep(key_of(HERE), network)
    selectable.lose(next(iter(selectable.connections)))
    assert kept.take(key_of(HERE)) is None
    assert network.client.is_closed


def test_network_with_an_unresolved_address_is_still_kept(clock: FakeClock, kept: KeptNetworks) -> None:
    network = connected(clock)
    network.client.note_unresolved("no-such-host.invalid", 9092, "cannot resolve host name")
    kept.keep(key_of(HERE), network)
    assert kept.take(key_of(HERE)) is network


def test_refused_credentials_are_not_handed_on(clock: FakeClock, kept: KeptNetworks) -> None:
    network = connected(clock)
    network.metadata.fatal_error(AuthenticationError("the password has changed"))
    kept.keep(key_of(HERE), network)
    assert kept.take(key_of(HERE)) is None
    assert network.client.is_closed


def test_an_old_view_of_the_cluster_is_refreshed(clock: FakeClock, kept: KeptNetworks) -> None:
    network = connected(clock)
    kept.keep(key_of(HERE), network)
    clock.advance(MOST_AGE_MS - network.metadata.age_ms(clock.now_ms))
    assert kept.take(key_of(HERE)) is network
    assert network.metadata.time_to_next_update_ms(clock.now_ms) > 0
    kept.keep(key_of(HERE), network)
    clock.advance(1)
    assert kept.take(key_of(HERE)) is network
    assert network.metadata.time_to_next_update_ms(clock.now_ms) == 0


@pytest.mark.behaviour("Tasks", "Lost and idle connections are not handed on")
def test_idle_connections_are_closed(clock: FakeClock, closing: list[Callable[[], None]]) -> None:
    time = FakeClock()
    kept = KeptNetworks(time)
    first, second = connected(clock), connected(clock)
    kept.keep(key_of(HERE), first)
    time.advance(10)
    kept.keep(key_of({**HERE, "acks": "1"}), second)
    time.actions.append(lambda: None)
    closing[0]()
    assert first.client.is_closed
    assert second.client.is_closed
    # Woken for nothing, then until the first and until the second have been idle for long enough.
    assert time.waits == [MOST_IDLE_MS - 10, MOST_IDLE_MS - 10, 10]


def test_a_close_that_fails_keeps_nothing_else_open(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, closing: list[Callable[[], None]]
) -> None:
    kept = KeptNetworks(FakeClock())
    first, second = connected(clock), connected(clock)

    def fail() -> None:
        raise OSError("no")

    monkeypatch.setattr(first.client, "close", fail)
    kept.keep(key_of(HERE), first)
    kept.keep(key_of({**HERE, "acks": "1"}), second)
    closing[0]()
    assert second.client.is_closed


def test_of_two_networks_the_newer_is_kept(clock: FakeClock, kept: KeptNetworks) -> None:
    older, newer = connected(clock), connected(clock)
    kept.keep(key_of(HERE), older)
    kept.keep(key_of(HERE), newer)
    assert older.client.is_closed
    assert kept.take(key_of(HERE)) is newer


def test_a_forked_process_begins_with_none(clock: FakeClock, kept: KeptNetworks) -> None:
    network = connected(clock)
    kept.keep(key_of(HERE), network)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, b"none" if kept.take(key_of(HERE)) is None and not network.client.is_closed else b"some")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read_end, 4) == b"none"
    assert kept.take(key_of(HERE)) is network


def test_no_secret_is_part_of_what_is_kept(clock: FakeClock, kept: KeptNetworks) -> None:
    kept.keep(key_of({**HERE, "ssl.key.password": "hunter2"}), connected(clock))
    assert b"hunter2" not in repr(vars(kept)).encode()
