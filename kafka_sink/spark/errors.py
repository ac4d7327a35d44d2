"""The errors of kafkalite within those of Spark: one line has the attributes, and :func:`cause_of` reads it.

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

#: Errors of rows, found by a check before they are sent or by a response of the brokers.
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
#: The beginning of the line with the attributes.
_BEGINS: Final = "kafkalite failure: "
#: A topic name has at most 249 characters, but a row may name a longer one.
_LONGEST: Final = 400
#: The last lines of a trace: class and sentence, attributes.
_RAISED: Final = re.compile(rf"^kafka_sink\.errors\.(\w+Error): (.*)$(?:\n{_BEGINS}(.*)$)?", re.MULTILINE)


def of_task(error: BaseException, text: str, topic: str | None = None, partition: int | None = None) -> SinkWriteError:
    """The failure of a task for *error*, with this *text*. *topic* and *partition* are where it occurred, unless
    *error* names them."""
    causes = [error]
    while (following := causes[-1].__cause__) is not None and following not in causes:
        causes.append(following)
    cause = next((link for link in causes if not isinstance(link, SinkWriteError)), error)
    while (following := cause.__cause__) in causes[causes.index(cause) + 1 :] and isinstance(following, type(cause)):
        # The same error, of a more specific class.
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
    """*failure* with its text in one line, and a note with its attributes as JSON: Spark passes on only text."""
    failure.args = (printable(" ".join(str(failure).split("\n"))),)
    if attributes := attributes_of(failure):
        failure.add_note(_BEGINS + json.dumps(attributes))
    return failure


def attributes_of(error: KafkaError) -> dict[str, Any]:
    """The known attributes of *error*, as values of JSON, for :func:`error_of`."""
    values = {name: getattr(error, name, None) for name in _ATTRIBUTES}
    if isinstance(code := values["code"], ErrorCode):
        values["code"] = code.name
    shown = {name: value[:_LONGEST] if isinstance(value, str) else value for name, value in values.items()}
    return {name: value for name, value in shown.items() if value not in (None, "")}


def error_of(kind: str, text: str, attributes: Any = ()) -> KafkaError:
    """The error of the class *kind* of :mod:`kafka_sink.errors` with *text* and the *attributes* of
    :func:`attributes_of`.

    :raises ValueError, TypeError, KeyError: if *attributes* are invalid.
    """
    values: dict[str, Any] = dict(attributes)
    if any(type(value) is not _ATTRIBUTES[name] for name, value in values.items()):
        raise ValueError("these are no attributes of an error")
    if "code" in values:
        values["code"] = ErrorCode[values["code"]]
    # Imported here, because tasks start faster without its imports.
    from kafka_sink import errors

    named: type[KafkaError] = getattr(errors, kind, KafkaError)
    if issubclass(named, SinkWriteError):
        return named(text, **values)
    # Some constructors need arguments that only the process that raised the error had.
    error = named.__new__(named)
    error.args = (text,)
    vars(error).update(values)
    return error


def short(function: Callable[P, T], *, is_text: bool = False) -> Callable[P, T]:
    """*function* for a program on the driver: its errors are raised without kafkalite's stack frames, because notebooks
    show them. The trace is in the log, at level DEBUG.

    :param is_text: Spark passes on only the text of errors, so the attributes are added as a note.
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
    """As :func:`short`, for a *function* that Spark calls, which passes on only the text of errors."""
    return short(function, is_text=True)


def cause_of(error: BaseException) -> KafkaError | None:
    """The error of kafkalite that made Spark raise *error* (:mod:`kafka_sink.errors`); None for any other error.

    ``df.write`` and ``StreamingQuery`` raise errors of Spark, which contain that error only as text. The result has its
    class, its text and its attributes: ``topic``, ``partition``, ``option``, ``column`` and, from a broker's response,
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
        # The text also contains the traces of errors that it caused, and of errors that Spark repeats.
        with suppress(ValueError, TypeError, KeyError):
            if attributes is not None:
                return error_of(kind, sentence, parsed_json(attributes))
    return error_of(*matches[-1][:2]) if matches else None
