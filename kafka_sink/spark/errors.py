"""The errors of kafkalite in those of Spark: one line tells programs what failed, and :func:`cause_of` reads it.

An exception of a task, and of the driver's data source, reaches the program as the text of its trace, among the traces
of Java. The line is a note, the last line of that trace (:func:`told`). The sentence before it is one line as well: no
text of a broker, a row or a topic can begin a line there.
"""

from __future__ import annotations

import functools
import json
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
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
E = TypeVar("E", bound=KafkaError)

_log = logging.getLogger(__name__)

#: Errors of rows, found by a check before they are sent or by an answer of the brokers.
_UNWRITABLE: Final = (RowError, RecordTooLargeError, InvalidRecordError, InvalidTimestampError)
#: The attributes of errors that programs read, and their types in JSON.
_ATTRIBUTES: Final[Mapping[str, type]] = {
    "cause_class": str,
    "code": str,
    "topic": str,
    "partition": int,
    "option": str,
    "column": str,
    "is_permanent": bool,
}
#: The beginning of the line that tells programs the attributes.
_BEGINS: Final = "kafkalite failure: "
#: A name of a topic has at most 249 characters, and what a row names as one may have any number.
_LONGEST: Final = 400
#: The last lines of a trace: class and sentence, attributes.
_RAISED: Final = re.compile(rf"^kafka_sink\.errors\.(\w+Error): (.*)$(?:\n{_BEGINS}(.*)$)?", re.MULTILINE)


def of_task(error: BaseException, text: str, topic: str | None = None, partition: int | None = None) -> SinkWriteError:
    """The failure of a task for *error*, with this *text*. *topic* and *partition* are where it struck, unless *error*
    itself says it."""
    causes = [error]
    while (following := causes[-1].__cause__) is not None and following not in causes:
        causes.append(following)
    cause = next((link for link in causes if not isinstance(link, SinkWriteError)), error)
    while (following := cause.__cause__) in causes[causes.index(cause) + 1 :] and isinstance(following, type(cause)):
        # The same error, of a class that says more.
        cause = following
    kind: type[SinkWriteError] = SinkWriteError
    if any(isinstance(link, TooManyBadRowsError) for link in causes):
        kind, cause = TooManyBadRowsError, error
    elif any(isinstance(link, _UNWRITABLE) for link in causes):
        kind = UnwritableRowsError
    of_kafka = [link for link in causes if isinstance(link, KafkaError)]
    failure = kind(
        text,
        cause_class=type(cause).__name__,
        code=next((link.code for link in causes if isinstance(link, ApiError)), None),
        topic=next((link.topic for link in of_kafka if link.topic is not None), topic),
        partition=next((link.partition for link in of_kafka if link.partition is not None), partition),
        option=next((link.option for link in of_kafka if link.option is not None), None),
        column=next((link.column for link in of_kafka if link.column), None),
        is_permanent=any(is_permanent(link) for link in causes),
    )
    return told(failure)


def told(failure: E) -> E:
    """*failure*, which reaches the program as text, in one line and with the line for programs behind it."""
    failure.args = (printable(" ".join(str(failure).split("\n"))),)
    if attributes := attributes_of(failure):
        failure.add_note(_BEGINS + json.dumps(attributes))
    return failure


def attributes_of(error: KafkaError) -> dict[str, Any]:
    """The attributes of *error* that are known, as values of JSON, for :func:`error_of`."""
    values = {name: getattr(error, name, None) for name in _ATTRIBUTES}
    if isinstance(code := values["code"], ErrorCode):
        values["code"] = code.name
    shown = {name: value[:_LONGEST] if isinstance(value, str) else value for name, value in values.items()}
    return {name: value for name, value in shown.items() if value not in (None, "")}


def error_of(kind: str, text: str, attributes: Any = ()) -> KafkaError:
    """The error of the class *kind* of :mod:`kafka_sink.errors` with *text* and the *attributes* of
    :func:`attributes_of`.

    :raises ValueError, TypeError, KeyError: if they are something else.
    """
    values: dict[str, Any] = dict(attributes)
    if any(type(value) is not _ATTRIBUTES[name] for name, value in values.items()):
        raise ValueError("these are no attributes of an error")
    if "code" in values:
        values["code"] = ErrorCode[values["code"]]
    # Tasks start without all that it imports.
    from kafka_sink import errors

    named: type[KafkaError] = getattr(errors, kind, KafkaError)
    if issubclass(named, SinkWriteError):
        return named(text, **values)
    # Some are made of more than a text, which only the process that raised them had.
    error = named.__new__(named)
    error.args = (text,)
    vars(error).update(values)
    return error


def short(function: Callable[P, T], *, is_text: bool = False) -> Callable[P, T]:
    """*function*, called on the driver by a program, whose errors have no frames of kafkalite before their sentence:
    notebooks show them. The trace is in the log, at level DEBUG.

    :param is_text: the program gets the text of errors alone, which then has the line for programs.
    """

    @functools.wraps(function)
    def called(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return function(*arguments, **named)
        except KafkaError as error:
            _log.debug("%s has failed", function.__qualname__, exc_info=True)
            raise (told(error) if is_text else error).with_traceback(None) from None

    return called


def in_text(function: Callable[P, T]) -> Callable[P, T]:
    """As :func:`short`, for a *function* that Spark calls, which passes on texts alone."""
    return short(function, is_text=True)


def cause_of(error: BaseException) -> KafkaError | None:
    """The error of kafkalite that made Spark raise *error* (:mod:`kafka_sink.errors`); None for any other error.

    ``df.write`` and ``StreamingQuery`` raise errors of Spark, which have that error as text only. It is found with its
    class, its text, and what it is about: ``topic``, ``partition``, ``option``, ``column`` and, of a broker's answer,
    ``code``. An error of a task is a :class:`SinkWriteError`.
    """
    if isinstance(error, KafkaError):
        return error
    try:
        text = str(error)
    except Exception:
        # Py4J asks the JVM for the text, which may have ended.
        return None
    matches = [match.groups() for match in _RAISED.finditer(text)]
    for kind, sentence, attributes in reversed(matches):
        # The traces of other errors, of which it is the cause or which Spark repeats, stand around it.
        with suppress(ValueError, TypeError, KeyError):
            if attributes is not None:
                return error_of(kind, sentence, parsed_json(attributes))
    return error_of(*matches[-1][:2]) if matches else None
