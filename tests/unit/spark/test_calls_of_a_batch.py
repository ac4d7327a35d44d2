"""Two calls of a function for foreachBatch in one batch: calls that are the same write, and others."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.common.errors import ConfigError
from kafka_sink.spark.driver.write_report import note_call
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.write_spec import ExactlyOnce, WriteSpec

pytestmark = pytest.mark.behaviour("Streams and foreachBatch", "One app_id twice within a foreachBatch is refused")


class Rows:
    """A DataFrame that has the same rows only as itself."""

    def sameSemantics(self, other: object) -> bool:
        return self is other


def spec_of(server: str) -> WriteSpec:
    return parse_options({"kafka.bootstrap.servers": server, "topic": "orders"}).spec


def sink_of(progress_topic: str) -> ExactlyOnce:
    return ExactlyOnce("calls", progress_topic, 0, two_phase=False)


def test_other_runs_topics_and_clusters_have_rows_of_their_own() -> None:
    spec, first, other = spec_of("127.0.0.1:9"), Rows(), Rows()
    calls: list[tuple[WriteSpec, str, str, int]] = [
        (spec, "orders", "run", 3),
        # The query was restarted in this process: Spark plans the batch again.
        (spec, "orders", "another run", 3),
        (spec, "orders", "another run", 4),
        (spec, "progress", "another run", 4),
        (spec_of("127.0.0.1:10"), "orders", "another run", 4),
    ]
    rows: Any = first
    for of_cluster, topic, run, version in calls:
        note_call(rows, of_cluster, sink_of(topic), run, version)
        rows = other if rows is first else first
        with pytest.raises(ConfigError, match=f"app_id 'calls' was used twice in batch {version}"):
            note_call(rows, of_cluster, sink_of(topic), run, version)
