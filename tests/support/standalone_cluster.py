"""A standalone Spark cluster on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyspark

from tests.support.ports import free_ports

SPARK_HOME: Final = Path(pyspark.__file__).parent
#: Spark copies a task to another host only, and these are several to it.
HOSTS: Final = ("127.0.0.1", "127.0.0.2")
FIVE_HOSTS: Final = (*HOSTS, "127.0.0.3", "127.0.0.4", "127.0.0.5")
_START_S: Final = 180.0


class StandaloneCluster:
    """A master and a worker of two cores on each of *hosts* (None: two), which run with the variables *environ*; their
    logs and work folders are in *folder*."""

    def __init__(self, folder: Path, environ: Mapping[str, str], hosts: Sequence[str] | None = None) -> None:
        hosts = HOSTS if hosts is None else hosts
        self._folder = folder
        self._environ = environ
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = f"spark://127.0.0.1:{free_ports()}"
        port = self.master.rpartition(":")[2]
        self._start("master", "org.apache.spark.deploy.master.Master", "--host", hosts[0], "--port", port)
        self._await("master", "I have been elected leader")
        for host in hosts:
            arguments = ["--host", host, "--cores", "2", "--memory", "1g", "--work-dir", str(folder / host)]
            self._start(host, "org.apache.spark.deploy.worker.Worker", *arguments, self.master)
        for host in hosts:
            self._await(host, "Successfully registered with master")

    def _start(self, name: str, class_name: str, *arguments: str) -> None:
        environment = {**self._environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
        environment["SPARK_MASTER_OPTS"] = "-Dspark.master.rest.enabled=false -Dspark.deploy.maxExecutorRetries=-1"
        environment["SPARK_HOME"] = str(SPARK_HOME)
        command = [str(SPARK_HOME / "bin" / "spark-class"), class_name, "--webui-port", str(free_ports()), *arguments]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
            )

    def _await(self, name: str, text: str) -> None:
        log = self._folder / f"{name}.log"
        deadline = time.monotonic() + _START_S
        while text not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.1)

    def executors(self) -> list[int]:
        """Their processes: children of the workers'."""
        parents = {process.pid for process in self._processes[1:]}
        found = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(status.read_text().rpartition(")")[2].split()[1])
                command = (status.parent / "cmdline").read_text()
            except OSError:
                continue
            if parent in parents and "CoarseGrainedExecutorBackend" in command:
                found.append(int(status.parent.name))
        return sorted(found)

    def send(self, number: signal.Signals, turn: int) -> bool:
        """Send the signal *number* to an executor, to another one each *turn*; false if none has got it."""
        executors = self.executors()
        if not executors:
            return False
        try:
            os.kill(executors[turn % len(executors)], number)
        except ProcessLookupError:
            # Spark removes executors that have nothing to do.
            return False
        return True

    def stop(self) -> None:
        for process in reversed(self._processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
