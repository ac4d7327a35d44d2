"""How long rows waited for their acknowledgement: counts by time, small enough for a commit message.

Filled on a producer's sender thread, added up where a write is committed. Times are ms, kept to one part in sixteen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

_SIGNIFICANT_BITS: Final = 5


def rounded(ms: int) -> int:
    """*ms* with its five leading bits."""
    shift = max(ms.bit_length() - _SIGNIFICANT_BITS, 0)
    return (ms >> shift) << shift


def total(all_counts: Iterable[Mapping[int, int]]) -> Counter[int]:
    """Time → rows, of all together."""
    found: Counter[int] = Counter()
    for counts in all_counts:
        found.update(counts)
    return found


def percentile(counts: Mapping[int, int], share: float) -> int | None:
    """The time within which *share* of the rows were acknowledged; None where there were no rows."""
    wanted = share * sum(counts.values())
    seen = 0
    for ms in sorted(counts):
        seen += counts[ms]
        if seen >= wanted:
            return ms
    return None
