"""Keeps the last count of each key of NAME-in in a table of Faust, and writes each count to NAME-out, at least once: a
repeated count is written again, and a count that does not follow the table's last one adds a record of the loss."""

import sys
from typing import Any

import faust

servers, name, folder = sys.argv[1:]
app = faust.App(
    name,
    broker=f"kafka://{servers}",
    store="memory://",
    datadir=folder,
    topic_partitions=2,
    web_enabled=False,
    broker_session_timeout=8,
)
read = app.topic(f"{name}-in", key_type=str, value_type=str, key_serializer="raw", value_serializer="raw")
written = app.topic(f"{name}-out", key_type=str, value_type=str, key_serializer="raw", value_serializer="raw")
counts = app.Table("counts", default=int, partitions=2)


async def follow(stream: Any) -> None:
    async for key, value in stream.items():
        count, last = int(value), counts[key]
        if count > last + 1:
            await written.send(key=key, value=f"{count} after {last}")
        counts[key] = max(count, last)
        await written.send(key=key, value=value)


app.agent(read)(follow)
sys.argv[1:] = ["worker", "-l", "info"]
app.main()
