"""The results of a run: its cells, the check of the topics with confluent-kafka, and the tables of both."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.support.four_ways import BAD, WAYS
from tests.support.killed_spark import LINES
from tests.support.readback import read_values

#: As docs/ calls them, and in its order.
NAMES = {
    "writeStream": "`writeStream`",
    "foreachBatch-atomic": "`foreach_batch`, atomic",
    "foreachBatch-parallel": "`foreach_batch`, parallel",
    "batch": "numbered batch",
}


@dataclass
class OfWay:
    """The results of one way to write in one cell: the longest time without a batch (s), and the time from the end of
    the faults to the next commit of a batch (s; None if no batch was left to commit)."""

    stall_s: float
    resumed_s: float | None
    torn: int = 0
    missing: int = 0
    twice: int = 0
    extra: int = 0


@dataclass
class Cell:
    """*faults* that happened together while the batches *first* to *last* were written."""

    faults: tuple[str, ...]
    first: int
    last: int
    ways: dict[str, OfWay]
    stuck: list[str] = field(default_factory=list)

    @property
    def batches(self) -> int:
        return self.last - self.first

    def __str__(self) -> str:
        found = ", ".join(
            f"{way} {each.stall_s:.1f} s{' TORN' if each.torn else ''}{' STUCK' if way in self.stuck else ''}"
            for way, each in self.ways.items()
        )
        return f"{' + '.join(self.faults)}: {self.batches} batches; longest stalls: {found}"


def judge(looks: str, name: str, cells: Sequence[Cell]) -> None:
    """Count in *cells* the rows that are missing, duplicated or unexpected, among those that confluent-kafka reads."""
    for way in WAYS:
        found = Counter((False, value) for value in read_values(looks, f"{name}-{way}"))
        found.update((True, value) for value in read_values(looks, f"{name}-{way}-rejected"))
        for cell in cells:
            of_way = cell.ways[way]
            for batch in range(cell.first, cell.last):
                for line in range(LINES):
                    text = f"{batch}-{line}"
                    count = found.pop((text.endswith(BAD), text.encode()), 0)
                    of_way.missing += count == 0
                    of_way.twice += max(count - 1, 0)
        # Rows that no batch has written belong to no cell; the run did not wait for batches after the last one.
        last = cells[-1].last
        cells[-1].ways[way].extra += sum(n for (_, text), n in found.items() if int(text.partition(b"-")[0]) < last)


def wrong(cells: Iterable[Cell]) -> list[str]:
    """Return a description of each broken guarantee."""
    return [
        f"{' + '.join(cell.faults)}, {way}: {each.missing} missing, {each.twice} twice, {each.extra} extra, "
        f"{each.torn} torn{', stuck' if way in cell.stuck else ''}"
        for cell in cells
        for way, each in cell.ways.items()
        if each.missing or each.twice or each.extra or each.torn or way in cell.stuck
    ]


def table(cells: Sequence[Cell], faults: Sequence[str]) -> str:
    """Return a table of faults by ways, with each fault alone and together with another one."""
    lines = [
        f"| fault | rounds | {' | '.join(NAMES.values())} |",
        f"| --- | ---: | {' | '.join('---' for _ in NAMES)} |",
    ]
    for fault in faults:
        for heading, chosen in (
            (fault, [cell for cell in cells if cell.faults == (fault,)]),
            (f"{fault}, and another", [cell for cell in cells if fault in cell.faults and len(cell.faults) > 1]),
        ):
            if chosen:
                found = " | ".join(_summary(chosen, way) for way in NAMES)
                lines.append(f"| {heading} | {len(chosen)} | {found} |")
    return "\n".join(lines)


def _summary(cells: Sequence[Cell], way: str) -> str:
    ways = [cell.ways[way] for cell in cells]
    batches = sum(cell.batches for cell in cells)
    counts = "/".join(str(sum(getattr(each, name) for each in ways)) for name in ("missing", "twice", "torn"))
    resumed = [each.resumed_s for each in ways if each.resumed_s is not None]
    after = f"{statistics.median(resumed):.0f} s" if resumed else "none"
    return f"{batches}: {counts}; {max(each.stall_s for each in ways):.0f} s; {after}"
