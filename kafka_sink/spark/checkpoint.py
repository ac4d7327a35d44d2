"""Which query a checkpoint belongs to, where the driver can read that: tasks are told the query's id, planners are not.

Called in Spark's planner process on the driver's machine. It only reads, and an answer that it cannot have is no error.

Source: ``org.apache.spark.sql.execution.streaming.checkpointing.StreamMetadata``, which writes the file ``metadata``.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit


def query_of(location: str | None) -> str | None:
    """The id of the query with the option ``checkpointLocation`` *location*; None where that is not on this machine."""
    if location is None:
        return None
    parts = urlsplit(location)
    if parts.scheme not in ("", "file") or parts.netloc:
        return None
    path = parts.path if parts.scheme else location
    try:
        found = json.loads((Path(path) / "metadata").read_text(encoding="utf-8"))["id"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return found if isinstance(found, str) else None
