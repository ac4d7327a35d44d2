"""The coordinator clients of a process."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import pytest

from kafka_sink.producer.config import ProducerConfig
from kafka_sink.spark.task import shared_client as module
from kafka_sink.spark.task.shared_client import MOST_CLIENTS, MOST_CONNECTED, MOST_IDLE_MS, SharedClients, shared_client
from kafka_sink.spark.write_spec import producer_spec
from tests.fakes.clock import FakeClock

PASSWORD = "s3cr3t-of-shared-client"


def test_keys_of_kept_clients_hold_no_secret() -> None:
    properties = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    }
    first = shared_client(producer_spec(properties))
    assert shared_client(producer_spec(dict(reversed(properties.items())))) is first
    assert shared_client(producer_spec({**properties, "sasl.password": f"{PASSWORD}2"})) is not first
    # Objects of earlier tests are frozen, and the garbage collector does not list them.
    gc.unfreeze()
    caches = [each for each in gc.get_objects() if isinstance(each, dict)]
    gc.freeze()
    kept_by_key = [each for each in caches if any(value is first for value in list(each.values()))]
    assert kept_by_key
    assert not [each for each in kept_by_key if PASSWORD in repr(list(each))]


class Client:
    """Notes which of its connections are closed."""

    def __init__(self, config: ProducerConfig, **options: object) -> None:
        self.name = config.client_id
        self.rested_ms: list[int] = []
        self.is_closed = False

    def rest(self, idle_ms: int) -> None:
        self.rested_ms.append(idle_ms)
        if self.name == "broken":
            raise OSError("no")

    def close(self) -> None:
        self.is_closed = True


class Enough(BaseException):
    """Ends the closing thread."""


@pytest.fixture
def closing(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """The functions of the threads that close idle connections; the tests call them."""
    started: list[Callable[[], None]] = []
    monkeypatch.setattr(module, "CoordinatorClient", Client)
    monkeypatch.setattr(module, "start_thread", lambda name, run: started.append(run) or run)
    return started


def close_once(clients: SharedClients, clock: FakeClock, closing: list[Callable[[], None]]) -> None:
    """One round of the closing thread, up to its wait."""

    def end() -> None:
        raise Enough

    (run,) = closing
    clock.actions.append(end)
    with pytest.raises(Enough):
        run()


def of(clients: SharedClients, *names: str) -> list[Client]:
    return [
        clients.get(producer_spec({"bootstrap.servers": "127.0.0.1:1", "client.id": name}))  # type: ignore[misc]
        for name in names
    ]


@pytest.mark.behaviour("Tasks", "Coordinator clients that are idle, or too many, give up their connections")
def test_connections_of_the_latest_clients_are_kept_until_idle(closing: list[Callable[[], None]]) -> None:
    clock = FakeClock()
    clients = SharedClients(clock)
    made = of(clients, *map(str, range(MOST_CONNECTED + 1)))
    of(clients, "1")
    close_once(clients, clock, closing)
    assert [each.rested_ms for each in made] == [[0], *[[MOST_IDLE_MS]] * MOST_CONNECTED]
    assert clock.waits == [MOST_IDLE_MS]
    of(clients, "0")
    close_once(clients, clock, closing)
    assert [each.name for each in made if each.rested_ms[-1] == 0] == ["2"]
    assert not any(each.is_closed for each in made)


@pytest.mark.behaviour("Tasks", "Coordinator clients that are idle, or too many, give up their connections")
def test_clients_beyond_the_latest_are_forgotten_when_unused(closing: list[Callable[[], None]]) -> None:
    clients = SharedClients(FakeClock())
    (used,) = of(clients, "used")
    of(clients, *(f"unused {number}" for number in range(2 * MOST_CLIENTS)))
    gc.collect()
    alive = {each.name for each in gc.get_objects() if isinstance(each, Client)}
    assert alive == {"used", *(f"unused {number}" for number in range(MOST_CLIENTS, 2 * MOST_CLIENTS))}
    # Writers of one sink wait for each other on their shared client.
    assert of(clients, "used") == [used]


def test_a_client_that_cannot_be_closed_keeps_no_other_open(closing: list[Callable[[], None]]) -> None:
    clock = FakeClock()
    clients = SharedClients(clock)
    broken, other = of(clients, "broken", "other")
    close_once(clients, clock, closing)
    assert [broken.rested_ms, other.rested_ms] == [[MOST_IDLE_MS]] * 2


def test_threads_that_ask_at_once_share_one_client(
    closing: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 8
    together, made = threading.Barrier(count), []

    class Slow(Client):
        def __init__(self, config: ProducerConfig, **options: object) -> None:
            super().__init__(config)
            made.append(self)
            together.wait()

    monkeypatch.setattr(module, "CoordinatorClient", Slow)
    clients, found = SharedClients(FakeClock()), []
    threads = [threading.Thread(target=lambda: found.extend(of(clients, "x"))) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert [each for each in made if not each.is_closed] == [found[0]]
    assert len(closing) == 1
