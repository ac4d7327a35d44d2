"""Writers of dates and timestamps: ``2026-01-31`` and ``2026-01-31T12:00:00.000+01:00``. Called on the task's thread.

The periods in which a time zone has one offset from UTC are computed once per process, from Python's database.

Source: https://docs.python.org/3/library/zoneinfo.html;
apache/spark ``JSONOptions.scala`` (dateFormat, timestampFormat and timestampNTZFormat in write).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache, lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from kafka_sink.columns.binary_column import BinaryColumn, Bools, Int64s
from kafka_sink.columns.gather import Piece, UInt64s, WordField, column_pieces, constant_field, constant_fields
from kafka_sink.common.text import words
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.fields import PER_SECOND, Absent, numbers
from kafka_sink.formats.json.writers import Token, in_quotes
from kafka_sink.formats.payloads import Check, refuse_moments

_FIXED: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")
#: The short names of Java, which Spark accepts and Python's database lacks (``java.time.ZoneId.SHORT_IDS`` of Java 17;
#: EST, MST and HST are in it as fixed offsets).
_SHORT_NAMES: Final = dict(
    pair.split("=")
    for pair in words("""
        ACT=Australia/Darwin AET=Australia/Sydney AGT=America/Argentina/Buenos_Aires ART=Africa/Cairo
        AST=America/Anchorage BET=America/Sao_Paulo BST=Asia/Dhaka CAT=Africa/Harare CNT=America/St_Johns
        CST=America/Chicago CTT=Asia/Shanghai EAT=Africa/Addis_Ababa ECT=Europe/Paris EST=-05:00 HST=-10:00
        IET=America/Indiana/Indianapolis IST=Asia/Kolkata JST=Asia/Tokyo MIT=Pacific/Apia MST=-07:00 NET=Asia/Yerevan
        NST=Pacific/Auckland PLT=Asia/Karachi PNT=America/Phoenix PRT=America/Puerto_Rico PST=America/Los_Angeles
        SST=Pacific/Guadalcanal VST=Asia/Ho_Chi_Minh
    """)
)
_DAY_S: Final = 86_400
#: The calendar and the rules of zones repeat themselves after 400 years.
_CYCLE_S: Final = 146_097 * _DAY_S
_FIRST_YEAR: Final = 1800
#: From this year on only the current rules of a zone apply.
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
    """The zone with Spark's name *name*. :raises FormatError: if it is unknown; the text names the column."""
    if name in ("Z", "UTC"):
        return UTC
    zone = _SHORT_NAMES.get(name, name)
    fixed = _FIXED.fullmatch(zone)
    try:
        if fixed:
            hours, minutes, seconds = (int(part or 0) for part in fixed.groups()[1:])
            offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
            return timezone(-offset if fixed[1] == "-" else offset)
        return ZoneInfo(zone)
    except (ValueError, OSError, LookupError):
        raise FormatError(
            f"column '{column}' has times in the session's time zone {name!r}, which Python does not know; set "
            "spark.sql.session.timeZone to one such as Europe/Paris or UTC, or install the package tzdata"
        ) from None


