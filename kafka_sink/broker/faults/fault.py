"""The description of a fault: the requests or disk operations to which it applies, how often, and its effect.

Immutable values, created by the code that sets faults and read by handler threads. They have no behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from kafka_sink.broker.faults.error_response import names_topics
from kafka_sink.common.config import nearest
from kafka_sink.common.errors import ConfigError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.registry import APIS

#: Target that matches every request, in place of an API's name.
ANY: Final = "any"
#: Targets for the disk: a write to a partition's files finds the disk full; a flush of them fails.
DISK_WRITE: Final = "disk.write"
DISK_FLUSH: Final = "disk.flush"

#: APIs whose requests are answered before they reach a handler, so faults cannot apply to them.
_NOT_HANDLED: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})

DROPPED: Final = ("request", "answer")
CLOSED: Final = ("request", "answer", "half")


@dataclass(frozen=True, slots=True)
class Answer:
    """The request is not handled but answered with *code*, for each of its partitions if the API has any."""

    code: ErrorCode


@dataclass(frozen=True, slots=True)
class Delay:
    """The answer is delayed by *delay_ms*; the request is handled at once."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Drop:
    """*what* is lost: the request, which is never handled, or the answer. The connection is then silent, as with a
    broker that hangs, until the client closes it."""

    what: str


@dataclass(frozen=True, slots=True)
class Close:
    """The connection is closed on the request, before it is handled; instead of the answer; or after half of the
    answer's bytes."""

    at: str


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The request is handled twice, in sequence, and answered once, with the second answer."""


@dataclass(frozen=True, slots=True)
class Slow:
    """The answer's bytes are sent in small pieces over *over_ms*."""

    over_ms: int


@dataclass(frozen=True, slots=True)
class FailDisk:
    """A write fails with a full disk after half of its bytes; a flush fails."""


Effect: TypeAlias = Answer | Delay | Drop | Close | Duplicate | Slow | FailDisk


@dataclass(frozen=True, slots=True)
class Fault:
    """*effect* applies to operations that match *target* (an API's name in lower case, ``any``, ``disk.write``,
    ``disk.flush``), *topic*, its *partition* and *node* (a broker's id). Of these it applies to the *nth*, to one of
    *every* so many, or to each with a *probability* (from *seed*); at most *times* times.
    """

    target: str
    effect: Effect
    topic: str | None = None
    partition: int | None = None
    node: int | None = None
    nth: int | None = None
    every: int | None = None
    probability: float | None = None
    seed: int = 0
    times: int | None = None

    def __post_init__(self) -> None:
        """:raises ConfigError: if the fault can never apply."""
        _check_target(self.target)
        self._check_effect()
        self._check_partition()
        self._check_count()

    @property
    def is_of_disk(self) -> bool:
        return self.target in (DISK_WRITE, DISK_FLUSH)

    def _check_effect(self) -> None:
        if isinstance(self.effect, FailDisk) != self.is_of_disk:
            text = (
                "a fault on the disk has no other effect than a failure"
                if self.is_of_disk
                else "only a fault on the disk can have this effect"
            )
            raise ConfigError(f"fault on {self.target}: {text}")
        if self.is_of_disk and self.node is not None:
            raise ConfigError(f"fault on {self.target}: all nodes of a process share the disk; leave node out")
        match self.effect:
            case Drop(what) if what not in DROPPED:
                raise ConfigError(f"drop must be one of {', '.join(DROPPED)}, got {what!r}{nearest(what, DROPPED)}")
            case Close(at) if at not in CLOSED:
                raise ConfigError(f"close must be one of {', '.join(CLOSED)}, got {at!r}{nearest(at, CLOSED)}")
            case Answer(ErrorCode.NONE):
                raise ConfigError("error must be the name of an error code other than NONE")
            case Delay(time_ms) | Slow(time_ms) if time_ms < 1:
                raise ConfigError(f"a delay must be at least 1 ms, got {time_ms}")

    def _check_partition(self) -> None:
        if self.partition is not None and self.topic is None:
            raise ConfigError(f"partition {self.partition} needs a topic: set topic as well")
        if self.partition is not None and self.partition < 0:
            raise ConfigError(f"partition must be 0 or more, got {self.partition}")
        has_topics = self.target == ANY or self.is_of_disk or names_topics(ApiKey[self.target.upper()])
        if self.topic is not None and not has_topics:
            raise ConfigError(f"{self.target} has no topics: remove topic")

    def _check_count(self) -> None:
        options = [name for name in ("nth", "every", "probability") if getattr(self, name) is not None]
        if len(options) > 1:
            raise ConfigError(f"{' and '.join(options)} exclude each other: keep one of them")
        for name in ("nth", "every", "times"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise ConfigError(f"{name} must be 1 or more, got {count}")
        if self.probability is not None and not 0 < self.probability <= 1:
            raise ConfigError(f"probability must be above 0 and at most 1, got {self.probability}")


def target_names() -> list[str]:
    """All valid targets of a fault."""
    return [*(key.name.lower() for key in APIS if key not in _NOT_HANDLED), ANY, DISK_WRITE, DISK_FLUSH]


def _check_target(target: str) -> None:
    known = target_names()
    if target not in known:
        raise ConfigError(
            f"unknown fault target {target!r}{nearest(target, known)}: expected the name of an API such as produce "
            f"or end_txn, or any, {DISK_WRITE}, {DISK_FLUSH}"
        )
