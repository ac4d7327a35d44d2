"""setup.cfg and pyproject.toml name every package that is imported, directly and not as a dependency of another
package, in the extra or group that needs it."""

from __future__ import annotations

import ast
import configparser
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.support.cases import with_each

ROOT = Path(__file__).parents[2]
#: The last one is a file of spark_jobs, which lies in the same folder as the jobs that import it.
OURS = {"kafka_sink", "scripts", "pyspark_kafkalite", "tests", "job_arguments"}
#: Known to type checkers only.
TYPES = {"_typeshed"}
#: The package that provides a module, where several packages share the name.
SHARED = {"google": ["protobuf"]}
#: Required but not imported: PySpark refuses its functions with Arrow without it.
NOT_IMPORTED = {"pandas"}
#: Imported only by files that other programs run: pytest its plugin, a suite its programs in environments of their own.
ELSEWHERE = {
    ("kafka_sink/testing/plugin.py", "pytest"),
    ("tests/suites/sources/counting_faust.py", "faust"),
    ("tests/suites/sources/counting_quix.py", "quixstreams"),
}


def names(requirements: str) -> set[str]:
    """The names of the packages on the lines of *requirements*, without versions and extras."""
    lines = (line.strip() for line in requirements.splitlines())
    return {normal(re.split(r"[^\w.-]", line, maxsplit=1)[0]) for line in lines if line and not line.startswith("#")}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def group(name: str) -> list[str]:
    """The requirements of a group in pyproject.toml, including those of the groups that it includes."""
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"][name]
    return [line for each in entries for line in ([each] if isinstance(each, str) else group(each["include-group"]))]


def named(*extras: str, groups: Sequence[str] = ()) -> set[str]:
    """The packages that an installation with these extras and groups requires directly."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    options = [parser["options.extras_require"][extra] for extra in extras] + [
        "\n".join(group(each)) for each in groups
    ]
    return names(parser["options"]["install_requires"]).union(*map(names, options))


@cache
def imports(path: Path) -> frozenset[str]:
    """The top-level third-party modules that a file imports anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            found.add(node.module.partition(".")[0])
    return frozenset(found - OURS - TYPES - sys.stdlib_module_names)


def imported(folder: str) -> Iterator[tuple[str, str]]:
    """Each package that a file of *folder* imports, as (file, package)."""
    packages = packages_distributions()
    for path in sorted((ROOT / folder).rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        for module in imports(path):
            if (file, module) not in ELSEWHERE:
                yield from ((file, normal(package)) for package in SHARED.get(module, packages.get(module, [module])))


@with_each(
    ("folder", "extras", "groups"),
    [
        (
            "kafka_sink",
            ("spark", "avro", "registry", "protobuf", "keystores", "msk", "kerberos", "openlineage", "ui"),
            (),
        ),
        ("pyspark_kafkalite", ("spark",), ()),
        ("scripts", ("spark",), ("test",)),
        ("spark_jobs", ("spark",), ("demo",)),
        ("tests", ("kerberos",), ("test",)),
    ],
)
def test_every_imported_package_is_named(folder: str, extras: tuple[str, ...], groups: tuple[str, ...]) -> None:
    allowed = named(*extras, groups=groups)
    assert [(file, package) for file, package in imported(folder) if package not in allowed] == []


def test_benchmarks_need_no_package_of_the_tests() -> None:
    allowed = named("spark", groups=["bench"])
    found = [
        (file, package)
        for file, package in imported("tests/bench")
        if not Path(file).name.startswith("test_") and package not in allowed
    ]
    assert found == []


def test_every_required_package_is_imported() -> None:
    assert named() - {package for _, package in imported("kafka_sink")} == NOT_IMPORTED


def test_environment_for_clusters_has_what_setup_cfg_requires() -> None:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = [*parser["options"]["install_requires"].split(), *group("test")]
    packed = re.findall(r'"(\S+[<>=]\S+)"', (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8"))
    assert set(packed) <= set(lines)
    assert names("\n".join(packed)) == named() | {"venv-pack"}


def test_each_package_of_users_has_its_licence_on_the_page() -> None:
    extras = configparser.ConfigParser()
    extras.read(ROOT / "setup.cfg", encoding="utf-8")
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8").partition("## Dependencies and licences")[2]
    listed = {normal(name) for name in re.findall(r"^\| ([\w-]+) \| (?:always|`\[)", page, re.MULTILINE)}
    assert listed == named(*extras["options.extras_require"])
