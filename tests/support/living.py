"""Objects that are still in memory."""

from __future__ import annotations

import gc


def living(kind: type) -> int:
    """Return the number of objects of *kind* that are still referenced."""
    gc.collect()
    return sum(type(each) is kind for each in gc.get_objects())
