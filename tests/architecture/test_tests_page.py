"""Every test that tests/README.md names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
REFERENCE = re.compile(r"`([\w/]+\.py)?(?:::(test_\w+))?`")


@cache
def names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_every_test_it_names_exists() -> None:
    missing = []
    named = 0
    file = TESTS
    for path, name in REFERENCE.findall((TESTS / "README.md").read_text(encoding="utf-8")):
        if path:
            file = TESTS / path
        if not path and not name:
            continue
        named += 1
        if not file.is_file() or (name and name not in names_in(file)):
            missing.append(f"{path or file.relative_to(TESTS)}::{name}")
    assert missing == []
    assert named > 100
