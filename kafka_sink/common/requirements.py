"""The oldest versions of other packages that kafkalite works with, and the check that names one that is too old or
missing.

Called once in each process, when the module that needs the package is imported; it only compares, and imports nothing.
"""

from __future__ import annotations

import re
import sys
from typing import Final

from kafka_sink.common.errors import RequirementError

#: Package, by the name to install it → its oldest version that works.
OLDEST: Final = {"pyspark": "3.5", "pyarrow": "19.0", "numpy": "1.23"}

#: Package that kafkalite does not install → the extra that installs it.
_EXTRAS: Final = {"pyspark": "spark"}

_LEADING_NUMBERS: Final = re.compile(r"\d+(\.\d+)*")


def parse_version(text: str) -> tuple[int, ...]:
    """``(4, 1, 0)`` for ``4.1.0.dev1``: the leading numbers."""
    numbers = _LEADING_NUMBERS.match(text)
    return () if numbers is None else tuple(int(number) for number in numbers[0].split("."))


def require(package: str, version: str) -> None:
    """Check the *version* of *package*.

    :raises RequirementError: if it is older than the oldest that works; the text names both.
    """
    oldest = OLDEST[package]
    if parse_version(version) < parse_version(oldest):
        raise RequirementError(
            f"kafkalite needs {package} {oldest} or later, but this Python has {package} {version}: "
            f"pip install '{package}>={oldest}' for the driver and every executor; where a hosted Spark pins it, "
            "choose a runtime that has it (docs/versions.md, Hosted Sparks, which says when to install with --no-deps)"
        )


def require_installed(package: str, *, is_there: bool) -> None:
    """Check that *package*, which kafkalite does not install, *is_there*.

    :raises RequirementError: if it is not; the text says how to install it.
    """
    if not is_there:
        raise RequirementError(
            f"kafkalite writes from Spark with the package {package}, which this Python ({sys.executable}) does not "
            f"have: run the program with the Python of your Spark, or pip install 'kafkalite[{_EXTRAS[package]}]'"
        )
