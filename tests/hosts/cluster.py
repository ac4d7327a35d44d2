"""A standalone Spark cluster whose master and hosts can be stopped, killed and restarted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.bench.resources import command, descendants
from tests.support.killed_spark import kill_session
from tests.support.ports import free_ports
from tests.support.standalone_cluster import FIVE_HOSTS, SPARK_HOME
from tests.support.waiting import until

MASTER: Final = "master"
HOSTS: Final = FIVE_HOSTS
#: It is not restarted in the second half of a run.
SPARED: Final = HOSTS[-1]
_START_S: Final = 120.0
_STOP_S: Final = 20.0
#: By process: its log has one of these texts once it is ready.
_SERVES: Final = {
    MASTER: ("New state: ALIVE", "resuming operations"),
    **dict.fromkeys(HOSTS, ("Successfully registered with master",)),
}


class SparkCluster:
    """A master, which remembers its workers and applications in a file, and a worker of two cores on each of
    :data:`HOSTS`; logs and work folders are in *folder*. Each *name* below is the master's or a host's."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        port = free_ports()
        self.master = f"spark://127.0.0.1:{port}"
        options = {
            "spark.master.rest.enabled": "false",
            "spark.deploy.maxExecutorRetries": "-1",
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryDirectory": str(folder / "recovery"),
        }
        self._environ = {
            **environ,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_MASTER_OPTS": " ".join(f"-D{name}={value}" for name, value in options.items()),
        }
        deploy = "org.apache.spark.deploy"
        self._arguments = {MASTER: [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port)]}
        for host in HOSTS:
            size = ["--cores", "2", "--memory", "1g", "--work-dir", str(folder / f"work-{host}")]
            self._arguments[host] = [f"{deploy}.worker.Worker", "--host", host, *size, self.master]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock, self._is_closed = threading.Lock(), False

    def start_all(self) -> None:
        self.start(MASTER)
        for host in HOSTS:
            self.start(host)

    def start(self, name: str) -> None:
        """Start it, and wait until it is ready.

        :raises RuntimeError: if it does not become ready in time, or after :meth:`close`.
        """
        class_name, *arguments = self._arguments[name]
        web = ["--webui-port", str(free_ports())]
        line = [str(SPARK_HOME / "bin" / "spark-class"), class_name, *web, *arguments]
        path = self._folder / f"{name}.log"
        begin = path.stat().st_size if path.exists() else 0
        with self._lock, path.open("ab") as log:
            if self._is_closed:
                raise RuntimeError("the run is over")
            self._processes[name] = subprocess.Popen(
                line, env=self._environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + _START_S
        while not any(word.encode() in path.read_bytes()[begin:] for word in _SERVES[name]):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name} did not start within {_START_S:.0f} s: {path}")
            time.sleep(0.1)

    def stop(self, name: str) -> None:
        """Stop it gracefully: a worker ends its executor."""
        self._processes[name].terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._processes[name].wait(_STOP_S)
        kill_session(self._processes[name])

    def kill(self, name: str) -> None:
        """Kill it with all processes of the host."""
        kill_session(self._processes[name])

    def close(self) -> None:
        """Kill all processes; afterwards, no thread can start any."""
        with self._lock:
            self._is_closed = True
        for process in self._processes.values():
            kill_session(process)

    def executors(self, host: str) -> list[int]:
        return list(filter(is_executor, self.below(host)))

    def await_executor(self, host: str) -> None:
        """Wait for an executor on *host*. If none appears in time, this is printed and no failure."""
        deadline = time.monotonic() + _START_S
        while not self.executors(host):
            if time.monotonic() > deadline:
                print(f"no executor on {host} within {_START_S:.0f} s", flush=True)
                return
            time.sleep(0.2)

    def signal_executor(self, host: str, number: signal.Signals) -> None:
        executors = self.executors(host)
        for pid in executors:
            os.kill(pid, number)
        until(f"the end of the executors on {host}", lambda: not set(self.executors(host)) & set(executors))

    def below(self, name: str) -> set[int]:
        """Its process and all descendants."""
        return descendants(self._processes[name].pid)


def is_executor(pid: int) -> bool:
    return "CoarseGrainedExecutorBackend" in command(pid)
