"""The errors of kafkalite in those of Spark: a task says in one line what failed, and :func:`cause_of` reads it.

An exception of a task reaches the program as the text of its trace, among the traces of Java. The note of
:func:`told` is the last line of the task's trace, behind the line with the class and the text, which is one line as
well: no text of a broker, a row or a topic can begin a line there.
"""

from __future__ import annotations

import functools
import json
import logging
import re
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

from kafka_sink.common.bounded import parsed_json
from kafka_sink.common.errors import (
    ApiError,
    ErrorCode,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    RecordTooLargeError,
    RowError,
    SinkWriteError,
    TooManyBadRowsError,
    UnwritableRowsError,
    is_permanent,
)
from kafka_sink.common.text import printable

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)

#: Errors of rows, found by a check before they are sent or by an answer of the brokers.
_UNWRITABLE: Final = (RowError, RecordTooLargeError, InvalidRecordError, InvalidTimestampError)
#: The attributes of SinkWriteError.
_ATTRIBUTES: Final = ("cause_class", "code", "topic", "partition", "option", "column", "is_permanent")
_KINDS: Final[dict[str, type[SinkWriteError]]] = {
    SinkWriteError.__name__: SinkWriteError,
    **{kind.__name__: kind for kind in SinkWriteError.__subclasses__()},
}
#: The beginning of the line that tells programs the attributes.
_BEGINS: Final = "kafkalite failure: "
#: A name of a topic has at most 249 characters, and what a row names as one may have any number.
_LONGEST: Final = 400
#: The last line of a trace.
_RAISED: Final = re.compile(r"^kafka_sink\.errors\.(\w+Error): (.*)$", re.MULTILINE)


def of_task(error: BaseException, text: str, topic: str | None = None, partition: int | None = None) -> SinkWriteError:
    """The failure of a task for *error*, with this *text*. *topic* and *partition* are where it struck, unless *error*
    itself says it."""
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    cause = next((each for each in causes if not isinstance(each, SinkWriteError)), error)
    while isinstance(cause.__cause__, type(cause)):
        # The same error, of a class that says more.
        cause = cause.__cause__
    kind: type[SinkWriteError] = SinkWriteError
    if any(isinstance(each, TooManyBadRowsError) for each in causes):
        kind, cause = TooManyBadRowsError, error
    elif any(isinstance(each, _UNWRITABLE) for each in causes):
        kind = UnwritableRowsError
    of_kafka = [each for each in causes if isinstance(each, KafkaError)]
    failure = kind(
        text,
        cause_class=type(cause).__name__,
        code=next((each.code for each in causes if isinstance(each, ApiError)), None),
        topic=next((each.topic for each in of_kafka if each.topic is not None), topic),
        partition=next((each.partition for each in of_kafka if each.partition is not None), partition),
        option=next((each.option for each in of_kafka if each.option is not None), None),
        column=next((each.column for each in causes if isinstance(each, RowError) and each.column), None),
        is_permanent=any(is_permanent(each) for each in causes),
    )
    return told(failure)


def told(failure: SinkWriteError) -> SinkWriteError:
    """*failure*, which a task raises, with its text in one line and the line for programs behind it."""
    failure.args = (printable(" ".join(str(failure).split("\n"))),)
    failure.add_note(_BEGINS + json.dumps(attributes_of(failure)))
    return failure


def attributes_of(error: SinkWriteError) -> dict[str, Any]:
    """The attributes of *error* as values of JSON, for :func:`with_attributes`."""
    values = {name: getattr(error, name) for name in _ATTRIBUTES}
    shown = {name: value[:_LONGEST] if isinstance(value, str) else value for name, value in values.items()}
    return {**shown, "code": error.code and error.code.name, "kind": type(error).__name__}


def with_attributes(text: str, attributes: Any) -> SinkWriteError:
    """The error with *text* and the *attributes* of :func:`attributes_of`.

    :raises ValueError, TypeError, KeyError: if they are something else.
    """
    kind = _KINDS[attributes["kind"]]
    texts = {name: attributes[name] for name in ("topic", "option", "column")}
    code, partition, is_final = attributes["code"], attributes["partition"], attributes["is_permanent"]
    if not all(each is None or isinstance(each, str) for each in texts.values()) or not isinstance(is_final, bool):
        raise ValueError("these are no attributes of a failure")
    if partition is not None and type(partition) is not int:
        raise ValueError("the partition is no number")
    return kind(
        text,
        cause_class=str(attributes["cause_class"]),
        code=None if code is None else ErrorCode[code],
        partition=partition,
        is_permanent=is_final,
        **texts,
    )


def short(function: Callable[P, T]) -> Callable[P, T]:
    """*function*, called on the driver by Spark or by a program, whose errors have no frames of kafkalite before their
    sentence: Spark and notebooks show them. The trace is in the log, at level DEBUG."""

    @functools.wraps(function)
    def called(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return function(*arguments, **named)
        except KafkaError as error:
            _log.debug("%s has failed", function.__qualname__, exc_info=True)
            raise error.with_traceback(None) from None

    return called


def cause_of(error: BaseException) -> KafkaError | None:
    """The error of kafkalite that made Spark raise *error*, as :mod:`kafka_sink.errors` has it; None if it is another.

    ``df.write`` and ``StreamingQuery`` raise errors of Spark, which have that error as text only. An error of a task is
    a :class:`SinkWriteError` with its attributes; others have their class and their text alone.
    """
    if isinstance(error, KafkaError):
        return error
    try:
        text = str(error)
    except Exception:
        # Py4J asks the JVM for the text, which may have ended.
        return None
    lines = text.split("\n")
    for raised, line in zip(lines[-2::-1], lines[:0:-1], strict=True):
        if line.startswith(_BEGINS) and (match := _RAISED.match(raised)):
            try:
                return with_attributes(match[2], parsed_json(line.removeprefix(_BEGINS)))
            except (ValueError, TypeError, KeyError):
                continue
    matches = _RAISED.findall(text)
    if not matches:
        return None
    # Tasks start without all that it imports.
    from kafka_sink import errors

    name, sentence = matches[-1]
    if name in _KINDS:
        return _KINDS[name](sentence)
    kind = getattr(errors, name, KafkaError)
    # Some are made of more than a text, which only the process that raised them had.
    found: KafkaError = kind.__new__(kind)
    found.args = (sentence,)
    return found
