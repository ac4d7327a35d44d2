"""The ledger on a small repository: the parts that are due, the parts that run, and the contents of a record."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.proof import parts
from tests.proof.__main__ import main
from tests.proof.ledger import RECORDS, Ledger, Sources, Standing
from tests.proof.parts import RUN_BY, Part
from tests.proof.running import counts_in
from tests.proof.table import table

Commit = Callable[[str, str], None]

TABLE = "<!-- proof: begin -->\n<!-- proof: end -->\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a repository with the folders a and b."""
    folder = tmp_path / "repository"
    for name in ("a/one", "b/two", "docs/versions.md", RECORDS, ".gitignore"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text({".gitignore": ".work\n", "docs/versions.md": TABLE}.get(name, ""))
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


@pytest.fixture
def commit(root: Path) -> Commit:
    def change(name: str, text: str) -> None:
        (root / name).write_text(text)
        who = ["-c", "user.name=Test", "-c", "user.email=test@example.com"]
        subprocess.run(["git", "add", "-A"], cwd=root, check=True)
        subprocess.run(["git", *who, "commit", "-qm", "change"], cwd=root, check=True)

    change("a/one", "1")
    return change


def part(case: str, paths: tuple[str, ...], script: str = ":", **changes: Any) -> Part:
    """Return a part that appends its case to a file next to the repository before it runs *script*."""
    command = ("sh", "-c", f"echo {case} >>../ran; {script}")
    return replace(Part("t", case, (), command, paths, minutes=1, risk=1), **changes)


A, B, BOTH = part("a", ("a",)), part("b", ("b",)), part("both", ("a", "b"))


def ran(root: Path) -> list[str]:
    return (root.parent / "ran").read_text().split()


def standings(root: Path, *of: Part) -> list[Standing]:
    ledger = Ledger(root / RECORDS)
    return [ledger.standing(each, Sources(root)) for each in of]


@pytest.mark.behaviour("Package", "A changed file makes exactly those parts of the proof stale that depend on it")
def test_a_changed_tree_makes_exactly_its_parts_stale(root: Path, commit: Commit) -> None:
    assert standings(root, A, B, BOTH) == [Standing.UNPROVEN] * 3
    assert main(["t-*"], [A, B, BOTH], root) == 0
    assert standings(root, A, B, BOTH) == [Standing.PROVEN] * 3
    # Each run has written the table, too, which the part of all tests compares with the records.
    written = table([A, B, BOTH], Ledger(root / RECORDS))
    assert written in (root / "docs/versions.md").read_text()
    commit("docs/versions.md", TABLE.replace("\n", "\nanother table\n", 1))
    assert standings(root, A, B, BOTH) == [Standing.PROVEN] * 3
    assert main(["--stale"], [A, B, BOTH], root) == 0
    commit("a/one", "2")
    assert standings(root, A, B, BOTH) == [Standing.STALE, Standing.PROVEN, Standing.STALE]
    assert main(["--stale"], [A, B, BOTH], root) == 1
    # The former content is already proven.
    commit("a/one", "1")
    assert standings(root, A, B, BOTH) == [Standing.PROVEN] * 3
    assert standings(root, part("a", ("a",), "true")) == [Standing.STALE], "another command"


def test_files_of_some_groups_make_no_others_stale(root: Path, commit: Commit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RUN_BY, "a/broker", ("broker",))
    broker = replace(A, group="broker")
    commit("a/broker", "1")
    assert main(["*"], [A, broker], root) == 0
    commit("a/broker", "2")
    assert standings(root, A, broker) == [Standing.PROVEN, Standing.STALE]


@pytest.mark.behaviour("Package", "An interrupted run of the proof resumes with the part that it was in")
def test_an_interrupted_run_resumes(root: Path, commit: Commit) -> None:
    interrupts = part("c", ("b",), "mkdir ../again && { kill -INT $PPID; exec sleep 60; } || true", minutes=2)
    chosen = [part("d", ("b",), minutes=3), interrupts, A]
    with pytest.raises(KeyboardInterrupt):
        main(["--minutes", "20"], chosen, root)
    assert standings(root, *chosen) == [Standing.UNPROVEN, Standing.UNPROVEN, Standing.PROVEN]
    assert main(["--minutes", "20"], chosen, root) == 0
    assert ran(root) == ["a", "c", "c", "d"]
    assert standings(root, *chosen) == [Standing.PROVEN] * 3


def test_the_riskiest_parts_that_fit_run_first(root: Path, commit: Commit, capsys: pytest.CaptureFixture[str]) -> None:
    long, late = part("long", ("a",), minutes=11), part("late", ("a",), risk=3)
    assert main(["--minutes", "10"], [late, long, A], root) == 0
    assert ran(root) == ["a", "late"]
    assert "t-long: left for another time" in capsys.readouterr().out
    assert main(["--stale"], [late, A], root) == 0


@pytest.mark.behaviour("Package", "A red part of the proof stays due until it has passed")
def test_a_red_part_is_due_until_it_passes(root: Path, commit: Commit, capsys: pytest.CaptureFixture[str]) -> None:
    red = part("red", ("a",), "echo FAILED tests/test_it.py::test_it - no; exit 3")
    assert main(["t-red"], [red], root) == 1
    capsys.readouterr()
    assert main(["--stale"], [red], root) == 1
    assert "exit code 3, tests/test_it.py::test_it" in capsys.readouterr().out
    late = part("late", ("a",), "exec sleep 60", minutes=-2)
    assert main(["t-late"], [late], root) == 1, "its time is over at once"
    assert standings(root, red, late) == [Standing.UNPROVEN, Standing.RED], "a part that is no more has no record"


def test_a_test_that_failed_once_needs_a_cause(root: Path, commit: Commit) -> None:
    line = "2026-11-29 01:02:03 tests/test_it.py::test_it [call] E   assert 1 == 2"
    once = part("once", ("a",), f"mkdir -p .work; mkdir ../once && echo '{line}' >>.work/failed_once.txt || true")
    assert main(["t-once"], [once], root) == 1
    assert standings(root, once) == [Standing.RED]
    assert main(["t-once"], [once], root) == 1, "another run does not make it undone"
    records = root / RECORDS
    records.write_text(records.read_text().replace('assert 1 == 2": ""', 'assert 1 == 2": "the clock"'))
    assert standings(root, once) == [Standing.PROVEN]
    assert main(["t-once"], [once], root) == 0


def test_docstrings_and_comments_are_judged_by_parts_of_prose(root: Path, commit: Commit) -> None:
    code, prose = part("code", ("a",)), part("prose", ("a", "docs"))
    source = '"""First."""\n\nX = """\n\n# a"""  # b\n# c\n'
    source += '\n\nclass C:\n    """One\n    more."""\n\n    def f(self): "Short."\n'
    commit("docs/page.md", "prose")
    commit("a/code.py", source)
    assert main(["t-*"], [code, prose], root) == 0
    commit("a/code.py", source.replace("First", "Another").replace("\n    more", "").replace("# c", "# d\n# e"))
    assert standings(root, code, prose) == [Standing.PROVEN, Standing.STALE]
    for other in (
        "X = 2",
        "X = 3",
        '"""First."""; X = 2',
        '"""First."""; X = 3',
        source.replace("\n# a", "\n# b"),
        source.replace("# b", "# c"),
        source.replace("Short", "Long"),
    ):
        commit("a/code.py", other)
        assert standings(root, code) == [Standing.STALE]


def test_a_page_counts_by_its_blocks_of_code(root: Path, commit: Commit) -> None:
    runs = part("runs", ("a", "docs/page.md"))
    commit("docs/page.md", "Run this:\n\n```sh\nls\n```\n\n* And:\n\n  ```sh\n  cd\n  ```\n")
    assert main(["t-runs"], [runs], root) == 0
    commit("docs/page.md", "Run:\n\n```sh\nls\n```\n\n* Then:\n\n  ```sh\n  cd\n  ```\n")
    assert standings(root, runs) == [Standing.PROVEN]
    commit("docs/page.md", "Run:\n\n```sh\nls\n```\n\n* Then:\n\n  ```sh\n  cd ..\n  ```\n")
    assert standings(root, runs) == [Standing.STALE]


def test_a_record_is_of_one_commit(root: Path, commit: Commit, capsys: pytest.CaptureFixture[str]) -> None:
    changes = part("changes", ("a",), "echo 3 >b/new")
    assert main(["t-changes"], [changes], root) == 2
    assert main(["t-a"], [A], root) == 2
    assert "commit first, because a record is of a commit; changed: b/new" in capsys.readouterr().err
    assert standings(root, A, changes) == [Standing.UNPROVEN] * 2
    with pytest.raises(ValueError, match="c has no file in commit"):
        main(["--list"], [part("typo", ("c",)), A], root)
        Sources(root).tree_of(part("typo", ("c",)))


def test_a_record_has_counts_and_versions(root: Path, commit: Commit) -> None:
    says = r"printf 'platform linux -- Python 3.12.1, pytest\nPySpark 4.0.5\n== 2 passed, 1 skipped in 1.23s ==\n'"
    assert main(["t-says"], [part("says", ("a",), says, kafka="4.3.0")], root) == 0
    record = Ledger(root / RECORDS).get(part("says", ()))
    assert record is not None
    assert record.counts == {"passed": 2, "skipped": 1}
    assert record.versions == {"python": "3.12.1", "spark": "4.0.5", "kafka": "4.3.0"}
    missing = part("missing", ("a",), "echo 'kgo: skipped: it needs Go'")
    assert main(["t-missing"], [missing], root) == 0
    assert standings(root, missing) == [Standing.CANNOT_RUN]
    assert Ledger(root / RECORDS).why(missing) == "it needs Go"


@pytest.mark.parametrize("group", ["browser", "kerberos"])
def test_tests_that_lack_a_program_are_not_run(root: Path, commit: Commit, group: str) -> None:
    reason = {"browser": "no browser: no package", "kerberos": "Kerberos: missing kinit"}[group]
    lacks = next(each.lacks for each in parts.PARTS if each.group == group)
    says = f"echo 'SKIPPED [2] tests/test_it.py:3: {reason}'; echo '== 5 passed, 2 skipped in 1.23s =='"
    without = part(group, ("a",), says, lacks=lacks)
    assert main([f"t-{group}"], [without], root) == 0
    assert standings(root, without) == [Standing.CANNOT_RUN]
    assert Ledger(root / RECORDS).why(without) == reason


def test_of_two_records_of_a_merge_the_later_one_counts(root: Path, commit: Commit) -> None:
    records = root / RECORDS
    assert main(["t-a"], [A], root) == 0
    later = records.read_text()
    assert '"outcome": "passed"' in later
    earlier = later.replace('"passed"', '"failed"').replace('"date": "20', '"date": "19')
    for text in (earlier + later, later + earlier):
        records.write_text(text)
        assert standings(root, A) == [Standing.PROVEN]


def test_the_table_tells_what_was_not_run(root: Path, commit: Commit) -> None:
    shown = [replace(A, group="yarn"), replace(A, group="fuzz", case="x", command=("false",))]
    without = ("echo", "kubernetes: skipped: no pods")
    shown += [replace(A, group="kubernetes", command=without), replace(A, group="soak")]
    main(["yarn-a", "fuzz-x", "kubernetes-a"], shown, root)
    text = table(shown, Ledger(root / RECORDS))
    assert "| YARN, in both deploy modes (`yarn`) | 1 | 1 passed, 20" in text
    assert "| **fuzz-x failed** |" in text
    assert "(`kubernetes`) | 1 | kubernetes-a not run: no pods |" in text
    assert "(`soak`) | 1 | not run yet |" in text


@pytest.mark.parametrize(
    ("kind", "printed", "counts"),
    [
        (
            "suite",
            "===== 1 failed, 9 passed, 2 rerun in 61.20s (0:01:01) =====",
            {"failed": 1, "passed": 9, "rerun": 2},
        ),
        ("fuzz", "frames   7 cases  0 findings\n1,007 cases, 2 findings, seed 5", {"cases": 1007, "findings": 2}),
        ("exploration", "atomic; 1 drivers: 40 states (all), 1 s\nx: 2 states (bounded), 1 s", {"states": 42}),
        ("suites", "kgo: 5 passed, 1 failed, 0 skipped, 9 s\n  a: KNOWN", {"passed": 5, "failed": 1, "skipped": 0}),
        ("mutation", "x: 3 mutants, 2 killed, 1 survived, 4 s", {"mutants": 3, "killed": 2, "survived": 1}),
        ("chaos", "4 rounds, 43 batches in each of 4 ways", {"rounds": 4, "batches": 43}),
        ("bench", "5 passed", {}),
    ],
)
def test_counts_are_read_from_what_each_tool_prints(kind: str, printed: str, counts: dict[str, int]) -> None:
    of_kind = next(each for each in parts.PARTS if each.group == kind)
    assert counts_in(printed, of_kind.counts) == counts
