"""The steps of a check, run in order, and their result: a finding for each thing that was tried, and the table of all.

A step that depends on a failed one is not tried. Errors of the cluster and of the configuration become findings. They
are plain values, which travel from executors to the driver as text. No finding contains a password, a token or a
private key, because findings are made of addresses, names and the error texts of the client, which contain none either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeVar

from kafka_sink.common.errors import ApiError, ConfigError
from kafka_sink.common.text import html_table, printable


class Status(Enum):
    """The meaning of a finding for the job. WARNING: the job can run, but not all of it may be as expected."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Finding:
    """*step* of the check, its *subject* (an address, a broker, a topic), what was *found*, and *what_to_do*, which is
    empty if nothing has to be done. *place* is the machine from which it was tried."""

    step: str
    subject: str
    status: Status
    found: str
    what_to_do: str = ""
    place: str = ""


COLUMNS: Final = ("from", "step", "tried", "result", "found", "what to do")


@dataclass(frozen=True)
class CheckReport:
    """The findings of a check, in the order of its steps."""

    findings: Sequence[Finding]

    @property
    def is_ok(self) -> bool:
        """Whether nothing was found that would make the job fail."""
        return all(finding.status in (Status.OK, Status.WARNING) for finding in self.findings)

    @property
    def problems(self) -> list[Finding]:
        """The findings that would make the job fail."""
        return [finding for finding in self.findings if finding.status is Status.FAILED]

    @property
    def summary(self) -> str:
        """One sentence with the number of findings of each status."""
        counts = {status: sum(each.status is status for each in self.findings) for status in Status}
        text = ", ".join(f"{count} {status.value}" for status, count in counts.items() if count)
        return f"{'the job can run' if self.is_ok else 'the job would fail'}: {text or 'nothing to check'}"

    def rows(self) -> list[tuple[str, ...]]:
        """The cells of the table, for :data:`COLUMNS`. Some of the texts come from brokers, and must not control a
        terminal."""
        rows = (
            (each.place, each.step, each.subject, each.status.value, each.found, each.what_to_do)
            for each in self.findings
        )
        return [tuple(printable(cell) for cell in row) for row in rows]

    def __repr__(self) -> str:
        """All findings as lines of text, because a console shows nothing else."""
        lines = [f"kafkalite check: {self.summary}"]
        for place, step, subject, status, found, what_to_do in self.rows():
            advice = f" -> {what_to_do}" if what_to_do else ""
            lines.append(f"  [{status}] {place}: {step} {subject}: {found}{advice}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_table(COLUMNS, self.rows(), caption=self.summary)


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
