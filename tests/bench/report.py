"""The tables and the chart of speed, generated from the last results and never edited manually: speed.md shows the
measurements, tests/figures.json has the medians that README and other pages show, and the README of the results has the
goals.

``scripts/bench.sh report`` runs it. A goal without a result is shown as not measured, and a missed goal as missed. A
ratio is that of the medians; it is followed by the lowest and the highest ratio of the runs, in which the competitors
took turns.
"""

from __future__ import annotations

import argparse
import statistics
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from scripts.pages import print_into
from tests.bench.results import RESULTS, load
from tests.support import figures

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
PAGE: Final = ROOT / "docs" / "internals" / "speed.md"
TASKS_PAGE: Final = ROOT / "docs" / "internals" / "performance.md"
GOALS_PAGE: Final = RESULTS / "README.md"
CHART: Final = RESULTS / "speed.svg"

_MB_OF_A_MIB: Final = 2**20 / 1e6

Results = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Goal:
    """One row of the tables: a comparison and its goal. *measured* returns its text and whether the goal was met.

    A row without a goal is neither met nor missed: None.
    """

    work: str
    against: str
    goal: str
    measured: Callable[[Results], tuple[str, bool | None]]


def _compared(ours: Mapping[str, Any], theirs: Mapping[str, Any], figure: str, of_what: str, shown: str) -> str:
    """Return the ratio of two competitors' *figure*, and its lowest and highest value in the runs."""
    return f"{ours[figure] / theirs[figure]:.2f}× the {of_what} ({_spread(ours, theirs)}{shown})"


def _spread(ours: Mapping[str, Any], theirs: Mapping[str, Any], runs: str = "runs") -> str:
    ratios = sorted(one / other for one, other in zip(ours[runs], theirs[runs], strict=True))
    return f"{ratios[0]:.2f} to {ratios[-1]:.2f}; "


def _against(ours: float, theirs: float, shown: Callable[[float], str]) -> str:
    return f"{shown(ours)} vs. {shown(theirs)}"


def _times(result: str, sink: str, least: float) -> Callable[[Results], tuple[str, bool]]:
    """Compare kafkalite's rows per second with those of *sink*."""

    def measured(found: Results) -> tuple[str, bool]:
        sinks = found[result]["sinks"]
        return _faster(sinks["kafkalite"], sinks[sink], "rows_per_s", least)

    return measured


def _faster(ours: Mapping[str, Any], theirs: Mapping[str, Any], figure: str, least: float) -> tuple[str, bool]:
    text = _compared(ours, theirs, figure, "speed", _against(ours[figure], theirs[figure], _rate))
    return text, ours[figure] / theirs[figure] >= least


def _share_of_plaintext(security: str) -> Callable[[Results], tuple[str, None]]:
    def measured(found: Results) -> tuple[str, None]:
        sinks = found[f"spark over {security}"]["sinks"]
        text, _ = _faster(sinks["kafkalite"], sinks["kafkalite over PLAINTEXT"], "rows_per_s", 0)
        return text, None

    return measured


def _handshakes(security: str) -> Callable[[Results], tuple[str, None]]:
    """Return the additional ms of a connection over *security*, compared with PLAINTEXT, until it is ready."""

    def measured(found: Results) -> tuple[str, None]:
        taken = found[f"spark over {security}"]["handshake_ms"]
        text = f"+ {taken[security] - taken['PLAINTEXT']:.1f} ms"
        return f"{text} ({_against(taken[security], taken['PLAINTEXT'], _ms)})", None

    return measured


def _cpu(found: Results) -> tuple[str, bool]:
    sinks = found["spark uncompressed"]["sinks"]
    ours, theirs = (sinks[sink] for sink in ("kafkalite", "kafka"))
    ratio = ours["client_cpu_s_per_million"] / theirs["client_cpu_s_per_million"]
    shown = _against(ours["client_cpu_s_per_million"], theirs["client_cpu_s_per_million"], _seconds)
    return f"{ratio:.2f}× the CPU time ({_spread(ours, theirs, 'client_cpu_runs')}{shown})", ratio <= 0.6


