"""Writes the tables of errors into a page: ``python -m scripts.error_table docs/errors.md``.

Run manually when an error or a remedy changes; a test checks that the page is up to date. It only reads the classes of
errors, with their causes and remedies, and the remedies for errors of brokers.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from kafka_sink import errors
from kafka_sink.common.errors import (
    ApiError,
    CancelledWriteError,
    ConfigError,
    KafkaError,
    ProtocolError,
    RegistryError,
    RequirementError,
    RowError,
    SinkWriteError,
)
from kafka_sink.common.remedies import REMEDIES
from kafka_sink.exactly_once.model import ExactlyOnceError
from kafka_sink.spark.write_spec import KAFKA_PREFIX
from scripts.pages import print_into

#: A class belongs to the first section that lists the class or one of its base classes.
SECTIONS: Final[Mapping[str, tuple[type[KafkaError], ...]]] = {
    "Options, columns and packages": (ConfigError, RequirementError),
    "Rows": (RowError,),
    "Tasks and writes": (SinkWriteError, CancelledWriteError),
    "Schema registry": (RegistryError,),
    "Brokers and connections": (ApiError, ProtocolError),
    "Exactly once": (ExactlyOnceError,),
    "The producer, in plain Python": (KafkaError,),
}


def error_tables() -> str:
    """A table for each section, and one of the errors of brokers, in Markdown."""
    left = [kind for kind in dict.fromkeys(_tree(KafkaError)) if kind.__name__ in errors.__all__]
    parts = []
    for heading, heads in SECTIONS.items():
        kinds = [kind for kind in left if issubclass(kind, heads)]
        left = [kind for kind in left if kind not in kinds]
        rows = "".join(f"{_row(kind)}\n" for kind in sorted(kinds, key=lambda kind: kind not in heads))
        parts.append(f"## {heading}\n\n| error | cause | what to do |\n| --- | --- | --- |\n{rows}")
    codes = "".join(f"{row}\n" for row in _codes())
    head = "| error of a broker | when | what to do |\n| --- | --- | --- |\n"
    parts.append(f"## Errors of brokers\n\n{head}{codes}")
    return "\n".join(parts)


def _tree(kind: type[KafkaError]) -> Iterator[type[KafkaError]]:
    yield kind
    for more in kind.__subclasses__():
        yield from _tree(more)


def _row(kind: type[KafkaError]) -> str:
    bases = [base for base in kind.__bases__ if issubclass(base, KafkaError) and base is not KafkaError]
    shown = ", ".join(f"`{base.__name__}`" for base in bases)
    named = f'<a id="{kind.__name__}"></a>`{kind.__name__}`{f" ({shown})" if bases else ""}'
    cause = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
    return f"| {named} | {_markdown(cause)} | {vars(kind)['remedy']} |"


def _markdown(text: str) -> str:
    """A docstring's *text* as Markdown."""
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")


def _codes() -> Iterator[str]:
    for situation, remedies in REMEDIES.items():
        for code, text in remedies.items():
            yield f"| `{code.name}` | {situation.value} | {text.format(prefix=KAFKA_PREFIX, sink='…', topic='…')} |"


if __name__ == "__main__":
    print_into(Path(sys.argv[1]), "errors", error_tables())
