"""The table of parts: every promise, and every program that can run, belongs to a part."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.pages import printed
from tests.exploration.explore import worlds
from tests.hostile.fuzz import GROUPS
from tests.mutation.targets import TARGETS
from tests.proof import table
from tests.proof.__main__ import PAGE
from tests.proof.ledger import RECORDS, Ledger, Sources
from tests.proof.parts import PARTS, ROOT, RUN_BY, kafka_versions
from tests.suites.__main__ import SUITES
from tests.support import by_parts
from tests.support.wings import Imports

#: Sections of pages without a promise that a part could prove automatically.
NO_PROMISES = {
    "README.md#install",
    "SECURITY.md#reporting-a-vulnerability",
    "SECURITY.md#installations-by-the-scripts",
    "docs/versions.md#hosted-sparks",
    "docs/versions.md#dependencies-and-licences",
    "docs/versions.md#proof",
}

#: Group → the program that its commands run.
PROGRAMS = {
    "exploration": "tests.exploration.explore",
    "chaos": "tests.chaos.run",
    "soak": "tests.spark.soak",
    "hosts": "tests.hosts.run",
    "yarn": "tests.spark.test_yarn",
    "kubernetes": "tests.spark.test_kubernetes",
    "matrix": "tests.matrix.test_matrix",
}


def cases(group: str) -> list[str]:
    return [part.case for part in PARTS if part.group == group]


def sections(page: str) -> set[str]:
    headings = re.findall(r"^## (.*)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    return {f"{page}#{re.sub(r'[^a-z0-9]+', '-', heading.lower()).strip('-')}" for heading in headings}


def test_each_promise_is_proven_by_a_part() -> None:
    proven = {promise for part in PARTS for promise in part.proves}
    pages = ("README.md", "SECURITY.md", "docs/versions.md")
    promises = {section for page in pages for section in sections(page)} | {"docs/upgrading.md#promises-of-a-version"}
    assert proven | NO_PROMISES == promises
    assert "docs/upgrading.md#promises-of-a-version" in sections("docs/upgrading.md")


def test_parts_depend_on_what_there_is() -> None:
    sources = Sources(ROOT)
    assert len({part.name for part in PARTS}) == len(PARTS)
    assert all(sources.names_of(part) for part in PARTS)


def test_parts_are_all_that_can_be_run() -> None:
    assert tuple(cases("kafka")) == kafka_versions()
    assert set(cases("fuzz")) == GROUPS.keys() | {"java"}
    assert cases("suites") == list(SUITES)
    mutated = [case for case in cases("mutation") if not case.startswith("log-")]
    assert mutated == [target for target in TARGETS if target != "log"]
    workflow = (ROOT / ".github" / "workflows" / "checks.yml").read_text()
    sparks = re.findall(r'spark: "(.*)", python: "(.*)"', workflow)
    assert cases("spark") == [f"{spark}-python-{python}" for spark, python in sparks]
    classifiers = re.findall(r"Python :: (3\.\d+)$", (ROOT / "setup.cfg").read_text(), re.MULTILINE)
    assert cases("suite") == classifiers
    commands = re.findall(r"^    ([a-z-]+)\)$", (ROOT / "scripts" / "bench.sh").read_text(), re.MULTILINE)
    assert {part.command[1] for part in PARTS if part.group == "bench"} == {*commands} - {"jars", "report", "profile"}
    assert set(table.GROUPS) == {part.group for part in PARTS}


def test_each_world_is_explored_by_one_part() -> None:
    texts = [part.command[-1] for part in PARTS if part.group == "exploration"]
    assert {sum(text in str(scope) for text in texts) for scope in worlds()} == {1}


def test_each_module_of_the_log_is_mutated_by_one_part() -> None:
    texts = [part.command[-1] for part in PARTS if part.name.startswith("mutation-log")]
    modules = [path.stem for path in (ROOT / "kafka_sink" / "broker" / "log").glob("*.py") if path.stem != "__init__"]
    assert sorted(texts) == sorted(f".broker.log.{module}:" for module in modules)


def test_tests_left_to_parts_are_run_by_them() -> None:
    for left in by_parts.LEFT:
        file = ROOT / "tests" / left.file
        case = left.file.partition("/")[0] if left.group == "long" else None
        parts = [part for part in PARTS if part.group == left.group and case in (None, part.case)]
        assert parts and all(is_below(file, part.paths) for part in parts), left
        tests = re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
        assert all(any(test.startswith(name.partition("[")[0]) for test in tests) for name in left.names), left


def test_only_runs_of_all_tests_leave_tests_out() -> None:
    """``--long`` leaves no test out, and a part none of those that are left to its group."""
    tests = (ROOT / "scripts" / "test.sh").read_text()
    of_matrix = re.findall(r"tests/[\w/]+(?:\.py)?", tests[tests.index("matrix=(-n 0") : tests.index("--suites) run")])
    folders = {"kafka": ["tests/compat"], "broker": ["tests/compat"], "matrix": of_matrix, "spark": ["tests/spark"]}
    left_to = {"broker": {"kafka"}, "matrix": {"kafka", "matrix"}}
    for part in PARTS:
        if part.group in RUN_BY["tests/support/by_parts.py"] or "--long" in part.command:
            continue
        program = PROGRAMS.get(part.group, "none").replace(".", "/")
        run = [*folders.get(part.group, []), f"{program}.py", *(word for word in part.command if "tests/" in word)]
        run += TARGETS[part.command[3]].tests if part.group == "mutation" else ()
        for left in by_parts.LEFT:
            is_run = is_below(ROOT / "tests" / left.file, run)
            assert not is_run or left.group in left_to.get(part.group, {part.group}), (part.name, left)


def test_the_page_of_tests_has_those_left_to_parts() -> None:
    said = printed(by_parts.PAGE, by_parts.NAME).strip()
    assert said == by_parts.table().strip(), "run python -m tests.support.by_parts"


def test_paths_of_a_part_have_what_its_program_imports() -> None:
    imports = Imports(ROOT)
    for group, program in PROGRAMS.items():
        part = next(part for part in PARTS if part.group == group)
        reached = {imports.files[name] for name in imports.closure({program}) if name in imports.files}
        # A part's paths have entire wings of the package.
        files = {path for path in reached if path.name != "__init__.py" and not is_below(path, ["kafka_sink/broker"])}
        assert [path for path in sorted(files) if not is_below(path, part.paths)] == [], group


def is_below(path: Path, folders: list[str] | tuple[str, ...]) -> bool:
    name = path.relative_to(ROOT).as_posix()
    return any(name == folder or name.startswith(f"{folder}/") for folder in folders)


def test_page_has_the_table_of_the_records() -> None:
    assert printed(ROOT / PAGE, "proof").strip() == table.table(PARTS, Ledger(ROOT / RECORDS)).strip()
