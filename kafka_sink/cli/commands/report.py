"""``kafkalite report``: shows the file of the option reportPath as a chart of its last writes.

Runs on the main thread. It reads one file, of which it keeps the shown lines only, and connects to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Final

import click
from rich.bar import Bar
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kafka_sink.cli import output
from kafka_sink.common.write_history import Write, read_writes

_BAR_COLUMNS: Final = 16
_WIDTH: Final = 120
_SUFFIXES: Final = (".svg", ".html")
_BAD: Final = "bold red"


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--last", type=click.IntRange(min=1), default=30, show_default=True, help="Show this many writes.")
@click.option(
    "--output",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the chart to this file, as SVG or HTML by its suffix.",
)
def report(file: Path, last: int, target: Path | None) -> None:
    """Show the last writes in FILE, the option reportPath of a write or a stream.

    Rows per second are those of the tasks and the commit together. Bad rows are dead letters, or were dropped. A gap in
    the numbers of micro-batches is shown: these batches are not in the file, because they were skipped or the file was
    replaced.
    """
    if target is not None and target.suffix not in _SUFFIXES:
        raise click.UsageError(f"--output {target}: expected a name that ends with {' or '.join(_SUFFIXES)}.")
    try:
        count, writes = read_writes(file, last)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    if not writes:
        raise click.ClickException(f"{file} is empty: no write with this reportPath has been committed yet.")
    table = _table(writes)
    table.title = f"{file.name}: the last {len(writes)} of {count} writes (ms; p50, p99: until rows were acknowledged)"
    output.print_rich(table)
    if target is not None:
        _save(table, target)
        click.echo(f"wrote {target}", err=True)


def _table(writes: Sequence[Write]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title_justify="left")
    for column in ("batch", "rows", "bad", "rows/s", "", "tasks", "commit", "p50", "p99"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    most = max(*(write.rows_per_s for write in writes), 1)
    before: int | None = None
    for write in writes:
        table.add_row(
            _shown(write.number),
            f"{write.rows:,}",
            Text(f"{write.bad_rows:,}", _BAD if write.bad_rows else ""),
            f"{write.rows_per_s:,}",
            Bar(most, 0, write.rows_per_s, width=_BAR_COLUMNS),
            f"{write.elapsed_ms:,}",
            f"{write.commit_ms:,}",
            _shown(write.ack_p50_ms),
            _shown(write.ack_p99_ms),
            write.remark(before),
        )
        before = write.number
    return table


def _shown(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _save(table: Table, target: Path) -> None:
    console = Console(record=True, width=_WIDTH, file=StringIO(), highlight=False, markup=False)
    console.print(table)
    if target.suffix == ".svg":
        console.save_svg(str(target), title="kafkalite")
    else:
        console.save_html(str(target))
