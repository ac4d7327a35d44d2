"""What setup.cfg says about the package is what lies in the tree."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

import kafka_sink

ROOT = Path(__file__).parents[2]
PACKAGES = ("kafka_sink", "pyspark_kafkalite")


def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def test_every_package_is_found() -> None:
    """A folder of modules without __init__.py would be missing from the wheel."""
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []
    assert setup_cfg()["options.packages.find"]["include"].split() == [
        "kafka_sink",
        "kafka_sink.*",
        "pyspark_kafkalite",
    ]


@pytest.mark.behaviour("Package", "pip never lays a PySpark over the one that a hosted Spark brings")
def test_pyspark_is_an_extra_but_its_arrow_needs_are_not() -> None:
    required = {re.split(r"[<>=]", line, maxsplit=1)[0] for line in setup_cfg()["options"]["install_requires"].split()}
    assert {"pyarrow", "pandas"} <= required
    assert "pyspark" not in required
    assert setup_cfg()["options.extras_require"]["spark"].split() == ["pyspark>=3.5,<5"]


def test_version_is_told_by_the_package() -> None:
    assert kafka_sink.__version__ == setup_cfg()["metadata"]["version"]


def test_only_the_tested_system_is_named() -> None:
    metadata = setup_cfg()["metadata"]
    systems = [line for line in metadata["classifiers"].split("\n") if line.startswith("Operating System")]
    assert (metadata["platforms"], systems) == ("Linux", ["Operating System :: POSIX :: Linux"])
