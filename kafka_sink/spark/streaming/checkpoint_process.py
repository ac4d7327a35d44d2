"""Reads a checkpoint in a process of its own, for stores whose client may end the process that uses it.

Called on the driver's machine, on a thread of its own; the other half, :func:`main`, is that process. Without
credentials, Azure's client in pyarrow raises an error of C++ that no Python can catch, and it runs the command ``az``
of the PATH for a token: the process is given no PATH, and its end is an answer like any other.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from dataclasses import asdict
from typing import Final

from kafka_sink.exactly_once.model import PlannedOffsets
from kafka_sink.spark.streaming.checkpoint_files import ArrowFiles
from kafka_sink.spark.streaming.offset_log import read_offsets

PROGRAM: Final = f"from {__name__} import main; main()"
#: There is no command in it; without the variable a shell would look in a PATH of its own.
_NO_PATH: Final = "/nonexistent"


def read_in_own_process(
    location: str, version: int | None, timeout_s: float, *, program: str = PROGRAM
) -> PlannedOffsets:
    """What :func:`main` finds at *location*; without digest if its process ends otherwise or takes too long."""
    # The location may contain credentials, and everybody sees the arguments of a process.
    question = json.dumps({"location": location, "version": version})
    environ = {**os.environ, "PATH": _NO_PATH, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    try:
        done = subprocess.run(
            # It imports what this process would import, in its order, and nothing else from the working directory.
            [sys.executable, "-P", "-c", program],
            input=question,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=timeout_s,
            check=True,
        )
        return PlannedOffsets(**json.loads(done.stdout))
    except (OSError, ValueError, subprocess.SubprocessError):
        return PlannedOffsets(
            unknown="only Spark can read the checkpoint: this machine has no credentials of its own for the store"
        )


def main() -> None:
    """Answer the question on standard input on standard output."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    question = json.load(sys.stdin)
    offsets = read_offsets(lambda: ArrowFiles(question["location"]), question["version"])
    sys.stdout.write(json.dumps(asdict(offsets)))
