"""The target of a check, its steps, which run in order, and their results: a finding for each attempt.

The target is the options of a job, its topics, its name if it writes exactly once, and the permissions that it needs:
the table of docs/permissions.md. A step that depends on a failed one is not tried. Errors of the cluster and of the
configuration become findings.

All are plain values: the target is pickled to an executor, which returns findings as text. No finding contains
a password, a token or a private key, because findings are made of addresses, names and the error texts of the client,
which contain none either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

from kafka_sink.common.acl import AclOperation, PatternType, ResourceType
from kafka_sink.common.errors import ApiError, ConfigError
from kafka_sink.common.text import html_table, printable
from kafka_sink.formats.schema_text import SchemaText


class Status(Enum):
    """The meaning of a finding for the job. WARNING: the job can run, but its result may not be as expected."""

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

    def as_warning(self) -> Finding:
        """This finding, a failure as a warning: another address can be used instead."""
        is_bad = self.status in (Status.FAILED, Status.NOT_TRIED)
        return replace(self, status=Status.WARNING) if is_bad else self


COLUMNS: Final = ("from", "step", "tried", "result", "found", "what to do")


@dataclass(frozen=True)
class CheckReport:
    """The findings of a check, in the order of its steps."""

    findings: Sequence[Finding]

    @property
    def is_ok(self) -> bool:
        """True if no finding would make the job fail."""
        return all(finding.status in (Status.OK, Status.WARNING) for finding in self.findings)

    @property
    def problems(self) -> list[Finding]:
        """The findings that would make the job fail."""
        return [finding for finding in self.findings if finding.status is Status.FAILED]

    @property
    def summary(self) -> str:
        """One sentence with the number of findings of each status."""
        counts = {status: sum(finding.status is status for finding in self.findings) for status in Status}
        text = ", ".join(f"{count} {status.value}" for status, count in counts.items() if count)
        return f"{'the job can run' if self.is_ok else 'the job would fail'}: {text or 'nothing to check'}"

    def rows(self) -> list[tuple[str, ...]]:
        """The cells of the table, for :data:`COLUMNS`. Some of the texts come from brokers, and must not control a
        terminal."""
        rows = (
            (finding.place, finding.step, finding.subject, finding.status.value, finding.found, finding.what_to_do)
            for finding in self.findings
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
    """A step cannot be tried, because a step that it needs has no result; the text names that step."""


def required(value: T | None, name: str) -> T:
    """*value*, which an earlier step has found.

    :raises DependsOnError: if it was not found; *name* is the step that looks for it.
    """
    if value is None:
        raise DependsOnError(name)
    return value


@dataclass(frozen=True)
class Step:
    """One step. *run* returns its findings, none if there is nothing to check; *subject* is that of the
    only finding if the step is not tried, or fails. It is only tried if none of the steps in *needs* has failed."""

    name: str
    subject: str
    run: Callable[[], Sequence[Finding]]
    needs: tuple[str, ...] = ()


def run_steps(steps: Sequence[Step], place: str) -> Iterator[Finding]:
    """The findings of all *steps*, from *place*."""
    without_success: set[str] = set()
    for step in steps:
        missing = [name for name in step.needs if name in without_success]
        try:
            if missing:
                raise DependsOnError(missing[0])
            findings = step.run()
        except DependsOnError as error:
            findings = [Finding(step.name, step.subject, Status.NOT_TRIED, f"needs: {error}")]
        except (ApiError, ConfigError, OSError) as error:
            findings = [Finding(step.name, step.subject, Status.FAILED, *split_advice(str(error)))]
        if any(finding.status in (Status.FAILED, Status.NOT_TRIED) for finding in findings):
            without_success.add(step.name)
        yield from (replace(finding, place=place) for finding in findings)


def split_advice(text: str) -> tuple[str, str]:
    """The text of an error of this project as (what was found, what to do): the advice follows the last semicolon."""
    problem, _, advice = text.rpartition("; ")
    return (problem, advice) if problem else (text, "")


@dataclass(frozen=True)
class ExactlyOnceTarget:
    """An exactly-once sink: its *name* is the prefix of its transactional ids and the name of its group.

    *transaction_timeout_ms* is the time-out that the user has set, or None. *two_phase*: transactions never time out
    (KIP-939).
    """

    name: str
    progress_topic: str
    transaction_timeout_ms: int | None = None
    two_phase: bool = False


@dataclass(frozen=True)
class NewTopicTarget:
    """A topic that the job creates if it is missing; a *replication_factor* of None is the brokers' default."""

    name: str
    partitions: int
    replication_factor: int | None = None


@dataclass(frozen=True)
class SubjectTarget:
    """The subject of the schemas of *column* (``key`` or ``value``), of the type *kind* as registries name it.

    *schema* is that of the write, if it is known; *is_derived*: from the column, and not given. *earlier* are schemas
    that the write uses instead if one of them is already a version of the subject.
    """

    name: str
    column: str
    kind: str | None = None
    schema: SchemaText | None = None
    is_derived: bool = False
    earlier: tuple[SchemaText, ...] = ()


@dataclass(frozen=True)
class RegistryTarget:
    """A schema registry: its options under Confluent's names, and the subjects of a job's schemas."""

    # They may contain passwords.
    properties: Mapping[str, str] = field(repr=False)
    subjects: tuple[SubjectTarget, ...] = ()


@dataclass(frozen=True)
class CheckTarget:
    """*properties* are producer properties under Kafka's names; findings show them with *option_prefix*."""

    # They may contain passwords.
    properties: Mapping[str, Any] = field(repr=False)
    topics: tuple[str, ...] = ()
    exactly_once: ExactlyOnceTarget | None = None
    option_prefix: str = ""
    new_topics: tuple[NewTopicTarget, ...] = ()
    registry: RegistryTarget | None = None


class Permission(NamedTuple):
    """*operations* on the resources of a type that *name* and *pattern_type* select."""

    operations: tuple[AclOperation, ...]
    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


def needed(target: CheckTarget) -> list[Permission]:
    """The permissions that a principal needs to write as *target*, and no others; an operation implies others, as in
    Kafka. The job creates its *new_topics*."""
    new, sink = {topic.name for topic in target.new_topics}, target.exactly_once
    permissions = [
        Permission((AclOperation.WRITE, *([AclOperation.CREATE] if topic in new else [])), ResourceType.TOPIC, topic)
        for topic in dict.fromkeys(target.topics)
    ]
    if sink is None:
        return permissions
    return [
        *permissions,
        Permission((AclOperation.READ,), ResourceType.TOPIC, sink.progress_topic),
        Permission((AclOperation.WRITE,), ResourceType.TRANSACTIONAL_ID, sink.name, PatternType.PREFIXED),
        Permission((AclOperation.READ,), ResourceType.GROUP, sink.name),
    ]
