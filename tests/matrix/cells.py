"""All combinations of security, path, codec, broker and memory, and a choice of them in which every pair occurs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.securities import SECURITIES

PATHS = ("send", "send_columns", "df.write", "writeStream", "exactly once parallel", "exactly once atomic")
CODECS = ("none", "lz4")
BROKERS = ("embedded", "kafka")
MEMORIES = ("default", "small")
_SECURITIES = tuple(security.name for security in SECURITIES)
_VALUES: tuple[tuple[str, ...], ...] = (BROKERS, _SECURITIES, PATHS, CODECS, MEMORIES)


@dataclass(frozen=True, order=True)
class Cell:
    """One way to write; *memory* ``small`` is a buffer.memory that holds a hundredth of the written bytes."""

    broker: str
    security: str
    path: str
    codec: str
    memory: str

    @property
    def values(self) -> tuple[str, ...]:
        return self.broker, self.security, self.path, self.codec, self.memory

    def __str__(self) -> str:
        return "-".join(value.replace(" ", "_") for value in self.values)


def all_cells() -> list[Cell]:
    """Return every combination once, half of them with little memory, as half of those with each other value."""
    found = []
    for indices in itertools.product(*(range(len(values)) for values in _VALUES[:-1])):
        broker, security, path, codec = (values[index] for values, index in zip(_VALUES, indices, strict=False))
        found.append(Cell(broker, security, path, codec, MEMORIES[sum(indices) % 2]))
    return found


def pairwise_cells() -> list[Cell]:
    """Return a greedy choice of few cells in which every two values of different dimensions occur together."""
    candidates = [Cell(*values) for values in itertools.product(*_VALUES)]
    open_pairs = {pair for cell in candidates for pair in pairs_of(cell)}
    chosen: list[Cell] = []
    while open_pairs:
        used = Counter(value for cell in chosen for value in cell.values)

        def gain(cell: Cell, used: Counter[str] = used) -> tuple[int, int]:
            # Among equals the cell with the rarest values, then the first one, so that the choice is deterministic.
            return len(open_pairs.intersection(pairs_of(cell))), -sum(used[value] for value in cell.values)

        best = max(candidates, key=gain)
        chosen.append(best)
        open_pairs.difference_update(pairs_of(best))
    # Sorted by broker, because each broker starts when it is first needed.
    return sorted(chosen)


def pairs_of(cell: Cell) -> set[tuple[tuple[int, str], tuple[int, str]]]:
    """Return the pairs of values in *cell*, each value with its dimension."""
    return set(itertools.combinations(enumerate(cell.values), 2))


def count_of(cells: Sequence[Cell], value: str) -> int:
    """Return the number of *cells* with *value*."""
    return sum(value in cell.values for cell in cells)
