"""How much a test tries: little in the normal run, more in ``scripts/test.sh --long``, or what its variable says."""

from __future__ import annotations

import os
from typing import TypeVar

import pytest

Amount = TypeVar("Amount", int, float, str)

#: The run has time for what takes long for what it proves.
LONG = os.environ.get("KAFKALITE_LONG", "") not in ("", "0")
#: For tests that have no smaller form that would be worth its time.
only_long = pytest.mark.skipif(not LONG, reason="only with --long")


def amount(variable: str, normal: Amount, *, long: Amount) -> Amount:
    """What the environment's ``variable`` says, else ``normal``, or ``long`` in the long run; of ``normal``'s type."""
    said = os.environ.get(variable)
    if said is None:
        return long if LONG else normal
    return type(normal)(said)
