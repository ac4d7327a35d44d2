"""The embedded broker as a process of its own, so that it can be killed."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.ports import free_ports

_READY_LIMIT_S = 60.0


class BrokerProcess:
    """``kafkalite broker`` on a fixed port and data directory; survives :meth:`kill` and :meth:`start` again."""

    def __init__(
        self,
        data_dir: Path,
        port: int | None = None,
        config: Mapping[str, object] | None = None,
        *,
        nodes: int = 1,
    ) -> None:
        """A cluster of *nodes* brokers, which have the ports from *port* on, as *config*'s listeners have if they are
        given."""
        self.port = port or free_ports(nodes)
        self._nodes = nodes
        self._data_dir = data_dir
        self._config = dict(config or {})
        self._process: subprocess.Popen[str] | None = None
        self.kills = 0

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{self.port + number}" for number in range(self._nodes))

    def start(self) -> None:
        """Start it and return when it serves."""
        command = [sys.executable, "-m", "kafka_sink.cli", "broker", "--nodes", str(self._nodes)]
        if "listeners" not in self._config:
            command += ["--port", str(self.port)]
        if self._config:
            properties = self._data_dir.with_suffix(".properties")
            properties.write_text("".join(f"{name}={value}\n" for name, value in self._config.items()))
            command += ["--config", str(properties)]
        self._process = subprocess.Popen(
            [*command, "--data-dir", str(self._data_dir)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        started = time.monotonic()
        line = self._process.stdout.readline()
        if "bootstrap.servers=" not in line or time.monotonic() - started > _READY_LIMIT_S:
            raise AssertionError(f"the broker did not become ready, it said {line!r}")

    @property
    def pid(self) -> int:
        assert self._process is not None
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
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """``SIGTERM``; harmless when it does not run."""
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(20)
            if process.stdout is not None:
                process.stdout.close()
