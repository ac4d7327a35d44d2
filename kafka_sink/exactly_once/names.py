"""The transactional ids of a sink: one of its driver, and those of the processes that write its rows.

Pure functions. A sink whose name begins like another's never takes the other's ids for its own, and neither does one of
the same name that writes to another topic.
"""

from __future__ import annotations

import re

PROCESS_BYTES = 6
_OF_PROCESS = rf"[0-9a-f]{{{2 * PROCESS_BYTES}}}\.[0-9]+"


def sink_id(name: str, progress_topic: str) -> str:
    """What stands before all ids of the sink *name*. An application may use its name for several topics, as for several
    tables with Delta; and topics have no slash in their names."""
    return f"{name}/{progress_topic}"


def sink_of_id(transactional_id: str) -> tuple[str, str] | None:
    """Name and progress topic of the sink that *transactional_id* belongs to; None where it is no sink's."""
    match = re.fullmatch(rf"(.+)/([^/]+?)\.(?:driver|{_OF_PROCESS})", transactional_id, re.DOTALL)
    return None if match is None else (match[1], match[2])


def driver_id(sink: str) -> str:
    """Who holds this id is the sink's one driver."""
    return f"{sink}.driver"


def writer_id(sink: str, process: bytes, number: int) -> str:
    """The id *number* of a process that writes rows; *process* are random bytes of its own."""
    return f"{sink}.{process.hex()}.{number}"


def writer_pattern(sink: str) -> str:
    """A regular expression (RE2) that matches whole ids of the sink's writers and no others."""
    return rf"{re.escape(sink)}\.{_OF_PROCESS}"


def is_writer_id(sink: str, transactional_id: str) -> bool:
    return re.fullmatch(writer_pattern(sink), transactional_id) is not None


def split_writer_id(sink: str, transactional_id: str) -> tuple[bytes, int]:
    """Process and number of an id of the sink's writers."""
    process, number = transactional_id.removeprefix(f"{sink}.").split(".")
    return bytes.fromhex(process), int(number)
