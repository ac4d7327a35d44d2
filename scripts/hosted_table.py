"""Writes the table of hosted Sparks into a page: ``python -m scripts.hosted_table docs/versions.md``.

``hosted_sparks.json`` has what the vendors publish: the runtime, its Spark, its Pythons (the first is the default one)
and its packages. Run manually when a vendor publishes a runtime, or kafkalite needs another version; a test checks that
the page is up to date.
"""

from __future__ import annotations

import configparser
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kafka_sink.common.requirements import OLDEST, parse_version
from scripts.pages import print_into

RUNTIMES: Final[tuple[Mapping[str, Any], ...]] = tuple(
    json.loads(Path(__file__).with_name("hosted_sparks.json").read_text(encoding="utf-8"))
)
_PACKAGES: Final = ("pyarrow", "pandas", "numpy")


def hosted_table() -> str:
    """The table in Markdown, in the order of the file."""
    lines = [f"| runtime | Spark | Python | {', '.join(_PACKAGES)} | kafkalite |", "| --- " * 5 + "|"]
    for each in RUNTIMES:
        pins = ", ".join(each["pins"][name] for name in _PACKAGES) if each["pins"] else "not published"
        cells = (each["runtime"], each["spark"] or "not published", ", ".join(each["python"]), pins, _verdict(each))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _verdict(runtime: Mapping[str, Any]) -> str:
    """Return whether pip and the first import accept the runtime, and what to choose or do there."""
    fitting = [each for each in runtime["python"] if parse_version(each) >= _oldest_python()]
    missing = list(_too_old(runtime["pins"])) if fitting else [f"Python before {'.'.join(map(str, _oldest_python()))}"]
    said = [f"refused: {', '.join(missing)}" if missing else "fits" if runtime["pins"] else ""]
    if fitting and fitting[0] != runtime["python"][0]:
        said.append(f"choose Python {fitting[0]}")
    return "; ".join(filter(None, [*said, runtime.get("advice", "")]))


def _too_old(pins: Mapping[str, str]) -> Iterator[str]:
    for package, version in pins.items():
        if package in OLDEST and parse_version(version) < parse_version(OLDEST[package]):
            yield f"{package} before {OLDEST[package]}"


def _oldest_python() -> tuple[int, ...]:
    settings = configparser.ConfigParser()
    settings.read(Path(__file__).parents[1] / "setup.cfg", encoding="utf-8")
    return parse_version(settings["options"]["python_requires"].removeprefix(">="))


if __name__ == "__main__":
    print_into(Path(sys.argv[1]), "hosted Sparks", hosted_table())
