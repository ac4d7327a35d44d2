"""Counts the records of each key of NAME-in in Quix Streams' state, and writes each count to NAME-out."""

import sys

from quixstreams import Application, State

servers, name, folder = sys.argv[1:]
app = Application(
    servers,
    consumer_group=name,
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    state_dir=folder,
    consumer_extra_config={"session.timeout.ms": 6000},
)


def count(value: str, state: State) -> str:
    state.set("count", state.get("count", 0) + 1)
    return str(state.get("count"))


counts = app.dataframe(app.topic(f"{name}-in", key_deserializer="str", value_deserializer="str"))
counts = counts.apply(count, stateful=True)
counts.to_topic(app.topic(f"{name}-out", key_serializer="str", value_serializer="str"))
app.run()