def _limit(found: Results) -> tuple[str, bool]:
    """Compare rows per second with those of a sink that does nothing, with the broker's CPU on the same cores."""
    result = found["spark uncompressed"]
    ours, nothing = result["sinks"]["kafkalite"], result["sinks"]["null"]
    least_s = 1e6 / nothing["rows_per_s"] + ours["broker_cpu_s_per_million"] / result["cores"]
    share = ours["rows_per_s"] * least_s / 1e6
    return f"{share:.0%} ({_rate(ours['rows_per_s'])} of {_rate(1e6 / least_s)})", share >= 0.85


def _java(codec: str, sender: str, least: float) -> Callable[[Results], tuple[str, bool]]:
    def measured(found: Results) -> tuple[str, bool]:
        senders = found[f"columns {codec}"]["senders"]
        return _faster(senders["kafkalite"], senders[sender], "rows_per_s", least)

    return measured


def _records(client: str, least: float) -> Callable[[Results], tuple[str, bool]]:
    def measured(found: Results) -> tuple[str, bool]:
        rates, runs = found["records"]["records_per_s"], found["records"]["runs"]
        ours, theirs = ({"rate": rates[name], "runs": runs[name]} for name in ("kafkalite", client))
        return _faster(ours, theirs, "rate", least)

    return measured


def _avro(work: str, least: float, rate: float) -> Callable[[Results], tuple[str, bool]]:
    """Compare the encoder's rows per second with those of fastavro; the ratio and the rate both have a goal."""

    def measured(found: Results) -> tuple[str, bool]:
        ours, theirs = (found["avro"]["works"][work][name] for name in ("kafkalite", "fastavro"))
        text, faster = _faster(ours, theirs, "rows_per_s", least)
        return text, faster and ours["rows_per_s"] >= rate

    return measured


def _slower(ours: Mapping[str, Any], theirs: Mapping[str, Any], most: float, more: str = "") -> tuple[str, bool]:
    shown = _against(ours["p50_ms"], theirs["p50_ms"], _whole_ms) + more
    text = _compared(ours, theirs, "p50_ms", "time", shown)
    return text, ours["p50_ms"] / theirs["p50_ms"] <= most


def _stream(result: str, most: float) -> Callable[[Results], tuple[str, bool]]:
    """Compare kafkalite's time with that of Spark's own sink."""

    def measured(found: Results) -> tuple[str, bool]:
        streams = found[result]["streams"]
        nothing = f"; {_NOTHING} {_whole_ms(streams['null']['p50_ms'])}"
        if "null-tuned" in streams:
            nothing += f", tuned {_whole_ms(streams['null-tuned']['p50_ms'])}"
        return _slower(streams["kafkalite"], streams["kafka"], most, nothing)

    return measured


def _stream_once(tasks: int) -> Callable[[Results], tuple[str, bool]]:
    def measured(found: Results) -> tuple[str, bool]:
        streams = found[f"stream {tasks} tasks"]["streams"]
        return _slower(streams["kafkalite exactly once"], streams["kafkalite"], 1.25)

    return measured


def _task(clock: str, most_ms: float) -> Callable[[Results], tuple[str, bool]]:
    def measured(found: Results) -> tuple[str, bool]:
        ours, theirs = (found["task"]["writers"][writer][clock] for writer in ("task", "client"))
        median_ms = statistics.median(ours)
        text = f"{median_ms:.2f} ms ({min(ours):.2f} to {max(ours):.2f}; vs. {statistics.median(theirs):.2f} ms)"
        return text, median_ms <= most_ms

    return measured


def _repeated_write(found: Results) -> tuple[str, bool]:
    sinks = found["small repeated"]["sinks"]
    return _slower(sinks["kafkalite"], sinks["kafka"], 1.3)


