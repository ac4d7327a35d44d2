"""The places where the source runs a program, imports by a name, unpickles, or opens, renames and removes a file: each
is a row of a table with the reason why untrusted input cannot choose the name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kafka_sink.common.text import words
from tests.hostile.places import FORMATS, PLACES

pytestmark = pytest.mark.behaviour("Package", "No name of others becomes a file, an import, a program or a format")

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ("kafka_sink", "pyspark_kafkalite", "spark_jobs")
#: Modules all of whose calls are places, and builtin functions.
MODULES: Final = frozenset(
    words("subprocess tempfile importlib pickle marshal shutil sqlite3 ctypes runpy pty zipfile tarfile")
)
FUNCTIONS: Final = frozenset(words("open eval exec compile __import__ sys.path.insert sys.path.append"))
#: Methods of paths, which count on any object.
METHODS: Final = frozenset(
    words(
        "open read_text read_bytes write_text write_bytes unlink glob rglob iterdir mkdir rmdir rename symlink_to "
        "hardlink_to touch chmod"
    )
)
#: Functions of ``os`` that neither open nor change anything by a name.
HARMLESS: Final = frozenset(
    f"os.{name}"
    for name in words(
        "getpid urandom strerror fspath sysconf register_at_fork getpgrp ctermid get_terminal_size close read write "
        "fsync fstat writev pread ftruncate pipe set_blocking dup2 tcgetpgrp _exit pathsep.join environ.items"
    )
)
LOGGED: Final = frozenset(words("debug info warning error exception critical"))


class Module:
    """The calls in a file, by function."""

    def __init__(self, file: Path) -> None:
        self.name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        self.tree = ast.parse(file.read_text(encoding="utf-8"))
        self.imported: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                self.imported |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
            elif isinstance(node, ast.Import):
                for each in node.names:
                    top = each.name.partition(".")[0]
                    self.imported[each.asname or top] = each.name if each.asname else top

    def places(self) -> Iterator[tuple[str, str]]:
        for function, node in self._nodes(self.tree, ()):
            if isinstance(node, ast.Call) and (called := self._place(node)):
                yield f"{self.name}:{function}", called
            elif (
                isinstance(node, ast.Subscript)
                and isinstance(node.ctx, ast.Store | ast.Del)
                and self._dotted(node.value) == "os.environ"
            ):
                yield f"{self.name}:{function}", "os.environ[…] ="

    def formats(self) -> Iterator[tuple[str, str]]:
        """Yield formats, patterns and log messages that are no constants."""
        for function, node in self._nodes(self.tree, ()):
            if not isinstance(node, ast.Call):
                continue
            if self._dotted(node.func) == "kafka_sink.common.log_context.warn" and not isinstance(
                node.args[1], ast.Constant
            ):
                yield f"{self.name}:{function}", "warn"
            if not isinstance(node.func, ast.Attribute):
                continue
            owner, first = ast.unparse(node.func.value), node.args[0] if node.args else None
            is_format = node.func.attr == "format" and not isinstance(node.func.value, ast.Constant)
            is_log = node.func.attr in LOGGED and "log" in owner.lower() and not isinstance(first, ast.Constant)
            is_pattern = owner == "re" and node.func.attr != "escape" and not isinstance(first, ast.Constant)
            if is_format or (first is not None and (is_log or is_pattern)):
                yield f"{self.name}:{function}", f"{owner.rpartition('.')[2]}.{node.func.attr}"

    def _nodes(self, node: ast.AST, inside: tuple[str, ...]) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            yield ".".join(inside) or "module", child
            is_named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            yield from self._nodes(child, (*inside, child.name) if is_named else inside)  # type: ignore[attr-defined]

    def _place(self, call: ast.Call) -> str | None:
        called = self._dotted(call.func)
        first, _, rest = called.partition(".")
        last = called.rpartition(".")[2]
        if called == "os.environ.get":
            return None if call.args and isinstance(call.args[0], ast.Constant) else called
        if called in FUNCTIONS or (first in MODULES and rest) or (first == "os" and rest and called not in HARMLESS):
            return called
        return f".{last}" if rest and last in METHODS and first != "os" else None

    def _dotted(self, function: ast.expr) -> str:
        if isinstance(function, ast.Name):
            return self.imported.get(function.id, function.id)
        return f"{self._dotted(function.value)}.{function.attr}" if isinstance(function, ast.Attribute) else "…"


def found(kind: str) -> dict[str, str]:
    calls: dict[str, set[str]] = defaultdict(set)
    for top in SOURCES:
        for file in (ROOT / top).rglob("*.py"):
            for function, called in getattr(Module(file), kind)():
                calls[function].add(called)
    return {function: " ".join(sorted(called)) for function, called in sorted(calls.items())}


def test_every_place_has_a_row_that_says_why_it_is_safe() -> None:
    assert found("places") == {function: calls for function, (calls, _) in PLACES.items()}


def test_every_format_pattern_and_log_text_is_ours() -> None:
    assert found("formats") == {function: calls for function, (calls, _) in FORMATS.items()}


def test_every_reason_is_a_sentence() -> None:
    assert all(len(reason.split()) > 3 for _, reason in (*PLACES.values(), *FORMATS.values()))
