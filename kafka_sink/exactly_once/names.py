"""The transactional ids of a sink: one for its driver, and those of the processes that write its rows; and the commands
that name a sink.

Pure functions. The ids of a sink are distinct from those of a sink whose name is a prefix of its name, and from those
of a sink with the same name that writes to another topic.
"""

from __future__ import annotations

import re
import shlex

PROCESS_BYTES = 6
_OF_PROCESS = rf"[0-9a-f]{{{2 * PROCESS_BYTES}}}\.[0-9]{{1,18}}"


def sink_id(name: str, progress_topic: str) -> str:
    """The prefix of all ids of the sink *name*. An application may use one name for several topics, as it may for
    several tables with Delta. Topic names contain no slash."""
    return f"{name}/{progress_topic}"


def sink_of_id(transactional_id: str) -> tuple[str, str] | None:
    """The name and progress topic of the sink that *transactional_id* belongs to; None if it is not the id of a
    sink."""
    match = re.fullmatch(rf"(.+)/([^/]+?)\.(?:driver|repair|{_OF_PROCESS})", transactional_id, re.DOTALL)
    return None if match is None else (match[1], match[2])


def accept_command(sink: str, version: int, writer: str | None = None) -> str:
    """The command that records *version* as the last complete one of the *sink* with these ids."""
    named = () if writer is None else ("--writer", writer)
    return shlex.join(["kafkalite", "txn", "accept", *sink.rsplit("/", 1), "--version", str(version), *named])


def delete_progress_command(name: str, progress_topic: str) -> str:
    """The command that deletes the progress of a sink, and nothing of others with the same name."""
    return shlex.join(["kafkalite", "groups", "delete", name, "--topic", progress_topic])


def driver_id(sink: str) -> str:
    """The id of the sink's driver; the producer that has it is the only driver."""
    return f"{sink}.driver"


def repair_id(sink: str) -> str:
    """The id that records which lost commit of the driver is being written again; nothing is ever written with it."""
    return f"{sink}.repair"


def writer_id(sink: str, process: bytes, number: int) -> str:
    """The id with *number* of a process that writes rows; *process* are random bytes that identify the process."""
    return f"{sink}.{process.hex()}.{number}"


def writer_pattern(sink: str) -> str:
    """A regular expression (RE2) that matches the complete ids of the sink's writers and no other ids."""
    return rf"{re.escape(sink)}\.{_OF_PROCESS}"


def is_writer_id(sink: str, transactional_id: str) -> bool:
    return re.fullmatch(writer_pattern(sink), transactional_id) is not None


def split_writer_id(sink: str, transactional_id: str) -> tuple[bytes, int]:
    """The process and number of an id of the sink's writers."""
    process, number = transactional_id.removeprefix(f"{sink}.").split(".")
    return bytes.fromhex(process), int(number)
