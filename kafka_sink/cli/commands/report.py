"""``kafkalite report``: shows the file of the option reportPath: the writes of a stream over time.

Runs on the main thread. It reads one file, keeps only the lines that it shows, and opens no connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Final

import click
from rich.bar import Bar
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from kafka_sink.cli import output
from kafka_sink.common.errors import RequirementError
from kafka_sink.common.files import replace_text
from kafka_sink.common.text import printable
from kafka_sink.reports.chart import CONFIG, chart_of
from kafka_sink.reports.writes import InStream, SinkProgress, read_writes, recent_rows_per_s, with_before

_BAR_COLUMNS: Final = 12
#: From this width on, in columns, bars are shown.
_WIDE: Final = 110
_REMARK_COLUMNS: Final = 10
_WIDTH: Final = 140
_SUFFIX: Final = ".html"
_BAD: Final = "bold red"


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--last", type=click.IntRange(min=1), default=30, show_default=True, help="Show this many writes.")
@click.option(
    "--output",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the table and a chart over time to this file NAME.html (needs kafkalite[ui]).",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array instead of the table.")
def report(file: Path, last: int, target: Path | None, as_json: bool) -> None:
    """Show the last writes in FILE, the option reportPath of a write or a stream.

    Rows per second are those of the stream (rows by the time since the end of the write before) and of the write (by
    the time of its tasks and its commit). Bad rows are dead letters, or were dropped. The command also shows failed and
    torn writes, and gaps in the numbers of micro-batches: they were skipped, or the file was replaced. The column
    behind has the rows of the source that were not yet read, if a progress_listener has added them.
    """
    if as_json and target is not None:
        raise click.UsageError("--json and --output exclude each other.")
    if target is not None and target.suffix != _SUFFIX:
        raise click.UsageError(f"--output {target}: expected a name that ends with {_SUFFIX}.")
    try:
        count, writes = read_writes(file, last)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    if not writes:
        raise click.ClickException(f"{file} is empty: no write with this reportPath has been committed yet.")
    if as_json:
        output.print_json([_document(pair) for pair in with_before(writes)])
        return
    console = output.table_console()
    table = _table(writes, with_bars=console.width >= _WIDE)
    rate = recent_rows_per_s(writes)
    speed = "" if rate is None else f"; {rate:,.0f} rows/s of the stream in its last minute"
    table.title = f"{file.name}: the last {len(writes)} of {count} writes (ms; p50, p99: until acknowledged){speed}"
    if target is not None:
        _save(table, writes, target)
    with suppress(SystemExit):
        console.print(table)
    if target is not None:
        click.echo(f"wrote {target}", err=True)


def _document(pair: InStream) -> dict[str, object]:
    """The row of the table for the write of *pair*; times in ms."""
    write = pair.write
    return {
        "end_ms": write.timestamp_ms,
        "batch": None if write.batch < 0 else write.batch,
        "decision": write.decision,
        "rows": write.rows,
        "bad_rows": write.bad_rows,
        "stream_rows_per_s": pair.rows_per_s,
        "write_rows_per_s": write.rows_per_s,
        "tasks_ms": write.elapsed_ms,
        "commit_ms": write.commit_ms,
        "ack_p50_ms": write.ack_p50_ms,
        "ack_p99_ms": write.ack_p99_ms,
        "behind": write.lag,
        "remark": pair.remark,
    }


def _table(writes: Sequence[SinkProgress], *, with_bars: bool) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, title_justify="left")
    pairs = with_before(writes)
    rates = [pair.rows_per_s for pair in pairs]
    most = max(*(rate or 0 for rate in rates), 1)
    columns: list[tuple[str, Sequence[RenderableType]]] = [
        ("end (UTC)", [_clock(write.timestamp_ms) for write in writes]),
        ("batch", [_shown(write.batch if write.batch >= 0 else None) for write in writes]),
        ("rows", [_shown(write.rows) for write in writes]),
        ("bad", [Text(_shown(write.bad_rows), _BAD if write.bad_rows else "") for write in writes]),
        ("rows/s\nstream", [_shown(rate) for rate in rates]),
        *([("", [Bar(most, 0, rate or 0, width=_BAR_COLUMNS) for rate in rates])] if with_bars else []),
        ("rows/s\nwrite", [_shown(write.rows_per_s) for write in writes]),
        ("tasks", [_shown(write.elapsed_ms) for write in writes]),
        ("commit", [_shown(write.commit_ms) for write in writes]),
        ("p50", [_shown(write.ack_p50_ms) for write in writes]),
        ("p99", [_shown(write.ack_p99_ms) for write in writes]),
    ]
    if any(write.lag is not None for write in writes):
        columns.append(("behind", [_shown(write.lag) for write in writes]))
    for name, _ in columns:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", overflow="fold", min_width=_REMARK_COLUMNS)
    remarks = [Text(printable(pair.remark), _BAD if pair.is_marked else "") for pair in pairs]
    for row in zip(*(cells for _, cells in columns), remarks, strict=True):
        table.add_row(*row)
    return table


def _clock(timestamp_ms: int | None) -> str:
    return "-" if timestamp_ms is None else f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%H:%M:%S}"


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _save(table: Table, writes: Sequence[SinkProgress], target: Path) -> None:
    """Write a page with the chart, if there is one, its script, and the table; the page loads no other resources.

    :raises RequirementError: if the packages of the extra are not installed.
    """
    console = Console(record=True, width=_WIDTH, file=StringIO(), highlight=False, markup=False, emoji=False)
    console.print(table)
    page, drawn = console.export_html(), ""
    if (figure := chart_of(writes)) is not None:
        try:
            from plotly.io import to_html
        except ModuleNotFoundError:
            text = "a chart needs the package plotly, which pip install 'kafkalite[ui]' installs"
            raise RequirementError(text) from None
        drawn = to_html(figure, config=CONFIG, full_html=False, include_plotlyjs=True, validate=False)
    replace_text(target, page.replace("<body>", f"<body>\n{drawn}", 1))
