"""This version reads the state that each released version has left in Kafka and in reports; see ``make_state.py``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_sink.common.model import OffsetAndMetadata
from kafka_sink.exactly_once.progress import ProgressStore, latest_batch
from kafka_sink.exactly_once.transactions import sink_of_id
from kafka_sink.reports.writes import read_writes
from tests.fakes.immediate import returned
from tests.unit.exactly_once.test_progress import DRIVER, Offsets

FILES = sorted(Path(__file__).with_name("state").glob("*.json"))


@pytest.mark.behaviour("Versions", "Progress, transactional ids and reports of every released version are read")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_state_of_a_released_version_is_read(file: Path, tmp_path: Path) -> None:
    state = json.loads(file.read_text(encoding="utf-8"))
    offsets = Offsets()
    offsets.found = {
        each["partition"]: OffsetAndMetadata(each["offset"], each["metadata"]) for each in state["progress"]
    }
    left = dict(offsets.found)
    latest = latest_batch(left[0])
    assert latest is not None and (latest.version, latest.writer) == (2, "an application")
    store = ProgressStore(offsets, state["group"], state["topic"])  # type: ignore[arg-type]
    progress = returned(store.read())
    assert progress is not None and (progress.version, len(progress.transactions)) == (2, 3)
    ids = [each.transactional_id for each in progress.transactions]
    assert {sink_of_id(each) for each in ids} == {(state["group"], state["topic"])}
    # This version also writes the transaction that decided the version, in a format that older versions refuse.
    assert progress.decider is None
    returned(store.write(DRIVER, progress.transaction_version, progress, 3, progress))
    assert returned(store.read()) == replace(progress, decider=DRIVER.producer)
    assert not offsets.found[0].metadata.startswith(left[0].metadata.partition("|")[0])

    report = tmp_path / "report.jsonl"
    report.write_text("".join(f"{json.dumps(line)}\n" for line in state["report"]))
    count, writes = read_writes(report, 10)
    assert count == 4
    assert [(each.batch, each.decision, each.rows) for each in writes] == [
        (1, "written", 9),
        (2, "written", 9),
        (-1, "written", 9),
        (2, "skipped", 0),
    ]
    assert all(not each.is_torn for each in writes)
