"""The tables of speed are generated from results alone, and show missing results and missed goals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.pages import print_into, printed
from tests.bench import results
from tests.bench.bench_broker import WORKS
from tests.bench.report import (
    GOALS,
    PARTS,
    README,
    TASKS_PAGE,
    chart,
    costs_of_a_task,
    goals_table,
    medians,
    readers_tables,
    summary,
)
from tests.support import figures


def spark_result(ours: int, theirs: int) -> dict[str, Any]:
    def sink(rows_per_s: int) -> dict[str, Any]:
        figures = {"rows_per_s": rows_per_s, "client_cpu_s_per_million": 1.0, "broker_cpu_s_per_million": 0.5}
        return {**figures, "runs": [rows_per_s], "client_cpu_runs": [1.0]}

    sinks = {"kafkalite": sink(ours), "kafka": sink(theirs), "null": sink(4 * ours)}
    return {"cores": 2, "sinks": sinks}


def saved(directory: Path, name: str, content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    results.save(name, content, directory)
    return results.load(directory)


def test_met_missed_and_missing_goals_are_told_apart(tmp_path: Path) -> None:
    found = saved(tmp_path, "spark uncompressed", spark_result(1_800_000, 1_000_000))
    found = saved(tmp_path, "spark 1,000 partitions", spark_result(1_200_000, 1_000_000))
    lines = goals_table(found).splitlines()
    assert len([line for line in lines if line.startswith("| ")]) == len(GOALS) + 2
    assert "| 1.80× the speed (1.80 to 1.80; 1.80 M/s vs. 1.00 M/s) | ✓ |" in lines[2]
    (missed,) = [line for line in lines if line.startswith("| 1,000 partitions")]
    assert missed.endswith("| 1.20× the speed (1.20 to 1.20; 1.20 M/s vs. 1.00 M/s) | missed |")
    (missing,) = [
        line for line in lines if line.startswith('| `df.write`, keyed, lz4 | Spark\'s own `format("kafka")` |')
    ]
    assert "not measured" in missing


def test_readers_see_what_was_measured_and_no_goals(tmp_path: Path) -> None:
    found = saved(tmp_path, "spark uncompressed", spark_result(1_800_000, 1_000_000))
    shown = readers_tables(found)
    assert [line.removeprefix("## ") for line in shown.splitlines() if line.startswith("## ")] == list(PARTS)
    assert "| 1.80× the speed (1.80 to 1.80; 1.80 M/s vs. 1.00 M/s) |" in shown
    assert not any(mark in shown for mark in ("✓", "missed", "≥"))


def test_tasks_are_compared_by_wall_and_cpu_time(tmp_path: Path) -> None:
    writers = {"task": {"wall": [0.8, 1.0, 0.7], "cpu": [1.0]}, "client": {"wall": [0.5], "cpu": [0.3]}}
    lines = goals_table(saved(tmp_path, "task", {"writers": writers})).splitlines()
    wall, cpu = (line for line in lines if line.startswith("| a task of 50 rows"))
    assert wall.endswith("| ≤ 0.9 ms | 0.80 ms (0.70 to 1.00; vs. 0.50 ms) | ✓ |")
    assert cpu.endswith("| ≤ 0.8 ms | 1.00 ms (1.00 to 1.00; vs. 0.30 ms) | missed |")


def test_a_ratio_shows_the_spread_of_its_runs(tmp_path: Path) -> None:
    result = spark_result(1_800_000, 1_000_000)
    # The comparison pairs the runs of a turn: the second turn is slow for both.
    result["sinks"]["kafkalite"] |= {"runs": [1_800_000, 900_000, 2_000_000], "client_cpu_runs": [1.0, 1.2, 0.9]}
    result["sinks"]["kafka"] |= {"runs": [1_000_000, 600_000, 1_000_000], "client_cpu_runs": [2.0, 2.0, 2.0]}
    lines = goals_table(saved(tmp_path, "spark uncompressed", result)).splitlines()
    assert lines[2].endswith("| 1.80× the speed (1.50 to 2.00; 1.80 M/s vs. 1.00 M/s) | ✓ |")
    assert lines[3].endswith("| 1.00× the CPU time (0.45 to 0.60; 1.00 s vs. 1.00 s) | missed |")


def test_rows_over_tls_show_goals_and_what_tls_costs(tmp_path: Path) -> None:
    result = spark_result(1_200_000, 600_000)
    rates = {"kafka-tuned": 1_100_000, "kafkalite over PLAINTEXT": 1_500_000}
    result["sinks"] |= {name: {"rows_per_s": rate, "runs": [rate]} for name, rate in rates.items()}
    result["handshake_ms"] = {"PLAINTEXT": 2.0, "SSL": 5.5}
    lines = [line for line in goals_table(saved(tmp_path, "spark over SSL", result)).splitlines() if " SSL" in line]
    assert lines[0].endswith("| ≥ 1.5× | 2.00× the speed (2.00 to 2.00; 1.20 M/s vs. 600 k/s) | ✓ |")
    assert lines[1].endswith("| ≥ 1.2× | 1.09× the speed (1.09 to 1.09; 1.20 M/s vs. 1.10 M/s) | missed |")
    assert lines[2].endswith(
        "| kafkalite over PLAINTEXT |  | 0.80× the speed (0.80 to 0.80; 1.20 M/s vs. 1.50 M/s) |  |"
    )
    assert lines[3].endswith("| PLAINTEXT |  | + 3.5 ms (5.5 ms vs. 2.0 ms) |  |")


def test_the_embedded_broker_is_compared_with_kafka(tmp_path: Path) -> None:
    rates = {"kafkalite": 300_000.0, "kafka": 200_000.0}
    brokers = {name: {"records_per_s": rate, "runs": [rate]} for name, rate in rates.items()}
    works = {work.name: {"brokers": brokers} for work in WORKS}
    lines = goals_table(saved(tmp_path, "broker", {"idle_mib": 50.0, "works": works})).splitlines()
    shown = [line for line in lines if line.startswith("| embedded broker: ")]
    assert len(shown) == 5
    measured = "1.50× the speed (1.50 to 1.50; 300 k/s vs. 200 k/s)"
    assert all(line.endswith(f"| Kafka | ≥ 1× | {measured} | ✓ |") for line in shown[:-1])
    assert shown[-1].endswith("| < 80 MB | 52 MB | ✓ |")


def test_report_compares_streams_and_small_writes_with_spark(tmp_path: Path) -> None:
    streams = {"kafkalite": 150, "kafkalite exactly once": 210, "kafka": 100, "null": 80, "null-tuned": 60}
    found = {
        f"{name} tasks{over}": {"streams": {stream: {"p50_ms": ms, "runs": [ms]} for stream, ms in streams.items()}}
        for name in ("stream 2", "stream 20", "trigger 2")
        for over in ("", " over SASL_SSL")
    }
    for name, result in found.items():
        saved(tmp_path, name, result)
    times = {"kafkalite": (140.0, [130.0, 150.0]), "kafka": (100.0, [100.0, 100.0])}
    sinks = {name: {"p50_ms": ms, "runs": runs} for name, (ms, runs) in times.items()}
    saved(tmp_path, "small repeated", {"sinks": sinks})
    seconds = {"kafkalite": (4.25, [4.2, 4.3]), "kafka": (0.9, [0.9, 0.9]), "null": (4.0, [4.1, 4.0])}
    first = {name: {"median_s": median, "runs": runs} for name, (median, runs) in seconds.items()}
    lines = goals_table(saved(tmp_path, "small first", {"sinks": first})).splitlines()

    def measured(work: str) -> str:
        (line,) = [line for line in lines if line.startswith(f"| {work} |")]
        return line.removeprefix(f"| {work} | ")

    spark = 'Spark\'s own `format("kafka")`'
    text = "1.50× the time (1.50 to 1.50; 150 ms vs. 100 ms; a Python sink that does nothing 80 ms, tuned 60 ms) | {} |"
    assert measured("micro-batch of 1,000 rows, 2 tasks") == f"{spark} | ≤ 1.25× | {text.format('missed')}"
    over = measured("micro-batch of 1,000 rows, 20 tasks, over SASL_SSL")
    assert over == f"{spark}, over SASL_SSL | ≤ 1.8× | {text.format('✓')}"
    once = measured("micro-batch of 1,000 rows, exactly once, 20 tasks")
    assert once == "kafkalite, at least once | ≤ 1.25× | 1.40× the time (1.40 to 1.40; 210 ms vs. 150 ms) | missed |"
    trigger = measured("complete trigger, asynchronous progress tracking, 2 tasks")
    assert trigger == f"{spark}, asynchronous progress tracking | ≤ 1.5× | {text.format('✓')}"
    again = measured("`df.write` of 1,000 rows, 2 tasks, repeated")
    assert again == f"{spark} | ≤ 1.3× | 1.40× the time (1.30 to 1.50; 140 ms vs. 100 ms) | missed |"
    first_write = measured("the first `df.write` of a session")
    more = "+0.25 s (+0.10 to +0.30 s; 4.2 s vs. 4.0 s; Spark's own sink 0.9 s)"
    assert first_write.endswith(f"≤ + 0.3 s | {more} | ✓ |")


def test_the_table_says_when_and_where_it_was_measured(tmp_path: Path) -> None:
    rates = {"kafkalite": 2, "kafka-python": 1, "confluent-kafka": 3}
    found = saved(tmp_path, "records", {"records_per_s": rates, "runs": {name: [rate] for name, rate in rates.items()}})
    assert f"commit {found['records']['commit']}" in goals_table(found)


def test_pages_show_the_medians_of_the_last_results() -> None:
    speed = medians(results.load(results.RESULTS))
    assert figures.load().speed == speed, "run: python -m tests.bench.report"
    assert printed(README, "speed").strip() == summary(speed).strip(), "run: python -m tests.bench.report"
    assert printed(TASKS_PAGE, "tasks").strip() == costs_of_a_task(speed).strip(), "run: python -m tests.bench.report"


def test_only_the_table_between_the_marks_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- speed: begin -->\nold\n<!-- speed: end -->\nb")
    print_into(page, "speed", "new\n")
    assert page.read_text() == "a\n<!-- speed: begin -->\nnew\n<!-- speed: end -->\nb"
    with pytest.raises(SystemExit, match="has no <!-- ways: begin"):
        print_into(page, "ways", "new\n")


def test_chart_has_bar_per_sink_and_is_absent_without_results(tmp_path: Path) -> None:
    assert chart({}) is None
    drawn = chart(saved(tmp_path, "spark uncompressed", spark_result(1_800_000, 1_000_000)))
    assert drawn is not None
    assert drawn.count("<rect") == 1 + 2
    assert "median, lowest and highest of 1 runs" in drawn


def test_chart_shows_lowest_and_highest_run(tmp_path: Path) -> None:
    result = spark_result(1_000_000, 1_000_000)
    result["sinks"]["kafkalite"]["runs"] = [500_000, 1_000_000, 2_000_000]
    drawn = chart(saved(tmp_path, "spark uncompressed", result))
    assert drawn is not None and "of 3 runs" in drawn
    # The highest run fills the width of the bars: 440 of the chart's 760 units, from 210.
    assert 'd="M320.0 51H650.0m0 -5v10M320.0 46v10"' in drawn
