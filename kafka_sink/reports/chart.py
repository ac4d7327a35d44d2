"""The writes of a stream over time, drawn as SVG: its rows per second, the time of each write with the percentiles of
the acknowledgements, and the lag behind the source.

Pure. Colours are classes, which the style sheet of the page defines, or :data:`STYLE` in a file of its own.

Source: https://www.w3.org/TR/SVG2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from kafka_sink.reports.writes import Write, with_before

_WIDTH: Final = 720
_PLOT: Final = 84
#: Above each plot its name, and below the last one the clock.
_HEAD: Final = 22
_FOOT: Final = 22
_TICKS: Final = 5
_LEAST_WIDTH: Final = 1.5
_DAY_MS: Final = 86_400_000

#: For a drawing outside of the pages.
STYLE: Final = """
svg.chart { font: 12px system-ui, sans-serif; background: #fff; color: #1d2327; }
.chart text { fill: currentColor; } .chart .soft { opacity: .65; }
.chart .axis { stroke: currentColor; opacity: .3; }
.chart .rate { fill: #1f8a70; } .chart .tasks { fill: #4a8fb5; } .chart .commit { fill: #d59a3a; }
.chart polyline { fill: none; stroke-width: 1.5; } .chart .p50 { stroke: #6a3fa0; } .chart .p99 { stroke: #b0367f; }
.chart .lag { stroke: #8a6d1f; } .chart .gap { fill: #b3261e; opacity: .18; }
.chart .failed { stroke: #b3261e; stroke-width: 2; } .chart .torn { fill: #b3261e; }
@media (prefers-color-scheme: dark) { svg.chart { background: #14181b; color: #dde3e7; } }
"""


class _Axis:
    """Turns times into places from left to right."""

    def __init__(self, first_ms: int, last_ms: int) -> None:
        self.first_ms = first_ms
        self.span_ms = max(last_ms - first_ms, 1)

    def x(self, time_ms: float) -> float:
        return min(max((time_ms - self.first_ms) / self.span_ms, 0), 1) * _WIDTH

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Places and clock times."""
        form = "%H:%M:%S" if self.span_ms < _DAY_MS else "%m-%d %H:%M"
        for number in range(_TICKS):
            share = number / (_TICKS - 1)
            moment = datetime.fromtimestamp((self.first_ms + share * self.span_ms) / 1000, UTC)
            yield share * _WIDTH, moment.strftime(form)


def chart_of(writes: Sequence[Write], *, style: str = "") -> str:
    """The drawing of those of *writes* whose time is known; empty if they are fewer than two.

    :param style: of a drawing that is a file of its own.
    """
    timed = [write for write in writes if write.timestamp_ms]
    if len(timed) < 2:
        return ""
    axis = _Axis(_began_ms(timed[0]), _ended_ms(timed[-1]))
    plots = [
        _plot("rows per second of the stream", _rates(timed), lambda top: _rate_bars(timed, axis, top)),
        _plot("ms of each write: tasks and commit; p50 and p99", _times(timed), lambda top: _bars(timed, axis, top)),
    ]
    if any(write.lag is not None for write in timed):
        lags = [write.lag or 0 for write in timed]
        plots.append(
            _plot(
                "rows behind the source",
                lags,
                lambda top: [_line("lag", timed, [write.lag for write in timed], axis, top)],
            )
        )
    marks = "".join(_marks(timed, axis))
    height = len(plots) * (_HEAD + _PLOT) + _FOOT
    body = "".join(
        f'<g transform="translate(0 {number * (_HEAD + _PLOT) + _HEAD})">{marks}{plot}</g>'
        for number, plot in enumerate(plots)
    )
    sheet = f"<style>{style}</style>" if style else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="The last {len(timed)} writes over time">{sheet}{body}{_clock(axis, height)}</svg>'
    )


def _plot(name: str, values: Iterable[float], draw: Callable[[float], Iterable[str]]) -> str:
    """A plot whose highest value is the highest of *values*."""
    top = max(values, default=0)
    return (
        f'<text x="0" y="-6">{escape(name)}</text><text class="soft" x="{_WIDTH}" y="-6" text-anchor="end">up to '
        f'{top:,.0f}</text>{"".join(draw(max(top, 1)))}<line class="axis" x1="0" y1="{_PLOT}" x2="{_WIDTH}" '
        f'y2="{_PLOT}"/>'
    )


def _rates(writes: Sequence[Write]) -> Iterator[float]:
    return (write.stream_rows_per_s(before) or 0 for write, before in with_before(writes))


def _times(writes: Sequence[Write]) -> Iterator[float]:
    return (max(write.elapsed_ms + write.commit_ms, write.ack_p99_ms or 0) for write in writes)


def _rate_bars(writes: Sequence[Write], axis: _Axis, top: float) -> Iterator[str]:
    for write, before in with_before(writes):
        rate = write.stream_rows_per_s(before)
        if rate is not None and before is not None and not write.missing_since(before):
            title = f"{_name(write)}: {rate:,.0f} rows/s of the stream, {write.rows_per_s:,} of the write"
            yield _rect("rate", axis.x(_ended_ms(before)), axis.x(_ended_ms(write)), 0, rate / top, title)


def _bars(writes: Sequence[Write], axis: _Axis, top: float) -> Iterator[str]:
    for write in writes:
        begin, end = axis.x(_began_ms(write)), axis.x(_ended_ms(write))
        bad = f", {write.bad_rows:,} bad rows" if write.bad_rows else ""
        title = f"{_name(write)}: tasks {write.elapsed_ms:,} ms, commit {write.commit_ms:,} ms{bad}"
        tasks, commit = write.elapsed_ms / top, write.commit_ms / top
        yield _rect("tasks", begin, end, 0, tasks, title) + _rect("commit", begin, end, tasks, commit, title)
    yield _line("p50", writes, [write.ack_p50_ms for write in writes], axis, top)
    yield _line("p99", writes, [write.ack_p99_ms for write in writes], axis, top)


def _line(name: str, writes: Sequence[Write], values: Sequence[int | None], axis: _Axis, top: float) -> str:
    places = " ".join(
        f"{axis.x(_ended_ms(write)):.1f},{_PLOT * (1 - value / top):.1f}"
        for write, value in zip(writes, values, strict=True)
        if value is not None
    )
    return f'<polyline class="{name}" points="{places}"/>'


def _marks(writes: Sequence[Write], axis: _Axis) -> Iterator[str]:
    """What is wrong, through all plots: gaps, failed and torn writes."""
    for write, before in with_before(writes):
        place = axis.x(_ended_ms(write))
        title = escape(f"{_name(write)}: {write.remark(before)}")
        if before is not None and write.missing_since(before):
            yield _rect("gap", axis.x(_ended_ms(before)), axis.x(_began_ms(write)), 0, 1, title)
        if write.is_failed:
            yield f'<line class="failed" x1="{place:.1f}" x2="{place:.1f}" y1="0" y2="{_PLOT}"><title>{title}</title>'
            yield "</line>"
        elif write.is_torn:
            yield f'<circle class="torn" cx="{place:.1f}" cy="5" r="4"><title>{title}</title></circle>'


def _rect(name: str, begin: float, end: float, low: float, share: float, title: str) -> str:
    width = max(end - begin, _LEAST_WIDTH)
    return (
        f'<rect class="{name}" x="{min(begin, _WIDTH - width):.1f}" y="{_PLOT * (1 - low - share):.1f}" '
        f'width="{width:.1f}" height="{_PLOT * share:.1f}"><title>{title}</title></rect>'
    )


def _clock(axis: _Axis, height: int) -> str:
    anchors = ("start", *["middle"] * (_TICKS - 2), "end")
    return "".join(
        f'<text class="soft" x="{x:.0f}" y="{height - 6}" text-anchor="{anchor}">{text}</text>'
        for (x, text), anchor in zip(axis.ticks(), anchors, strict=True)
    )


def _name(write: Write) -> str:
    return "write" if write.batch < 0 else f"batch {write.batch}"


def _ended_ms(write: Write) -> int:
    return write.timestamp_ms or 0


def _began_ms(write: Write) -> int:
    return _ended_ms(write) - write.elapsed_ms - write.commit_ms
