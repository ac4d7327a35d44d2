"""Runs the steps of a check in order: each step has findings, and a step that depends on a failed one is not tried.

Pure: it knows neither the network nor the cluster; the steps' functions do. It never raises an error of the cluster or
of the configuration: these become findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from kafka_sink.common.errors import ApiError, ConfigError
from kafka_sink.preflight.findings import Finding, Status

T = TypeVar("T")


class DependsOnError(Exception):
    """A step cannot be tried, because something that it needs was not found; the text says what."""


def known(value: T | None, name: str) -> T:
    """*value*, which an earlier step has found.

    :raises DependsOnError: if it was not found; *name* is the step that looks for it.
    """
    if value is None:
        raise DependsOnError(name)
    return value


@dataclass(frozen=True)
class Step:
    """One step. *run* returns its findings, none if there is nothing to check; *subject* stands for all of them if the
    step is not tried. It is only tried if none of the steps in *needs* has failed."""

    name: str
    subject: str
    run: Callable[[], Sequence[Finding]]
    needs: tuple[str, ...] = ()


def run_steps(steps: Sequence[Step], place: str) -> Iterator[Finding]:
    """The findings of all *steps*, from *place*."""
    without_success: set[str] = set()
    for step in steps:
        missing = [name for name in step.needs if name in without_success]
        findings = [_not_tried(step, missing[0])] if missing else _run(step)
        if any(finding.status in (Status.FAILED, Status.NOT_TRIED) for finding in findings):
            without_success.add(step.name)
        yield from (replace(finding, place=place) for finding in findings)


def _run(step: Step) -> Sequence[Finding]:
    try:
        return step.run()
    except DependsOnError as error:
        return [_not_tried(step, str(error))]
    except (ApiError, ConfigError, OSError) as error:
        return [Finding(step.name, step.subject, Status.FAILED, *split_advice(str(error)))]


def _not_tried(step: Step, missing: str) -> Finding:
    return Finding(step.name, step.subject, Status.NOT_TRIED, f"needs: {missing}")


def split_advice(text: str) -> tuple[str, str]:
    """The text of an error of this project as (what was found, what to do): the advice follows the last semicolon."""
    problem, _, advice = text.rpartition("; ")
    return (problem, advice) if problem else (text, "")
