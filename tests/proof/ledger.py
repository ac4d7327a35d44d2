"""The records of the parts, a line each, and their validity for the sources.

A record belongs to the trees of one commit: its part is proven as long as none of the files that it depends on has
changed, by Git's hashes, whatever else was committed. Only code runs: a Python file in which docstrings and comments
have changed, and a page in which no block of code has, counts as unchanged, except for parts that check prose.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Final

from tests.proof.parts import RUN_BY, Part

RECORDS: Final = "tests/proof/records.jsonl"
#: A block of code in a page.
_BLOCK: Final = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
#: Files and folders that are generated from results, so that no part depends on them.
WRITTEN: Final = (RECORDS, "tests/bench/results/", "tests/ways.json", "tests/figures.json", "docs/versions.md")


@dataclass(frozen=True)
class Record:
    """The result of the last run of the *part* of this name, on these *trees*.

    *outcome* is passed, failed, or cannot run (on that *machine*, for the *reason*). *failed_once* has the tests that
    passed when they were repeated, each with its cause, which is empty until a developer enters it.
    """

    part: str
    outcome: str
    command: str
    trees: str
    commit: str
    date: str
    seconds: int
    counts: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""
    reason: str = ""
    failed_once: Mapping[str, str] = field(default_factory=dict)


class Standing(Enum):
    """The validity of a part's record for the current sources; the values are printed."""

    PROVEN = "proven"
    RED = "red"
    STALE = "stale"
    UNPROVEN = "never run"
    CANNOT_RUN = "not run"

    @property
    def is_due(self) -> bool:
        """Return whether the part must run before a release."""
        return self in (Standing.RED, Standing.STALE, Standing.UNPROVEN)


class Sources:
    """The files of the commit that is checked out in *root*."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files = {
            name: line
            for line in self._git("ls-tree", "-r", "HEAD").splitlines()
            if not (name := line.partition("\t")[2]).startswith(WRITTEN)
        }

    @property
    def commit(self) -> str:
        return self._git("rev-parse", "--short=12", "HEAD").strip()

    @cached_property
    def _without_prose(self) -> dict[str, str]:
        """Return the same lines, with the hash of the code for Python files and pages."""
        names = [name for name in self._files if name.endswith((".py", ".md"))]
        contents = self._contents([self._files[name].split()[2] for name in names])
        return self._files | {
            name: f"{name} {hashlib.sha256(code_of(name, text).encode()).hexdigest()}"
            for name, text in zip(names, contents, strict=True)
        }

    def names_of(self, part: Part) -> list[list[str]]:
        """Return for each path of *part* the names of the files at and below it, without those that only other groups
        run.

        :raises ValueError: if one of the paths has no file.
        """
        names = sorted(name for name in self._files if part.group in RUN_BY.get(name, (part.group,)))
        found = []
        for path in part.paths:
            # "0" follows "/", so these two enclose the names in the folder.
            below = names[bisect_left(names, f"{path}/") : bisect_left(names, f"{path}0")]
            found.append([path] if path in self._files else below)
            if not found[-1]:
                raise ValueError(
                    f"{path} has no file in commit {self.commit}: correct the paths in tests/proof/parts.py"
                )
        return found

    def tree_of(self, part: Part) -> str:
        """Return the hash of all files in :meth:`names_of` *part*.

        :raises ValueError: if one of the paths has no file.
        """
        digest, files = hashlib.sha256(), self._files if part.judges_prose else self._without_prose
        for names in self.names_of(part):
            digest.update("\n".join(files[name] for name in names).encode())
        return digest.hexdigest()[:16]

    def changed(self) -> list[str]:
        """Return the files that differ from the commit, except those in :data:`WRITTEN`."""
        status = self._git("status", "--porcelain", "--untracked-files=all", "--no-renames")
        return [name for name in (line[3:].strip('"') for line in status.splitlines()) if not name.startswith(WRITTEN)]

    def _contents(self, blobs: Sequence[str]) -> Iterator[str]:
        command = ["git", "cat-file", "--batch"]
        asked = "".join(f"{blob}\n" for blob in blobs).encode()
        told = BytesIO(subprocess.run(command, cwd=self._root, check=True, capture_output=True, input=asked).stdout)
        for _ in blobs:
            # The line has the hash, the type and the size; a line feed follows the content.
            size = int(told.readline().split()[2])
            yield told.read(size + 1)[:-1].decode()

    def _git(self, *arguments: str) -> str:
        command = ["git", "-c", "core.quotePath=off", *arguments]
        return subprocess.run(command, cwd=self._root, check=True, capture_output=True, text=True).stdout


def code_of(name: str, text: str) -> str:
    """Return the code in the *text* of the file *name*: Python without docstrings and comments, or a page's blocks."""
    if name.endswith(".md"):
        return "\n".join(_BLOCK.findall(text))
    lines = text.removesuffix("\n").split("\n")
    tree = ast.parse(text)
    of_code = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    prose = comment_lines(lines, tree)
    for node in ast.walk(tree):
        if isinstance(node, of_code) and ast.get_docstring(node):
            docstring, *others = node.body
            # A docstring with code on its lines stays, with the code.
            is_alone = not lines[docstring.lineno - 1][: docstring.col_offset].strip()
            if is_alone and all(other.lineno > (docstring.end_lineno or 0) for other in others[:1]):
                prose.update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return "\n".join(line for number, line in enumerate(lines, 1) if number not in prose)


def comment_lines(lines: Sequence[str], tree: ast.Module) -> set[int]:
    """Return the numbers, from 1 on, of those of a module's *lines* that are comments."""
    comments = {number for number, line in enumerate(lines, 1) if line.lstrip().startswith("#")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr):
            # A line of a string may look like a comment.
            comments.difference_update(range(node.lineno + 1, (node.end_lineno or 0) + 1))
    return comments


class Ledger:
    """The records in the file at *path*. A merge may duplicate a part's record; the latest one is used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        records = sorted((Record(**json.loads(line)) for line in lines), key=lambda each: each.date)
        self._records = {each.part: each for each in records}

    def get(self, part: Part) -> Record | None:
        return self._records.get(part.name)

    def add(self, record: Record, parts: Iterable[Part]) -> None:
        """Replace the record of the same part with *record*, but keep its failures without a cause; remove the records
        of all but *parts*."""
        before = self._records.get(record.part)
        open_ones = {test: cause for test, cause in before.failed_once.items() if not cause} if before else {}
        self._records[record.part] = Record(**{**asdict(record), "failed_once": open_ones | {**record.failed_once}})
        names = {part.name for part in parts}
        self._records = {name: each for name, each in sorted(self._records.items()) if name in names}
        lines = [json.dumps(asdict(each), ensure_ascii=False) for each in self._records.values()]
        # After an interrupt here, the file is the old one or the new one.
        fresh = self._path.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        fresh.replace(self._path)

    def standing(self, part: Part, sources: Sources) -> Standing:
        record = self.get(part)
        if record is None:
            return Standing.UNPROVEN
        if record.trees != sources.tree_of(part) or record.command != " ".join(part.command):
            return Standing.STALE
        if record.outcome == "failed" or not all(record.failed_once.values()):
            return Standing.RED
        return Standing.PROVEN if record.outcome == "passed" else Standing.CANNOT_RUN

    def why(self, part: Part) -> str:
        """Return the reason why *part* is red, or cannot run."""
        record = self.get(part)
        if record is None:
            return ""
        return record.reason or "; ".join(
            f"failed once, without a cause: {test}" for test, cause in record.failed_once.items() if not cause
        )
