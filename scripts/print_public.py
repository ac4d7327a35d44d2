"""Prints the public API of this project for Python programs: every public name with its signature. docs/errors.md,
which ``scripts.error_table`` prints, has the classes of errors.

python -m scripts.print_public > docs/public-names.txt
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

from kafka_sink import BrokerConfig

#: Everything else may move or change in any version.
PUBLIC: Final = ("kafka_sink", "kafka_sink.admin", "kafka_sink.errors", "kafka_sink.testing")


def lines() -> Iterator[str]:
    """Return a line for each name, and for each public attribute of a class that this project declares."""
    for module in map(importlib.import_module, PUBLIC):
        for name in names_of(module):
            yield from _of(f"{module.__name__}.{name}", getattr(module, name))


def names_of(module: ModuleType) -> list[str]:
    """Return the public names of *module*: its ``__all__``, or without one all names that begin with a letter."""
    return sorted(getattr(module, "__all__", [name for name in vars(module) if name[0].isalpha()]))


def _of(path: str, value: Any) -> Iterator[str]:
    if value is BrokerConfig:
        yield f"{path}(the options in conf/broker.properties, with _ for .)"
    elif inspect.isclass(value):
        if issubclass(value, enum.Enum):
            yield f"{path}({', '.join(base.__name__ for base in value.__bases__)})"
        elif not issubclass(value, BaseException):
            # docs/errors.md lists each class of errors with its base classes.
            yield f"{path}{_signature(value)}"
        if issubclass(value, enum.Enum):
            yield from (f"{path}.{member.name} = {member.value!r}" for member in value)
        for name in sorted(vars(value)):
            member = inspect.getattr_static(value, name)
            if name.startswith("_") or (issubclass(value, enum.Enum) and name in value.__members__):
                continue
            if isinstance(member, (classmethod, staticmethod)) or inspect.isfunction(member):
                yield f"{path}.{name}{_signature(getattr(value, name))}"
            elif isinstance(member, property) and member.fget is not None:
                yield f"{path}.{name}: {inspect.signature(member.fget).return_annotation}"
    elif callable(value):
        yield f"{path}{_signature(value)}"
    else:
        yield path


def _signature(value: Any) -> str:
    try:
        return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.signature(value)))
    except ValueError:
        return "(…)"


if __name__ == "__main__":
    print("\n".join(lines()))
