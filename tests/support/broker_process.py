"""The embedded broker as a process of its own, so that it can be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from kafka_sink.cli.main import run
from tests.support.forks import FORKS
from tests.support.ports import free_ports

_READY_LIMIT_S = 60.0


def _serve(arguments: Sequence[str], stdout: Connection) -> None:
    """The command *arguments* as a process of its own, which prints to *stdout*."""
    os.dup2(stdout.fileno(), 1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.exit(run(arguments))


class BrokerProcess:
    """``kafkalite broker`` on a fixed port and data directory; survives :meth:`kill` and :meth:`start` again."""

    def __init__(
        self, data_dir: Path, port: int | None = None, config: Mapping[str, object] | None = None, *, nodes: int = 1
    ) -> None:
        """A cluster of *nodes* brokers, which have the ports from *port* on, as *config*'s listeners have if they are
        given."""
        self.port = port or free_ports(nodes)
        self._nodes = nodes
        self._data_dir = data_dir
        self._config = dict(config or {})
        self._process: BaseProcess | None = None
        self.kills = 0

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{self.port + number}" for number in range(self._nodes))

    def start(self) -> None:
        """Start it and return when it serves."""
        command = ["broker", "--port", str(self.port), "--nodes", str(self._nodes)]
        if self._config:
            properties = self._data_dir.with_suffix(".properties")
            properties.write_text("".join(f"{name}={value}\n" for name, value in self._config.items()))
            command += ["--config", str(properties)]
        printed, stdout = FORKS.Pipe(duplex=False)
        with printed, stdout:
            arguments = [*command, "--data-dir", str(self._data_dir)]
            self._process = FORKS.Process(target=_serve, args=(arguments, stdout), daemon=True)
            self._process.start()
            stdout.close()
            line = os.read(printed.fileno(), 1000) if printed.poll(_READY_LIMIT_S) else b""
        if b"bootstrap.servers=" not in line:
            self.stop()
            raise AssertionError(f"the broker did not become ready, it said {line!r}")

    @property
    def pid(self) -> int:
        assert self._process is not None and self._process.pid is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Started, and neither killed nor stopped since."""
        return self._process is not None

    def kill(self) -> None:
        """``kill -9``."""
        self.kills += 1
        self._signal(signal.SIGKILL)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """``kill -STOP``, and ``kill -CONT`` afterwards: it is there, and does not answer."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """``SIGTERM``; harmless when it does not run."""
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None and process.pid is not None:
            if process.is_alive():
                os.kill(process.pid, number)
            process.join(60)
            assert not process.is_alive(), "the broker does not end"
            process.close()
