"""A process forked while an embedded cluster runs: it holds nothing of the cluster, and cannot hurt it."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.broker.data_directory import FileLock
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.common import threads
from kafka_sink.network.transport.listener import Listener
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.producer_record import ProducerRecord

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@contextlib.contextmanager
def forked(act: Callable[[], str]) -> Iterator[str]:
    """A child that does *act*, says what came of it, and lives until the block ends."""
    (answers, answer), (told, tell) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(tell)
        try:
            said = act()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(answer, said.encode() or b"-")
        os.read(told, 1)
        os._exit(0)
    os.close(told)
    try:
        yield os.read(answers, 1 << 16).decode()
    finally:
        for fd in (tell, answers, answer):
            os.close(fd)
        os.waitpid(pid, 0)


def produce(cluster: EmbeddedCluster, partition: int) -> int:
    with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        return producer.send(ProducerRecord("t", b"x", partition=partition)).result(30).offset


@pytest.mark.behaviour("EmbeddedCluster", "A forked child keeps and harms nothing of its parent's cluster")
def test_forked_child_keeps_no_lock_port_or_connections(tmp_path: Path) -> None:
    cluster = EmbeddedCluster(data_dir=tmp_path)
    cluster.start()
    cluster.create_topic("t", 1)
    produce(cluster, 0)
    port = cluster.nodes[1]["PLAINTEXT"].port
    with socket.create_connection(("127.0.0.1", port), 10) as client, forked(lambda: "") as said:
        assert said == "-"
        cluster.stop()
        client.settimeout(30)
        # Reset where the broker had not accepted the connection yet: no child holds it either.
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 10).close()
        with EmbeddedCluster(data_dir=tmp_path, port=port) as again:
            assert produce(again, 0) == 1


@pytest.mark.behaviour("EmbeddedCluster", "A forked child keeps and harms nothing of its parent's cluster")
def test_a_forked_child_that_leaves_the_block_takes_nothing_away() -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", 2)
        produce(cluster, 0)

        def leave() -> str:
            servers = cluster.bootstrap_servers
            try:
                cluster.create_topic("by the child")
            except RuntimeError as error:
                cluster.stop()
                return f"{servers} {error}"
            return "it created a topic"

        with forked(leave) as said:
            assert said.startswith(f"{cluster.bootstrap_servers} the cluster runs in the process")
        assert [produce(cluster, 0), produce(cluster, 1)] == [1, 0]
        cluster.create_topic("u", 1)


def test_a_forked_child_can_run_a_cluster_of_its_own(tmp_path: Path) -> None:
    cluster = EmbeddedCluster(data_dir=tmp_path)
    cluster.start()

    def run_another() -> str:
        with EmbeddedCluster() as own:
            own.create_topic("t", 1)
            return str(produce(own, 0))

    with forked(run_another) as said:
        assert said == "0"
    cluster.stop()


@pytest.mark.behaviour("EmbeddedCluster", "A forked child keeps and harms nothing of its parent's cluster")
@pytest.mark.parametrize("step", ["listens", "accepts", "locks"])
def test_a_fork_waits_for_what_is_being_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str) -> None:
    """The fork comes between a socket's or file's opening and the moment in which it is known to be closed."""
    with contextlib.ExitStack() as closed:
        listener = closed.enter_context(contextlib.closing(Listener("127.0.0.1", 0)))
        client = closed.enter_context(socket.create_connection(("127.0.0.1", listener.port), 10))
        opened, is_forked = threading.Event(), threading.Event()
        register = threads.at_fork
        made: list[Any] = []

        def open_one() -> None:
            match step:
                case "listens":
                    made.append(Listener("127.0.0.1", 0))
                case "accepts":
                    made.append(listener.accept())
                case "locks":
                    made.append(FileLock(tmp_path / "lock"))

        def register_late(owner: object, tell: Callable[[Any], None]) -> None:
            opened.set()
            is_forked.wait(0.2)
            register(owner, tell)

        listener.wait(10_000)
        for module in ("kafka_sink.network.transport.listener", "kafka_sink.broker.data_directory"):
            monkeypatch.setattr(f"{module}.at_fork", register_late)
        opening = threads.start_thread("opens", open_one)
        assert opened.wait(60)
        with forked(lambda: ""):
            is_forked.set()
            opening.join(60)
            (one,) = made
            match step:
                case "listens":
                    port = one.port
                    one.close()
                    Listener("127.0.0.1", port).close()
                case "accepts":
                    one.close()
                    assert client.recv(1) == b""
                case "locks":
                    one.release()
                    FileLock(tmp_path / "lock").release()
