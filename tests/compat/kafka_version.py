"""The version of Apache Kafka that the tests of this folder run on, and the versions that tests require.

``scripts/test.sh --kafka V`` selects another version than the default. A test that needs a feature of a newer version
names it, so that the reason for its skip has the required version and the feature.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

IVY_FILE = Path(__file__).parents[2] / "scripts" / "kafka-ivy.xml"


def _version() -> str:
    libs = os.environ.get("KAFKALITE_KAFKA_LIBS")
    if libs:
        (jar,) = (path for path in Path(libs).glob("kafka_2.13-*.jar") if re.fullmatch(r".*-[\d.]+", path.stem))
        return jar.stem.removeprefix("kafka_2.13-")
    pinned = re.search(r'name="kafka_2\.13" rev="([\d.]+)"', IVY_FILE.read_text())
    assert pinned is not None
    return os.environ.get("KAFKALITE_KAFKA_VERSION") or pinned[1]


#: A version such as 4.3.0, or 4.3 for its newest patch release.
VERSION = _version()


def is_at_least(oldest: str) -> bool:
    return _parsed(VERSION) >= _parsed(oldest)


def requires_kafka(oldest: str, what: str) -> pytest.MarkDecorator:
    """Skip the test on versions before *oldest*, which is the first version with *what*."""
    return pytest.mark.skipif(
        not is_at_least(oldest), reason=f"Apache Kafka {VERSION} lacks what came with {oldest}: {what}"
    )


def _parsed(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))
