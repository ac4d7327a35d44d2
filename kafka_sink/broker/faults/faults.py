"""The faults of one cluster: to which requests or disk operations they apply, how often, and their effect.

Any thread sets and removes faults, also from text, as the command line does; handler threads check them for every
request. Without faults the check reads one empty tuple. This module must not apply faults: it only determines which are
due. Misspelt names are rejected, never guessed; the error suggests the nearest name.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Final

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

_DROPPED: Final = ("request", "answer")
_CLOSED: Final = ("request", "answer", "half")
_EFFECTS: Final = ("error", "delay_ms", "drop", "close", "duplicate", "slow_ms")


@dataclass(frozen=True, slots=True)
class Fault:
    """One effect on the operations that match; the fields are the parameters of :meth:`Faults.on`."""

    target: str
    topic: str | None = None
    partition: int | None = None
    node: int | None = None
    nth: int | None = None
    every: int | None = None
    probability: float | None = None
    seed: int = 0
    times: int | None = None
    error: ErrorCode | None = None
    delay_ms: int | None = None
    drop: str | None = None
    close: str | None = None
    duplicate: bool = False
    slow_ms: int | None = None

    def __post_init__(self) -> None:
        """:raises ConfigError: if the fault can never apply."""
        _check_target(self.target)
        self._check_effect()
        self._check_partition()
        self._check_count()

    def __str__(self) -> str:
        options = (
            f"{item.name}={getattr(self, item.name)}"
            for item in fields(self)[1:]
            if getattr(self, item.name) != item.default
        )
        return f"{self.target}:{','.join(options)}"

    @property
    def is_of_disk(self) -> bool:
        return self.target in (DISK_WRITE, DISK_FLUSH)

    def _check_effect(self) -> None:
        # A fault on the disk needs none: half of a write is done before the disk is full, and a flush fails.
        values = [getattr(self, name) for name in _EFFECTS]
        count = sum(value is not None and value is not False for value in values) + self.is_of_disk
        if count != 1:
            raise ConfigError(
                f"fault on {self.target}: expected exactly one of {', '.join(_EFFECTS)}, got {count}; set one fault "
                "per effect"
            )
        if self.is_of_disk and self.node is not None:
            raise ConfigError(f"fault on {self.target}: all nodes of a process share the disk; leave node out")
        for name, value, allowed in (("drop", self.drop, _DROPPED), ("close", self.close, _CLOSED)):
            if value is not None and value not in allowed:
                raise ConfigError(f"{name} must be one of {', '.join(allowed)}, got {value!r}{nearest(value, allowed)}")
        if self.error is ErrorCode.NONE:
            raise ConfigError("error must be the name of an error code other than NONE")
        for time_ms in (self.delay_ms, self.slow_ms):
            if time_ms is not None and time_ms < 1:
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


def _check_target(target: str) -> None:
    targets = [*(key.name.lower() for key in APIS if key not in _NOT_HANDLED), ANY, DISK_WRITE, DISK_FLUSH]
    if target not in targets:
        raise ConfigError(
            f"unknown fault target {target!r}{nearest(target, targets)}: expected the name of an API such as produce "
            f"or end_txn, or any, {DISK_WRITE}, {DISK_FLUSH}"
        )


class FaultHandle:
    """One fault that is set. As a context manager it removes the fault at the end of the block."""

    def __init__(self, fault: Fault, remove: Callable[[FaultHandle], None]) -> None:
        self.fault: Final = fault
        self._remove = remove
        self._random = random.Random(fault.seed)
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._seen = 0
        self._hits = 0

    @property
    def hits(self) -> int:
        """How often the fault was applied."""
        return self._hits

    def remove(self) -> None:
        """Remove the fault. A second call does nothing."""
        self._remove(self)

    def is_due(self) -> bool:
        """Count one matching operation; returns whether the fault applies to it, which counts as a hit."""
        with self._lock:
            self._seen += 1
            due = self._is_chosen() and (self.fault.times is None or self._hits < self.fault.times)
            self._hits += due
            return due

    def _is_chosen(self) -> bool:
        fault = self.fault
        if fault.nth is not None:
            return self._seen == fault.nth
        if fault.every is not None:
            return self._seen % fault.every == 0
        return fault.probability is None or self._random.random() < fault.probability

    def __enter__(self) -> FaultHandle:
        return self

    def __exit__(self, *raised: object) -> None:
        self.remove()


class Faults:
    """The fault injection of a cluster."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Faults that apply to requests and to the disk; usually none.
        # Replaced as a whole under the lock, read without it.
        self.of_requests: tuple[FaultHandle, ...] = ()
        self.of_disk: tuple[FaultHandle, ...] = ()

    def on(
        self,
        target: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        node: int | None = None,
        nth: int | None = None,
        every: int | None = None,
        probability: float | None = None,
        seed: int = 0,
        times: int | None = None,
        error: ErrorCode | None = None,
        delay_ms: int | None = None,
        drop: str | None = None,
        close: str | None = None,
        duplicate: bool = False,
        slow_ms: int | None = None,
    ) -> FaultHandle:
        """Set a fault::

            with cluster.faults.on("produce", topic="orders", nth=3, error=ErrorCode.NOT_LEADER_OR_FOLLOWER) as fault:
                ...
            assert fault.hits == 1

        *target*: the API's name in lower case; ``any``; ``disk.write`` or ``disk.flush`` of partitions' files, which
        need no effect. *topic*, *partition*, *node* (a broker's id) restrict it. Of the matching operations it applies
        to all, to the *nth*, to one of *every* so many, or to each with a *probability* (from *seed*); at most *times*
        times.

        The effect is one of: *error*, the request is not handled but answered with this code, for each of its
        partitions if it has any; *delay_ms*, the answer is delayed; *drop*, the ``request`` or its ``answer`` is lost,
        and the connection is silent from then on; *close* of the connection on the ``request``, on its ``answer`` or
        after ``half`` of the answer; *duplicate*, the request is handled twice, and answered once, with the second
        answer; *slow_ms*, the answer is sent in small pieces over this time.

        :raises ConfigError: if the fault can never apply.
        """
        # The signature and its description are the public API, and make the length of this function.
        effect = error, delay_ms, drop, close, duplicate, slow_ms
        fault = Fault(target, topic, partition, node, nth, every, probability, seed, times, *effect)
        handle = FaultHandle(fault, self._forget)
        with self._lock:
            if fault.is_of_disk:
                self.of_disk = (*self.of_disk, handle)
            else:
                self.of_requests = (*self.of_requests, handle)
        return handle

    def clear(self) -> None:
        with self._lock:
            self.of_requests = self.of_disk = ()

    def _forget(self, handle: FaultHandle) -> None:
        with self._lock:
            self.of_requests = tuple(other for other in self.of_requests if other is not handle)
            self.of_disk = tuple(other for other in self.of_disk if other is not handle)

    def may_befall(self, api_name: str, node_id: int) -> list[FaultHandle]:
        """The faults for requests of this API on this node, for any topic."""
        return [
            handle
            for handle in self.of_requests
            if handle.fault.target in (api_name, ANY) and handle.fault.node in (None, node_id)
        ]

    def disk_fails(self, target: str, topic: str, partition: int) -> bool:
        """Whether this write to (or flush of) a partition's file has to fail; each call counts as an operation."""
        for handle in self.of_disk:
            fault = handle.fault
            if (
                fault.target == target
                and fault.topic in (None, topic)
                and fault.partition in (None, partition)
                and handle.is_due()
            ):
                return True
        return False