def _first_write(found: Results) -> tuple[str, bool]:
    """Return the additional seconds of a first write, compared with a Python sink that does nothing."""
    sinks = found["small first"]["sinks"]
    ours, nothing, theirs = (sinks[name]["median_s"] for name in ("kafkalite", "null", "kafka"))
    more = sorted(one - other for one, other in zip(sinks["kafkalite"]["runs"], sinks["null"]["runs"], strict=True))
    text = f"{ours - nothing:+.2f} s ({more[0]:+.2f} to {more[-1]:+.2f} s; {ours:.1f} s vs. {nothing:.1f} s; "
    return f"{text}Spark's own sink {theirs:.1f} s)", ours - nothing <= 0.3


def _cost_of_once(tasks: int) -> Callable[[Results], tuple[str, bool]]:
    def measured(found: Results) -> tuple[str, bool]:
        ways = found[f"exactly once {tasks} tasks"]["ways"]
        return _faster(ways["a transaction per task"], ways["at least once"], "rows_per_s", 0.9)

    return measured


def _commit(found: Results) -> tuple[str, bool]:
    commit_ms = found["exactly once 200 tasks"]["ways"]["a transaction per task"]["commit_p50_ms"]
    return f"{commit_ms:.0f} ms", commit_ms < 150


def _memory(found: Results) -> tuple[str, bool]:
    result = found["limit memory"]
    spread = (result["peak_mib"] - result["least_mib"]) / 2
    text = f"peak {result['peak_mib']:.0f} MiB, ± {spread:.0f} MiB over {result['gigabytes']} GB"
    return text, spread <= 20 and result["peak_mib"] < 250


def _growth(limit: str) -> Callable[[Results], tuple[str, bool]]:
    def measured(found: Results) -> tuple[str, bool]:
        result = found[f"limit {limit}"]
        rates = ", ".join(f"{int(size):,}: {_rate(rate)}" for size, rate in result["rows_per_s"].items())
        text = f"{1 - result['least_of_most']:.0%} apart ({rates})"
        if "least_of_most_of_nothing" in result:
            text += f"; a sink that does nothing {1 - result['least_of_most_of_nothing']:.0%}"
        return text, result["least_of_most"] >= 0.85

    return measured


def _broker(work: str, least: float) -> Callable[[Results], tuple[str, bool]]:
    """Compare the embedded broker's records per second with those of Kafka, with the same client."""

    def measured(found: Results) -> tuple[str, bool]:
        brokers = found["broker"]["works"][work]["brokers"]
        return _faster(brokers["kafkalite"], brokers["kafka"], "records_per_s", least)

    return measured


def _idle_node(found: Results) -> tuple[str, bool]:
    megabytes = found["broker"]["idle_mib"] * _MB_OF_A_MIB
    return f"{megabytes:.0f} MB", megabytes < 80


_NOTHING: Final = "a Python sink that does nothing"
_SPARK: Final = 'Spark\'s own `format("kafka")`'
_SETTINGS: Final = "`batch.size` 256 KiB, `linger.ms` 10, `send.buffer.bytes` -1"
_TUNED: Final = f"{_SPARK}, tuned ({_SETTINGS})"
_JAVA: Final = "Kafka's Java producer (`batch.size` 256 KiB, `linger.ms` 10)"

