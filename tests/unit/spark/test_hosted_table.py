"""The page of versions shows the packages of each hosted Spark, compared with the required ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.hosted_table import hosted_table
from scripts.pages import printed

PAGE = Path(__file__).parents[3] / "docs" / "versions.md"


@pytest.mark.behaviour("Package", "The page of hosted Sparks is what vendors publish, compared with what is needed")
def test_the_table_of_hosted_sparks_is_up_to_date() -> None:
    shown = printed(PAGE, "hosted Sparks")
    assert shown.strip() == hosted_table().strip(), "run: python -m scripts.hosted_table docs/versions.md"
    verdicts = {line.split(" | ")[0].removeprefix("| "): line.split(" | ")[-1] for line in shown.splitlines()}
    assert verdicts["AWS Glue 5.1"] == verdicts["Databricks 17.3 LTS"] == "fits |"
    assert verdicts["AWS Glue 5.0"] == "refused: pyarrow before 19.0; take 5.1 |"
    assert verdicts["AWS Glue 4.0"].startswith("refused: Python before 3.11")
