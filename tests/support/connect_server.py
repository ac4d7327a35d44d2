"""A server of Spark Connect in a process of its own, on a free port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

import pyspark

from tests.support.ports import free_ports

ROOT: Final = Path(__file__).parents[2]
SPARK_HOME: Final = Path(pyspark.__file__).parent
#: The environment of programs that use Spark, in which the package is importable as if installed by pip.
ENVIRON: Final = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
_START_S: Final = 180.0


class ConnectServer:
    """A server of two cores; its log is in *folder*."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "connect-server.log"
        self._port = free_ports()
        #: As for ``SparkSession.builder.remote`` and ``spark-pipelines --remote``.
        self.url = f"sc://127.0.0.1:{self._port}"
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
        }
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]"]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=ENVIRON,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        """Return as soon as the server accepts connections."""
        deadline = time.monotonic() + _START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError:
                assert self._process.poll() is None and time.monotonic() < deadline, self.printed()
                time.sleep(0.1)
            else:
                return

    def printed(self) -> str:
        """Return the end of its log."""
        return self._log.read_text()[-3000:]

    def stop(self) -> None:
        """End the server with its Python workers."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
