"""The writes of a stream over time as a figure of Plotly: its rows per second, the time of each write with the
percentiles of the acknowledgements, and the lag behind the source.

Pure: a figure is a JSON object, which plotly.js draws in the browser.

Source: https://plotly.com/javascript/reference; colours that differ for the colour-blind: Okabe and Ito, Color
Universal Design, https://jfly.uni-koeln.de/color.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from statistics import median
from typing import Any, Final

from kafka_sink.reports.writes import InStream, SinkProgress, with_before

#: The gap between two plots, as a part of the height.
_GAP: Final = 0.1
#: The minimum width of a write, and the distance of the writes from the edges, as parts of the width.
_LEAST_WIDTH: Final = 1 / 300
_PADDING: Final = 1 / 50
#: Time without a write is folded if it is longer than this many usual writes; the length of one remains.
_IDLE_WRITES: Final = 20
_BLUE, _SKY, _ORANGE, _GREEN = "#0072b2", "#56b4e9", "#e69f00", "#009e73"
_VERMILION, _PURPLE, _GREY = "#d55e00", "#cc79a7", "#7f7f7f"
_FOLD: Final = {"color": _GREY, "width": 1, "dash": "dot"}
#: Configuration of plotly.js: the page determines the width, and no button sends data to a server.
CONFIG: Final = {"responsive": True, "displaylogo": False, "modeBarButtons": [["zoom2d", "pan2d", "resetScale2d"]]}


def chart_of(writes: Sequence[SinkProgress]) -> dict[str, Any] | None:
    """The figure of those of *writes* whose end is known: ``data`` and ``layout``; None if they are fewer than two."""
    timed = [write for write in writes if write.timestamp_ms]
    if len(timed) < 2:
        return None
    first_ms, last_ms = _began_ms(timed[0]), _ended_ms(timed[-1])
    folded = list(_idle(timed))
    span_ms = max(last_ms - first_ms - sum(end - begin for begin, end in folded), 1)
    pairs = with_before(timed)
    plots = [
        ("rows/s of the stream · clock in UTC", _rates(pairs, span_ms)),
        (
            "ms of each write",
            [
                _bars("tasks", _SKY, span_ms, [_bar(write, write.elapsed_ms) for write in timed]),
                _bars("commit", _ORANGE, span_ms, [_bar(write, write.commit_ms) for write in timed]),
                _line("p50 until acknowledged", _BLUE, timed, [write.ack_p50_ms for write in timed]),
                _line("p99 until acknowledged", _PURPLE, timed, [write.ack_p99_ms for write in timed]),
            ],
        ),
    ]
    if any(write.lag is not None for write in timed):
        plots.append(("rows behind the source", [_line("behind the source", _GREY, timed, [w.lag for w in timed])]))
    marks = list(_marks(pairs))
    data = [{**trace, "yaxis": _axis(at)} for at, (_, traces) in enumerate(plots, 1) for trace in traces]
    return {
        "data": data + [{**mark, "yaxis": "y"} for mark in marks],
        "layout": {
            "barmode": "stack",
            "height": 135 + 150 * len(plots),
            "margin": {"l": 10, "r": 10, "t": 30, "b": 65},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "hovermode": "closest",
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": _GREY, "activecolor": _BLUE},
            "legend": {"orientation": "h", "y": 0, "yref": "container", "traceorder": "normal"},
            # Folded time, through all plots.
            "shapes": [
                {"type": "line", "x0": begin, "x1": begin, "yref": "paper", "y0": 0, "y1": 1, "line": _FOLD}
                for begin, _ in folded
            ],
            "annotations": [_title(name, at, len(plots)) for at, (name, _) in enumerate(plots, 1)],
            "xaxis": {
                "type": "date",
                "tickangle": 0,
                "nticks": 5,
                "range": [first_ms - span_ms * _PADDING, last_ms + span_ms * _PADDING],
                "anchor": _axis(len(plots)),
                "gridcolor": "rgba(127,127,127,.25)",
                "rangebreaks": [{"bounds": list(bounds)} for bounds in folded],
            },
            **{f"yaxis{at if at > 1 else ''}": _plot(at, len(plots)) for at in range(1, len(plots) + 1)},
        },
    }


def _axis(at: int) -> str:
    return "y" if at == 1 else f"y{at}"


def _domain(at: int, count: int) -> tuple[float, float]:
    """The range of plot *at* of *count* (1 is the topmost), as parts of the height from the bottom."""
    height = (1 - _GAP * count) / count
    low = (count - at) * (height + _GAP)
    return low, low + height


def _plot(at: int, count: int) -> dict[str, Any]:
    return {
        "domain": list(_domain(at, count)),
        "automargin": True,
        "rangemode": "tozero",
        "nticks": 4,
        "gridcolor": "rgba(127,127,127,.25)",
    }


def _title(name: str, at: int, count: int) -> dict[str, Any]:
    corner = {"xref": "paper", "x": 0, "xanchor": "left", "yref": "paper", "y": _domain(at, count)[1]}
    return {"text": name, "showarrow": False, "yanchor": "bottom", **corner}


def _rates(pairs: Sequence[InStream], span_ms: int) -> list[dict[str, Any]]:
    bars = [
        (
            _ended_ms(pair.before),
            _ended_ms(pair.write),
            rate,
            f"{_name(pair.write)}: {rate:,.0f} rows/s of the stream, {pair.write.rows_per_s:,} of the write",
        )
        for pair in pairs
        if pair.before is not None and (rate := pair.rows_per_s) is not None and not pair.missing
    ]
    return [_bars("rows/s", _GREEN, span_ms, bars)]


def _bar(write: SinkProgress, height_ms: int) -> tuple[int, int, int, str]:
    bad = f", {write.bad_rows:,} bad rows" if write.bad_rows else ""
    text = f"{_name(write)}: tasks {write.elapsed_ms:,} ms, commit {write.commit_ms:,} ms{bad}"
    return _began_ms(write), _ended_ms(write), height_ms, text


def _bars(name: str, colour: str, span_ms: int, bars: Sequence[tuple[int, int, float, str]]) -> dict[str, Any]:
    """*bars*: begin and end in ms, height, hover text."""
    widths = [max(end - begin, span_ms * _LEAST_WIDTH) for begin, end, _, _ in bars]
    return {
        "type": "bar",
        "name": name,
        "marker": {"color": colour},
        "x": [end - width / 2 for (_, end, _, _), width in zip(bars, widths, strict=True)],
        "width": widths,
        "y": [height for _, _, height, _ in bars],
        "hovertext": [escape(text) for *_, text in bars],
        "hoverinfo": "text+x",
    }


def _line(name: str, colour: str, writes: Sequence[SinkProgress], values: Sequence[int | None]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "line": {"color": colour, "width": 1.5},
        "marker": {"size": 4},
        "connectgaps": True,
        "x": [_ended_ms(write) for write in writes],
        "y": list(values),
    }


def _marks(pairs: Sequence[InStream]) -> Iterator[dict[str, Any]]:
    """Marks of problems: failed and torn writes, and writes before which others are missing."""
    kinds = (
        ("failed", "x", [pair for pair in pairs if pair.write.is_failed]),
        ("torn", "diamond", [pair for pair in pairs if pair.write.is_torn]),
        ("missing", "triangle-left", [pair for pair in pairs if pair.missing]),
    )
    for name, symbol, marked in kinds:
        if marked:
            yield {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "marker": {"symbol": symbol, "size": 11, "color": _VERMILION},
                "x": [_ended_ms(pair.write) for pair in marked],
                "y": [0] * len(marked),
                "hovertext": [escape(f"{_name(pair.write)}: {pair.remark}") for pair in marked],
                "hoverinfo": "text+x",
                "cliponaxis": False,
            }


def _idle(writes: Sequence[SinkProgress]) -> Iterator[tuple[int, int]]:
    """The times between writes that are folded, in ms."""
    usual = max(round(median(_ended_ms(write) - _ended_ms(before) for before, write in pairwise(writes))), 1)
    for before, write in pairwise(writes):
        begin, end = _ended_ms(before), _began_ms(write)
        if end - begin > usual * _IDLE_WRITES:
            yield begin + usual, end


def _name(write: SinkProgress) -> str:
    return "write" if write.batch < 0 else f"batch {write.batch}"


def _ended_ms(write: SinkProgress) -> int:
    return write.timestamp_ms or 0


def _began_ms(write: SinkProgress) -> int:
    return _ended_ms(write) - write.elapsed_ms - write.commit_ms
