"""What setup.cfg says about the package is what lies in the tree."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def test_every_package_is_shipped() -> None:
    listed = setup_cfg()["options"]["packages"].split()
    in_tree = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "kafka_sink").rglob("__init__.py")
        if "_autoload" not in path.parts
    }
    assert listed == [*sorted(in_tree), "pyspark_kafkalite"]


def test_spark_finds_the_sink_by_its_module_name() -> None:
    name, _, folder = setup_cfg()["options"]["package_dir"].strip().partition(" = ")
    # Spark imports the top-level modules with this prefix and takes their DefaultSource.
    assert name.startswith("pyspark_")
    assert (ROOT / folder / "__init__.py").is_file()


def test_install_requires_what_pyspark_arrow_functions_need() -> None:
    required = {re.split(r"[<>=]", line, maxsplit=1)[0] for line in setup_cfg()["options"]["install_requires"].split()}
    assert {"pyspark", "pyarrow", "pandas"} <= required


def test_only_systems_that_can_run_it_are_named() -> None:
    metadata = setup_cfg()["metadata"]
    systems = re.findall(r"Operating System :: (?:POSIX :: )?(\w+)", metadata["classifiers"])
    assert sorted(metadata["platforms"].split()) == ["Linux", "macOS"]
    assert sorted(systems) == ["Linux", "MacOS"]
