"""The process of the driver: starts, stops, kills and drains it, and reads the failures of its streams."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.hosts.queries import Settings
from tests.support.killed_spark import kill_session

ROOT: Final = Path(__file__).parents[2]
_STOP_S: Final = 120.0


class Program:
    """The folder of *settings* must be empty; no other program may use it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.queries = list(settings.all_queries())
        for query in self.queries:
            query.folder.mkdir(parents=True)
        self._file, self._log = settings.folder / "settings.json", settings.folder / "driver.log"
        settings.write(self._file)
        self._read_failures = dict.fromkeys(self.queries, 0)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock, self._is_closed = threading.Lock(), False

    def start(self) -> None:
        """:raises RuntimeError: after :meth:`close`."""
        with self._lock, self._log.open("ab") as log:
            if self._is_closed:
                raise RuntimeError("the run is over")
            # In its own session, Ctrl-C interrupts only the supervising program, which then ends this one.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.hosts.driver", str(self._file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int | None:
        """None while it is being restarted."""
        process = self._process
        return None if process is None else process.pid

    def look(self) -> None:
        """:raises RuntimeError: if it has ended by itself."""
        process = self._process
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"the driver ended by itself with {process.returncode}:\n{self._last_words()}")

    def stop(self) -> None:
        """Stop the driver after the current micro-batches; kill it if it does not stop in time."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            print(f"the driver did not stop within {_STOP_S:.0f} s and is killed", flush=True)
        kill_session(process)

    def kill(self) -> None:
        """Kill the driver with its JVM and Python workers."""
        process, self._process = self._process, None
        if process is not None:
            kill_session(process)

    def close(self) -> None:
        """Kill the driver; afterwards, no thread can start it."""
        with self._lock:
            self._is_closed = True
        self.kill()

    def drain(self, limit_s: float) -> list[str]:
        """Let all streams write their planned batches and the driver end; return a description of each failure."""
        self._settings.drain.touch()
        deadline = time.monotonic() + limit_s
        process = self._process
        while process is not None and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        status = None if process is None else process.returncode
        wrong = [] if status == 0 else [f"the driver ended with {status} in place of 0:\n{self._last_words()}"]
        self.kill()
        unfinished = [query for query in self.queries if not query.planned == query.committed > 0]
        wrong += [f"{query} planned {query.planned} batches and committed {query.committed}" for query in unfinished]
        return wrong

    def new_failures(self) -> Iterator[str]:
        """Yield a description of each new failure after which a stream was restarted."""
        for query, known in self._read_failures.items():
            lines = query.failures.read_text().splitlines() if query.failures.exists() else []
            for line in lines[known:]:
                yield f"{query} was begun again: {_summary(json.loads(line))}"
            self._read_failures[query] = len(lines)

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]


def _summary(text: str) -> str:
    """The sink's own error, or else the first line."""
    own = [line for line in text.splitlines() if "kafka_sink." in line and "Error: " in line]
    return ([*own, *text.strip().splitlines(), "no text"])[0][:300]