def periods_at(zone: tzinfo, seconds: Int64s) -> tuple[Periods, Int64s]:
    """The periods of *zone*, and which of them each of *seconds* (since 1970, at least one) is in."""
    first, last = _second_of(_FIRST_YEAR), _second_of(_LAST_KNOWN_YEAR + 1) + _CYCLE_S - 1
    within = np.maximum(seconds, first)
    if int(within.max()) > last:
        within = np.where(within > last, within - (within - last + _CYCLE_S - 1) // _CYCLE_S * _CYCLE_S, within)
    low, high = (
        (datetime(1970, 1, 1) + timedelta(seconds=int(bound))).year // _YEARS_AT_ONCE * _YEARS_AT_ONCE
        for bound in (within.min(), within.max())
    )
    periods = _periods(zone, low, high + _YEARS_AT_ONCE)
    if len(periods.starts) == 1:
        return periods, np.zeros(len(seconds), np.int64)
    return periods, np.searchsorted(periods.starts, within, side="right") - 1


@lru_cache(maxsize=64)
def _periods(zone: tzinfo, first_year: int, end_year: int) -> Periods:
    """The periods from the begin of one year to that of another."""
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
    """The first second with the offset at *after*."""
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
    """The text of an offset: with seconds if there are any; ``Z`` for 0."""
    if offset == 0:
        return b"Z"
    minutes, seconds = divmod(abs(offset), 60)
    text = b"%c%02d:%02d" % (b"-" if offset < 0 else b"+", minutes // 60, minutes % 60)
    return text + b":%02d" % seconds if seconds else text


def _second_of(year: int) -> int:
    return int((datetime(year, 1, 1) - datetime(1970, 1, 1)) // timedelta(seconds=1))


_LAST_SHORT_YEAR: Final = 9999
#: Days since 1970: of the years 1 and 9999, and 1582-10-04 and 1582-10-15, which follow each other in Java's calendar.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_LAST_JULIAN, _FIRST_GREGORIAN = -141_438, -141_427
#: Zones whose rules from 2037 on ``java.util.TimeZone`` lacks.
_OTHER_RULES: Final = frozenset({"Africa/Casablanca", "Africa/El_Aaiun", "Africa/Windhoek", "Asia/Gaza", "Asia/Hebron"})


@dataclass(frozen=True, slots=True)
class DateWriter:
    """A date in quotes."""

    def tokens(self, array: pa.Array, absent: Absent) -> Sequence[Token]:
        if not len(array):
            return []
        return in_quotes(_date_fields(numbers(array, np.int32).astype(np.int64)), absent)


@dataclass(frozen=True, slots=True)
class TimeWriter:
    """A time of day in quotes, *per_second* units of it in a second, with as many digits of microseconds as it has."""

    per_second: int

    def tokens(self, array: pa.Array, absent: Absent) -> Sequence[Token]:
        values = numbers(array, np.int32 if pa.types.is_time32(array.type) else np.int64).astype(np.int64)
        seconds = values // self.per_second
        micros = (values - seconds * self.per_second) * 10**6 // self.per_second
        digits = np.where(micros == 0, 0, 7 - sum((micros % 10**zeros == 0).astype(np.int64) for zeros in range(1, 6)))
        three = _digit_words(1000, 3)
        word = np.uint64(ord(".")) | three.take(micros // 1000) << np.uint64(8)
        word |= three.take(micros % 1000) << np.uint64(32)
        sizes = digits.astype(np.uint64)
        fraction = WordField(word & ((np.uint64(1) << np.uint64(8) * sizes) - np.uint64(1)), sizes, 0, 7)
        return in_quotes([WordField(_clock_words().take(seconds, mode="clip"), 8, 8, 8), fraction], absent)


@dataclass(frozen=True, slots=True)
class TimestampWriter:
    """A moment in quotes, *per_second* units of it in a second, in milliseconds; with the offset of *zone*, or without
    one if it is None."""

    per_second: int
    zone: tzinfo | None

    def tokens(self, array: pa.Array, absent: Absent) -> Sequence[Token]:
        if not len(array):
            return []
        values: Int64s = numbers(array, np.int64)
        seconds = values // self.per_second
        millis = (values - seconds * self.per_second) * 1000 // self.per_second
        offset: list[Piece] = []
        if self.zone is not None:
            periods, which = periods_at(self.zone, seconds)
            seconds = seconds + periods.offsets[which]
            offset = _offset_pieces(periods, which)
        days = seconds // _DAY_S
        pieces = [
            *_date_fields(days),
            constant_field(b"T"),
            WordField(_clock_words().take(seconds - days * _DAY_S), 8, 8, 8),
            WordField(_milli_words().take(millis), 4, 4, 4),
            *offset,
        ]
        return in_quotes(pieces, absent)


def check_of_legacy_texts(kind: pa.DataType, path: str) -> Check | None:
    """Refuses the dates and timestamps of a column that Spark writes differently with ``timeParserPolicy=LEGACY``: by
    the Julian calendar, with years of five digits and no sign, and with the offsets of ``java.util.TimeZone``, which
    has none before 1900 and none with seconds.

    :raises FormatError: if Python does not know the zone.
    """
    if pa.types.is_date32(kind):
        return lambda array, absent: _refuse_legacy(
            numbers(array, np.int32).astype(np.int64), False, absent, array, path
        )
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        return None
    zone, per_second = known_zone(kind.tz, path), PER_SECOND[kind.unit]

    def check(array: pa.Array, absent: Absent) -> None:
        if not len(array):
            return
        seconds: Int64s = numbers(array, np.int64) // per_second
        periods, which = periods_at(zone, seconds)
        offsets = periods.offsets[which]
        others: Bools = (offsets % 60 != 0) | (str(zone) in _OTHER_RULES) & (seconds >= _second_of(_LAST_KNOWN_YEAR))
        if not isinstance(zone, timezone):
            others |= seconds < _second_of(1900)
        _refuse_legacy((seconds + offsets) // _DAY_S, others, absent, array, path)

    return check


def _refuse_legacy(days: Int64s, others: Bools | bool, absent: Absent, array: pa.Array, path: str) -> None:
    """Refuse rows whose *days* since 1970 are not in the years 1 to 9999, or are days that Java's calendar skips; and
    *others*."""
    wrong = (days < _FIRST_DAY) | (days > _LAST_DAY) | (days > _LAST_JULIAN) & (days < _FIRST_GREGORIAN) | others
    problem = (
        "for which spark.sql.legacy.timeParserPolicy=LEGACY has another text; set it to CORRECTED, or write the "
        "column as text"
    )
    refuse_moments(wrong, absent, array, path, problem)


def _offset_pieces(periods: Periods, which: Int64s) -> list[Piece]:
    if len(periods.texts) == 1:
        return list(constant_fields(periods.texts[0].as_py()))
    return column_pieces(BinaryColumn.from_arrow(periods.texts).take(which))


def _date_fields(days: Int64s) -> list[WordField]:
    """The year, and month and day, of *days* since 1970, at least one."""
    first, last = int(days.min()), int(days.max())
    if last - first < len(days):
        # Each day that occurs is computed once.
        every = _date_fields_of(np.arange(first, last + 1))
        return [
            WordField(
                np.asarray(field.word).take(days - first),
                field.size if isinstance(field.size, int) else field.size.take(days - first),
                field.min_size,
                field.max_size,
            )
            for field in every
        ]
    return _date_fields_of(days)


def _date_fields_of(days: Int64s) -> list[WordField]:
    """See http://howardhinnant.github.io/date_algorithms.html#civil_from_days."""
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year_of_era = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    # Years begin in March here, so that the day that leap years add is the last.
    month_of_year = (5 * of_year + 2) // 153
    day = of_year - (153 * month_of_year + 2) // 5 + 1
    month = np.where(month_of_year < 10, month_of_year + 3, month_of_year - 9)
    year = year_of_era + era * 400 + (month <= 2)
    two = _digit_words(100, 2)
    dash = np.uint64(ord("-"))
    word = dash | two.take(month) << np.uint64(8) | dash << np.uint64(24) | two.take(day) << np.uint64(32)
    return [_year_field(year), WordField(word, 6, 6, 6)]


def _year_field(years: Int64s) -> WordField:
    """At least four digits; with a sign if there are more, or the year is negative."""
    if int(years.min()) >= 0 and int(years.max()) <= _LAST_SHORT_YEAR:
        return WordField(_digit_words(_LAST_SHORT_YEAR + 1, 4).take(years), 4, 4, 4)
    distinct, where = np.unique(years, return_inverse=True)
    texts = [
        f"{year:+05d}" if year > _LAST_SHORT_YEAR else f"{year:05d}" if year < 0 else f"{year:04d}"
        for year in distinct.tolist()
    ]
    sizes = np.array([len(text) for text in texts], np.uint64)
    words = np.array([int.from_bytes(text.encode(), "little") for text in texts], np.uint64)
    return WordField(words.take(where), sizes.take(where), int(sizes.min()), int(sizes.max()))


@cache
def _digit_words(count: int, digits: int) -> UInt64s:
    """The numbers below *count* as texts with *digits* digits, each as a little-endian word."""
    numbers_below = np.arange(count, dtype=np.uint64)
    words = np.zeros(count, np.uint64)
    for position in range(digits):
        digit = numbers_below // np.uint64(10 ** (digits - 1 - position)) % np.uint64(10) + np.uint64(ord("0"))
        words |= digit << np.uint64(8 * position)
    return words


@cache
def _clock_words() -> UInt64s:
    """Each second of a day as ``HH:MM:SS``."""
    second = np.arange(_DAY_S)
    two = _digit_words(100, 2)
    colon = np.uint64(ord(":"))
    words: UInt64s = (
        two.take(second // 3600)
        | colon << np.uint64(16)
        | two.take(second // 60 % 60) << np.uint64(24)
        | colon << np.uint64(40)
        | two.take(second % 60) << np.uint64(48)
    )
    return words


@cache
def _milli_words() -> UInt64s:
    """Each millisecond of a second as ``.000``."""
    words: UInt64s = np.uint64(ord(".")) | _digit_words(1000, 3) << np.uint64(8)
    return words
