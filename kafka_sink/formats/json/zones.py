"""The offset of a time zone from UTC at many moments at once. Called on the task's thread.

The periods of a zone are found once per process, from Python's time-zone database.

Source: https://docs.python.org/3/library/zoneinfo.html.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from kafka_sink.columns.binary_column import Int64s
from kafka_sink.formats.errors import FormatError

_FIXED: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")
#: The short names of Java, which Spark takes and Python's database does not have (``java.time.ZoneId.SHORT_IDS`` of
#: Java 17; EST, MST and HST are there as fixed offsets).
_SHORT_NAMES: Final[Mapping[str, str]] = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "-05:00",
    "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "-07:00",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
_DAY_S: Final = 86_400
#: The calendar and the rules of zones repeat themselves after 400 years.
_CYCLE_S: Final = 146_097 * _DAY_S
_FIRST_YEAR: Final = 1800
#: From here on only rules apply that are known today.
_LAST_KNOWN_YEAR: Final = 2037
_YEARS_AT_ONCE: Final = 25


@dataclass(frozen=True)
class Periods:
    """From ``starts[i]`` (seconds since 1970) to the next start the offset is ``offsets[i]`` seconds, and its text
    ``texts[i]``."""

    starts: Int64s
    offsets: Int64s
    texts: pa.Array


def known_zone(name: str, column: str) -> tzinfo:
    """The zone that Spark calls *name*.

    :raises FormatError: if it is none; the text names the column.
    """
    if name in ("Z", "UTC"):
        return UTC
    known = _SHORT_NAMES.get(name, name)
    fixed = _FIXED.fullmatch(known)
    try:
        if fixed:
            hours, minutes, seconds = (int(part or 0) for part in fixed.groups()[1:])
            offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
            return timezone(-offset if fixed[1] == "-" else offset)
        return ZoneInfo(known)
    except (ValueError, OSError, LookupError):
        raise FormatError(
            f"column '{column}' has times in the session's time zone {name!r}, which Python does not know; set "
            "spark.sql.session.timeZone to one such as Europe/Paris or UTC, or install the package tzdata"
        ) from None


def periods_at(zone: tzinfo, seconds: Int64s) -> tuple[Periods, Int64s]:
    """The periods of *zone*, and which of them each of *seconds* (since 1970, at least one) is in."""
    first, last = _second_of(_FIRST_YEAR), _second_of(_LAST_KNOWN_YEAR + 1) + _CYCLE_S - 1
    known = np.maximum(seconds, first)
    if int(known.max()) > last:
        known = np.where(known > last, known - (known - last + _CYCLE_S - 1) // _CYCLE_S * _CYCLE_S, known)
    low, high = (_year_of(int(bound)) // _YEARS_AT_ONCE * _YEARS_AT_ONCE for bound in (known.min(), known.max()))
    periods = _periods(zone, low, high + _YEARS_AT_ONCE)
    if len(periods.starts) == 1:
        return periods, np.zeros(len(seconds), np.int64)
    return periods, np.searchsorted(periods.starts, known, side="right") - 1


@lru_cache(maxsize=64)
def _periods(zone: tzinfo, first_year: int, end_year: int) -> Periods:
    """Those from the begin of one year to that of another."""
    if isinstance(zone, timezone):
        starts = [_second_of(first_year)]
    else:
        days = range(_second_of(first_year), _second_of(end_year) + 1, _DAY_S)
        daily = [_offset(zone, day) for day in days]
        starts = [days[0]]
        starts += [
            _change(zone, days[index], days[index + 1])
            for index in range(len(days) - 1)
            if daily[index] != daily[index + 1]
        ]
    offsets = [_offset(zone, start) for start in starts]
    return Periods(
        np.array(starts, np.int64),
        np.array(offsets, np.int64),
        pa.array([_text(offset) for offset in offsets], pa.binary()),
    )


def _change(zone: tzinfo, before: int, after: int) -> int:
    """The first second with the offset that *after* has."""
    old = _offset(zone, before)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(zone, middle) == old:
            before = middle
        else:
            after = middle
    return after


def _offset(zone: tzinfo, second: int) -> int:
    offset = datetime.fromtimestamp(second, zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def _text(offset: int) -> bytes:
    """Seconds are shown if there are some, and a zero alone as ``Z``."""
    if offset == 0:
        return b"Z"
    minutes, seconds = divmod(abs(offset), 60)
    text = b"%c%02d:%02d" % (b"-" if offset < 0 else b"+", minutes // 60, minutes % 60)
    return text + b":%02d" % seconds if seconds else text


def _second_of(year: int) -> int:
    return int((datetime(year, 1, 1) - datetime(1970, 1, 1)) // timedelta(seconds=1))


def _year_of(second: int) -> int:
    return (datetime(1970, 1, 1) + timedelta(seconds=second)).year