def set_fault(faults: Faults, text: str) -> FaultHandle:
    """Set the fault that *text* describes: the target, a colon, and keyword arguments of :meth:`Faults.on`.

    :raises ConfigError: if the text cannot be parsed, or the fault can never apply.
    """
    target, _, rest = text.partition(":")
    arguments: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in rest.split(","))):
        name, separator, value = (part.strip() for part in item.partition("="))
        if name not in _READERS:
            names = ", ".join(_READERS)
            raise ConfigError(f"fault {text!r}: {name!r} is unknown{nearest(name, _READERS)}; expected one of {names}")
        if not separator or not value:
            raise ConfigError(f"fault {text!r}: {name} needs a value: {name}=…")
        if name in arguments:
            raise ConfigError(f"fault {text!r}: {name} is given twice")
        try:
            arguments[name] = _READERS[name](value)
        except ValueError as error:
            raise ConfigError(f"fault {text!r}: {name}: {error}") from None
    try:
        return faults.on(target.strip().lower(), **arguments)
    except ConfigError as error:
        raise ConfigError(f"fault {text!r}: {error}") from None


def _whole(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"expected a whole number, got {value!r}") from None


def _share(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"expected a number above 0 and at most 1, got {value!r}") from None


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError(f"expected true or false, got {value!r}")
    return value.lower() == "true"


def _error(value: str) -> ErrorCode:
    names = ErrorCode.__members__
    if value.upper() not in names:
        raise ValueError(f"{value!r} is not an error code of Kafka{nearest(value.upper(), names)}")
    return names[value.upper()]


_BY_TYPE: Final[Mapping[str, Callable[[str], Any]]] = {
    "str": str,
    "int": _whole,
    "float": _share,
    "ErrorCode": _error,
    "bool": _flag,
}
#: Field of a fault, except its target → the parser of its type.
_READERS: Final[Mapping[str, Callable[[str], Any]]] = MappingProxyType(
    {item.name: _BY_TYPE[str(item.type).removesuffix(" | None")] for item in fields(Fault)[1:]}
)
