"""Files that share resources with a long start-up run in one process."""

from __future__ import annotations

import re

import pytest

from tests.support.scheduling import ROOT, group


@pytest.mark.parametrize(("folder", "fixture"), [("spark", "spark"), ("compat", "real_kafka")])
def test_files_that_share_a_fixture_of_the_run_share_a_process(folder: str, fixture: str) -> None:
    files = sorted((ROOT / "tests" / folder).glob("test_*.py"))
    users = [file for file in files if re.search(rf"^def test_.*\n?.*\b{fixture}: ", file.read_text(), re.MULTILINE)]
    assert len(users) > 3
    assert len({group(str(file.relative_to(ROOT))) for file in users}) == 1


def test_the_matrix_uses_the_session_of_other_spark_tests() -> None:
    assert group("tests/matrix/test_matrix.py") == group("tests/spark/test_batch_write.py")
