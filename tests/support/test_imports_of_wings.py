"""Which tests a change in a wing can break, in a small tree of sources and in this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.wings import ROOT, files_of

SOURCES = {
    "kafka_sink/__init__.py": """
if TYPE_CHECKING:
    from kafka_sink.broker.cluster import Cluster

def register():
    from kafka_sink.spark.source import Source
""",
    "kafka_sink/common/clock.py": "",
    "kafka_sink/broker/cluster.py": "from kafka_sink.common.clock import Clock\n",
    "kafka_sink/spark/source.py": "from kafka_sink.common import clock\n",
    "kafka_sink/cli/main.py": "def run():\n    from kafka_sink.spark.source import Source\n",
    "pyspark_kafkalite/__init__.py": "from kafka_sink.spark.source import Source\n",
    "tests/conftest.py": "@pytest.fixture\ndef session():\n    from kafka_sink.spark.source import Source\n",
    "tests/support/helper.py": "from kafka_sink.broker.cluster import Cluster\n",
    "tests/test_base.py": "from kafka_sink.common.clock import Clock\n",
    "tests/test_exported.py": "from kafka_sink import Cluster\n",
    "tests/test_called.py": "from kafka_sink import register\n",
    "tests/test_helped.py": "from tests.support import helper\n",
    "tests/test_typed.py": "if TYPE_CHECKING:\n    from kafka_sink.broker.cluster import Cluster\n",
    "tests/test_fixture.py": "def test_it(session): ...\n",
    "tests/test_session.py": "def test_it(spark): ...\n",
    "tests/test_named.py": 'patch("kafka_sink.cli.main.run")\n',
    "tests/test_script.py": 'run("scripts/demo.sh")\n',
    "tests/architecture/test_rules.py": "",
}
OF_ALL = ["architecture/test_rules", "test_script"]
OF_WINGS = {
    "tools": ["test_named"],
    "broker": ["test_exported", "test_helped"],
    "sink": ["test_called", "test_fixture", "test_named", "test_session"],
    "base": ["test_base", "test_called", "test_exported", "test_fixture", "test_helped", "test_named", "test_session"],
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "setup.cfg").write_bytes((ROOT / "setup.cfg").read_bytes())
    return tmp_path


def test_what_a_test_imports_decides_about_its_wings(tree: Path) -> None:
    found = files_of(tree)
    for wing, names in OF_WINGS.items():
        assert sorted(found[wing]) == [f"tests/{name}.py" for name in sorted([*OF_ALL, *names])], wing


def test_tests_of_this_tree_belong_to_their_wings() -> None:
    found = {wing: set(files) for wing, files in files_of().items()}
    assert [wing for wing in found if "tests/unit/columns/test_varint.py" in found[wing]] == ["base"]
    assert "tests/unit/broker/test_acls.py" in found["broker"] - found["sink"] - found["tools"]
    assert "tests/exploration/test_exploration.py" in found["sink"]
    assert "tests/unit/cli/test_main.py" in found["tools"]
