"""Output for people: error lines, logs, tables and the help of commands that only have subcommands. For the format of
records see ``json_records``.

Called by the commands on the main thread. Only results are written to stdout, so that it can be piped; all other output
goes to stderr.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TextIO

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from kafka_sink.client.factory import NO_ADDRESS
from kafka_sink.common.clock import begin_again
from kafka_sink.common.errors import BrokersUnreachableError, ConfigError, KafkaError, UnknownTopicOrPartitionError
from kafka_sink.common.text import printable, without_controls

EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2
#: ``consume``: some records could not be decoded.
EXIT_NOT_SHOWN: Final = 3
EXIT_INTERRUPTED: Final = 130

_PACKAGE: Final = "kafka_sink"
# The error that a command reports contains the warnings of these packages, except those about options.
_TOLD_BY_THE_ERROR: Final = ("kafka_sink.client", "kafka_sink.network", "kafka_sink.producer")
_OF_OPTIONS: Final = ("kafka_sink.client.login", "kafka_sink.producer.config")
_LOG_FORMAT: Final = "%(asctime)s %(levelname)-7s %(message)s"
_DEBUG_LOG_FORMAT: Final = "%(asctime)s %(levelname)-7s %(threadName)s %(name)s: %(message)s"
#: Wide enough for any table: a pipe has no width, and names must not be truncated.
_PIPE_WIDTH: Final = 10_000


class _OneLine(logging.Formatter):
    """Formats a message as one line, even if it contains line feeds of clients, brokers or users; the lines of a
    traceback are indented, so that none looks like a message."""

    def format(self, record: logging.LogRecord) -> str:
        # Another handler may have formatted the traceback.
        record.exc_text = None
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        lines = super().formatException(ei).splitlines()
        return "\n".join(f"    {printable(line)}" for line in lines)


def configure_logging(debug: bool) -> None:
    """Log the package's warnings (with *debug*: all messages) to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine(_DEBUG_LOG_FORMAT if debug else _LOG_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger(_PACKAGE).setLevel(logging.DEBUG if debug else logging.WARNING)
    for name in (*_TOLD_BY_THE_ERROR, *_OF_OPTIONS):
        level = logging.WARNING if name in _OF_OPTIONS else logging.CRITICAL
        logging.getLogger(name).setLevel(logging.NOTSET if debug else level)


def show_progress() -> None:
    """Log informational messages in addition to warnings, for a long-running process."""
    if not is_debug():
        logging.getLogger(_PACKAGE).setLevel(logging.INFO)


def is_debug() -> bool:
    return logging.getLogger(_PACKAGE).isEnabledFor(logging.DEBUG)


def is_usage(error: Exception) -> bool:
    """Whether *error* is a usage error. An unresolvable host name is none, although it raises ConfigError: the cluster
    is unreachable."""
    return isinstance(error, ConfigError) and NO_ADDRESS not in str(error)


def explain(error: Exception) -> str:
    """One line with the error and its remedy."""
    text = str(error) or type(error).__name__
    if isinstance(error, BrokersUnreachableError):
        return f"{text}. Is the broker running? Give its address with --bootstrap-server HOST:PORT."
    if isinstance(error, UnknownTopicOrPartitionError):
        return f"{text}. Run 'kafkalite topics describe' to see the existing topics."
    if isinstance(error, OSError) and error.strerror and not isinstance(error, KafkaError):
        where = "" if error.filename is None else f"{error.filename}: "
        what_to_do = " Choose another --port, or 0 for a free one." if error.errno == errno.EADDRINUSE else ""
        return f"{where}{error.strerror}.{what_to_do}"
    if isinstance(error, KafkaError | OSError | click.ClickException):
        return text
    return f"unexpected {type(error).__name__}: {text}. Run 'kafkalite --debug …' to see where it comes from."


def error_line(text: str) -> None:
    click.echo("kafkalite: " + printable(" ".join(text.split())), err=True)


def discard_rest(stream: TextIO) -> None:
    """Discard the rest of *stream*, whose reader has closed the pipe (``… | head``): Python would fail at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _print(text: str, *, is_error: bool = False) -> None:
    """Print *text*. If the reader has closed the pipe, the command still completes, with its own exit code."""
    try:
        click.echo(text, err=is_error)
    except BrokenPipeError:
        discard_rest(sys.stderr if is_error else sys.stdout)


def line(text: str, *, is_error: bool = False) -> None:
    """Print *text*, which may contain texts of brokers, as one line."""
    _print(printable(text), is_error=is_error)
    begin_again()


def print_json(value: Any) -> None:
    _print(without_controls(json.dumps(value, indent=2, ensure_ascii=False)))


def show(as_json: bool, documents: Any, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print *documents* as JSON, or else *rows* as a table."""
    if as_json:
        print_json(documents)
    else:
        print_table(columns, rows)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print aligned *rows* under the names of the *columns*."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(printable(column), overflow="fold")
    for row in rows:
        table.add_row(*(printable(str(cell)) for cell in row))
    # If the reader has closed the pipe, rich would end the process.
    with suppress(SystemExit):
        table_console().print(table)


def table_console() -> Console:
    """A console that prints tables in the width of the terminal; without a terminal they have their own width."""
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console


#: For commands that delete or reset something.
yes_option: Final = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def ask(question: str, *, yes: bool) -> None:
    """:raises Abort: if the answer is not yes."""
    if yes:
        return
    try:
        click.confirm(printable(question), abort=True, err=True)
        begin_again()
    except click.Abort:
        line("nothing was changed; --yes answers the question", is_error=True)
        raise


class CommandGroup(click.Group):
    """Without a subcommand its help is a usage error, on stderr with exit code 2, in every version of click."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(click.UsageError.exit_code)
        return super().parse_args(ctx, args)
