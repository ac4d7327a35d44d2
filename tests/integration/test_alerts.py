"""The alert rules in ``examples/``: they ask for what is exported, have a runbook, and fire when they should."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kafka_sink.common.exposition import prometheus_name
from scripts.metric_table import SECTIONS, metric_tables
from scripts.pages import printed
from tests.support.command_line import run_command

ROOT = Path(__file__).parents[2]
RULES = ROOT / "examples" / "alerts.yml"
CASES = Path(__file__).with_name("alerts_test.yml")
PROMTOOL = shutil.which("promtool")


def alerts() -> dict[str, str]:
    """Alert → its rule's text."""
    _, *rules = RULES.read_text().split("- alert: ")
    return {rule.partition("\n")[0]: rule for rule in rules}


@pytest.mark.behaviour("Metrics", "The page of metrics and their HELP are one table, and every metric is in it")
def test_the_page_of_metrics_is_the_table() -> None:
    shown = printed(ROOT / "docs" / "metrics.md", "metrics")
    assert shown.strip() == metric_tables().strip(), "python -m scripts.metric_table docs/metrics.md"
    meanings = [family.meaning for _, families in SECTIONS.values() for family in families]
    assert all(text.endswith(".") and "\n" not in text and "|" not in text for text in meanings)


@pytest.mark.behaviour("Metrics", "Every alert asks for what is exported, has a runbook, and a case in which it fires")
def test_every_alert_has_metrics_a_runbook_and_a_case() -> None:
    exported = {prometheus_name(family) for _, families in SECTIONS.values() for family in families}
    headings = set(re.findall(r"^### (\w+)$", (ROOT / "docs" / "monitoring.md").read_text(), re.MULTILINE))
    cases = set(re.findall(r'alertname="(\w+)"', CASES.read_text()))
    assert set(alerts()) == cases == {each for each in headings if each.startswith("Kafkalite")}
    for name, rule in alerts().items():
        assert set(re.findall(r"kafka_\w+", rule)) <= exported, name
        assert f"runbook: monitoring.md#{name.lower()}\n" in rule


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool: the system's package prometheus is not installed")
@pytest.mark.behaviour("Metrics", "Prometheus' own tool accepts the alerts, and each fires once")
def test_each_alert_fires_for_what_it_is_for() -> None:
    for command in (["check", "rules", str(RULES)], ["test", "rules", str(CASES)]):
        done = subprocess.run([str(PROMTOOL), *command], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.behaviour("Package", "Alert rules, dashboard, settings and notebooks come with the package")
def test_files_are_listed_and_printed() -> None:
    listed = [line.split()[0] for line in run_command(["files"]).stdout.splitlines()]
    assert set(listed) == {each.name for each in (ROOT / "kafka_sink" / "cli" / "shipped").iterdir()}
    assert {"alerts.yml", "grafana-dashboard.json", "spark-defaults.conf", "write.ipynb"} < set(listed)
    for name in listed:
        source = (ROOT / "kafka_sink" / "cli" / "shipped" / name).resolve()
        assert source.relative_to(ROOT).parts[0] in ("examples", "conf"), "it is a link to what is read in the checkout"
        assert run_command(["files", name]).stdout == source.read_text(encoding="utf-8")