#: The tables by title, those that matter most for the choice of a sink first.
PARTS: Final[Mapping[str, tuple[Goal, ...]]] = {
    "Writing a DataFrame": (
        Goal(
            '`df.write.format("kafkalite")`, keyed, uncompressed',
            _SPARK,
            "≥ 1.7×",
            _times("spark uncompressed", "kafka", 1.7),
        ),
        Goal("`df.write`, keyed, uncompressed: client CPU per million rows", _SPARK, "≤ 0.6×", _cpu),
        Goal("`df.write`, keyed, lz4", _SPARK, "≥ 2×", _times("spark lz4", "kafka", 2)),
        Goal("`df.write`, keyed, uncompressed", _TUNED, "faster", _times("spark uncompressed", "kafka-tuned", 1)),
        Goal("`df.write`, keyed, lz4", _TUNED, "faster", _times("spark lz4", "kafka-tuned", 1)),
        Goal("`df.write`, keyed, zstd", _SPARK, "≥ 2×", _times("spark zstd", "kafka", 2)),
        Goal(
            "`df.write`, keyed, uncompressed",
            "`foreachPartition` + confluent-kafka",
            "≥ 7×",
            _times("spark uncompressed", "confluent", 7),
        ),
        Goal(
            "`df.write`, keyed, uncompressed",
            "`foreachPartition` + kafka-python",
            "≥ 25×",
            _times("spark uncompressed", "kafka-python", 25),
        ),
        Goal("`df.write`, keyed, uncompressed", f"{_NOTHING}, plus the broker's CPU", "≥ 85 %", _limit),
        *(
            Goal(
                f"`df.write` of structs as {name}",
                f"{_SPARK} and `to_avro`",
                "≥ 1.2×",
                _times(f"spark {name}", "kafka", 1.2),
            )
            for name in ("Avro, 5 columns", "Avro, 40 columns")
        ),
        *(
            Goal(name, _SPARK, "≥ 1.3×", _times(f"spark {name}", "kafka", 1.3))
            for name in ("1 kB values", "10 kB values", "headers", "no key", "skewed keys")
        ),
        Goal("1,000 partitions", _SPARK, "≥ 2×", _times("spark 1,000 partitions", "kafka", 2)),
    ),
    "Over TLS": (
        *(
            goal
            for security in ("SSL", "SASL_SSL")
            for goal in (
                Goal(f"over {security}", _SPARK, "≥ 1.5×", _times(f"spark over {security}", "kafka", 1.5)),
                Goal(f"over {security}", _TUNED, "≥ 1.2×", _times(f"spark over {security}", "kafka-tuned", 1.2)),
                Goal(f"over {security}", "kafkalite over PLAINTEXT", "", _share_of_plaintext(security)),
                Goal(f"handshakes of a task with a broker, {security}", "PLAINTEXT", "", _handshakes(security)),
            )
        ),
    ),
    "Micro-batches": (
        Goal("micro-batch of 1,000 rows, 2 tasks", _SPARK, "≤ 1.25×", _stream("stream 2 tasks", 1.25)),
        Goal("micro-batch of 1,000 rows, 20 tasks", _SPARK, "≤ 1.7×", _stream("stream 20 tasks", 1.7)),
        Goal(
            "micro-batch of 1,000 rows, 20 tasks, over SASL_SSL",
            f"{_SPARK}, over SASL_SSL",
            "≤ 1.8×",
            _stream("stream 20 tasks over SASL_SSL", 1.8),
        ),
        *(
            Goal(
                f"complete trigger, asynchronous progress tracking, {tasks} tasks",
                f"{_SPARK}, asynchronous progress tracking",
                "≤ 1.5×",
                _stream(f"trigger {tasks} tasks", 1.5),
            )
            for tasks in (2, 20)
        ),
    ),
    "Exactly once": (
        *(
            Goal(
                f"micro-batch of 1,000 rows, exactly once, {tasks} tasks",
                "kafkalite, at least once",
                "≤ 1.25×",
                _stream_once(tasks),
            )
            for tasks in (2, 20)
        ),
        *(
            Goal(f"1 M rows, a transaction per task, {tasks} tasks", "at least once", "≥ 0.9×", _cost_of_once(tasks))
            for tasks in (1, 8, 200)
        ),
        Goal("commit of 200 transactions", "", "< 150 ms", _commit),
    ),
    "Small writes and tasks": (
        Goal("`df.write` of 1,000 rows, 2 tasks, repeated", _SPARK, "≤ 1.3×", _repeated_write),
        Goal("the first `df.write` of a session", _NOTHING, "≤ + 0.3 s", _first_write),
        Goal("a task of 50 rows outside Spark, wall time", "confluent-kafka, kept", "≤ 0.9 ms", _task("wall", 0.9)),
        Goal("a task of 50 rows outside Spark, CPU time", "confluent-kafka, kept", "≤ 0.8 ms", _task("cpu", 0.8)),
    ),
    "Memory, and more of everything": (
        Goal("memory of a worker, 10 GB through 32 MiB", "", "< 250 MiB, ± 20 MiB", _memory),
        Goal("rows: 10⁶ to 10⁸", "itself", "within 15 %", _growth("rows")),
        Goal("partitions: 1 to 1,000", "itself", "within 15 %", _growth("partitions")),
        Goal("embedded brokers: 1 to 8", "itself", "within 15 %", _growth("brokers")),
    ),
    "The producer and the encoders by themselves": (
        *(
            Goal(f"`send_columns`, one thread, {work}", against, goal, _java(codec, sender, least))
            for codec, work in (("none", "uncompressed"), ("lz4", "lz4"))
            for sender, against, goal, least in (
                ("java", _JAVA, "≥ 3×", 3.0),
                ("java, system's send buffer", f"{_JAVA}, `send.buffer.bytes` -1", "faster", 1.0),
            )
        ),
        Goal("`send`, record by record", "kafka-python", "≥ 4×", _records("kafka-python", 4)),
        Goal("`send`, record by record", "confluent-kafka", "≥ 0.5×", _records("confluent-kafka", 0.5)),
        *(
            Goal(f"Avro, one thread, {work}", "fastavro", goal, _avro(work, 15, rate))
            for work, goal, rate in (
                ("5 columns", "≥ 15×, ≥ 5 M/s", 5e6),
                ("5 nullable columns", "≥ 15×, ≥ 5 M/s", 5e6),
                ("40 columns", "≥ 15×, ≥ 0.4 M/s", 0.4e6),
            )
        ),
    ),
    "The embedded broker": (
        *(
            Goal(f"embedded broker: {work}", "Kafka", "≥ 1×", _broker(work, 1.0))
            for work in (
                "Java producer, large batches, 1 kB",
                "Java producer, large batches, 100 B",
                "columns, large batches, 1 kB",
                "confluent-kafka reads large batches, 1 kB",
            )
        ),
        Goal("embedded broker: memory of an idle node", "", "< 80 MB", _idle_node),
    ),
}

