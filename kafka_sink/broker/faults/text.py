"""Parses faults from text, for the command line: ``produce:topic=orders,every=10,close=half``.

Called on the main thread when a process starts. Misspelt names are rejected, never guessed; the error suggests the
nearest name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from kafka_sink.broker.faults.faults import FaultHandle, Faults
from kafka_sink.common.config import nearest
from kafka_sink.common.errors import ConfigError, ErrorCode


def set_fault(faults: Faults, text: str) -> FaultHandle:
    """Set the fault that *text* describes: the target, a colon, and keyword arguments of :meth:`Faults.on`.

    :raises ConfigError: if the text cannot be parsed, or the fault can never apply.
    """
    target, _, rest = text.partition(":")
    arguments: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in rest.split(","))):
        name, separator, value = (part.strip() for part in item.partition("="))
        if name not in _READERS:
            known = ", ".join(_READERS)
            raise ConfigError(f"fault {text!r}: {name!r} is unknown{nearest(name, _READERS)}; expected one of {known}")
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


_READERS: Final[Mapping[str, Callable[[str], Any]]] = MappingProxyType(
    {
        "topic": str,
        "partition": _whole,
        "node": _whole,
        "nth": _whole,
        "every": _whole,
        "probability": _share,
        "seed": _whole,
        "times": _whole,
        "error": _error,
        "delay_ms": _whole,
        "drop": str,
        "close": str,
        "duplicate": _flag,
        "slow_ms": _whole,
    }
)
