"""The counts of scripts/hosts.sh, the order of its restarts, and its check for growing memory."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from tests.hosts.memory import JUDGED, Memory
from tests.hosts.queries import WAYS, Settings
from tests.hosts.restarts import Restart, Rotation
from tests.proof.parts import PARTS
from tests.proof.running import counts_in
from tests.spark.soak import Usage

WAIT_S = 60


def settings_in(folder: Path) -> Settings:
    return Settings("spark://127.0.0.1:7077", "127.0.0.1:9092", "hosts", folder, 24, 300, 2, 20)


def test_the_driver_reads_the_settings_that_were_written(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    settings.write(tmp_path / "settings.json")
    assert Settings.read(tmp_path / "settings.json") == settings


def test_each_query_has_its_topic_and_ways_have_as_many(tmp_path: Path) -> None:
    queries = list(settings_in(tmp_path).all_queries())
    assert len({query.topic for query in queries}) == len({query.folder for query in queries}) == 24
    assert {sum(query.way == way for query in queries) for way in WAYS} == {8}


def test_a_query_has_committed_what_its_checkpoint_says(tmp_path: Path) -> None:
    query = next(settings_in(tmp_path).all_queries())
    assert (query.planned, query.committed) == (0, 0)
    for folder, files in (("offsets", ("9", "10", "11", ".11.crc")), ("commits", ("9", "10", ".11.tmp"))):
        (query.checkpoint / folder).mkdir(parents=True)
        for file in files:
            (query.checkpoint / folder / file).touch()
    assert (query.planned, query.committed) == (12, 11)


def test_what_is_spared_is_left_alone_in_the_second_half() -> None:
    seen: list[tuple[str, bool]] = []
    has_three = threading.Event()

    def noted(name: str) -> Restart:
        def happens(is_killed: bool) -> None:
            seen.append((name, is_killed))
            if len(seen) >= 3:
                has_three.set()

        return Restart(name, happens, is_spared=name == "driver")

    rotation = Rotation([noted("node"), noted("driver"), noted("worker")], pause_s=0, half_s=0)
    rotation.start()
    assert has_three.wait(WAIT_S)
    rotation.end(WAIT_S)
    assert seen[:3] == [("node", False), ("worker", False), ("node", True)]
    assert rotation.done == len(seen)


def test_growth_is_judged_from_a_moment_on(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory.jsonl")
    for number in range(241):
        usage = Usage(1, 100.0 if number < 120 else 200.0, 10 if number < 230 else 40)
        memory.add(number * 10.0, dict.fromkeys(JUDGED, usage))
    assert memory.growth(1200.0) == []
    assert memory.growth(0.0) == [f"{name}: 100 MiB in the second quarter, 200 in the last" for name in JUDGED]
    assert memory.growth(2000.0) is None
    assert json.loads((tmp_path / "memory.jsonl").read_text().splitlines()[-1])[JUDGED[0]] == [1, 200.0, 40]
    assert len(list(memory.curve())) == 5


def test_the_last_line_is_what_the_ledger_counts() -> None:
    (part,) = (part for part in PARTS if part.group == "hosts")
    line = "hosts: 24 queries, 6,120 batches, 1,836,000 rows, 0 missing, 0 twice, 90 restarts"
    expected = {"queries": 24, "batches": 6120, "rows": 1_836_000, "missing": 0, "twice": 0, "restarts": 90}
    assert counts_in(line, part.counts) == expected