GOALS: Final = tuple(goal for goals in PARTS.values() for goal in goals)


def _rate(rows_per_s: float) -> str:
    return f"{rows_per_s / 1e6:.2f} M/s" if rows_per_s >= 1e6 else f"{rows_per_s / 1e3:.0f} k/s"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s"


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.1f} ms"


def _whole_ms(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms"


def goals_table(found: Results, goals: Iterable[Goal] = GOALS) -> str:
    """Return the *goals* as Markdown, with a mark for those met or missed, and the machine and date of each result."""
    used = _Used(found)
    lines = ["| benchmark | compared with | goal | measured | |", "| --- | --- | --- | --- | --- |"]
    for goal in goals:
        text, met = _outcome(goal, used)
        mark = "" if met is None else "✓" if met else "missed"
        lines.append(f"| {goal.work} | {goal.against} | {goal.goal} | {text} | {mark} |")
    return _with_origin(lines, used)


def readers_tables(found: Results) -> str:
    """Return the measurements as Markdown, a table for each part."""
    used = _Used(found)
    lines: list[str] = []
    for title, goals in PARTS.items():
        lines += [f"## {title}", "", *_readers_lines(goals, used), ""]
    return _with_origin(lines[:-1], used)


def medians(found: Results) -> dict[str, Any]:
    """Return the figures of README and of the page of costs, for ``tests/figures.json``: of each sink the rows a
    second, and the ms of a micro-batch of 1,000 rows by its number of tasks."""
    rows = found["spark uncompressed"]
    batches = {tasks: found[f"stream {tasks} tasks"] for tasks in (2, 20)}
    return {
        "rows_per_s": {sink: rows["sinks"][sink]["rows_per_s"] for sink in ("kafkalite", "kafka", "kafka-tuned")},
        "batch_ms": {
            str(tasks): {
                sink: batch["streams"][sink]["p50_ms"] for sink in ("kafkalite", "kafka", "null", "null-tuned")
            }
            for tasks, batch in batches.items()
        },
        "measured": {
            "rows_per_s": f"{_measured(rows)}, {len(rows['sinks']['kafkalite']['runs'])} runs",
            "batch_ms": f"{_measured(batches[2])}, {batches[2]['streams']['kafkalite']['triggers']} micro-batches",
        },
        "machine": rows["machine"],
    }


def _measured(result: Mapping[str, Any]) -> str:
    return f"commit {result['commit']} of {result['date']}"


def summary(speed: Mapping[str, Any]) -> str:
    """Return the two figures of README, as Markdown."""
    rows, batch, measured = speed["rows_per_s"], speed["batch_ms"]["2"], speed["measured"]
    of_spark = f"{_rate(rows['kafka'])}, or {_rate(rows['kafka-tuned'])} with {_SETTINGS}"
    ms = f"{_whole_ms(batch['kafkalite'])} | {_whole_ms(batch['kafka'])}"
    return "\n".join(
        [
            "| median | kafkalite | Spark's own sink | measured |",
            "| --- | --- | --- | --- |",
            "| rows per second of `df.write`: keys, values of 100 bytes, uncompressed, 4 tasks | "
            f"{_rate(rows['kafkalite'])} | {of_spark} | {measured['rows_per_s']} |",
            f"| time of a micro-batch of 1,000 rows in 2 tasks | {ms} | {measured['batch_ms']} |",
            "",
            f"{speed['machine']}.",
            "[All figures](docs/internals/speed.md), and the cost of each task of a micro-batch.",
            "",
        ]
    )


def costs_of_a_task(speed: Mapping[str, Any]) -> str:
    """Return the time that a task adds to a micro-batch, from 2 to 20 tasks, as Markdown."""
    few, many = speed["batch_ms"]["2"], speed["batch_ms"]["20"]
    names = {
        "kafkalite": "kafkalite",
        "kafka": "Spark's own sink",
        "null-tuned": "a Python sink that does nothing, tuned (`tunePythonWorkers`)",
        "null": "a Python sink that does nothing",
    }
    lines = ["| sink | a micro-batch of 2 tasks | of 20 tasks | each further task |", "| --- | --- | --- | --- |"]
    for sink, name in names.items():
        each = _ms((many[sink] - few[sink]) / 18)
        lines.append(f"| {name} | {_whole_ms(few[sink])} | {_whole_ms(many[sink])} | {each} |")
    return "\n".join(lines) + "\n"


def _readers_lines(goals: Iterable[Goal], used: _Used) -> Iterator[str]:
    yield "| what | compared with | measured |"
    yield "| --- | --- | --- |"
    for goal in goals:
        yield f"| {goal.work} | {goal.against} | {_outcome(goal, used)[0]} |"


def _outcome(goal: Goal, used: _Used) -> tuple[str, bool | None]:
    try:
        return goal.measured(used)
    except KeyError:
        return "not measured", None


def _with_origin(lines: list[str], used: _Used) -> str:
    lines += [
        "",
        "2× the speed: twice as many rows or records a second. A ratio is that of the medians.",
        "In parentheses: lowest and highest ratio of single runs, and the medians.",
    ]
    for line in sorted({_provenance(used[name]) for name in used.names}):
        lines += ["", line]
    return "\n".join(lines) + "\n"


class _Used(dict[str, Mapping[str, Any]]):
    """Results that record the names of those that were read."""

    def __init__(self, found: Results) -> None:
        super().__init__(found)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        result = super().__getitem__(name)
        self.names.add(name)
        return result


def _provenance(result: Mapping[str, Any]) -> str:
    packages = ", ".join(f"{name} {result['packages'][name]}" for name in ("pyspark", "pyarrow", "numpy"))
    where = f"{result['date']}, commit {result['commit']}, {result['machine']}"
    return textwrap.fill(f"{where}, Python {result['python']}, {packages}.", 120)


# --- chart -----------------------------------------------------------------------------------------------------------

_BAR_HEIGHT, _GAP, _LEFT, _WIDTH, _TOP = 22, 10, 210, 760, 40
_COLOURS: Final = {"kafkalite": "#2f6f4f"}
_OTHER: Final = "#9aa5b1"
_NAMES: Final = {
    "kafkalite": "kafkalite",
    "kafka": "Spark's own sink",
    "kafka-tuned": "Spark's own sink, tuned",
    "confluent": "foreachPartition, confluent",
    "kafka-python": "foreachPartition, kafka-python",
}


def chart(found: Results) -> str | None:
    """Return a chart of the rows per second of the uncompressed write: the medians as bars, and the lowest and the
    highest of the runs as error bars. None if it was not measured."""
    result = found.get("spark uncompressed")
    if result is None:
        return None
    sinks = {sink: result["sinks"][sink] for sink in _NAMES if sink in result["sinks"]}
    title = f"Rows per second from a DataFrame to Kafka, local[{result['cores']}]"
    runs = max(len(sink["runs"]) for sink in sinks.values())
    return _svg(f"{title}; median, lowest and highest of {runs} runs", sinks)


def _svg(title: str, sinks: Mapping[str, Mapping[str, Any]]) -> str:
    height = _TOP + len(sinks) * (_BAR_HEIGHT + _GAP) + _GAP
    scale = (_WIDTH - _LEFT - 110) / max(max(sink["runs"]) for sink in sinks.values())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" role="img" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="12" y="24" font-size="15" fill="#1f2933">{escape(title)}</text>',
    ]
    for number, (sink, measured) in enumerate(sinks.items()):
        top = _TOP + number * (_BAR_HEIGHT + _GAP)
        rate = measured["rows_per_s"]
        length = max(rate * scale, 1)
        low, high = (_LEFT + edge(measured["runs"]) * scale for edge in (min, max))
        centre = top + _BAR_HEIGHT / 2
        middle = top + _BAR_HEIGHT * 0.7
        parts += [
            f'<text x="{_LEFT - 8}" y="{middle:.0f}" text-anchor="end" fill="#1f2933">{escape(_NAMES[sink])}</text>',
            f'<rect x="{_LEFT}" y="{top}" width="{length:.0f}" height="{_BAR_HEIGHT}" '
            f'fill="{_COLOURS.get(sink, _OTHER)}"/>',
            f'<path d="M{low:.1f} {centre:.0f}H{high:.1f}m0 -5v10M{low:.1f} {centre - 5:.0f}v10" stroke="#1f2933" '
            'stroke-width="1.5" fill="none"/>',
            f'<text x="{max(_LEFT + length, high) + 8:.0f}" y="{middle:.0f}" fill="#1f2933">{rate:,}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    found = load(parser.parse_args().results)
    figures.save_speed(medians(found))
    print_into(README, "speed", summary(figures.load().speed))
    print_into(TASKS_PAGE, "tasks", costs_of_a_task(figures.load().speed))
    for page, lines in ((PAGE, readers_tables(found)), (GOALS_PAGE, goals_table(found))):
        print_into(page, "speed", lines)
    drawn = chart(found)
    if drawn is not None:
        CHART.write_text(drawn)
    print(goals_table(found))


if __name__ == "__main__":
    main()
