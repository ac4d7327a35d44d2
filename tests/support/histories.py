"""Histories of clients' operations, and their anomalies, by the names of Jepsen's checker of queues.

Clients record their operations on threads of their own; :func:`anomalies` checks them once all have ended. Each value
is written once in the whole history, so each read can be traced back to its write.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

#: (partition, offset)
Place = tuple[int, int]


class Outcome(Enum):
    """The outcome of a transaction, as far as its producer knows it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass
class Writes:
    """A transaction, or records outside of one, which commit by themselves."""

    producer: str
    values: list[int] = field(default_factory=list)
    #: The place of each value that the producer learned.
    places: dict[int, Place] = field(default_factory=dict)
    outcome: Outcome = Outcome.UNKNOWN
    #: When the producer requested its end.
    end_began_s: float = float("inf")


@dataclass
class Poll:
    """The result of one poll of a reader of committed records that began at the first offset."""

    reader: str
    ended_s: float
    found: list[tuple[Place, int]]


@dataclass
class History:
    writes: list[Writes] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, producer: str) -> Writes:
        writes = Writes(producer)
        with self._lock:
            self.writes.append(writes)
        return writes

    def polled(self, reader: str, found: list[tuple[Place, int]]) -> None:
        with self._lock:
            self.polls.append(Poll(reader, time.monotonic(), found))


def anomalies(history: History, log: Mapping[Place, int]) -> Counter[str]:
    """Count each anomaly in *history*; *log* is the final content for a reader of committed records."""
    found = Counter[str]()
    found.update(_of_places(history, log))
    found.update(_of_outcomes(history, log))
    found.update(_of_order_of_polls(history, log))
    found.update(_of_order_of_sends(history))
    return found


def _seen(history: History, log: Mapping[Place, int]) -> Iterator[tuple[Place, int]]:
    yield from log.items()
    for poll in history.polls:
        yield from poll.found
    for writes in history.writes:
        yield from ((place, value) for value, place in writes.places.items())


def _of_places(history: History, log: Mapping[Place, int]) -> Iterator[str]:
    values, places = defaultdict(set), defaultdict(set)
    for place, value in _seen(history, log):
        values[place].add(value)
        places[value].add(place)
    yield from ("inconsistent-offsets" for here in values.values() if len(here) > 1)
    yield from ("duplicate" for there in places.values() if len(there) > 1)


def _of_outcomes(history: History, log: Mapping[Place, int]) -> Iterator[str]:
    readable = set(log.values())
    read_at: dict[int, float] = {}
    for poll in history.polls:
        for _, value in poll.found:
            read_at.setdefault(value, poll.ended_s)
    for writes in history.writes:
        for value in writes.values:
            if writes.outcome is Outcome.COMMITTED and value not in readable:
                yield "lost-write"
            elif writes.outcome is Outcome.COMMITTED and value not in read_at:
                yield "unseen"
            if writes.outcome is Outcome.ABORTED and (value in readable or value in read_at):
                yield "G1a"
            if read_at.get(value, float("inf")) < writes.end_began_s and value in read_at:
                yield "precommitted-read"
        there = sum(value in readable for value in writes.values)
        if writes.outcome is Outcome.UNKNOWN and 0 < there < len(writes.values):
            yield "torn transaction"


def _of_order_of_polls(history: History, log: Mapping[Place, int]) -> Iterator[str]:
    offsets = defaultdict(list)
    for partition, offset in sorted(log):
        offsets[partition].append(offset)
    following = {(p, a): b for p, all_of_it in offsets.items() for a, b in pairwise(all_of_it)}
    last: dict[tuple[str, int], int] = {}
    for poll in history.polls:
        here: dict[int, list[int]] = defaultdict(list)
        for (partition, offset), _ in poll.found:
            here[partition].append(offset)
        for partition, sequence in here.items():
            before = last.get((poll.reader, partition))
            if before is None:
                first = offsets[partition][0] if offsets[partition] else sequence[0]
                yield from ["poll-skip"] if sequence[0] > first else []
            else:
                yield from _steps("", partition, [before, sequence[0]], following)
            yield from _steps("int-", partition, sequence, following)
            last[poll.reader, partition] = sequence[-1]


def _steps(kind: str, partition: int, offsets: Sequence[int], following: Mapping[Place, int]) -> Iterator[str]:
    for before, after in pairwise(offsets):
        if after <= before:
            yield f"{kind}nonmonotonic-poll"
        elif after > following.get((partition, before), after):
            yield f"{kind}poll-skip"


def _of_order_of_sends(history: History) -> Iterator[str]:
    last: dict[tuple[str, int], int] = {}
    for writes in history.writes:
        here: dict[int, list[int]] = defaultdict(list)
        for value in writes.values:
            if value in writes.places:
                partition, offset = writes.places[value]
                here[partition].append(offset)
        for partition, offsets in here.items():
            if offsets[0] <= last.get((writes.producer, partition), -1):
                yield "nonmonotonic-send"
            yield from ("int-nonmonotonic-send" for before, after in pairwise(offsets) if after <= before)
            last[writes.producer, partition] = max(offsets)


def interleaved(history: History) -> int:
    """Count G0, which Kafka allows: transactions with records of another one between their own in a partition."""
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for writes in history.writes:
        by_partition: dict[int, list[int]] = defaultdict(list)
        for partition, offset in writes.places.values():
            by_partition[partition].append(offset)
        for partition, offsets in by_partition.items():
            spans[partition].append((min(offsets), max(offsets)))
    return sum(_overlaps(sorted(each)) for each in spans.values())


def _overlaps(spans: Iterable[tuple[int, int]]) -> int:
    return sum(after[0] < before[1] for before, after in pairwise(spans))
