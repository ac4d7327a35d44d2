"""The order of a check's steps, their dependencies, and the table of their findings."""

from __future__ import annotations

import pytest

from kafka_sink.common.errors import ApiError, ConfigError, ErrorCode
from kafka_sink.preflight.findings import CheckReport, DependsOnError, Finding, Status, Step, required, run_steps

GOOD = [Finding("a", "x", Status.OK, "fine")]
BAD = [Finding("a", "x", Status.FAILED, "broken", "repair it")]


def fail(error: Exception) -> list[Finding]:
    raise error


@pytest.mark.behaviour("kafkalite check", "A step that depends on a failed one is shown as not tried")
def test_step_behind_failed_one_is_not_tried() -> None:
    steps = [
        Step("a", "x", lambda: BAD),
        Step("b", "y", lambda: fail(AssertionError("tried")), ("a",)),
        Step("c", "z", lambda: fail(AssertionError("tried")), ("b",)),
        Step("d", "w", lambda: GOOD),
    ]
    found = list(run_steps(steps, "here"))
    assert [each.status for each in found] == [Status.FAILED, Status.NOT_TRIED, Status.NOT_TRIED, Status.OK]
    assert [each.found for each in found[1:3]] == ["needs: a", "needs: b"]
    assert {each.place for each in found} == {"here"}


@pytest.mark.behaviour("kafkalite check", "A step that depends on a failed one is shown as not tried")
def test_step_that_lacks_a_value_is_not_tried() -> None:
    def run() -> list[Finding]:
        return [Finding("a", required(None, "the cluster"), Status.OK, "")]

    (found,) = run_steps([Step("a", "x", run)], "here")
    assert (found.status, found.found) == (Status.NOT_TRIED, "needs: the cluster")
    with pytest.raises(DependsOnError):
        required(None, "b")
    assert required(0, "b") == 0


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("it is wrong; change it"),
        ApiError("it is wrong; change it", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        OSError("it is wrong; change it"),
    ],
)
def test_error_of_a_step_is_a_finding(error: Exception) -> None:
    (found,) = run_steps([Step("a", "x", lambda: fail(error))], "here")
    assert found == Finding("a", "x", Status.FAILED, "it is wrong", "change it", "here")


def test_warning_does_not_stop_later_steps() -> None:
    warning = [Finding("a", "x", Status.WARNING, "odd")]
    found = list(run_steps([Step("a", "x", lambda: warning), Step("b", "y", lambda: GOOD, ("a",))], "here"))
    assert [each.status for each in found] == [Status.WARNING, Status.OK]
    assert CheckReport(found).is_ok


@pytest.mark.behaviour("kafkalite check", "In a notebook the findings are a table; its cells are escaped")
def test_report_as_html() -> None:
    report = CheckReport([Finding("topic", "<script>", Status.FAILED, "a & b", "do it", "driver")])
    html = report._repr_html_()
    assert "<td>&lt;script&gt;</td><td>failed</td><td>a &amp; b</td><td>do it</td>" in html
    assert "<script>" not in html
    assert not report.is_ok


def test_report_in_a_console() -> None:
    report = CheckReport([*GOOD, *BAD])
    assert report.summary == "the job would fail: 1 ok, 1 failed"
    assert "[failed] : a x: broken -> repair it" in repr(report)
    assert CheckReport([]).summary == "the job can run: nothing to check"


def test_texts_of_brokers_do_not_control_a_terminal() -> None:
    report = CheckReport([Finding("broker", "broker 1 at a\x1b[31m\nb:1", Status.OK, "\r")])
    assert "\x1b" not in repr(report)
    assert report.rows() == [("", "broker", "broker 1 at a\\x1b[31m\\nb:1", "ok", "\\r", "")]
